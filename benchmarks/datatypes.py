"""Operations per second of the data types in one process: prepare, effect and, later, stability.

Every operation is prepared, takes effect with a tag of a group of three (made beforehand: tags are
the middleware's work), and is reported stable 200 operations later. All are run in turn, several
times; the best time of each counts, because a busy machine only ever adds.
Run: python -m benchmarks.datatypes [--json] [--only WORD]
"""

import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from crdtcast import datatypes as types
from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag

Call = Callable[[random.Random], tuple[Any, ...]]

LAG = 200
OPERATIONS = 20_000
ROUNDS = 5
SEED = 20231


def tags() -> Iterator[Tag]:
    counter = 0
    while True:
        yield Tag(Dot("a", counter + 1), (), {"a": counter, "b": 5, "c": 7})
        counter += 1


class Run:
    """One object under load: goes on from round to round."""

    def __init__(self, crdt: types.PureOpCRDT[Any], call: Call):
        crdt.site = types.Site("a", HLC(lambda: time.time_ns() // 1_000_000))
        self.crdt = crdt
        self.call = call
        self.tags = tags()
        self.unstable: deque[Tag] = deque()
        self.random = random.Random(SEED)

    def apply(self, calls: list[tuple[Any, ...]]) -> float:
        crdt, unstable = self.crdt, self.unstable
        tagged = list(zip(calls, islice(self.tags, len(calls)), strict=True))
        started = time.process_time()
        for call, tag in tagged:
            crdt.effect(crdt.prepare(*call), tag)
            unstable.append(tag)
            if len(unstable) > LAG:
                crdt.stable(unstable.popleft())
        return time.process_time() - started

    def round(self) -> float:
        return self.apply([self.call(self.random) for _ in range(OPERATIONS)])


def set_of(size: int, crdt: type[types.PureOpCRDT[Any]] = types.AWSet) -> Run:
    removes = "remove" in crdt.OPERATIONS

    def call(source: random.Random) -> tuple[Any, ...]:
        name = "remove" if removes and source.random() < 0.4 else "add"
        return name, f"element-{source.randrange(size)}"

    run = Run(crdt(), call)
    run.apply([("add", f"element-{number}") for number in range(size)])
    return run


def map_of(size: int) -> Run:
    def call(source: random.Random) -> tuple[Any, ...]:
        name = f"key-{source.randrange(size)}"
        if source.random() < 0.1:
            return "remove", name, "counter_resettable"
        return "update", name, "counter_resettable", ["increment", 1]

    run = Run(types.AWMap(), call)
    run.apply(
        [
            ("update", f"key-{number}", "counter_resettable", ["increment", 1])
            for number in range(size)
        ]
    )
    return run


def counting(source: random.Random) -> tuple[Any, ...]:
    return "increment", source.randrange(1, 100)


def resetting(source: random.Random) -> tuple[Any, ...]:
    return ("reset",) if source.random() < 0.001 else counting(source)


def assigning(source: random.Random) -> tuple[Any, ...]:
    return "assign", source.randrange(100)


def switching(source: random.Random) -> tuple[Any, ...]:
    return (source.choice(["enable", "disable"]),)


def scoring(source: random.Random) -> tuple[Any, ...]:
    return "increment", f"member-{source.randrange(1000)}", source.randrange(100)


def typing_text() -> Run:
    crdt = types.SharedText()

    def call(source: random.Random) -> tuple[Any, ...]:
        # Calls are made before they are issued: an index beyond the end means the end.
        return "insert", source.randrange(1000), "x"

    return Run(crdt, call)


def all_runs() -> dict[str, Callable[[], Run]]:
    return {
        "set of 10": lambda: set_of(10),
        "set of 1,000": lambda: set_of(1_000),
        "set of 100,000": lambda: set_of(100_000),
        "grow-only set": lambda: set_of(1_000, types.GSet),
        "remove-wins set": lambda: set_of(1_000, types.RWSet),
        "two-phase set": lambda: set_of(1_000, types.TwoPhaseSet),
        "counter": lambda: Run(types.ResettableCounter(), resetting),
        "PN counter": lambda: Run(types.PNCounter(), counting),
        "bounded counter": lambda: Run(types.BoundedCounter(), counting),
        "number": lambda: Run(types.Number(), counting),
        "LWW register": lambda: Run(types.LWWRegister(), assigning),
        "MV register": lambda: Run(types.MVRegister(), assigning),
        "flag": lambda: Run(types.EWFlag(), switching),
        "map of 1,000": lambda: map_of(1_000),
        "scores of 1,000": lambda: Run(types.SortedMap(), scoring),
        "text": typing_text,
    }


def rates(only: str) -> dict[str, int]:
    runs = {name: make() for name, make in all_runs().items() if only in name}
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            best[name] = min(best[name], run.round())
    return {name: round(OPERATIONS / seconds) for name, seconds in best.items()}


def main() -> None:
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    measured = rates(only)
    report: dict[str, Any] = {"operations_per_second": measured}
    if "set of 10" in measured and "set of 100,000" in measured:
        ratio = measured["set of 10"] / measured["set of 100,000"]
        report["ratio_10_to_100000"] = round(ratio, 2)
    if "--json" in sys.argv:
        print(json.dumps(report))
        return
    for name, rate in measured.items():
        print(f"{name:>16} {rate:>10,} operations per second")
    if "ratio_10_to_100000" in report:
        print(f"an operation on 100,000 elements takes {ratio:.2f} times as long as on 10")


if __name__ == "__main__":
    main()
