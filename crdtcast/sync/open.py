"""`crdtcast.sync.open_replica`: replicated objects in a program without an event loop."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Unpack

from crdtcast.causality.member_id import check_name, wall_clock_us
from crdtcast.datatypes import PureOpCRDT
from crdtcast.group.open import MemberOptions
from crdtcast.replica.open import open_replica as open_in_trio
from crdtcast.sync.replica import Replica
from crdtcast.sync.trio_thread import TrioThread


@contextmanager
def open_replica(
    name: str,
    *,
    types: Iterable[type[PureOpCRDT[Any]]] = (),
    clock_us: Callable[[], int] = wall_clock_us,
    **options: Unpack[MemberOptions],
) -> Iterator[Replica]:
    """A replica that runs while the `with` block runs, in a thread of its own. Any thread may use it.

    Options and errors are those of `crdtcast.open_replica`. An error of the running replica ends it: calls raise
    EndedError, caused by it, and the block's end raises it. Open it after a fork, in each worker process.
    """
    check_name("node", name)
    thread = TrioThread(open_in_trio(name, types=types, clock_us=clock_us, **options), name)
    replica = thread.open()
    try:
        yield Replica(replica, thread)
    finally:
        thread.close()
