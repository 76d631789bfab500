"""A replicated state machine on the causal broadcast: what happens to it, as callbacks."""

from abc import ABC, abstractmethod

from crdtcast.causality.tags import Dot, Tag
from crdtcast.exceptions import ConfigurationError, LocalProtocolError


class StateMachine(ABC):
    """Subclass it, and give it to `open_member`, or to `Member.run`.

    All methods are synchronous and are called in the Trio thread, one at a time but for one case:
    `tcdeliver` and `tcstable` may themselves call `tcbroadcast`, which delivers the new message to
    the same machine before it returns. An exception out of any of them ends the node, which raises
    it; one out of a joiner's `set_state` lets the joiner leave the group first.
    """

    @abstractmethod
    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        """A message, in causal order, exactly once. Own ones, too: inside `tcbroadcast`."""

    def tcstable(self, tag: Tag) -> None:  # noqa: B027 (to be overridden by those who need it)
        """No message concurrent with `tag`'s can be delivered here any more. In causal order."""

    def get_state(self) -> bytes:
        """All that the messages delivered so far amount to, for a member that joins here. It goes
        with the tags that are not stable yet: whatever is kept for telling those from concurrent
        ones belongs into it.
        """
        return b""

    def set_state(self, state: bytes) -> None:  # noqa: B027
        """Become what another member's `get_state` has returned. What was here before is gone."""

    def reissue(self, payload: bytes, dot: Dot) -> bytes | None:
        """An own message that the group does not have: this member was evicted, and is back with
        the group's state (`set_state` came before). What to send in its place, or None for nothing.
        `dot` is the one it had; by default it goes out as it was. NotReadyError: ask again when the
        member has got on, and let what comes behind it wait.
        """
        return payload


def checked(machine: StateMachine | None, node: str) -> StateMachine | None:
    """`machine`, if it can be one. Raises ConfigurationError."""
    if machine is None or isinstance(machine, StateMachine):
        return machine
    if isinstance(machine, type):
        raise ConfigurationError(
            f"node {node!r}: machine={machine.__name__} is a class: give an instance of it, "
            f"machine={machine.__name__}()"
        )
    raise ConfigurationError(
        f"node {node!r}: machine is a {type(machine).__name__}: give an instance of a subclass of "
        "crdtcast.StateMachine"
    )


def already_taken(name: str) -> LocalProtocolError:
    """The error of a second taker."""
    return LocalProtocolError(
        f"the machine of node {name!r} takes its events: iterate over it, or give it a machine"
    )
