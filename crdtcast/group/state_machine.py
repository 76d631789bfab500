"""A replicated state machine on the causal broadcast, with its events as callbacks."""

from abc import ABC, abstractmethod

from crdtcast.causality.tags import Dot, Tag
from crdtcast.exceptions import ConfigurationError, LocalProtocolError


class StateMachine(ABC):
    """Subclass it, and pass an instance to `open_member`, or to `Member.run`.

    All methods are synchronous and run in the Trio thread, one at a time, with one exception: `tcdeliver` and
    `tcstable` may call `tcbroadcast`, which delivers the new message to the same state machine before it returns. An
    exception in any of them ends the node, which raises it. An exception in a joining member's `set_state` makes the
    member leave the group first.
    """

    @abstractmethod
    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        """A message, in causal order, exactly once. Own messages are included: they come inside `tcbroadcast`."""

    def tcstable(self, tag: Tag) -> None:  # noqa: B027 (to be overridden by those who need it)
        """This member can no longer deliver a message concurrent with `tag`'s. Called in causal order."""

    def get_state(self) -> bytes:
        """Return the state after all messages delivered so far, for a member that joins through this one. Unstable tags
        go with it, so include all data that distinguishes them from concurrent ones.
        """
        return b""

    def set_state(self, state: bytes) -> None:  # noqa: B027
        """Replace the current state by one that another member's `get_state` has returned."""

    def reissue(self, payload: bytes, dot: Dot) -> bytes | None:
        """Return what to send instead of an own message that the group lacks, or None for nothing.

        This member was evicted, and is back with the group's state (`set_state` came before). `dot` is the message's
        former dot. By default the payload is sent unchanged. Raise NotReadyError to be asked again later; further
        messages wait.
        """
        return payload


class Broken(StateMachine):
    """Takes the place of a state machine that has failed, until its node has ended: it gives its state to nobody."""

    def __init__(self, node: str) -> None:
        self._node = node

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        """Nothing more is applied."""

    def get_state(self) -> bytes:
        """Raises LocalProtocolError."""
        raise LocalProtocolError(
            f"cannot save or transfer the state of {self._node!r}: its state machine has failed on a message: fix it, "
            "and open the node again"
        )


def checked(machine: StateMachine | None, node: str) -> StateMachine | None:
    """`machine`, if it is valid. Raises ConfigurationError if it is not."""
    if machine is None or isinstance(machine, StateMachine):
        return machine
    if isinstance(machine, type):
        raise ConfigurationError(
            f"node {node!r}: machine={machine.__name__} is a class: pass an instance, "
            f"machine={machine.__name__}()"
        )
    raise ConfigurationError(
        f"node {node!r}: machine is a {type(machine).__name__}: pass an instance of a subclass of "
        "crdtcast.StateMachine"
    )


def already_taken(name: str) -> LocalProtocolError:
    """The error of iterating over events, or running a machine, when there is a machine already."""
    return LocalProtocolError(
        f"the state machine of node {name!r} receives its events: open the member without one to "
        "iterate over it"
    )
