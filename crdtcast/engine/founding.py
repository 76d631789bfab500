"""How a group is founded with a list: no member writes before all founders of the list have been up at once.

Each founder chooses a fresh id and announces it on every link, with all ids that it knows. Once it has heard every
founder of the list, it *confirms* that set of ids. A founder that has the confirmations of all for one set *begins*: it
shows that as a member of the group, whose id is the hash of the set. A founder that hears of a group which it has
confirmed itself begins, too. If it hears of any other group, it joins that one in its name's place.

Two sets never both begin. The ids of a name only rise, so a founder in both sets confirms the smaller one first. And a
founder that begins with the smaller one confirms nothing after that. Only its next life, under a greater id, can
confirm the greater set. So if that set begins, all who began with the smaller one have lost that life.

Ids are never derived from names: a founder that starts again would use numbers of messages twice.
"""

from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b
from typing import NamedTuple

import msgpack

from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.membership import MemberInfo
from crdtcast.exceptions import ConfigurationError

MOST_RENEWALS = 3
"""Fresh ids that one founder takes at most, since others know a greater one of its name. One is enough after a clock
that went back. Two processes of one name would take turns forever.
"""


class Founder(NamedTuple):
    """A founder of the list, as it says itself. reads: the format levels that its program reads."""

    incarnation: str
    witness: bool = False
    reads: Span = PROGRAM


class Announcement(NamedTuple):
    """What a founder says on every link, again whenever it changes.

    names: its list, sorted. founders: those that it knows, by name; of its own name the newest, which is itself.
    confirms: whether it has heard all of them, with these ids.
    """

    names: tuple[str, ...]
    founders: Mapping[str, Founder]
    confirms: bool = False


class Begun(NamedTuple):
    """The round is over, and this founder is one of the first members."""

    me: str
    group_id: str
    members: tuple[MemberInfo, ...]
    level: int


class Late(NamedTuple):
    """A group has begun without this founder: it joins that one in its name's place."""

    group_id: str


class FoundingRound:
    """The part of one founder. It is given what comes on its links, and which links are down.

    names: the list. fresh: returns an id that is greater than the given one.
    """

    def __init__(
        self,
        name: str,
        names: Collection[str],
        fresh: Callable[[str | None], str],
        *,
        witness: bool = False,
        reads: Span = PROGRAM,
    ) -> None:
        self.name = name
        self.names: tuple[str, ...] = tuple(sorted({name, *names}))
        self.outcome: Begun | Late | None = None
        self._fresh = fresh
        self._renewals = 0
        self._founders = {name: Founder(fresh(None), witness, reads)}
        self._heard: dict[str, Announcement] = {}  # the newest on each link
        self._confirms: Begun | None = None
        # Group id -> what this founder has confirmed with its present id.
        self._confirmed: dict[str, Begun] = {}
        self._settle()

    @property
    def me(self) -> str:
        """The own id. It changes if others know a greater one of this name."""
        return self._founders[self.name].incarnation

    def announcement(self) -> Announcement:
        """What to say on each link, whenever it differs from what was said there last."""
        return Announcement(self.names, dict(self._founders), self._confirms is not None)

    def missing(self) -> list[str]:
        """The founders that are not heard yet, or have not confirmed this set."""
        mine = self._founders
        return [
            name
            for name in self.names
            if name != self.name
            and (
                (said := self._heard.get(name)) is None
                or not said.confirms
                or said.founders != mine
            )
        ]

    def heard(self, name: str, said: Announcement) -> None:
        """Take what the process of that name says on its link.

        Raises ConfigurationError if its list is another one, or if another process has this founder's name.
        """
        if self.outcome is not None:
            return
        if said.names != self.names:
            raise ConfigurationError(
                f"{name!r} founds the group with {', '.join(said.names)}, and {self.name!r} with "
                f"{', '.join(self.names)}: use the same list on all founders"
            )
        self._heard[name] = said
        known, theirs = self._founders.get(name), said.founders[name]
        if known is None or theirs.incarnation > known.incarnation:
            self._founders[name] = theirs
            self._confirms = None
        mine = said.founders.get(self.name)
        if mine is not None and mine.incarnation > self.me:
            self._renew(name, mine.incarnation)
        self._settle()

    def gone(self, name: str) -> None:
        """The link with it is down. What this founder has confirmed stays confirmed."""
        self._heard.pop(name, None)

    def heard_of_group(self, group_id: str) -> None:
        """A linked process is a member of that group."""
        if self.outcome is None:
            self.outcome = self._confirmed.get(group_id) or Late(group_id)

    def _renew(self, name: str, known: str) -> None:
        """Take a fresh id: a former life has had a later clock, or another process has this name."""
        self._renewals += 1
        if self._renewals > MOST_RENEWALS:
            raise ConfigurationError(
                f"{name!r} knows another process called {self.name!r} that founds the group: stop "
                "one of them, since each founder needs its own name"
            )
        mine = self._founders[self.name]
        self._founders[self.name] = mine._replace(incarnation=self._fresh(known))
        self._confirmed.clear()
        self._confirms = None

    def _settle(self) -> None:
        if self._confirms is None and all(map(self._is_heard, self.names)):
            self._confirms = begun = _begun(self.me, self._founders)
            self._confirmed[begun.group_id] = begun
        if self._confirms is not None and not self.missing():
            self.outcome = self._confirms

    def _is_heard(self, name: str) -> bool:
        """Whether it says itself the id that this founder knows of it."""
        if name == self.name:
            return True
        said = self._heard.get(name)
        return said is not None and said.founders[name] == self._founders[name]


def _begun(me: str, founders: Mapping[str, Founder]) -> Begun:
    """Raises ConfigurationError if their programs read no format level in common."""
    everybody = sorted(founders.values())
    lowest = max(founder.reads.lowest for founder in everybody)
    highest = min(founder.reads.highest for founder in everybody)
    if lowest > highest:
        told = ", ".join(f"{name}: {founder.reads}" for name, founder in sorted(founders.items()))
        raise ConfigurationError(
            f"the founders' programs have no common format level ({told}): start the same version "
            "everywhere"
        )
    packed = msgpack.packb([[f.incarnation, f.witness, *f.reads] for f in everybody])
    return Begun(
        me,
        blake2b(packed, digest_size=8).hexdigest(),
        tuple(MemberInfo(*founder) for founder in everybody),
        lowest,
    )
