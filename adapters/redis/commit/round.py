"""One round of the committer: all that goes to the server in one MULTI … EXEC, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING

from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.causality.messages import Delivery, Message
from crdtcast.causality.tags import Tag

if TYPE_CHECKING:
    from crdtcast.adapters.redis.clients.client import Request
    from crdtcast.adapters.redis.clients.transaction import Transaction
    from crdtcast.adapters.redis.commit.lookup import Looks
    from crdtcast.adapters.redis.deadlines.index import Due
    from crdtcast.adapters.redis.recorded.answer import Derived
    from crdtcast.adapters.redis.recorded.segments import Segments
    from crdtcast.adapters.redis.store.contents import Contents
    from crdtcast.adapters.redis.store.effects import EffectsEvent, RedisType
    from crdtcast.adapters.redis.store.keyspace import Keyspace


class Commit:
    """One round: what it carries, from the moment it is gathered to the server's answer.

    No dataclass: what that makes takes three times as long, and this is once per commit.
    """

    transaction = has_large = together = False
    """transaction: whether it is a MULTI … EXEC. has_large: whether one of the requests has very many arguments.
    together: whether all requests are writes of one key each, none of them large.
    """
    is_sent = False
    """Whether the server may have executed it."""
    is_flushed = False
    """Whether the last of its deliveries removes all keys."""
    may_hold_many = False
    """Whether one of the deliveries may add very many members to a set."""
    size = 0
    """Bytes of the clients' commands."""
    stable: Sequence[Tag] = ()
    issued: Sequence[Tag] = ()
    """The engine's own operations on the membership."""
    sent: Sequence[tuple[Tag, bytes, EffectsEvent]] = ()
    derived: Derived | None = None
    """What the commit before has recorded: it stores that before all else."""
    segments: Segments | None = None
    """What the server carries out by itself, behind all else."""
    number = 0
    """Among all commits to this server."""
    repaired: frozenset[bytes] = frozenset()
    """Keys that are put right, which somebody had changed past the gateway."""

    wrong: Set[int] = frozenset()
    """Positions of native commands whose reply was not the expected one."""
    before: Sequence[Tag] = ()
    """What all came after that was delivered before its deliveries; only where keys may expire."""
    unaware = 0
    """So many of `sent`, the first ones, come after that only: they have not seen the deliveries."""
    grace_ms: int | None = None
    """If it tells what the server has dropped: behind how long of others' deadlines."""
    due: Sequence[Due] = ()
    """What the server has dropped at its deadline."""
    has_more_due = False
    """Whether there may be more."""
    extended: Sequence[bytes] = ()
    """Keys that its one delivery tells to have expired, and this member may have extended."""

    # What each commit has of its own; said here, since what is said in `__init__` is an instruction of each.

    after: list[tuple[list[bytes], Callable[[object], None]]]
    """Our own reads behind the commit, and who gets their replies (a ServerError if they are lost)."""
    requests: list[Request]
    transactions: list[Transaction]
    """Those of the requests that are an EXEC."""
    deliveries: list[tuple[Delivery, EffectsEvent]]
    received: list[Message]
    """The messages of the deliveries."""
    stored: list[Message]
    """What it is the first to store, of anybody, in the order in which it was delivered or sent."""
    contents: dict[bytes, Contents]
    """What the extended keys are worth before it."""
    unknown: dict[bytes, None]
    """Keys whose types the server has to be asked for first."""
    unknown_slots: dict[tuple[bytes, RedisType, bytes], None]
    """Slots that are counted in, and of which it has to be asked what they hold."""
    looks: list[tuple[bytes, Looks]]
    """What the gateway's own operations have to know of slots."""

    def __init__(
        self, plan: Plan, after: list[tuple[list[bytes], Callable[[object], None]]]
    ) -> None:
        self.plan = plan
        self.after = after
        self.requests = []
        self.transactions = []
        self.deliveries = []
        self.received = []
        self.stored = []
        self.contents = {}
        self.unknown = {}
        self.unknown_slots = {}
        self.looks = []

    def will_count(self, keyspace: Keyspace, key: bytes, type_: RedisType, slot: bytes) -> None:
        """Have it looked up what a slot holds, if that is not known."""
        if not keyspace.will_count(key, type_, slot):
            self.unknown_slots[key, type_, slot] = None

    @property
    def own(self) -> Sequence[tuple[Tag, bytes, EffectsEvent]]:
        """All own messages that it is the first to store."""
        return self.sent if self.derived is None else [*self.derived.sent, *self.sent]
