"""Replicated objects in a program without an event loop: `with crdtcast.sync.open_replica(...)`.

The replica runs in Trio, in a thread of its own. Any thread may use it: each call is worked on there between two
operations, so a read sees none half applied (docs/doors.md).
"""

from crdtcast.sync.handle import SyncHandle
from crdtcast.sync.open import open_replica
from crdtcast.sync.replica import Batch, Replica

__all__ = ["Batch", "Replica", "SyncHandle", "open_replica"]
