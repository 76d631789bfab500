"""The public test kit: check a CRDT against a specification, run vector files, and test nodes in memory.

Parts that need Hypothesis (`pip install 'crdtcast[test]'`) are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

from crdtcast.testing.model_group import Call, Group, VisibleOperation

if TYPE_CHECKING:
    from crdtcast.testing.cluster import Cluster, open_cluster
    from crdtcast.testing.crdt_check import check_crdt, run_schedule
    from crdtcast.testing.disk import Crash, Disk
    from crdtcast.testing.journals import DiskJournal, check_journal
    from crdtcast.testing.network import Line, Network, eventually, simulated
    from crdtcast.testing.orders import EveryOrder, check_every_order
    from crdtcast.testing.schedules import Schedule, schedules, weighted

__all__ = [
    "Call",
    "Cluster",
    "Crash",
    "Disk",
    "DiskJournal",
    "EveryOrder",
    "Group",
    "Line",
    "Network",
    "Schedule",
    "VisibleOperation",
    "check_crdt",
    "check_every_order",
    "check_journal",
    "eventually",
    "open_cluster",
    "run_schedule",
    "schedules",
    "simulated",
    "weighted",
]

_LAZY = {
    "Cluster": "crdtcast.testing.cluster",
    "Crash": "crdtcast.testing.disk",
    "Disk": "crdtcast.testing.disk",
    "DiskJournal": "crdtcast.testing.journals",
    "check_journal": "crdtcast.testing.journals",
    "Line": "crdtcast.testing.network",
    "Network": "crdtcast.testing.network",
    "eventually": "crdtcast.testing.network",
    "open_cluster": "crdtcast.testing.cluster",
    "simulated": "crdtcast.testing.network",
    "Schedule": "crdtcast.testing.schedules",
    "schedules": "crdtcast.testing.schedules",
    "weighted": "crdtcast.testing.schedules",
    "EveryOrder": "crdtcast.testing.orders",
    "check_crdt": "crdtcast.testing.crdt_check",
    "check_every_order": "crdtcast.testing.orders",
    "run_schedule": "crdtcast.testing.crdt_check",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
