"""`crdtcast node` with a wall clock that is wrong: `python -m crdtcast.chaos.child SKEW_MS JSON`, its settings."""

import json
import sys

import trio

from crdtcast.configuration import load
from crdtcast.exceptions import CrdtcastError
from crdtcast.fresh import wall_clock_ms
from crdtcast.jsonlog import log_to_stderr
from crdtcast.service.run import NodeProcess
from crdtcast.service.settings import NodeSettings


def main() -> int:
    """Its exit code."""
    skew = int(sys.argv[1])
    settings = load(NodeSettings, None, given=json.loads(sys.argv[2])).get()
    log_to_stderr(settings.name, settings.log_level, as_json=settings.log_json)
    wrong: list[BaseException] = []
    try:
        trio.run(NodeProcess(settings, clock_ms=lambda: wall_clock_ms() + skew).run)
    except* CrdtcastError as errors:
        wrong = list(errors.exceptions)
    for error in wrong:
        print(f"crdtcast: {error}", file=sys.stderr)
    return 2 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
