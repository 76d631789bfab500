"""Compares the values of all replicas while writes continue. Pure.

There are three kinds of causal messages. One member *asks*. Each member that delivers the question notes the digests of
its objects and *tells* them. A member that has delivered what all others told has also delivered, by causality, all
operations behind these digests. It then *confirms*, with the objects that operations have touched at this member since
its own digests. An object that was touched nowhere had the same operations everywhere, so its digests must be equal; a
touched one is left for the next time.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from crdtcast.exceptions import LocalProtocolError

Digests = Mapping[str, str]
"""Object -> digest of its value, or `UNKNOWN`."""
UNKNOWN = "?"
"""The digest of an object that a member's program does not fully understand."""
_MOST = 16
"""Most comparisons under way. Beyond that, the oldest one is forgotten: its asker may have died."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of a comparison.

    objects: how many objects all members have.
    compared: those without writes meanwhile.
    changing: those with writes.
    unknown: the rest, for which some member must be upgraded.
    different: object -> member -> digest, "" where the object is missing.
    silent: members that did not answer in time, so nothing is known about their objects.
    members: who was asked.
    """

    objects: int
    compared: int
    changing: int
    unknown: int
    different: Mapping[str, Mapping[str, str]]
    silent: tuple[str, ...]
    members: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """No object differs, and all members have answered."""
        return not self.different and not self.silent


@dataclass(slots=True)
class _Round:
    """A comparison under way.

    members: who is asked.
    touched: objects touched at this member since its own digests.
    """

    members: frozenset[str]
    touched: set[str] = field(default_factory=set)
    told: dict[str, Digests] = field(default_factory=dict)
    confirmed: dict[str, frozenset[str]] = field(default_factory=dict)
    is_confirmed: bool = False


class Comparing:
    """One member's part in all comparisons.

    digests: those of this member's objects, now.
    say: broadcasts a message of this class; it is delivered at this member, too, before the call returns.

    A member that cannot send now is silent in the comparisons of others; its own `ask` raises what `say` does.
    """

    def __init__(
        self, name: str, digests: Callable[[], Digests], say: Callable[[list[Any]], None]
    ) -> None:
        self._name = name
        self._digests = digests
        self._say = say
        self._rounds: OrderedDict[str, _Round] = OrderedDict()
        self.on_news: Callable[[str], None] = lambda number: None
        """Called with the number of a comparison that has made progress."""

    def ask(self, number: str, members: Iterable[str]) -> None:
        """Start a comparison among these members, including this one."""
        self._say(["ask", number, sorted(members)])

    def _answer(self, message: list[Any]) -> None:
        # A member that cannot send now (it leaves, is full or must catch up) is silent.
        with suppress(LocalProtocolError):
            self._say(message)

    def touched(self, objects: Iterable[str]) -> None:
        """Operations on these objects take effect at this member."""
        for each in self._rounds.values():
            if not each.is_confirmed:
                each.touched.update(objects)

    def delivered(self, message: list[Any]) -> None:
        """Take a message of this class. Ignores invalid ones, and those of comparisons that are over."""
        match message:
            case ["ask", str(number), [*members]] if self._name in members and _are_texts(members):
                self._rounds[number] = _Round(frozenset(members))
                while len(self._rounds) > _MOST:
                    self._rounds.popitem(last=False)
                self._answer(["tell", number, self._name, dict(self._digests())])
            case ["tell", str(number), str(name), dict(digests)] if (
                number in self._rounds and _are_texts([*digests, *digests.values()])
            ):
                self._rounds[number].told[name] = digests
                self._confirm(number)
                self.on_news(number)
            case ["confirm", str(number), str(name), [*touched]] if (
                number in self._rounds and _are_texts(touched)
            ):
                self._rounds[number].confirmed[name] = frozenset(touched)
                self.on_news(number)
            case ["done", str(number)]:
                self._rounds.pop(number, None)

    def _confirm(self, number: str) -> None:
        current = self._rounds[number]
        if not current.is_confirmed and current.told.keys() >= current.members:
            current.is_confirmed = True
            self._answer(["confirm", number, self._name, sorted(current.touched)])

    def missing(self, number: str) -> frozenset[str]:
        """The members that have not answered yet."""
        current = self._rounds.get(number)
        if current is None:
            return frozenset()
        # No member can confirm before all have told.
        return current.members - current.told.keys() or current.members - current.confirmed.keys()

    def end(self, number: str) -> Comparison:
        """The outcome, as far as members have answered. Lets all others forget the comparison.

        Raises LocalProtocolError if this member has forgotten it, because it continues from another state.
        """
        current = self._rounds.get(number)
        if current is None:
            raise LocalProtocolError(
                f"nothing was compared: {self._name!r} has just returned from an eviction, or "
                "received too many requests at once: ask again"
            )
        missing, members = self.missing(number), tuple(sorted(current.members))
        self._answer(["done", number])
        objects = {name for digests in current.told.values() for name in digests}
        if missing:
            return Comparison(len(objects), 0, 0, 0, {}, tuple(sorted(missing)), members)
        changing = objects & frozenset[str]().union(*current.confirmed.values())
        unknown = {o for told in current.told.values() for o in told if told[o] == UNKNOWN}
        unknown -= changing
        compared = objects - changing - unknown
        different = {}
        for each in sorted(compared):
            found = {name: told.get(each, "") for name, told in sorted(current.told.items())}
            if len(set(found.values())) > 1:
                different[each] = found
        counts = len(objects), len(compared), len(changing), len(unknown)
        return Comparison(*counts, different, (), members)

    def forget(self) -> None:
        """Forget all comparisons: this member continues from another state."""
        self._rounds.clear()


def _are_texts(parts: Iterable[Any]) -> bool:
    return all(type(part) is str for part in parts)
