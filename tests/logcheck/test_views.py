"""Views in logs of simulated runs: right as they are, and what is planted in them by hand is found and named."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from crdtcast.causality.member_id import base_of, joined_by
from crdtcast.causality.tags import Dot
from crdtcast.eventlog.check import Problem, check_logs
from crdtcast.eventlog.format import Event, EventKind, LoggedCut
from crdtcast.simulator.campaign import run_group_seed
from crdtcast.simulator.campaigns import CAMPAIGNS, campaign
from tests.effort import seeds, size
from tests.log_reader import LogReader
from tests.logcheck.event_logs import Logs, write_logs

Planted: TypeAlias = tuple[Problem, str, str] | None
"""What is to be found, at whom, and words of the sentence; None: nothing could be planted in this run."""

ACTS = (EventKind.SEND, EventKind.DELIVER, EventKind.STABLE)
HONEST = sorted(name for name, each in CAMPAIGNS.items() if not each.hostile)


@pytest.mark.parametrize("name", HONEST)
def test_logs_of_every_campaign_are_right(tmp_path: Path, name: str) -> None:
    for seed in seeds(4):
        logs = tmp_path / str(seed)
        outcome = run_group_seed(seed, campaign(name), range(3, 7), logs=logs)
        if outcome.failure is None:
            assert check_logs([logs]).violations == (), f"seed {seed}"


@cache
def run(name: str, seed: int) -> Logs:
    """The logs of one run."""
    with tempfile.TemporaryDirectory() as directory:
        outcome = run_group_seed(seed, campaign(name), range(3, 6), logs=Path(directory))
        assert outcome.failure is None
        logs: Logs = {}
        for event in LogReader(directory):
            if event.kind != EventKind.SEGMENT:
                logs.setdefault(event.incarnation, []).append(event)
        return logs


def runs() -> Iterator[Logs]:
    """Until something can be planted."""
    for seed in range(size(ci=18, release=40)):
        for name in ("join+leave", "two-evictions", "everything", "return"):
            yield {at: list(log) for at, log in run(name, seed).items()}


# Looking into logs


def lines(logs: Logs, *kinds: EventKind) -> Iterator[tuple[str, int, Event]]:
    for at, log in logs.items():
        for place, event in enumerate(log):
            if event.kind in kinds:
                yield at, place, event


def goes_on(logs: Logs, at: str) -> bool:
    """Whether it never tells of its own end."""
    ends = (e for e in logs[at] if e.kind in (EventKind.EVICT, EventKind.LEFT))
    return all(event.origin != at for event in ends)


def is_followed(logs: Logs, at: str, place: int, *kinds: EventKind) -> bool:
    """Whether a line of these kinds comes behind it, before a START or another line that tells of members."""
    for event in logs[at][place + 1 :]:
        if event.kind in kinds:
            return True
        if event.kind not in ACTS:
            return False
    return False


def delivered(logs: Logs, at: str, place: int) -> dict[str, int]:
    """What it has by that line."""
    have: dict[str, int] = {}
    for event in logs[at][:place]:
        if event.kind == EventKind.START:
            have = dict(event.vector or {})
        elif event.kind in (EventKind.SEND, EventKind.DELIVER):
            have[event.dot.origin] = event.dot.counter
    return have


def changed(logs: Logs, at: str, place: int, **columns: Any) -> None:
    logs[at][place] = replace(logs[at][place], **columns)


def told_everywhere(logs: Logs, view: Event, **columns: Any) -> None:
    """All logs tell that of the decision."""
    for at, place, event in list(lines(logs, EventKind.VIEW)):
        if event.view == view.view:
            changed(logs, at, place, **columns)


def inserted(logs: Logs, at: str, place: int, kind: EventKind, dot: Dot, **columns: Any) -> None:
    near = logs[at][place]
    fixed = {"version": 1, "group": near.group, "replica": near.replica, "incarnation": at}
    event = Event(
        **fixed,  # type: ignore[arg-type]
        seq=0,
        ts=near.ts,
        kind=kind,
        origin=dot.origin,
        counter=dot.counter,
        **columns,
    )
    logs[at].insert(place, event)


def shared(logs: Logs) -> Iterator[tuple[str, int, Event]]:
    """Decisions that several logs tell, each at somebody who goes on, and the last one there."""
    views = list(lines(logs, EventKind.VIEW))
    for at, place, event in views:
        tellers = {other for other, _, each in views if each.view == event.view}
        last = all(e.kind not in (EventKind.VIEW, EventKind.START) for e in logs[at][place + 1 :])
        if len(tellers) > 2 and last and goes_on(logs, at):
            yield at, place, event


# What may be planted


def another_view_of_one_epoch(logs: Logs) -> Planted:
    for at, place, event in shared(logs):
        changed(logs, at, place, view="0123456789abcdef")
        return Problem.VIEW, "", f"differ on epoch {event.epoch}: view "
    return None


def another_change_of_one_name(logs: Logs) -> Planted:
    for at, place, event in shared(logs):
        for cut in event.cuts or ():
            changed(logs, at, place, cuts=(cut._replace(counter=cut.counter + 1),))
            return Problem.VIEW, "", f"differ on the change that makes view {event.view}"
    return None


def chain_with_another_name_before(logs: Logs) -> Planted:
    for at, place, event in shared(logs):
        changed(logs, at, place, before="0123456789abcdef")
        return Problem.VIEW, at, f"logs that view {event.view}"
    return None


def chain_that_skips(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.VIEW):
        later = next(
            (e for e in logs[at][place + 1 :] if e.kind in (EventKind.VIEW, EventKind.START)), None
        )
        if later is not None and later.kind == EventKind.VIEW and not event.out:
            del logs[at][place]
            return Problem.VIEW, at, f"logs that view {later.view}"
    return None


def chain_that_repeats(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.VIEW):
        if event.votes:
            logs[at].insert(place, event)
            return Problem.VIEW, at, f"logs that view {event.view}"
    return None


def beyond_the_cut(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.EVICT, EventKind.LEFT):
        assert event.counter is not None and event.origin is not None
        more = any(
            e.dot == (event.origin, event.counter + 1) for _, _, e in lines(logs, EventKind.SEND)
        )
        if more and at != event.origin:
            beyond = Dot(event.origin, event.counter + 1)
            inserted(logs, at, place + 1, EventKind.DELIVER, beyond)
            return Problem.AFTER_END, at, f"delivers {beyond}, but only {event.counter} messages"
    return None


def cut_below_what_who_goes_on_has(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.EVICT, EventKind.LEFT):
        view = next((e for e in reversed(logs[at][:place]) if e.kind == EventKind.VIEW), None)
        cuts = () if view is None else view.cuts or ()
        cut = next((cut for cut in cuts if cut.origin == event.origin and cut.counter), None)
        if view is None or cut is None or event.origin == at or not goes_on(logs, at):
            continue
        if not is_followed(logs, at, place, *ACTS):
            continue
        lower = cut._replace(counter=cut.counter - 1)
        told_everywhere(logs, view, cuts=tuple(lower if c == cut else c for c in cuts))
        for other, there, each in list(lines(logs, EventKind.EVICT, EventKind.LEFT)):
            if each.dot == cut.dot:
                del logs[other][there]
        has = f"has delivered {cut.counter} messages of {cut.origin}, of which only {lower.counter} count"
        return Problem.AFTER_END, "", has
    return None


def cut_of_who_goes_on(logs: Logs) -> Planted:
    for at, _, event in shared(logs):
        if event.votes and (joiner := event.votes[0]) and not event.cuts:
            told_everywhere(logs, event, cuts=(LoggedCut(joiner, 0, "evicted"),))
            return (
                Problem.VIEW,
                at,
                f"says at {at} that {joiner} is evicted with 0 messages, but it goes on",
            )
    return None


def cut_that_rises(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.EVICT, EventKind.LEFT):
        later = next(
            (e for e in logs[at][place:] if e.kind in (EventKind.VIEW, EventKind.START)), None
        )
        if later is None or later.kind == EventKind.START or later.cuts or event.origin == at:
            continue
        assert event.counter is not None and event.origin is not None
        how = "left" if event.kind == EventKind.LEFT else "evicted"
        told_everywhere(logs, later, cuts=(LoggedCut(event.origin, event.counter + 1, how),))
        return Problem.VIEW, at, f"but it ended there with {event.counter}"
    return None


def goes_twice(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.EVICT, EventKind.LEFT):
        later = next(
            (e for e in logs[at][place:] if e.kind in (EventKind.VIEW, EventKind.START)), None
        )
        if later is None or later.kind == EventKind.START or later.out or event.origin == at:
            continue
        told_everywhere(logs, later, out=(event.origin,))
        return Problem.VIEW, at, f"removes {event.origin} at {at}, which had ended before"
    return None


def out_without_a_cut(logs: Logs) -> Planted:
    for at, _, event in shared(logs):
        if event.out:
            told_everywhere(logs, event, cuts=())
            return Problem.VIEW, at, f"removes {event.out[0]} at {at}, but gives no end"
    return None


def vote_counted_twice(logs: Logs) -> Planted:
    for at, place, event in shared(logs):
        start = next(e for e in reversed(logs[at][:place]) if e.kind == EventKind.START)
        stays = [x for x in start.voters or () if x not in (event.out or ()) and x == at]
        if stays:
            told_everywhere(logs, event, votes=(*(event.votes or ()), at))
            return Problem.VIEW, at, f"gives a vote to {at} at {at}, which already has one"
    return None


def vote_given_twice_at_once(logs: Logs) -> Planted:
    for at, _, event in shared(logs):
        if event.votes:
            told_everywhere(logs, event, votes=event.votes * 2)
            return (
                Problem.VIEW,
                at,
                f"gives a vote to {event.votes[0]} at {at}, which already has one",
            )
    return None


def vote_of_one_that_went(logs: Logs) -> Planted:
    for at, place, event in shared(logs):
        gone = [e for e in logs[at][:place] if e.kind in (EventKind.EVICT, EventKind.LEFT)]
        if gone:
            told_everywhere(logs, event, votes=(*(event.votes or ()), gone[0].origin))
            return Problem.VIEW, at, f"gives a vote to {gone[0].origin} at {at}, which has ended"
    return None


def vote_of_a_stranger(logs: Logs) -> Planted:
    for at, _, event in shared(logs):
        told_everywhere(logs, event, votes=(*(event.votes or ()), "z.09"))
        return Problem.VIEW, at, "gives a vote to z.09, which it never logs as a member"
    return None


def voters_that_do_not_follow(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.START):
        views = {e.view for _, _, e in lines(logs, EventKind.VIEW)}
        if event.view in views and len(event.voters or ()) > 1:
            changed(logs, at, place, voters=(event.voters or ())[1:])
            return Problem.VIEW, "", f"view {event.view} of epoch {event.epoch} has the voters"
    return None


def level_of_another_view(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.START):
        if event.view in {e.view for _, _, e in lines(logs, EventKind.VIEW)}:
            changed(logs, at, place, level=9)
            return Problem.VIEW, "", "and format level 9"
    return None


def begins_in_a_view_of_its_own(logs: Logs) -> Planted:
    """And its log ends before the next one."""
    for at, place, event in lines(logs, EventKind.START):
        views = {e.view for other, _, e in lines(logs, EventKind.VIEW) if other != at}
        if event.view in views and not place:
            changed(logs, at, place, view="0123456789abcdef")
            kinds = [e.kind for e in logs[at]]
            del logs[at][kinds.index(EventKind.VIEW) if EventKind.VIEW in kinds else len(kinds) :]
            return (
                Problem.VIEW,
                at,
                f"view 0123456789abcdef of epoch {event.epoch}, but elsewhere",
            )
    return None


def begins_in_a_view_that_leads_to_the_others(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.VIEW):
        made = [other for other, _, e in lines(logs, EventKind.VIEW) if e.view == event.view]
        starts = [e for e in logs[at][:place] if e.kind != EventKind.START]
        if len(made) > 1 and len(starts) == place - 1 and not _views(logs[at][:place]):
            changed(logs, at, 0, view="0123456789abcdef")
            changed(logs, at, place, before="0123456789abcdef")
            return Problem.VIEW, "", f"differ on the view before view {event.view}"
    return None


def _views(log: list[Event]) -> list[Event]:
    return [event for event in log if event.kind == EventKind.VIEW]


def begins_with_another_cut(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.START):
        for cut in event.cuts or ():
            if joined_by(at) is not None:
                changed(logs, at, place, cuts=(cut._replace(counter=cut.counter + 1),))
                return Problem.VIEW, at, f"but its view says: {cut.how} with {cut.counter}"
    return None


def starts_again_in_an_older_view(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.START):
        first = logs[at][0]
        if first.epoch != event.epoch and _views(logs[at][:place]):
            changed(logs, at, place, epoch=first.epoch, view=first.view, voters=first.voters)
            return Problem.ROLLED_BACK, at, "starts again in view"
    return None


def says_that_it_had_sent_more(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.VIEW):
        changed(logs, at, place, sent=(event.sent or 0) + 1)
        return Problem.VIEW, at, f"logs that it had sent {(event.sent or 0) + 1} messages"
    return None


def _untold(logs: Logs, kind: EventKind) -> Planted:
    for at, place, event in lines(logs, kind):
        if event.origin != at and goes_on(logs, at) and is_followed(logs, at, place, *ACTS):
            del logs[at][place]
            return Problem.MEMBERSHIP, at, f"messages that count of {event.origin}, which is"
    return None


def untold_eviction(logs: Logs) -> Planted:
    return _untold(logs, EventKind.EVICT)


def untold_leave(logs: Logs) -> Planted:
    return _untold(logs, EventKind.LEFT)


def untold_join(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.JOIN):
        assert event.member is not None
        starts = [e for e in logs[at] if e.kind == EventKind.START]
        later = logs[at][place + 1 :]
        if len(starts) == 1 and later and all(e.origin != event.member for e in later):
            del logs[at][place]
            return Problem.MEMBERSHIP, at, f"does not log that {event.member} joins by it"
    return None


def _forged_end(logs: Logs, kind: EventKind) -> Planted:
    for at, place, _ in lines(logs, EventKind.STABLE):
        members = [e for e in logs[at][:place] if e.kind == EventKind.JOIN]
        went = {cut.origin for e in logs[at] for cut in e.cuts or ()}
        for joined in members:
            assert joined.member is not None
            if joined.member not in went:
                last = Dot(joined.member, delivered(logs, at, place).get(joined.member, 0))
                inserted(logs, at, place, kind, last)
                return Problem.MEMBERSHIP, at, f"messages at {at}, but no VIEW there removes it"
    return None


def forged_eviction(logs: Logs) -> Planted:
    return _forged_end(logs, EventKind.EVICT)


def forged_leave(logs: Logs) -> Planted:
    return _forged_end(logs, EventKind.LEFT)


def end_with_another_counter(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.EVICT, EventKind.LEFT):
        if event.origin != at:
            changed(logs, at, place, counter=(event.counter or 0) + 1)
            return Problem.MEMBERSHIP, at, f"messages at {at}, but its VIEW says: "
    return None


def leave_told_of_an_eviction(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.EVICT):
        if event.origin != at and event.op is None:
            changed(logs, at, place, kind=EventKind.LEFT)
            return Problem.MEMBERSHIP, at, "but its VIEW says: evicted with"
    return None


def join_without_its_message(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.JOIN):
        if logs[at][place - 1].kind == EventKind.DELIVER and place > 1:
            logs[at].insert(place - 1, logs[at].pop(place))
            return Problem.MEMBERSHIP, at, f"joins by {event.dot}, which {at} has not delivered"
    return None


def join_of_somebody_else(logs: Logs) -> Planted:
    """What is in the shared case `join-forged-join+leave-0-0`."""
    for at, place, event in lines(logs, EventKind.JOIN):
        if event.member in logs:
            other = f"z.09+{base_of(event.dot.origin)}+{event.counter}"
            changed(logs, at, place, member=other)
            return (
                Problem.MEMBERSHIP,
                at,
                f"{other} joins by {event.dot}, but {event.member} joins by it",
            )
    return None


def join_of_another_message(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.JOIN):
        other = f"z.09+{base_of(event.dot.origin)}+{(event.counter or 0) + 1}"
        changed(logs, at, place, member=other)
        return Problem.MEMBERSHIP, at, f"{other} joins by {event.dot}, which contradicts its id"
    return None


def join_by_what_lets_nobody_in(logs: Logs) -> Planted:
    for at, place, event in lines(logs, EventKind.DELIVER):
        joins = {e.dot for _, _, e in lines(logs, EventKind.JOIN)}
        others = {
            a for a, _, e in lines(logs, EventKind.SEND, EventKind.DELIVER) if e.dot == event.dot
        }
        if event.dot in joins or len(others) < 3 or event.kind == logs[at][-1].kind:
            continue
        joiner = f"z.09+{base_of(event.dot.origin)}+{event.counter}"
        inserted(logs, at, place + 1, EventKind.JOIN, event.dot, member=joiner)
        return Problem.MEMBERSHIP, at, f"logs that {joiner} joins by {event.dot}, but "
    return None


def stable_before_who_went_has_ended(logs: Logs) -> Planted:
    """The last messages of one that went are still to come, and are concurrent."""
    for at, place, view in lines(logs, EventKind.VIEW):
        for cut in view.cuts or ():
            have = delivered(logs, at, place)
            if have.get(cut.origin, 0) >= cut.counter or cut.origin == at or not goes_on(logs, at):
                continue
            known = {
                e.dot
                for e in logs.get(cut.origin, ())
                if e.kind in (EventKind.SEND, EventKind.DELIVER)
            }
            for later, event in enumerate(logs[at][place:], place):
                if event.kind == EventKind.START:
                    break
                sent = have.get(event.origin or "", 0) >= (event.counter or 0)
                if event.kind == EventKind.STABLE and sent and event.dot not in known:
                    logs[at].insert(place + 1, logs[at].pop(later))
                    return Problem.UNSAFE_STABLE, at, "stable"
    return None


FAULTS: list[Callable[[Logs], Planted]] = [
    another_view_of_one_epoch,
    another_change_of_one_name,
    chain_with_another_name_before,
    chain_that_skips,
    chain_that_repeats,
    beyond_the_cut,
    cut_below_what_who_goes_on_has,
    cut_of_who_goes_on,
    cut_that_rises,
    goes_twice,
    out_without_a_cut,
    vote_counted_twice,
    vote_given_twice_at_once,
    vote_of_one_that_went,
    vote_of_a_stranger,
    voters_that_do_not_follow,
    level_of_another_view,
    begins_in_a_view_of_its_own,
    begins_in_a_view_that_leads_to_the_others,
    begins_with_another_cut,
    starts_again_in_an_older_view,
    says_that_it_had_sent_more,
    untold_eviction,
    untold_leave,
    untold_join,
    forged_eviction,
    forged_leave,
    end_with_another_counter,
    leave_told_of_an_eviction,
    join_without_its_message,
    join_of_somebody_else,
    join_of_another_message,
    join_by_what_lets_nobody_in,
    stable_before_who_went_has_ended,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_fault_planted_in_a_run_is_found(tmp_path: Path, fault: Callable[[Logs], Planted]) -> None:
    """Three times, if that many runs have a place for it: 72 are looked through, in a release 160."""
    times = 0
    for logs in runs():
        planted = fault(logs)
        if planted is None:
            continue
        problem, at, words = planted
        where = tmp_path / str(times)
        numbered = {
            each: [replace(event, seq=seq) for seq, event in enumerate(log, 1)]
            for each, log in logs.items()
        }
        write_logs(where, numbered)
        found = check_logs([where]).violations
        fitting = [v for v in found if v.problem is problem and words in v.sentence]
        assert fitting, (planted, [str(v) for v in found[:5]])
        assert not at or at in {v.place.incarnation for v in fitting} or at in fitting[0].sentence
        times += 1
        if times == 3:
            return
    assert times, "no run has a place for it"
