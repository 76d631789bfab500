"""Moves one engine's messages, independent of its links: flushes, the timer of ticks, and turns for the application."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

import trio

from crdtcast.causality.messages import Digest, Message, Transmit
from crdtcast.engine import known_deliveries
from crdtcast.engine.core import Core
from crdtcast.engine.digest_pacing import Pacer
from crdtcast.journal.spill import Spilled
from crdtcast.wire.fields import FrameKind

REPAIR_AT_ONCE = 32
"""Messages that are repaired at one peer before others have their turn: a quarter of a millisecond of work, much more
if memory is cold. The next ones follow as soon as these are written.
"""
SENT_AT_ONCE = 64
"""Most own messages that wait for the links to write. While the links are busy, the sender pays for it in its own
turn: encoding thousands together would delay everything else.
"""
_KINDS = {Message: FrameKind.MESSAGE, Spilled: FrameKind.MESSAGE, Digest: FrameKind.DIGEST}


def no_work() -> None:
    """Does nothing: there is no application yet."""


def runs(effects: Iterable[Transmit]) -> Iterator[tuple[str | None, FrameKind, list[Any]]]:
    """Effects in order, grouped if consecutive ones have one receiver and one kind."""
    for (to, kind), together in groupby(effects, _receiver_and_kind):
        yield to, kind, [message for _, message in together]


def _receiver_and_kind(effect: Transmit) -> tuple[str | None, FrameKind]:
    return effect[0], _KINDS.get(type(effect[1]), FrameKind.GROUPED)


class EngineDriver(ABC):
    """Subclasses have the engine and the links.

    on_work: called whenever something may be deliverable or stable, or a tick has passed.
    hold: while it is set, all messages stay in the engine; for callers that sync first.
    on_held: called while `hold` is set, whenever something may want to leave.
    """

    def __init__(self, interval: float | None, on_work: Callable[[], None] = no_work) -> None:
        self.hold = False
        self.on_held: Callable[[], None] = no_work
        self.on_work = on_work
        self._is_due = False
        self._waiting = 0
        self.ticking: Ticker = Ticker(interval, self.driven, self._tick)

    @abstractmethod
    def driven(self) -> Core:
        """The present engine."""

    @abstractmethod
    def transmit(self) -> None:
        """Move the engine's messages to the links' queues, unless they must wait."""

    @abstractmethod
    def before_writing(self, fill: Callable[[], None]) -> bool:
        """See `Endpoint.before_writing`."""

    @abstractmethod
    def relieve(self) -> None:
        """Stop reading from peers, or read on, as the application keeps up."""

    @abstractmethod
    def ended(self, error: Exception) -> None:
        """The application has failed: end its node with that error."""

    def flush(self) -> None:
        """Move the engine's messages to the links' queues. Never blocks; does nothing while `hold` is set."""
        self.ticking.stir()
        self._flush()

    def flush_soon(self) -> None:
        """`flush` when the links are about to write, so that messages sent in one turn travel together and are encoded
        once.
        """
        if self.hold:
            self.flush()
            return
        self._waiting += 1
        if not self._is_due:
            self._is_due = self.before_writing(self._fill)
        if not self._is_due or self._waiting >= SENT_AT_ONCE:
            self.flush()

    def _fill(self) -> None:
        self._is_due = False
        self.flush()

    def repair_on(self, incarnation: str) -> None:
        """Nothing is queued for that peer: send more of what it lacks."""
        if not self.driven().repair_on(incarnation):
            return
        if self.hold:
            self.on_held()
        else:
            self.transmit()

    def after(self) -> None:
        """The engine has changed: send its answers, then give the application its turn."""
        self.ticking.stir()
        self.offer_work()

    def offer_work(self) -> None:
        """Send answers, then give the application its turn."""
        self._flush()
        try:
            self.on_work()
        except Exception as error:
            # The application's error, not the peer's whose frame we happen to be at.
            self.ended(error)
        self.relieve()

    def _flush(self) -> None:
        self._waiting = 0
        self.relieve()
        if self.hold:
            self.on_held()
        else:
            self.transmit()

    def _tick(self) -> None:
        self.driven().tick()
        self.offer_work()


class Ticker:
    """engine: returns the present one. tick: called at each tick."""

    def __init__(
        self, interval: float | None, engine: Callable[[], Core], tick: Callable[[], None]
    ) -> None:
        self._interval = interval
        self._engine = engine
        self._tick = tick
        self._pacer: Pacer | None = None
        self._sleeper = trio.lowlevel.ParkingLot()
        self._messages = 0
        self._me = ""

    @property
    def period(self) -> float:
        """The present time between two ticks, in seconds; 0 before `run`."""
        return 0.0 if self._pacer is None else self._pacer.period

    async def run(self) -> None:
        """Tick until cancelled."""
        self._pacer = pacer = Pacer(self._interval, trio.current_time())
        while True:
            while (left := pacer.due - trio.current_time()) > 0:
                with trio.move_on_after(left):
                    await self._sleeper.park()
            self._tick()
            engine = self._engine()
            messages = engine.activity
            pacer.ticked(
                trio.current_time(),
                messages=max(0, messages - self._messages),
                peers=len(known_deliveries.linked(engine)),
                quiet=engine.quiet,
            )
            self._messages = messages

    def stir(self) -> None:
        """Something has happened that a tick may have to report."""
        pacer = self._pacer
        if pacer is None or pacer.fixed is not None:
            return
        if pacer.stir(trio.current_time()):
            self._sleeper.unpark_all()
        engine = self._engine()
        if engine.me != self._me:
            self._me = engine.me
            pacer.begin_anew()
        own = engine.vector[engine.me]
        if pacer.may_follow(own):
            pacer.sent(own, known_deliveries.linked(engine), trio.current_time())

    def heard(self, sender: str, digest: Digest) -> None:
        """This sender has sent a digest."""
        if self._pacer is not None and self._pacer.following:
            own = digest.vector.get(self._engine().me, 0)
            self._pacer.acknowledged(sender, own, trio.current_time())

    def gone(self, peer: str) -> None:
        """The link with this incarnation is down."""
        if self._pacer is not None:
            self._pacer.gone(peer)
