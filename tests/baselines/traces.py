"""The shrunk runs of published algorithms, for replays on our versions of those algorithms.

Those in tests/data/traces were handed to the project; those in tests/data/baselines were found by the driver here.
"""

import json
from dataclasses import dataclass
from pathlib import Path

_DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class TracedRun:
    """One run of a file: what was wrong in the engine (`flag`), what was done, what came of it."""

    name: str
    flag: str
    members: tuple[str, ...]
    actions: tuple[str, ...]
    kind: str

    def __str__(self) -> str:
        return f"{self.name}-{self.kind}"


def runs(prefix: str) -> list[TracedRun]:
    """The failing runs of all files whose names begin with `prefix`."""
    found = []
    for path in sorted([*_DATA.glob(f"traces/{prefix}*"), *_DATA.glob(f"baselines/{prefix}*")]):
        document = json.loads(path.read_text("utf-8"))
        for trace in document["traces"]:
            found.append(
                TracedRun(
                    path.stem,
                    document["flags"][0],
                    tuple(document["members"]),
                    tuple(trace["actions"]),
                    trace["kind"],
                )
            )
    assert found, f"no traces {prefix}* in {_DATA}"
    return found


def good_runs(prefix: str) -> list[TracedRun]:
    """The runs of all files whose names begin with `prefix`, which must not fail."""
    found = []
    for path in sorted(_DATA.glob(f"traces/{prefix}*")):
        document = json.loads(path.read_text("utf-8"))
        found.append(
            TracedRun(path.stem, "", tuple(document["members"]), tuple(document["actions"]), "good")
        )
    assert found, f"no traces {prefix}* in {_DATA}"
    return found
