"""Members that come and go: logs of real engines pass, and what does not fit in them is named."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crdtcast.causality.tags import Dot
from crdtcast.eventlog.check import Checked, Problem, check_logs
from crdtcast.eventlog.format import Event, EventKind, LoggedCut
from crdtcast.simulator.campaign import run_group_seed
from crdtcast.simulator.campaigns import campaign
from tests.effort import seeds
from tests.log_reader import LogReader
from tests.logcheck.event_logs import Logs, write_logs

from .village import Village

SEEDS = (0, 124, 143)


@pytest.mark.parametrize("seed", SEEDS)
def test_logs_of_a_group_that_changes_pass(tmp_path: Path, seed: int) -> None:
    village = Village(tmp_path, seed)
    village.live(1200)
    village.come_to_rest()
    result = check_logs([tmp_path])
    assert result.violations == ()
    assert result.counts["unstable"] == 0
    assert result.counts["joins"] == village.counts["joins"] > 0


@pytest.mark.parametrize("seed", seeds(4))
def test_logs_of_simulated_groups_pass(tmp_path: Path, seed: int) -> None:
    """With everything that a network, crashes and evictions do to them."""
    outcome = run_group_seed(seed, campaign("everything"), range(3, 7), logs=tmp_path)
    assert outcome.failure is None
    assert check_logs([tmp_path]).violations == ()


def test_raises_are_counted(tmp_path: Path) -> None:
    raises = 0
    for seed in seeds(6):
        logs = tmp_path / str(seed)
        run_group_seed(seed, campaign("levels"), range(3, 7), logs=logs)
        raises += check_logs([logs]).counts["raises"]
    assert raises


# --- a small group, by hand ---------------------------------------------------------------------

A, B, X = "a.01", "b.01", "x.01"
N = "n.02+b.01+1"  # lets in by b's first message
Y = "x.03+a.01+3"  # x again, let in by a's third


class Hand:
    """Logs written line by line, all in one order of time."""

    def __init__(self) -> None:
        self.logs: Logs = {}
        self.views: dict[str, str] = {}
        self._ts = 0

    def tell(self, at: str, kind: EventKind, dot: str = "", **columns: object) -> None:
        self._ts += 1
        log = self.logs.setdefault(at, [])
        origin, _, counter = dot.partition(":")
        where = {"origin": origin, "counter": int(counter)} if dot else {}
        fixed = {"version": 1, "group": "g", "replica": at.partition(".")[0], "incarnation": at}
        event = Event(**fixed, seq=len(log) + 1, ts=self._ts, kind=kind, **where, **columns)  # type: ignore[arg-type]
        log.append(event)

    def start(
        self,
        at: str,
        members: list[str],
        vector: dict[str, int],
        stable: str = "",
        *,
        epoch: int = 0,
        view: str = "0",
        voters: list[str] | None = None,
    ) -> None:
        listed = "[" + ",".join(f'"{member}"' for member in members) + "]"
        votes = tuple(members if voters is None else voters)
        told: dict[str, Any] = {
            "epoch": epoch,
            "view": view,
            "voters": votes,
            "level": 1,
            "cuts": (),
        }
        self.tell(at, EventKind.START, vector=vector, op=listed, deps=dots(stable), **told)
        self.views[at] = view

    def view(
        self, at: str, epoch: int, view: str, out: str = "", how: str = "evicted", votes: str = ""
    ) -> None:
        cuts = tuple(LoggedCut(*dot, how) for dot in dots(out))
        self.tell(
            at,
            EventKind.VIEW,
            epoch=epoch,
            view=view,
            before=self.views[at],
            cuts=cuts,
            out=tuple(cut.origin for cut in cuts),
            votes=tuple(votes.split()),
            op="forced" if how == "forced" else None,
        )
        self.views[at] = view

    def send(self, at: str, dot: str, after: str = "", **columns: object) -> None:
        self.tell(at, EventKind.SEND, dot, deps=dots(after), **columns)

    def deliver(self, dot: str, *everywhere: str) -> None:
        for at in everywhere:
            self.tell(at, EventKind.DELIVER, dot)

    def stable(self, listed: str, *everywhere: str) -> None:
        for at in everywhere:
            for dot in listed.split():
                self.tell(at, EventKind.STABLE, dot)


def dots(listed: str) -> tuple[Dot, ...]:
    pairs = (one.split(":") for one in listed.split())
    return tuple(Dot(origin, int(counter)) for origin, counter in pairs)


def history() -> Logs:
    """a, b and x found a group; n joins; x dies with one message unheard, is evicted, comes back
    as y and sends that again; n leaves."""
    hand = Hand()
    for founder in (A, B, X):
        hand.start(founder, [A, B, X], {})
    hand.send(A, f"{A}:1")
    hand.deliver(f"{A}:1", B, X)
    hand.stable(f"{A}:1", A, B)
    hand.send(B, f"{B}:1", f"{A}:1")
    hand.tell(B, EventKind.JOIN, f"{B}:1", member=N)
    hand.start(N, [A, B, X, N], {A: 1, B: 1}, f"{A}:1", voters=[A, B, X])
    hand.deliver(f"{B}:1", A, X)
    for at in (A, X):
        hand.tell(at, EventKind.JOIN, f"{B}:1", member=N)
    hand.send(X, f"{X}:1", f"{B}:1")
    hand.send(X, f"{X}:2", f"{X}:1")
    hand.deliver(f"{X}:1", A, B)
    hand.send(N, f"{N}:1", f"{B}:1")
    hand.deliver(f"{X}:1", N)
    hand.deliver(f"{N}:1", A, B)
    hand.send(A, f"{A}:2", f"{X}:1 {N}:1")
    hand.deliver(f"{A}:2", B, N)
    for at in (A, B, N):
        hand.view(at, 1, "1", out=f"{X}:1", votes=N)
        hand.tell(at, EventKind.EVICT, f"{X}:1")
    hand.send(A, f"{A}:3", f"{A}:2")
    hand.tell(A, EventKind.JOIN, f"{A}:3", member=Y)
    second: dict[str, Any] = {"epoch": 1, "view": "1", "voters": [A, B, N]}
    hand.start(Y, [A, B, N, Y], {A: 3, B: 1, N: 1, X: 1}, f"{A}:1", **second)
    hand.deliver(f"{A}:3", B, N)
    for at in (B, N):
        hand.tell(at, EventKind.JOIN, f"{A}:3", member=Y)
    hand.send(Y, f"{Y}:1", f"{A}:3", reissues=Dot(X, 2))
    hand.deliver(f"{Y}:1", A, B, N)
    hand.send(N, f"{N}:2", f"{Y}:1")
    hand.deliver(f"{N}:2", A, B, Y)
    for at in (N, A, B, Y):
        hand.view(at, 2, "2", out=f"{N}:2", how="left")
        hand.tell(at, EventKind.LEFT, f"{N}:2")
    for at in (A, B, Y):
        hand.stable(f"{B}:1 {X}:1 {N}:1 {A}:2 {A}:3 {Y}:1 {N}:2", at)
        hand.tell(at, EventKind.STOP, entries=0)
    return hand.logs


def checked(directory: Path, logs: Logs) -> Checked:
    numbered = {
        at: [replace(event, seq=seq) for seq, event in enumerate(log, 1)]
        for at, log in logs.items()
    }
    write_logs(directory, numbered)
    return check_logs([directory])


def place(logs: Logs, at: str, kind: EventKind, dot: str = "") -> int:
    return next(
        p for p, e in enumerate(logs[at]) if e.kind == kind and (not dot or str(e.dot) == dot)
    )


def change(logs: Logs, at: str, kind: EventKind, dot: str = "", **columns: object) -> None:
    where = place(logs, at, kind, dot)
    logs[at][where] = replace(logs[at][where], **columns)  # type: ignore[arg-type]


def test_history_with_every_membership_change_passes(tmp_path: Path) -> None:
    result = checked(tmp_path, history())
    assert result.violations == ()
    told = {name: result.counts[name] for name in ("joins", "leaves", "evictions", "reissues")}
    assert told == {"joins": 2, "leaves": 1, "evictions": 1, "reissues": 1}
    assert result.notes == ()


def test_membership_events_survive_the_log(tmp_path: Path) -> None:
    logs = history()
    write_logs(tmp_path, logs)
    assert list(LogReader(tmp_path)) == [event for at in sorted(logs) for event in logs[at]]


def gap_at_a_joiner(logs: Logs) -> None:
    """a had n's message when it let y in."""
    change(logs, Y, EventKind.START, vector={A: 3, B: 1, X: 1})


