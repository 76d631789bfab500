"""`python -m crdtcast.simulator`: many seeds, or one schedule from a file. The last line says how it went.

Exit code 0 if every run was right, 1 if one failed (its shrunk schedule is printed, and written if asked), 2 for
options or a file that make no sense.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from crdtcast.exceptions import CrdtcastError
from crdtcast.simulator.campaign import Outcome, run_schedule, run_seeds
from crdtcast.simulator.campaigns import NAMES
from crdtcast.simulator.faults import ALL, Faults
from crdtcast.simulator.mutants import MUTANTS
from crdtcast.simulator.schedule import Schedule
from crdtcast.simulator.shrink import shrink

MAX_SHOWN = 5


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    try:
        seeds = range(int(first), int(last if colon else first) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST:LAST") from None
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text!r} holds no seed")
    return seeds


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m crdtcast.simulator", description=__doc__)
    parser.add_argument(
        "--seeds", type=_seeds, default=range(100), metavar="FIRST:LAST", help="both included"
    )
    parser.add_argument(
        "--members", type=int, default=3, choices=range(1, len(NAMES) + 1), metavar="N"
    )
    parser.add_argument(
        "--faults",
        default=",".join(ALL),
        help=f"any of {','.join(ALL)} (default: all); '' for none",
    )
    parser.add_argument("--engine", choices=sorted(MUTANTS), help="a broken engine, to be caught")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run this schedule instead")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write failing schedules here")
    parser.add_argument("--json", action="store_true", help="last line: one JSON object")
    return parser.parse_args(arguments)


def _report(outcome: Outcome, directory: Path | None) -> None:
    shrunk = shrink(outcome)
    text = shrunk.schedule.to_json(shrunk.failure)
    print(f"seed {outcome.schedule.seed}: {outcome.failure}\nshrunk: {shrunk.failure}\n{text}")
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{outcome.kind}-{outcome.schedule.seed}.json"
        path.write_text(text, encoding="utf-8")
        print(f"written to {path}; replay with --replay {path}")


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign that the arguments (default: the command line's) ask for; the exit code."""
    options = _arguments(arguments)
    outcomes: Iterable[Outcome]
    try:
        if options.replay is not None:
            outcomes = [run_schedule(Schedule.load(options.replay))]
        else:
            faults = Faults.named(name for name in options.faults.split(",") if name)
            outcomes = run_seeds(options.seeds, options.members, faults, engine=options.engine)
    except CrdtcastError as error:
        print(error, file=sys.stderr)
        return 2
    runs = failures = 0
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        runs += 1
        counts.update(outcome.counts)
        if outcome.kind is not None:
            failures += 1
            if failures <= MAX_SHOWN:
                _report(outcome, options.write)
        if runs % 500 == 0:
            print(f"{runs} runs, {failures} failures", file=sys.stderr)
    if options.json:
        print(json.dumps({"runs": runs, "failures": failures, **counts}))
    else:
        print(", ".join(f"{name} {n}" for name, n in counts.items()))
        print(f"{runs} runs, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
