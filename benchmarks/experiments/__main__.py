"""The command line: what to run, how much of it, and where the tables and figures go.

`--quick` takes about a minute. Everything with 128 members takes some hours; `--resume` goes on where a run ended.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .cpu import CpuRow, compare
from .engines import ENGINES
from .runs import EXPERIMENTS, Plan, Row, carry_out, plans
from .tables import add_rows, read_rows

CPU = "cpu"
EXPERIMENT_FILE, CPU_FILE = "experiments.csv", "cpu.csv"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, write tables, draw. 1 if some run did not come to its end."""
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.resume and not options.draw:
        for name in (EXPERIMENT_FILE, CPU_FILE):
            (options.out / name).unlink(missing_ok=True)
    if not options.draw:
        _experiments(options)
        _cpu(options)
    rows = read_rows(options.out / EXPERIMENT_FILE, Row)
    if not options.no_figures:
        from .figures import draw_all  # whoever has no Matplotlib still gets tables

        for path in draw_all(rows, read_rows(options.out / CPU_FILE, CpuRow), options.out):
            print(path)
    unfinished = [row for row in rows if not row.complete]
    for row in unfinished:
        print(f"did not come to its end: {row}", file=sys.stderr)
    return 1 if unfinished else 0


def _experiments(options: argparse.Namespace) -> None:
    path = options.out / EXPERIMENT_FILE
    done = {_key(row) for row in read_rows(path, Row)}
    todo = plans(
        [name for name in options.experiment if name != CPU],
        options.members,
        messages=options.messages,
        engines=options.engines,
        tick_ms=options.tick,
        seed=options.seed,
    )
    todo = [plan for plan in todo if _key(plan) not in done]
    for row in add_rows(path, carry_out(todo, _tell)):
        print(
            f"{row.members:4} members, {row.engine:9}: {row.bytes_total:6.0f} bytes a delivery,"
            f" lag {row.lag_ms:.0f} ms, {row.delivery_us:.1f} us to a delivery",
            flush=True,
        )


def _key(what: Plan | Row) -> tuple[object, ...]:
    return (
        what.experiment,
        what.engine,
        what.stability,
        what.members,
        what.interval_ms,
        what.tick_ms,
        what.messages,
        what.seed,
    )


def _cpu(options: argparse.Namespace) -> None:
    if CPU not in options.experiment:
        return
    path = options.out / CPU_FILE
    done = {(row.members, row.our_tick_ms) for row in read_rows(path, CpuRow)}
    todo = [(members, tick) for members in options.members for tick in options.cpu_ticks]
    for members, tick in todo:
        if (members, tick) in done:
            continue
        rows = compare(
            members,
            options.engines,
            messages=options.cpu_messages or max(20, 4000 // members),
            rounds=options.rounds,
            tick_ms=tick,
            seed=options.seed,
            tell=_tell,
        )
        for row in add_rows(path, rows):
            print(
                f"{row.members:4} members, {row.engine:9}: {row.cpu_us:6.2f} us CPU a delivery,"
                f" {row.ratio:5.2f} times ours ({row.ratio_least:.2f} to {row.ratio_most:.2f}),"
                f" {row.packed_us:6.2f} us with packing ({row.packed_ratio:.2f} times ours),"
                f" lag {row.lag_ms:.0f} ms at a tick of {row.tick_ms:.0f} ms;"
                f" {row.bytes_per_delivery:.0f} bytes, {row.digest_bytes_per_delivery:.0f} of them"
                f" digests, {row.spelled_bytes_per_delivery:.0f} with ids spelled out;"
                f" load {row.load:.1f}",
                flush=True,
            )


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experiments", description=__doc__)
    names = [*EXPERIMENTS, CPU]
    parser.add_argument("--experiment", default=",".join(names), help=f"of {', '.join(names)}")
    parser.add_argument("--members", default="4,8,16,32,64,128", help="sizes of groups")
    parser.add_argument("--engines", default=",".join(ENGINES), help=f"of {', '.join(ENGINES)}")
    parser.add_argument("--messages", type=int, default=100, help="of each member")
    parser.add_argument("--tick", type=float, help="ms; by default the send interval, 100 or more")
    parser.add_argument("--rounds", type=int, default=15, help="of replays, to compare CPU")
    parser.add_argument("--cpu-messages", type=int, help="of each member (default: 4000 in all)")
    parser.add_argument("--cpu-ticks", default="100,400", help="ms, of ours, to compare CPU at")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="directory for tables and figures")
    parser.add_argument("--quick", action="store_true", help="4 and 16 members, 15 messages")
    parser.add_argument("--resume", action="store_true", help="keep the tables that are there")
    parser.add_argument("--draw", action="store_true", help="only draw the tables that are there")
    parser.add_argument("--no-figures", action="store_true", help="only tables")
    options = parser.parse_args(arguments)
    if options.quick:
        options.members, options.messages, options.cpu_messages = "4,16", 15, 40
        options.rounds = 5
    for option, known in (("experiment", names), ("engines", list(ENGINES))):
        chosen = getattr(options, option).split(",")
        if unknown := [name for name in chosen if name not in known]:
            parser.error(f"--{option}: {unknown[0]} is none of {', '.join(known)}")
        setattr(options, option, chosen)
    for option, example in (("members", "4,8,16"), ("cpu_ticks", "100,400")):
        given = getattr(options, option)
        try:
            setattr(options, option, [int(number) for number in given.split(",")])
        except ValueError:
            name = option.replace("_", "-")
            parser.error(f"--{name}: {given} is no list of numbers like {example}")
    return options


if __name__ == "__main__":
    sys.exit(main())
