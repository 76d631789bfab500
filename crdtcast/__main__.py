"""`python -m crdtcast` and the `crdtcast` program.

Its rule: a missing package gives one clear line, never a traceback.
"""

import sys
from typing import NoReturn


def run() -> NoReturn:
    """Run the command line and exit: 0 success, 1 a check found something, 2 a usage or input
    error.
    """
    try:
        from crdtcast.cli import main
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("click", "rich"):
            raise
        sys.stderr.write(
            "crdtcast: the command line is not installed: pip install 'crdtcast[cli]'\n"
        )
        sys.exit(2)
    main(prog_name="crdtcast")
    sys.exit(0)


if __name__ == "__main__":
    run()