def begins_without_what_is_stable(logs: Logs) -> None:
    change(logs, N, EventKind.START, vector={B: 1}, deps=())


def begins_before_its_join(logs: Logs) -> None:
    change(logs, Y, EventKind.START, vector={A: 2, B: 1, N: 1, X: 1})


def begins_with_what_nobody_sent(logs: Logs) -> None:
    change(logs, Y, EventKind.START, vector={A: 3, B: 2, N: 1, X: 1})


def delivers_what_it_began_with(logs: Logs) -> None:
    begin = place(logs, Y, EventKind.START)
    logs[Y].insert(begin + 1, logs[B][place(logs, B, EventKind.DELIVER, f"{N}:1")])
    logs[Y][begin + 1] = replace(logs[Y][begin + 1], incarnation=Y, replica="x")


def sends_after_its_leave(logs: Logs) -> None:
    leave = place(logs, N, EventKind.LEFT)
    last = logs[N][place(logs, N, EventKind.SEND, f"{N}:2")]
    logs[N].insert(leave + 1, replace(last, counter=3, deps=(Dot(N, 2),)))


def sends_again_what_the_group_has(logs: Logs) -> None:
    change(logs, Y, EventKind.SEND, f"{Y}:1", reissues=Dot(X, 1))


def sends_again_what_is_not_its_own(logs: Logs) -> None:
    change(logs, Y, EventKind.SEND, f"{Y}:1", reissues=Dot(N, 1))


