"""Every error that crdtcast raises on purpose: one tree, so that `except CrdtcastError` catches all of it.

Each message says what happened, where, and what to do. Errors of other libraries are wrapped once, at the border,
with the cause kept. At the end: the text of an error in which a command ends.
"""

from collections.abc import Iterator


class CrdtcastError(Exception):
    """Base of all errors of this package."""


class LocalProtocolError(CrdtcastError):
    """The caller used an interface wrongly (an operation on a closed node, a payload that cannot be sent).

    The state is as it was before the call. Its sibling `RemoteProtocolError` blames the other side.
    """


class RemoteProtocolError(CrdtcastError):
    """A peer sent something that the protocol does not allow: a malformed frame, a length above the limit.

    The link is closed; nothing of the offending frame was applied.
    """


class NewerOperationError(RemoteProtocolError):
    """An operation that only a newer version of its data type knows: it is kept until this program is upgraded.

    Its sibling in meaning, a plain `RemoteProtocolError`, is an operation that no version knows: it is skipped.
    """


class EndedError(LocalProtocolError):
    """This incarnation is leaving, has left or was evicted, so it sends nothing. Join again to continue."""


class StoreFullError(LocalProtocolError):
    """This member holds too much unstable data, because another member does not acknowledge. Nothing was sent.

    Try again when that member is back, or was evicted.
    """


class NotReadyError(LocalProtocolError):
    """Not possible yet: for example, a member cannot admit another one. Nothing has changed; try again later."""


class TransitionError(LocalProtocolError):
    """An event that the present phase of a lifecycle does not allow. The phase stays; the message names both."""


class HandshakeError(RemoteProtocolError):
    """No link with a peer is possible: another protocol version, another group, a name used twice, our own address."""


class SupersededError(CrdtcastError):
    """Another process owns this node's identity or server now. Continuing would reuse dots: the process must stop."""


class RolledBackError(CrdtcastError):
    """A peer remembers more of this incarnation than its own journal: the journal is older than it should be.

    The incarnation has ended; the node continues under a new one.
    """


class InvalidOperationError(LocalProtocolError):
    """An operation was refused at its source, before it was tagged or sent: wrong type, wrong value, no rights."""


class TypeClashError(LocalProtocolError):
    """An object's name has another type: from an earlier use, or from a concurrent one that won.

    `name`, `wanted` and `found` are attributes; `found` is the same at every replica that has seen the same messages.
    """

    def __init__(self, message: str, *, name: str, wanted: str, found: str) -> None:
        super().__init__(message)
        self.name = name
        self.wanted = wanted
        self.found = found


class ConfigurationError(CrdtcastError):
    """Options contradict each other, or the state found at the start. The message says which ones, and what to do."""


class OutdatedError(ConfigurationError):
    """A format level of a group, or of a member's stored data, that this program does not read, or no longer reads.

    Nothing was changed. Start the program that the message asks for.
    """


class ServerError(CrdtcastError):
    """The Redis or Valkey server of a gateway is down, refuses the gateway, or sent an invalid answer."""


class ServerReadOnlyError(ServerError):
    """The server answers, but takes no writes now: its disk is full, or its memory."""


class JournalError(CrdtcastError):
    """A journal cannot be opened, written or synced: the disk is full or broken. Only durable data counts.

    The node ends. When it starts again it continues from the data on the disk.
    """


class UnusableInputError(CrdtcastError):
    """A file or directory passed to a tool is unreadable or has the wrong content. Exit code 2 on the command line."""


def expected_failure(error: BaseException) -> str | None:
    """The text of an error of ours, or of a group of only such errors; None for any other error."""
    if isinstance(error, CrdtcastError):
        return str(error)
    if not isinstance(error, BaseExceptionGroup):
        return None
    ours, others = error.split(CrdtcastError)
    if ours is None or others is not None:
        return None
    return "; ".join(dict.fromkeys(map(str, leaves(ours))))


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The single exceptions inside a group, however deeply nested, in order."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
