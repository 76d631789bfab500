"""Who is in the group: a fixed set of names, and for each the newest incarnation heard of. The older ones have ended.

Only a newer incarnation of the same name ends an incarnation.
"""

from collections.abc import Iterable

from crdtcast.causality.member_id import check_name, name_of, valid_incarnation
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError


class Members:
    """Names, current incarnations and ended ones."""

    __slots__ = ("changes", "current", "ended", "me", "name", "names")

    def __init__(self, me: str, names: Iterable[str]) -> None:
        if not valid_incarnation(me):
            raise ConfigurationError(f"{me!r} is not an incarnation id (see `new_incarnation`)")
        self.me: str = me
        self.name: str = name_of(me)
        self.names: tuple[str, ...] = tuple(sorted(set(names)))
        for name in self.names:
            check_name("node", name)
        if self.name not in self.names:
            raise ConfigurationError(
                f"{me} starts in a group without {self.name}: it has {', '.join(self.names)}"
            )
        self.current: dict[str, str] = {}
        self.ended: dict[str, None] = {}
        self.changes: int = 0  # of `current`

    @property
    def complete(self) -> bool:
        """Whether an incarnation of every name is known."""
        return len(self.current) == len(self.names)

    def checked(self, incarnation: str) -> str:
        """The name in an incarnation id of a peer. Raises RemoteProtocolError if the group has no such member."""
        name = name_of(incarnation) if isinstance(incarnation, str) else ""
        if name not in self.names or not valid_incarnation(incarnation):
            raise RemoteProtocolError(
                f"{incarnation!r} is not an incarnation of a member of this group "
                f"({', '.join(self.names)})"
            )
        return name

    def is_newer(self, incarnation: str) -> bool:
        """Whether it supersedes the known incarnation of its name."""
        return incarnation > self.current.get(name_of(incarnation), "")

    def learn(self, incarnation: str) -> str | None:
        """Make a newer incarnation the current one of its name. Returns the one that it ends, if there is one."""
        name = name_of(incarnation)
        previous = self.current.get(name)
        self.current[name] = incarnation
        self.changes += 1
        if previous is not None:
            self.ended[previous] = None
        return previous

    def add_ended(self, incarnation: str) -> None:
        """Remember an incarnation that had ended before it was heard of."""
        self.ended[incarnation] = None
