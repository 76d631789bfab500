"""Peers that sent something impossible: the sender's name and the newest reason, for log and status. Plain state.

`receive` raises a refusal, since the sender's link is at hand. What shows only later, when a waiting message is
delivered, is noted here; the runtime takes it from here, and closes the link with the sender.

A claim that contradicts only what this member has concluded from messages of others is a *doubt*: one of those others
may be the liar. It has no effect, the log says so, and no member is blamed.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from crdtcast.exceptions import RemoteProtocolError

MOST_BLAMED = 1000
"""Senders whose newest blame is kept. Beyond that, the one blamed least recently is dropped."""


class Blame(NamedTuple):
    """How often something was refused, and what was wrong the last time."""

    times: int
    text: str


class Blames:
    """The blames of one engine. by_sender: incarnation id -> blame."""

    __slots__ = ("_doubts", "_late", "by_sender")

    def __init__(self) -> None:
        self.by_sender: OrderedDict[str, Blame] = OrderedDict()
        self._late: dict[str, str] = {}
        self._doubts: dict[str, str] = {}

    def note(self, sender: str, text: str) -> None:
        """Note that something of this sender was refused."""
        known = self.by_sender.pop(sender, None)
        if len(self.by_sender) >= MOST_BLAMED:
            self.by_sender.popitem(last=False)
        self.by_sender[sender] = Blame(1 if known is None else known.times + 1, text)

    def refuse(self, sender: str, error: RemoteProtocolError) -> NoReturn:
        """Note what is wrong with something that is being received, and raise it with the sender's name."""
        text = str(error)
        if sender in text:
            self.note(sender, text)
            raise error
        text = f"{sender} sent an invalid message: {text}"
        self.note(sender, text)
        raise RemoteProtocolError(text) from error

    def note_late(self, sender: str, text: str) -> None:
        """Note what shows only after it was received; `take_late` returns it."""
        self.note(sender, text)
        self._late[sender] = text

    def doubt(self, sender: str, text: str) -> None:
        """A claim of this sender has no effect at this member, but may be honest."""
        self._doubts[sender] = text

    def note_link(self, sender: str, text: str) -> None:
        """Note why the sender's link was closed. What the engine itself refused was noted at once."""
        known = self.by_sender.get(sender)
        if known is None or known.text not in text:
            self.note(sender, f"{sender} sent an invalid message: {text}")

    @property
    def is_late(self) -> bool:
        """Whether `take_late` or `take_doubts` would return something."""
        return bool(self._late or self._doubts)

    def take_late(self) -> Mapping[str, str]:
        """Sender -> why its link is to be closed: what was noted late since the last call."""
        late, self._late = self._late, {}
        return late

    def take_doubts(self) -> Mapping[str, str]:
        """Sender -> why its claim had no effect: the newest doubt of each since the last call."""
        doubts, self._doubts = self._doubts, {}
        return doubts
