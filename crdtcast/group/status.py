"""The state of one member as a value, the same for nodes, groups and gateways; `as_json` makes it JSON. Also the lines
in a member's log about others that join and leave.

Durations are seconds, sizes bytes, everything as of now.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from crdtcast.causality.member_id import name_of
from crdtcast.engine import Engine, GroupEngine, How, Standing
from crdtcast.engine.core import Core
from crdtcast.engine.known_deliveries import ahead
from crdtcast.engine.views import Proposal
from crdtcast.transport.monitor import Since, member_names
from crdtcast.transport.options import format_address
from crdtcast.transport.peers import LinkStatus

if TYPE_CHECKING:
    from crdtcast.fixed.node import Node
    from crdtcast.transport.channel import Channel
    from crdtcast.transport.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """One member, which may be this one.

    incarnation: None while no incarnation of that name is known.
    votes: it has a vote; one that has joined gets it a moment later.
    established: its join is stable at this member.
    unheard: it was admitted, and no message has come from it.
    evicting: it is to be removed, or was, and some of its messages that count have not arrived.
    reads: the lowest and highest format level that its program reads, by its last message; None where the members are
        fixed.
    """

    name: str
    incarnation: str | None
    witness: bool
    votes: bool
    established: bool
    unheard: bool
    evicting: bool
    linked: bool
    reads: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class SuspectStatus:
    """See `crdtcast.engine.failure_detector.Suspect`."""

    name: str
    level: float
    since: float
    silence: float


@dataclass(frozen=True, slots=True)
class HolderStatus:
    """A member that has not acknowledged a message for `since` seconds."""

    name: str
    incarnation: str | None
    since: float


@dataclass(frozen=True, slots=True)
class WaitingStatus:
    """Messages of one member that wait at this one for missing messages: their number and bytes."""

    name: str
    incarnation: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class BlameStatus:
    """A member has sent invalid messages, `times` often. text: the last error. None of them was applied."""

    name: str
    incarnation: str
    times: int
    text: str


@dataclass(frozen=True, slots=True)
class RepairStatus:
    """Totals of repair.

    repeated: messages sent again.
    duplicates: messages received again.
    digests_sent: digests sent.
    digests_received: digests received.
    asked: sent digests that ask for messages.
    """

    repeated: int
    duplicates: int
    digests_sent: int
    digests_received: int
    asked: int


@dataclass(frozen=True, slots=True)
class FormatStatus:
    """Format levels. With fixed members of gateways, both are the operator's.

    level: the level that may be used.
    agreed: the highest one that this member has promised to read.
    """

    level: int
    agreed: int


@dataclass(frozen=True, slots=True)
class ChangeStatus:
    """A change that the group is about to decide.

    by: the name of the member that asks for it.
    text: the change, in words.
    since: seconds for which this view has had an open change.
    waits_for: names of members that have not answered.
    """

    by: str
    text: str
    since: float
    waits_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WantStatus:
    """A change that this member asks for, by its operator's word or a policy.

    evict: names of members to evict.
    forced: those of them that may be evicted without a majority.
    leave: whether this member leaves.
    level: the format level to raise to.
    since: seconds for which it has wanted exactly this.
    waits_for: names of members that it waits for.
    """

    evict: tuple[str, ...]
    forced: tuple[str, ...]
    leave: bool
    level: int | None
    since: float
    waits_for: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """The members that decide on changes of the members.

    epoch, name: those of the view; members in the same view have the same name for it.
    voters, learners: names of members with and without a vote.
    """

    epoch: int
    name: str
    voters: tuple[str, ...]
    learners: tuple[str, ...]
    change: ChangeStatus | None
    wanted: WantStatus | None


@dataclass(frozen=True, slots=True)
class ComparisonStatus:
    """A gateway's comparison of its keys with those of other members.

    found, put_right: keys changed directly in a server, found and repaired since start.
    differing: keys that differ now.
    disputed: keys that are refused because nothing shows which copy is right.
    rounds: complete ones.
    since: seconds since the end of the last one.
    keys, left_out: keys compared in it, and left out of it.
    not_replicated: keys in its server that are not replicated, by type.
    """

    found: int
    put_right: int
    differing: int
    disputed: int
    rounds: int
    since: float | None
    keys: int
    left_out: int
    not_replicated: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdoptionStatus:
    """How far a founder has the index of deadlines of the database that it took over. The first join waits for it.

    keys: keys when it took over.
    passed: keys whose deadlines are in the index, at most.
    """

    keys: int
    passed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of one member; see also the classes of its fields.

    refused: connections that this process has refused, by reason.
    caught_up: no message waits at this member, and it has delivered all messages reported by members that are not
        suspects.
    store_bytes: unstable payloads in memory.
    spilled_bytes: unstable payloads on disk.
    held_bytes: both, plus the overhead of each message, and waiting messages.
    most_bytes: the limit of held_bytes, None without one.
    waiting: messages that wait for missing ones, by origin.
    blamed: members that have sent messages which no member may send.
    links: with all members of all groups of this process, all linked processes, and those being dialled; not with
        members that have ended.
    view: None where the members are fixed.
    stability_lag: age of the oldest message that is not stable at this member.
    vector: delivered messages, by incarnation.
    refused_writes: writes refused since the start, for any reason other than the operation itself.
    clock_drift_refused: timestamps of others that were too far ahead.
    journal: the journal's own report; None in memory.
    comparison: None except at gateways.
    adoption: None unless a gateway makes the index of a database that it took over.
    """

    node: str
    group: str
    incarnation: str
    standing: str
    address: str
    caught_up: bool
    format: FormatStatus | None
    view: ViewStatus | None
    members: tuple[MemberStatus, ...]
    suspects: tuple[SuspectStatus, ...]
    held_back_by: tuple[HolderStatus, ...]
    waiting: tuple[WaitingStatus, ...]
    blamed: tuple[BlameStatus, ...]
    links: Mapping[str, LinkStatus]
    refused: Mapping[str, int]
    sent: int
    delivered: int
    pending: int
    unstable: int
    stability_lag: float
    store_bytes: int
    spilled_bytes: int
    held_bytes: int
    most_bytes: int | None
    repair: RepairStatus
    vector: Mapping[str, int]
    refused_writes: int
    clock_drift_refused: int
    journal: Mapping[str, Any] | None
    comparison: ComparisonStatus | None = None
    adoption: AdoptionStatus | None = None


