"""What a gateway commits, and what it needs of the world around it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Protocol

from crdtcast.causality.messages import Transmit
from crdtcast.causality.tags import Dot, Tag
from tests.adapters.redis.designs.recorded.commands import PLAIN, Command, Reply
from tests.adapters.redis.designs.recorded.faults import Fault
from tests.adapters.redis.designs.recorded.server import Answer, Exec, Record

if TYPE_CHECKING:
    from tests.adapters.redis.designs.recorded.gateway import Gateway


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for: one command, or several as one MULTI, or as one script."""

    number: int
    commands: tuple[Command, ...]
    is_script: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether its effects are known before it is carried out."""
        return len(self.commands) == 1 and self.commands[0].name in PLAIN


@dataclass(slots=True)
class Commit:
    """One commit in flight. derives: whether it brings a message that was derived from a record."""

    plan: Exec
    requests: list[Request]
    outbox: list[Transmit]
    vector: dict[str, int]
    derives: bool
    unsure: frozenset[Dot]
    """Own messages whose clients wait for the answer."""
    executed: bool = False
    answer: Answer | None = None


@dataclass(slots=True)
class Held:
    """What may leave once the server has synced that much."""

    position: int
    outbox: list[Transmit]
    vector: dict[str, int]
    derives: bool


class Surroundings(Protocol):
    """What a gateway needs of the world around it."""

    fixed: bool
    early: bool
    """Whether a derived message leaves as soon as it is derived, not when it is stored."""
    names: tuple[str, ...]
    now: int
    faults: frozenset[Fault]
    random: Random

    def answered(self, request: Request, replies: tuple[Reply, ...]) -> None: ...
    def not_written(self, request: Request) -> None: ...
    def derived(self, record: Record, tag: Tag) -> None: ...
    def yielded(self, request: int) -> None: ...
    def leaves(self, gateway: Gateway, outbox: list[Transmit]) -> None: ...
    def fresh(self, name: str, previous: str) -> str: ...