def sends_again_twice(logs: Logs) -> None:
    first = place(logs, Y, EventKind.SEND, f"{Y}:1")
    logs[Y].insert(first + 1, replace(logs[Y][first], counter=2, deps=(Dot(Y, 1),)))


def stable_before_the_joiner_has_it(logs: Logs) -> None:
    """a is told that n's message is stable before x, a member, has it."""
    sent = place(logs, A, EventKind.DELIVER, f"{N}:1")
    logs[A].insert(sent + 1, replace(logs[A][sent], kind=EventKind.STABLE))


@pytest.mark.parametrize(
    ("fault", "problem", "at", "about"),
    [
        (gap_at_a_joiner, Problem.CAUSAL, Y, f"{N}:1"),
        (begins_without_what_is_stable, Problem.UNSAFE_STABLE, B, f"{A}:1"),
        (begins_before_its_join, Problem.MEMBERSHIP, A, f"{A}:3"),
        (begins_with_what_nobody_sent, Problem.GHOST, Y, f"{B}:2"),
        (delivers_what_it_began_with, Problem.DUPLICATE, Y, f"{N}:1"),
        (sends_after_its_leave, Problem.AFTER_END, N, f"{N}:3"),
        (sends_again_what_the_group_has, Problem.REISSUE, Y, f"{Y}:1"),
        (sends_again_what_is_not_its_own, Problem.REISSUE, Y, f"{Y}:1"),
        (sends_again_twice, Problem.REISSUE, Y, f"{Y}:2"),
        (stable_before_the_joiner_has_it, Problem.STABLE_ORDER, A, f"{N}:1"),
    ],
)
def test_planted_membership_fault_is_named(
    tmp_path: Path, fault: Callable[[Logs], None], problem: Problem, at: str, about: str
) -> None:
    logs = history()
    fault(logs)
    first = checked(tmp_path, logs).violations[0]
    assert (first.problem, first.place.incarnation, str(first.dot)) == (problem, at, about), first


