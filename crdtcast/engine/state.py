"""What an engine can be saved as and restarted from, and the numbers it reports. Plain frozen values."""

import enum
from dataclasses import dataclass, field

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Vector


class Durability(enum.Enum):
    """When the state of an engine counts as durable, which is what its digests may report (docs/protocol.md).

    IMMEDIATE: the runtime holds the outbox back until everything that the engine knows is synced, or nothing survives
        the process anyway. Messages acknowledge, too.
    DECLARED: messages leave at once; digests never report more than was declared by `Engine.mark_durable`.
    A member's digests say which one is its own, so members of one group may differ.
    """

    IMMEDIATE = "immediate"
    DECLARED = "declared"


@dataclass(frozen=True, slots=True)
class EngineState:
    """All a restart needs: the rows of the other members are learned again by asking.

    `counter` is the number of own messages of the incarnation that saved it, `vector` what it had delivered with a
    key for every incarnation it had met, `context` its reduced context, `stable` what it had *reported* stable, and
    `unstable` the delivered messages beyond that, its own included, in delivery order.
    """

    counter: int = 0
    vector: Vector = field(default_factory=dict)
    context: tuple[Dot, ...] = ()
    stable: Vector = field(default_factory=dict)
    unstable: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """A snapshot of an engine's gauges (`pending`, `unstable`, `store_bytes`) and running totals (all others).

    `delivered` counts remote messages taken by `poll`, `sent` own ones, `stable` reported notices. `duplicates` are
    messages that were known already, `stale` packets of ended incarnations. `repairs` counts messages sent again,
    `digests_in` and `digests_out` digests, `asks` those of them that ask, and `held_digests` those that had to wait
    for messages sent before them (late adoption). `purged` counts undelivered messages of ended incarnations that
    were dropped, to be taken again from a member that has delivered them. `pending_bytes` is what waits, and
    `crowded_out` counts messages that were not kept, since too much of their origin waited already.

    Of a group whose members come and go: `joins` and `sweeps` delivered, `leaves` and `evictions` that have ended at
    this member, `ghosts` (notices to ended incarnations), and `views`, the epoch.
    """

    sent: int
    delivered: int
    stable: int
    pending: int
    unstable: int
    store_bytes: int
    duplicates: int
    stale: int
    repairs: int
    digests_in: int
    digests_out: int
    asks: int
    held_digests: int
    purged: int
    crowded_out: int = 0
    pending_bytes: int = 0
    superseded: int = 0
    joins: int = 0
    leaves: int = 0
    evictions: int = 0
    sweeps: int = 0
    ghosts: int = 0
    views: int = 0