def status(
    runtime: "Node | Channel",
    *,
    refused_writes: int = 0,
    clock_drift_refused: int = 0,
    journal: Mapping[str, Any] | None = None,
    most_bytes: int | None = None,
    level: int | None = None,
    comparison: ComparisonStatus | None = None,
    adoption: AdoptionStatus | None = None,
) -> Status:
    """The status of the member of `runtime`. Looks at all members, and copies the vector.

    level: the operator's format level, where the members are fixed.
    """
    engine = runtime.driven()
    endpoint, group = _place(runtime)
    watching = endpoint.watching()
    held = watching.held(group)
    suspects = watching.suspects
    members = _members(engine, endpoint.status())
    names = {member.name for member in members}
    counters = engine.counters()
    return Status(
        node=runtime.name,
        group=group,
        incarnation=engine.me,
        standing=_standing(engine).value,
        address=format_address(endpoint.address) if endpoint.listening else "",
        caught_up=is_caught_up(engine, suspects),
        format=_format(engine, level),
        view=_view(engine, watching.since(group)),
        members=members,
        suspects=tuple(
            SuspectStatus(name, suspect.level, suspect.since, suspect.silence)
            for name, suspect in suspects.items()
            if name in names
        ),
        held_back_by=tuple(
            HolderStatus(name_of(who) or who, who if name_of(who) else None, since)
            for who, since in held.holders.items()
        ),
        waiting=tuple(
            WaitingStatus(name_of(who), who, held.messages, held.bytes)
            for who, held in sorted(engine.waiting.items())
        ),
        blamed=tuple(
            BlameStatus(name_of(who), who, blame.times, blame.text)
            for who, blame in sorted(engine.blamed.items())
        ),
        links=_links(endpoint),
        refused=endpoint.refusals(),
        sent=counters.sent,
        delivered=counters.delivered,
        pending=counters.pending,
        unstable=counters.unstable,
        stability_lag=held.lag,
        store_bytes=counters.store_bytes,
        spilled_bytes=engine.spilled_bytes,
        held_bytes=engine.held_bytes,
        most_bytes=most_bytes,
        repair=RepairStatus(
            repeated=counters.repairs,
            duplicates=counters.duplicates,
            digests_sent=counters.digests_out,
            digests_received=counters.digests_in,
            asked=counters.asks,
        ),
        vector=dict(engine.vector),
        refused_writes=refused_writes,
        clock_drift_refused=clock_drift_refused,
        journal=journal,
        comparison=comparison,
        adoption=adoption,
    )


def is_caught_up(engine: Core, suspects: Mapping[str, object]) -> bool:
    """See `Status.caught_up`. suspects: by name; they are not waited for."""
    if not _standing(engine).can_send:
        return False
    if engine.has_deliverable() or waiting(engine):
        return False
    return not lacking(engine, suspects)


def waiting(engine: Core) -> int:
    """How many messages wait at this member for others; without those of members that have sent invalid messages,
    because their missing messages may be made up.
    """
    held = engine.waiting
    lies = engine.blamed.keys() & held.keys()
    return engine.counters().pending - sum(held[who].messages for who in lies)


def lacking(engine: Core, suspects: Mapping[str, object]) -> list[str]:
    """Names of members whose messages are missing at this one. Not suspects; not victims, from which no more messages
    are accepted; not former lives of this member, which will send no more.
    """
    victims = engine.victims if isinstance(engine, GroupEngine) else frozenset()
    found = {name_of(who) or who for who in ahead(engine) - victims}
    return sorted(found - suspects.keys() - {name_of(engine.me)})


def as_json(value: Any) -> dict[str, Any]:
    """A status, or a similar value, in the form for `json`; fractions to the millisecond."""
    shown: dict[str, Any] = _shown(value)
    return shown


