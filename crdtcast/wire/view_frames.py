"""Members' records of views, and the frames with them, as plain lists: for the wire, and for journals.

Anything else is a `RemoteProtocolError`, since it may come from a peer.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from crdtcast.engine.operations import Cut, How, read_level
from crdtcast.engine.views import (
    Accepted,
    Asked,
    Ballot,
    Decided,
    Promise,
    Proposal,
    Record,
    View,
    ViewChange,
    Views,
    Wants,
    Word,
    packed_change,
)
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.wire.fields import FrameKind, read_incarnation, read_number, read_vector

T = TypeVar("T")

_HEX = frozenset("0123456789abcdef")
_HOWS = {int(how): how for how in How}
MOST_IDS = 65_536
"""Most incarnations in one list."""
MOST_RECORDS = 4096
"""Most records, decisions or questions in one frame."""


def views_fields(frame: Views) -> list[object]:
    """A frame as a list that begins with its kind."""
    return [
        int(FrameKind.VIEWS),
        frame.epoch,
        frame.name,
        dict(frame.has),
        [pack_record(record) for record in frame.records],
        [pack_decided(decided) for decided in frame.decided],
        [[each.asker, each.number, sorted(each.answered)] for each in frame.asks],
    ]


def read_views(fields: list[Any]) -> Views:
    """The inverse of `views_fields`."""
    try:
        _, epoch, name, has, records, decided, asks = fields
        return Views(
            _number(epoch),
            _name(name),
            read_vector(has),
            tuple(map(read_record, _listed(records, MOST_RECORDS))),
            tuple(map(read_decided, _listed(decided, MOST_RECORDS))),
            tuple(
                Asked(read_incarnation(asker), _number(number), frozenset(_ids(answered)))
                for asker, number, answered in _listed(asks, MOST_RECORDS)
            ),
        )
    except (TypeError, ValueError) as error:
        raise RemoteProtocolError(f"a frame of views of the wrong shape: {error}") from error


def pack_view(view: View) -> list[object]:
    """A view as a list."""
    return [view.epoch, view.name, sorted(view.voters), view.level]


def read_view(packed: Any) -> View:
    """The inverse of `pack_view`."""
    epoch, name, voters, level = packed
    return View(_number(epoch), _name(name), frozenset(_ids(voters)), read_level(level))


def pack_wants(wants: Wants) -> list[object]:
    """A member's wishes as a list."""
    return [dict(wants.victims), wants.leaves, wants.level]


def read_wants(packed: Any) -> Wants:
    """The inverse of `pack_wants`."""
    victims, leaves, level = packed
    if type(victims) is not dict or len(victims) > MOST_IDS:
        raise RemoteProtocolError(f"not a table of victims: {victims!r:.80}")
    asked = {read_incarnation(victim): read_flag(force) for victim, force in victims.items()}
    return Wants(asked, read_flag(leaves), _optional(level, read_level))


def pack_record(record: Record) -> list[object]:
    """A record as a list."""
    promise, accepted, proposal = record.promise, record.accepted, record.proposal
    return [
        record.member,
        record.serial,
        record.epoch,
        record.name,
        record.sent,
        list(record.promised),
        promise and [list(promise.ballot), dict(promise.delivered), list(promise.members)],
        accepted
        and [
            list(accepted.ballot),
            packed_change(accepted.change),
            _pack_word(accepted.word),
        ],
        proposal and _pack_proposal(proposal),
    ]


def read_record(packed: Any) -> Record:
    """The inverse of `pack_record`."""
    member, serial, epoch, name, sent, promised, promise, accepted, proposal = packed
    return Record(
        read_incarnation(member),
        _number(serial),
        _number(epoch),
        _name(name),
        _number(sent),
        _ballot(promised),
        _optional(promise, _promise),
        _optional(accepted, _accepted),
        _optional(proposal, _proposal),
    )


def pack_decided(decided: Decided) -> list[object]:
    """A decision as a list."""
    return [decided.epoch, decided.name, packed_change(decided.change), decided.forced]


def read_decided(packed: Any) -> Decided:
    """The inverse of `pack_decided`."""
    epoch, name, change, forced = packed
    return Decided(_number(epoch), _name(name), _change(change), read_flag(forced))


def _pack_proposal(proposal: Proposal) -> list[object]:
    change = None if proposal.change is None else packed_change(proposal.change)
    ballot, victims = list(proposal.ballot), list(proposal.victims)
    return [ballot, victims, proposal.level, proposal.leaves, _pack_word(proposal.word), change]


def _pack_word(word: Word) -> list[object]:
    return [list(word.replaced), list(word.forced)]


def _word(packed: Any) -> Word:
    replaced, forced = packed
    return Word(_ids(replaced), _ids(forced))


def _proposal(packed: Any) -> Proposal:
    ballot, victims, level, leaves, word, change = packed
    return Proposal(
        _ballot(ballot),
        _ids(victims),
        _optional(level, read_level),
        read_flag(leaves),
        _word(word),
        _optional(change, _change),
    )


def _promise(packed: Any) -> Promise:
    ballot, delivered, members = packed
    return Promise(_ballot(ballot), read_vector(delivered), _ids(members))


def _accepted(packed: Any) -> Accepted:
    ballot, change, word = packed
    return Accepted(_ballot(ballot), _change(change), _word(word))


def _change(packed: Any) -> ViewChange:
    cuts, out, votes, level = packed
    return ViewChange(
        tuple(
            (read_incarnation(who), Cut(_number(counter), read_how(how)))
            for who, counter, how in _listed(cuts, MOST_IDS)
        ),
        _ids(out),
        _ids(votes),
        _optional(level, read_level),
    )


def _ballot(packed: Any) -> Ballot:
    number, proposer = packed
    return Ballot(_number(number), "" if proposer == "" else read_incarnation(proposer))


def _optional(packed: Any, read: Callable[[Any], T]) -> T | None:
    return None if packed is None else read(packed)


def _listed(packed: Any, most: int) -> list[Any]:
    if type(packed) is not list or len(packed) > most:
        raise RemoteProtocolError(f"not a list of at most {most:,}: {packed!r:.80}")
    return packed


def _ids(packed: Any) -> tuple[str, ...]:
    return tuple(map(read_incarnation, _listed(packed, MOST_IDS)))


def _name(text: Any) -> str:
    if type(text) is str and len(text) <= 64 and _HEX.issuperset(text):
        return text
    raise RemoteProtocolError(f"not the name of a view: {text!r:.80}")


def read_how(how: Any) -> How:
    """How a member ended. Raises RemoteProtocolError if it is none of the known ways."""
    known = _HOWS.get(how) if type(how) is int else None
    if known is None:
        raise RemoteProtocolError(f"not a way in which a member ends: {how!r:.80}")
    return known


def read_flag(flag: Any) -> bool:
    """A boolean. Raises RemoteProtocolError if it is not one."""
    if type(flag) is bool:
        return flag
    raise RemoteProtocolError(f"not a boolean: {flag!r:.80}")


def _number(number: Any) -> int:
    return read_number(number, "a number of a view")
