"""The stages of a write through a gateway, by module and function: where its Python instructions go.

Each module of the package that runs for a write belongs to one stage; functions that do another stage's work are named
one by one. A module that is missing here is an error, so the stages always sum up to the count.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import crdtcast

_PACKAGE = Path(crdtcast.__file__).parent

OF_MODULE: Mapping[str, str] = {
    "adapters/redis/clients": "requests",
    "adapters/redis/server/parsing.py": "requests",
    "adapters/redis/commit/request_intake.py": "requests",
    "adapters/redis/commands": "plan",
    "adapters/redis/commit/batch.py": "plan",
    "adapters/redis/commit/plan.py": "plan",
    "adapters/redis/commit/reads.py": "plan",
    "adapters/redis/commit/refusals.py": "plan",
    "adapters/redis/deadlines": "plan",
    "adapters/redis/store": "plan",
    "adapters/redis/types": "plan",
    "adapters/redis/gateway.py": "commit",
    "adapters/redis/clock.py": "commit",
    "adapters/redis/commit": "commit",
    "adapters/redis/compare": "commit",
    "adapters/redis/recorded": "commit",
    "phases.py": "commit",
    "adapters/redis/store/metadata.py": "metadata",
    "adapters/redis/server": "server",
    "causality": "engine",
    "engine": "engine",
    "journal": "engine",
    "eventlog": "event log",
    "adapters/redis/ops": "event log",
    "adapters/redis/group": "links",
    "adapters/redis/transfer": "links",
    "fixed": "links",
    "group": "links",
    "transport": "links",
    "wire": "links",
    "service": "links",
}
"""Module or package below `crdtcast` -> stage; the longest name that fits counts."""
OF_FUNCTION: Mapping[tuple[str, str], str] = {
    ("adapters/redis/clients/client.py", "answer"): "replies",
    ("adapters/redis/clients/client.py", "flush"): "replies",
    ("adapters/redis/clients/listener.py", "flush"): "replies",
    ("adapters/redis/commit/committer.py", "_finish"): "replies",
    ("adapters/redis/commit/committer.py", "submit"): "requests",
    ("adapters/redis/commit/committer.py", "_add_metadata"): "metadata",
    ("adapters/redis/commit/committer.py", "_entries"): "metadata",
    ("adapters/redis/commit/plan.py", "metadata"): "metadata",
    ("adapters/redis/commit/committer.py", "_take_stable"): "stability",
    ("adapters/redis/store/unstable.py", "stabilise"): "stability",
    ("adapters/redis/store/unstable.py", "forget"): "stability",
    ("adapters/redis/store/unstable.py", "_drop"): "stability",
    ("adapters/redis/clock.py", "us"): "event log",
}
GENERATED = "generated"
"""Methods that the standard library has generated for the package's classes: they have no module."""
STAGES = (
    *("requests", "plan", "metadata", "commit", "server", "replies"),
    *("engine", "links", "stability", "event log", GENERATED),
)


def stage_of(file: str, function: str) -> str:
    """The stage of one of the package's own functions. Raises KeyError if its module has none."""
    if file == "<string>":
        return GENERATED
    place = Path(file).relative_to(_PACKAGE)
    known = OF_FUNCTION.get((place.as_posix(), function))
    if known is not None:
        return known
    for part in (place, *place.parents):
        if (stage := OF_MODULE.get(part.as_posix())) is not None:
            return stage
    raise KeyError(f"{place} belongs to no stage: name its stage in benchmarks/stages.py")


def by_stage(own: Mapping[tuple[str, str], int], writes: int) -> dict[str, float]:
    """Instructions for each write. own: those of the package's functions, by file and function."""
    counted: Counter[str] = Counter()
    for (file, function), count in own.items():
        counted[stage_of(file, function)] += count
    return {stage: counted[stage] / writes for stage in STAGES}