@pytest.mark.parametrize("given_up", ["", "comes back", "told"])
def test_forced_split_is_a_violation_unless_a_side_surrenders(
    tmp_path: Path, given_up: str
) -> None:
    hand = Hand()
    for me in (A, B):
        hand.start(me, [A, B], {})
    hand.send(A, f"{A}:1")
    hand.send(B, f"{B}:1")
    for me, other in ((A, B), (B, A)):
        hand.view(me, 1, f"1 of {me}", out=f"{other}:0", how="forced")
        hand.tell(me, EventKind.EVICT, f"{other}:0", op="forced")
    if given_up == "told":
        hand.tell(B, EventKind.EVICT, f"{B}:0")
    elif given_up == "comes back":
        again = f"b.03+{A}+2"
        hand.send(A, f"{A}:2", f"{A}:1")
        hand.tell(A, EventKind.JOIN, f"{A}:2", member=again)
        hand.start(again, [A, again], {A: 2}, epoch=1, view=f"1 of {A}", voters=[A])
        hand.send(again, f"{again}:1", f"{A}:2", reissues=Dot(B, 1))
        hand.deliver(f"{again}:1", A)
    found = checked(tmp_path, hand.logs).violations
    assert [v.problem for v in found] == ([] if given_up else [Problem.VIEW])
    assert given_up or "two groups since epoch 1, by force, and both go on" in found[0].sentence


def test_crash_may_forget_the_news_of_its_own_end(tmp_path: Path) -> None:
    hand = Hand()
    for me in (A, B):
        hand.start(me, [A, B], {})
    hand.tell(B, EventKind.EVICT, f"{B}:0")
    hand.start(B, [A, B], {})
    hand.send(B, f"{B}:1")
    hand.tell(B, EventKind.EVICT, f"{B}:0")
    assert checked(tmp_path / "right", hand.logs).violations == ()
    hand.send(B, f"{B}:2", f"{B}:1")
    (wrong,) = checked(tmp_path / "wrong", hand.logs).violations
    assert (wrong.problem, wrong.dot) == (Problem.AFTER_END, Dot(B, 2))


def test_logs_that_wait_for_each_other_do_not_block_the_check(tmp_path: Path) -> None:
    hand = Hand()
    for me in (A, B):
        hand.start(me, [A, B], {})
    for me, other in ((A, B), (B, A)):
        hand.deliver(f"{other}:1", me)
        hand.send(me, f"{me}:1", f"{other}:1")
    first = checked(tmp_path, hand.logs).violations[0]
    assert (first.problem, str(first.dot)) == (Problem.GHOST, f"{B}:1")
    assert "before it is sent" in first.sentence


def test_joiner_has_all_of_a_forgotten_member_and_its_contact(
    tmp_path: Path,
) -> None:
    """The contact has ended with fewer messages than whom it let in."""
    hand = Hand()
    for founder in (A, B):
        hand.start(founder, [A, B], {})
    hand.send(B, f"{B}:1")
    hand.tell(B, EventKind.JOIN, f"{B}:1", member=N)
    hand.start(N, [A, B, N], {B: 1}, voters=[A, B])
    hand.deliver(f"{B}:1", A)
    hand.tell(A, EventKind.JOIN, f"{B}:1", member=N)
    hand.send(N, f"{N}:1", f"{B}:1")
    hand.send(N, f"{N}:2", f"{N}:1")
    for counter in (1, 2):
        hand.deliver(f"{N}:{counter}", A, B)
    for at in (N, A, B):
        hand.view(at, 1, "1", out=f"{N}:2", how="left")
        hand.tell(at, EventKind.LEFT, f"{N}:2")
    hand.view(A, 2, "2", out=f"{B}:1")
    hand.tell(A, EventKind.EVICT, f"{B}:1")
    hand.stable(f"{B}:1 {N}:1 {N}:2", A)
    late = f"c.04+{A}+1"
    hand.send(A, f"{A}:1", f"{N}:2")
    hand.tell(A, EventKind.JOIN, f"{A}:1", member=late)
    hand.start(late, [A, late], {A: 1}, epoch=2, view="2", voters=[A])
    assert checked(tmp_path, hand.logs).violations == ()
