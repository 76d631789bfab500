"""`python -m crdtcast.simulator` is `crdtcast simulate`."""

import sys

from crdtcast.simulator.cli import simulate


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign that the arguments (default: those of the command line) name. Returns the exit code."""
    try:
        simulate.main(arguments, prog_name="python -m crdtcast.simulator")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
