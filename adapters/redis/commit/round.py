"""One round of the committer: everything that goes to the server in one MULTI … EXEC, and the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING

from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.causality.messages import Delivery, Message
from crdtcast.causality.tags import Tag, Vector

if TYPE_CHECKING:
    from crdtcast.adapters.redis.clients.client import Request
    from crdtcast.adapters.redis.clients.transaction import Transaction
    from crdtcast.adapters.redis.commit.lookup import Looks
    from crdtcast.adapters.redis.deadlines.index import Due
    from crdtcast.adapters.redis.recorded.answer import Derived
    from crdtcast.adapters.redis.recorded.draws import Draws
    from crdtcast.adapters.redis.recorded.segments import Segments
    from crdtcast.adapters.redis.store.contents import Contents
    from crdtcast.adapters.redis.store.effects import EffectsEvent, RedisType
    from crdtcast.adapters.redis.store.keyspace import Keyspace


class Commit:
    """One round: its contents, from the moment it is gathered to the server's answer.

    Not a dataclass: creating that takes three times as long, once per commit.
    """

    transaction = has_large = together = False
    """transaction: whether it is a MULTI … EXEC.

    has_large: whether a request has very many arguments.
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
    bytes_before = 0
    """Bytes of unstable messages before these were collected."""
    issued: Sequence[Tag] = ()
    """The engine's own operations on the membership."""
    sent: Sequence[tuple[Tag, bytes, EffectsEvent]] = ()
    derived: Derived | None = None
    """What the commit before has recorded: this one stores it first."""
    segments: Segments | None = None
    """What the server executes by itself, after everything else."""
    number = 0
    """Its number among all commits to this server."""
    vector: Vector = {}  # noqa: RUF012  # read only, and of each commit that writes
    """All that is delivered and sent up to this commit. Only of one that writes."""
    order = 0
    """`StoredState.order` at this commit. Only of one that writes."""
    changes_group = False
    """Whether it stores a change of the members, of views, or of wishes."""
    repaired: frozenset[bytes] = frozenset()
    """Keys changed directly in the server that this commit repairs."""

    wrong: Set[int] = frozenset()
    """Positions of native commands whose reply was not the expected one."""
    before: Sequence[Tag] = ()
    """The last messages delivered before its deliveries; only where keys may expire."""
    unaware = 0
    """The first so many of `sent` come after `before` only: they have not seen the deliveries."""
    grace_ms: int | None = None
    """Set if it reports dropped keys: a deadline that another member set must have passed for so long."""
    due: Sequence[Due] = ()
    """Keys that the server has dropped at their deadlines."""
    draws: Draws | None = None
    """What its requests take at random; None if nothing."""
    has_more_due = False
    """Whether there may be more of them."""
    extended: Sequence[bytes] = ()
    """Keys that its only delivery reports as expired, and whose deadline this member may have extended."""

    # Fields of each commit. A docstring in `__init__` would cost an instruction for each commit.

    after: list[tuple[list[bytes], Callable[[object], None]]]
    """Own reads after the commit, and their callbacks (which get a ServerError if the connection is lost)."""
    requests: list[Request]
    transactions: list[Transaction]
    """The requests that are an EXEC."""
    deliveries: list[tuple[Delivery, EffectsEvent]]
    received: list[Message]
    """The messages of the deliveries."""
    stored: list[Message]
    """Messages of all members that it is the first to store, in the order of delivery or sending."""
    contents: dict[bytes, Contents]
    """Contents of the extended keys before it."""
    unknown: dict[bytes, None]
    """Keys whose types must be looked up first."""
    unknown_slots: dict[tuple[bytes, RedisType, bytes], None]
    """Slots that will be incremented and must be looked up first."""
    looks: list[tuple[bytes, Looks]]
    """Slots that the gateway's own operations must know."""

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
        """Look up a slot before it is incremented, if its value is not known."""
        if not keyspace.will_count(key, type_, slot):
            self.unknown_slots[key, type_, slot] = None

    @property
    def may_be_followed(self) -> bool:
        """Whether the next commit may be prepared before the answer to this one: whether the answer shows nothing that
        the next one may rest on, unless this one fails.
        """
        plan = self.plan
        return self.transaction and not (
            self.segments is not None
            or self.derived is not None
            or self.after
            or self.changes_group
            or self.repaired
            or self.is_flushed
            or plan.settling
            or plan.dated
        )

    @property
    def own(self) -> Sequence[tuple[Tag, bytes, EffectsEvent]]:
        """Own messages that it is the first to store."""
        return self.sent if self.derived is None else [*self.derived.sent, *self.sent]
