"""Replicated objects in an asyncio program: `async with crdtcast.aio.open_replica(...)`.

The replica runs in Trio, as a guest of the running asyncio loop, in its thread: so a read sees no operation half
applied, and an operation takes no detour. uvloop works as well (docs/doors.md).
"""

from crdtcast.aio.open import open_replica
from crdtcast.aio.replica import Replica

__all__ = ["Replica", "open_replica"]
