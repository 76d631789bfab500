"""Who has said what cannot be: the sender's name and the newest reason, for log and status. Plain state.

A refusal is raised where the sender's link is at hand (`receive`). What turns out later, when a message that had to
wait is delivered, is noted here only; the runtime takes it from here, and closes the link with its sender.

What only contradicts what this member has made of the messages of others is a *doubt*: one of those may be the liar.
It has no effect, the log says so, and nobody is blamed.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from crdtcast.exceptions import RemoteProtocolError

MOST_BLAMED = 1000
"""Of so many members the newest blame is kept; more are only counted with the last one."""


class Blame(NamedTuple):
    """What was wrong with the last thing that was refused, and how much was refused in all."""

    times: int
    text: str


class Blames:
    """Of one engine. by_sender: incarnation id -> blame."""

    __slots__ = ("_doubts", "_late", "by_sender")

    def __init__(self) -> None:
        self.by_sender: OrderedDict[str, Blame] = OrderedDict()
        self._late: dict[str, str] = {}
        self._doubts: dict[str, str] = {}

    def note(self, sender: str, text: str) -> None:
        """Something of this sender was refused."""
        known = self.by_sender.pop(sender, None)
        if len(self.by_sender) >= MOST_BLAMED:
            self.by_sender.popitem(last=False)
        self.by_sender[sender] = Blame(1 if known is None else known.times + 1, text)

    def refuse(self, sender: str, error: RemoteProtocolError) -> NoReturn:
        """Note what was wrong with something that is being received, and raise it with the sender's name in it."""
        text = str(error)
        if sender in text:
            self.note(sender, text)
            raise error
        text = f"{sender} sent an invalid message: {text}"
        self.note(sender, text)
        raise RemoteProtocolError(text) from error

    def note_late(self, sender: str, text: str) -> None:
        """The same, while nothing of it is being received."""
        self.note(sender, text)
        self._late[sender] = text

    def doubt(self, sender: str, text: str) -> None:
        """Something of this sender has no effect here, and may be no lie."""
        self._doubts[sender] = text

    def note_link(self, sender: str, text: str) -> None:
        """Its link has ended for what it sent there. What was refused here was noted at once."""
        known = self.by_sender.get(sender)
        if known is None or known.text not in text:
            self.note(sender, f"{sender} sent an invalid message: {text}")

    @property
    def is_late(self) -> bool:
        """Whether `take_late` or `take_doubts` would return something."""
        return bool(self._late or self._doubts)

    def take_late(self) -> Mapping[str, str]:
        """Whose links are to be closed, and why: what was noted late since the last call."""
        late, self._late = self._late, {}
        return late

    def take_doubts(self) -> Mapping[str, str]:
        """Whose claims had no effect here, and why: the newest of each since the last call."""
        doubts, self._doubts = self._doubts, {}
        return doubts
