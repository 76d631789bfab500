"""The timer of one engine on Trio: ticks when its pacer says so, and watches round trips for it."""

from collections.abc import Callable

import trio

from crdtcast.causality.messages import Digest
from crdtcast.engine import progress
from crdtcast.engine.core import Core
from crdtcast.engine.digest_pacing import Pacer


class Ticking:
    """engine: the present one. tick: to be called for each tick."""

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
        """Seconds between two ticks, now; 0 before `run`."""
        return 0.0 if self._pacer is None else self._pacer.period

    async def run(self) -> None:
        """Tick for ever."""
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
                peers=len(progress.linked(engine)),
                quiet=engine.quiet,
            )
            self._messages = messages

    def stir(self) -> None:
        """Something has happened that a tick may have to tell."""
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
            pacer.sent(own, progress.linked(engine), trio.current_time())

    def heard(self, sender: str, digest: Digest) -> None:
        """A digest has come from there."""
        if self._pacer is not None and self._pacer.following:
            own = digest.vector.get(self._engine().me, 0)
            self._pacer.acknowledged(sender, own, trio.current_time())

    def gone(self, peer: str) -> None:
        """The link with this incarnation is down."""
        if self._pacer is not None:
            self._pacer.gone(peer)
