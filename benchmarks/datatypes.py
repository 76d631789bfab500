"""Operations per second of the data types in one process: prepare, effect and, later, stability.

Every operation is prepared, gets a tag of a group of three, takes effect, and is reported stable
200 operations later. Sizes are run in turn, several times; the best time of each counts, because a
busy machine only ever adds. Run: python benchmarks/datatypes.py [--json]
"""

import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from crdtcast.datatypes import AWSet, PureOpCRDT, ResettableCounter
from crdtcast.tags import Dot, Tag

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

    def __init__(self, crdt: PureOpCRDT[Any], call: Callable[[random.Random], tuple[Any, ...]]):
        self.crdt = crdt
        self.call = call
        self.tags = tags()
        self.unstable: deque[Tag] = deque()
        self.random = random.Random(SEED)

    def apply(self, calls: list[tuple[Any, ...]]) -> float:
        crdt, unstable, new_tags = self.crdt, self.unstable, self.tags
        started = time.perf_counter()
        for call in calls:
            tag = next(new_tags)
            crdt.effect(crdt.prepare(*call), tag)
            unstable.append(tag)
            if len(unstable) > LAG:
                crdt.stable(unstable.popleft())
        return time.perf_counter() - started

    def round(self) -> float:
        return self.apply([self.call(self.random) for _ in range(OPERATIONS)])


def set_of(size: int) -> Run:
    def call(source: random.Random) -> tuple[Any, ...]:
        name = "add" if source.random() < 0.6 else "remove"
        return name, f"element-{source.randrange(size)}"

    run = Run(AWSet(), call)
    run.apply([("add", f"element-{number}") for number in range(size)])
    return run


def counter() -> Run:
    def call(source: random.Random) -> tuple[Any, ...]:
        if source.random() < 0.001:
            return ("reset",)
        return "increment", source.randrange(100)

    return Run(ResettableCounter(), call)


def main() -> None:
    runs = {f"set of {size:,}": set_of(size) for size in (10, 1_000, 100_000)}
    runs["counter"] = counter()
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for name, run in runs.items():
            best[name] = min(best[name], run.round())
    rates = {name: round(OPERATIONS / seconds) for name, seconds in best.items()}
    ratio = rates["set of 10"] / rates["set of 100,000"]
    if "--json" in sys.argv:
        print(json.dumps({"operations_per_second": rates, "ratio_10_to_100000": round(ratio, 2)}))
        return
    for name, rate in rates.items():
        print(f"{name:>15} {rate:>10,} operations per second")
    print(f"an operation on 100,000 elements takes {ratio:.2f} times as long as on 10")


if __name__ == "__main__":
    main()
