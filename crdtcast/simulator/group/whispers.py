"""The whispers of a simulated group: they are lost, doubled and reordered on lanes of their own, beside the packets of
the engines, which they must not touch. What each machine hears is checked.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from crdtcast.engine.whispers import Listener, WhisperFrame, Whispers
from crdtcast.simulator.failure import Failure

TOPICS = 3
_SECONDS = 20.0
"""How many ticks of the receiver a whisper lasts."""
VERBS = frozenset({"whisper", "hear", "rehear", "mishear"})
"""The actions of whispers."""


@dataclass(slots=True)
class _Ear:
    """One process of a machine: what it whispers, and what it was told."""

    number: int
    whispers: Whispers
    listener: Listener
    told: dict[tuple[str, str], int]
    ticks: int = 0


@dataclass(frozen=True, slots=True)
class _Breath:
    """A frame in flight between two processes."""

    sender: int
    receiver: int
    frame: WhisperFrame


class WhisperLanes:
    """Who whispers what to whom. Processes are known by the name of their machine and their number."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.flights: dict[tuple[str, str], list[_Breath]] = {}
        self._ears: dict[str, _Ear] = {}
        self._said = 0

    # Links

    def linked(self, a: tuple[str, int], b: tuple[str, int]) -> None:
        """Two processes have a link."""
        for (name, number), (other, _) in ((a, b), (b, a)):
            self._ear(name, number).whispers.linked(other)
            self._breathe(name)

    def unlinked(self, a: str, b: str) -> None:
        """Their link is down; what is in flight may still arrive."""
        for name, other in ((a, b), (b, a)):
            if (ear := self._ears.get(name)) is not None:
                ear.whispers.unlinked(other)
                self._listen(ear)

    def _ear(self, name: str, number: int) -> _Ear:
        ear = self._ears.get(name)
        if ear is None or ear.number != number:
            whispers = Whispers()
            ear = self._ears[name] = _Ear(number, whispers, whispers.listen(()), {})
        return ear

    # Actions

    def tick(self, name: str) -> None:
        """A machine's time passes."""
        if (ear := self._ears.get(name)) is not None:
            ear.ticks += 1
            ear.whispers.expire(ear.ticks)
            self._listen(ear)

    def whisper(self, name: str, number: int, topic: int) -> bool:
        """A machine whispers; each eighth time it takes its whisper back."""
        ear = self._ear(name, number)
        self._said += 1
        payload = b"%d" % self._said if self._said % 8 else b""
        ear.whispers.say(f"topic-{topic}", payload, _SECONDS, ear.ticks)
        self.counts["whispered"] += 1
        self._breathe(name)
        return True

    def _breathe(self, name: str) -> None:
        """The links of a machine may write."""
        ear = self._ears[name]
        for peer in ear.whispers.peers:
            for frame in ear.whispers.take(peer, ear.ticks):
                if (there := self._ears.get(peer)) is not None:
                    flight = self.flights.setdefault((name, peer), [])
                    flight.append(_Breath(ear.number, there.number, frame))

    def carry(self, verb: str, sender: str, receiver: str, place: int) -> bool:
        """A frame in flight arrives (`hear`), arrives and stays (`rehear`), or is lost (`mishear`)."""
        flight = self.flights.get((sender, receiver), [])
        if not 0 <= place < len(flight):
            return False
        breath = flight[place]
        if verb != "rehear":
            del flight[place]
            if not flight:
                del self.flights[sender, receiver]
        ear, mouth = self._ears.get(receiver), self._ears.get(sender)
        processes = (mouth and mouth.number, ear and ear.number)
        if verb == "mishear" or ear is None or processes != (breath.sender, breath.receiver):
            self.counts["unheard"] += 1
            return True
        ear.whispers.receive(sender, breath.frame, ear.ticks)
        self.counts["reheard" if verb == "rehear" else "heard"] += 1
        self._listen(ear)
        return True

    def _listen(self, ear: _Ear) -> None:
        """What a machine is told never goes back to an older whisper, as long as it has the link with the sender."""
        while (whisper := ear.listener.next()) is not None:
            key = whisper.sender, whisper.topic
            if not whisper.payload:
                if key not in ear.told:
                    raise Failure("whisper-over", f"{key} is over, and was never told")
                del ear.told[key]
                continue
            number = int(whisper.payload)
            if number <= ear.told.get(key, 0):
                raise Failure("whisper-order", f"{key}: {number} after {ear.told[key]}")
            ear.told[key] = number

    # The end

    def settle(self, links: Iterable[tuple[str, str]]) -> None:
        """On a network without faults each machine hears the latest whisper of those it is linked with, if there were
        whispers in this run.
        """
        if not self._said:
            return
        links = [pair for pair in links if pair[0] in self._ears and pair[1] in self._ears]
        for name in sorted({name for pair in links for name in pair}):
            for topic in range(TOPICS):
                self.whisper(name, self._ears[name].number, topic)
        while self.flights:
            self.carry("hear", *next(iter(self.flights)), 0)
        for pair in links:
            for name, other in (pair, pair[::-1]):
                self._check_heard(name, other)

    def _check_heard(self, name: str, other: str) -> None:
        ear, mouth = self._ears[name], self._ears[other]
        for topic in map("topic-{}".format, range(TOPICS)):
            heard, said = ear.whispers.latest(other, topic), mouth.whispers.said(topic)
            if heard != said:
                raise Failure("whisper-lost", f"{name} hears {heard!r} of {other}, not {said!r}")