def _shown(value: Any) -> Any:
    # Operators ask often, and `dataclasses.asdict` copies each text and number by itself.
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is float:
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    if is_dataclass(kind):
        return {name: _shown(getattr(value, name)) for name in _names_of(kind)}
    return value


@cache
def _names_of(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _place(runtime: "Node | Channel") -> "tuple[Endpoint, str]":
    from crdtcast.transport.channel import Channel

    if isinstance(runtime, Channel):
        return runtime.shared, runtime.group
    return runtime, runtime.options.group


def _links(endpoint: "Endpoint") -> dict[str, LinkStatus]:
    links = endpoint.status()
    if not links:
        return links
    wanted = {name for engine in endpoint.engines().values() for name in member_names(engine)}
    wanted.update(peer.label for peer in endpoint.links().dialled)
    return {label: link for label, link in links.items() if label in wanted or link.state != "down"}


def _standing(engine: Core) -> Standing:
    return engine.standing if isinstance(engine, GroupEngine) else Standing.MEMBER


def _format(engine: Core, level: int | None) -> FormatStatus | None:
    if isinstance(engine, GroupEngine):
        return FormatStatus(engine.level, engine.agreed)
    return None if level is None else FormatStatus(level, level)


def _view(engine: Core, since: Since) -> ViewStatus | None:
    if not isinstance(engine, GroupEngine):
        return None
    view, members = engine.view, engine.members.keys()
    return ViewStatus(
        view.epoch,
        view.name,
        _names(view.voters),
        _names(members - view.voters),
        _change(engine, since.change),
        _want(engine, since.want),
    )


def _change(engine: GroupEngine, since: float) -> ChangeStatus | None:
    proposal = engine.open_change
    if proposal is None:
        return None
    by, waits_for = name_of(proposal.ballot.proposer), _names(engine.change_waits_for())
    return ChangeStatus(by, in_words(proposal), since, waits_for)


def _want(engine: GroupEngine, since: float) -> WantStatus | None:
    wants = engine.wants
    if not wants:
        return None
    return WantStatus(
        _names(wants.victims),
        _names(who for who, force in wants.victims.items() if force),
        wants.leaves,
        wants.level,
        since,
        _names(engine.waits_for()),
    )


def _names(incarnations: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(map(name_of, incarnations)))


def _members(engine: Core, links: Mapping[str, LinkStatus]) -> tuple[MemberStatus, ...]:
    def linked(incarnation: str) -> bool:
        link = links.get(name_of(incarnation))
        return link is not None and link.state == "up"

    if isinstance(engine, GroupEngine):
        established, victims, unheard = engine.established, engine.victims, engine.unheard
        return tuple(
            MemberStatus(
                name_of(me),
                me,
                member.witness,
                me in engine.view.voters,
                me in established,
                me in unheard,
                me in victims,
                linked(me),
                engine.span_of(me),
            )
            for me, member in sorted(engine.members.items())
        )
    assert isinstance(engine, Engine)
    current = engine.members
    return tuple(
        MemberStatus(
            name, current.get(name), False, True, name in current, False, False, linked(f"{name}.")
        )
        for name in engine.names
    )


_ENDED = {
    How.LEFT: "has left",
    How.EVICTED: "was evicted from",
    How.FORCED: "was evicted by force from",
}


def turnover(engine: GroupEngine, before: Collection[str], group: str) -> Iterator[str]:
    """A line for each other incarnation that has joined or ended since `before` were the members."""
    members = engine.members.keys() - {engine.me}
    others = set(before) - {engine.me}
    now = ", ".join(sorted(map(name_of, engine.members)))
    for incarnation in sorted(others - members):
        cut = engine.ended.get(incarnation)
        how = "is no longer a member of" if cut is None else _ENDED[cut.how]
        yield f"{incarnation} {how} group {group}; its members are {now}"
    for incarnation in sorted(members - others):
        yield f"{incarnation} has joined group {group}; its members are {now}"


def change_wanted(engine: GroupEngine) -> str:
    """The change that a member asks the group to decide, if this one has promised it, and it is about more than
    votes.
    """
    proposal = engine.open_change
    if proposal is None or not proposal.needs_all:
        return ""
    return f"{proposal.ballot.proposer} asks to {in_words(proposal)}"


def in_words(proposal: Proposal) -> str:
    """What a proposal would change, in words after "asks to"."""
    others = set(proposal.victims) - ({proposal.ballot.proposer} if proposal.leaves else set())
    replaced = sorted(map(name_of, others & set(proposal.word.replaced)))
    evicted = sorted(map(name_of, others - set(proposal.word.replaced)))
    what = []
    if evicted:
        what.append(f"evict {', '.join(evicted)}{' by force' if proposal.word.forced else ''}")
    if replaced:
        what.append(f"replace {', '.join(replaced)}")
    if proposal.leaves:
        what.append("leave")
    if proposal.level is not None:
        what.append(f"raise the format level to {proposal.level}")
    return " and to ".join(what) or "give votes to new members, or call off a change"
