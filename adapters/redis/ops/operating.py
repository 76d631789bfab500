"""Operators' requests at a gateway's admin socket: `crdtcast status`, `members`, `verify`, `repair`, `evict`, …

The socket and its protocol are those of `crdtcast node` (`crdtcast.service.admin.server`). This file has the gateway's
answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import trio

from crdtcast.adapters.redis.ops.probes import GatewayProbes, not_in
from crdtcast.adapters.redis.store.databases import in_words, name_of
from crdtcast.engine import GroupEngine, Standing
from crdtcast.exceptions import ConfigurationError, LocalProtocolError, NotReadyError
from crdtcast.group.status import Status
from crdtcast.service.admin import sockets
from crdtcast.service.admin.administered import Departure, departed
from crdtcast.service.admin.server import Admin, Asked, text
from crdtcast.service.settings import MemberSettings, is_path
from crdtcast.transport.channel import Channel

if TYPE_CHECKING:
    from crdtcast.adapters.redis.gateway import Gateway
    from crdtcast.adapters.redis.group.lifecycle import Belonging


_FAREWELL_SECONDS = 1.0
_OBJECTS = (
    "a gateway has no objects, only the keys of its server: use the gateway's own port, as "
    "clients do"
)


class Operated:
    """A gateway as `Admin` sees it: the process, and its member."""

    def __init__(self, gateway: Gateway, probes: GatewayProbes, leave_seconds: float) -> None:
        self.gateway = self._gateway = gateway
        self._probes = probes
        self._answers: trio.Event | None = None
        self.settings: SimpleNamespace = SimpleNamespace(
            name=gateway.options.node.name, leave_seconds=leave_seconds
        )

    # The process

    def status(self) -> Status:
        return self._probes.status()

    def waits_for(self) -> str | None:
        return self._probes.waits_for()

    @property
    def member(self) -> Operated:
        """Raises NotReadyError if the gateway is not a member yet, ConfigurationError if the members are fixed."""
        if self._gateway.committer.engine is None:
            raise NotReadyError(not_in(self._gateway))
        if self._gateway.belonging is None:
            raise self._fixed()
        return self

    async def leave(self, *, plain: bool = False) -> Departure:
        """plain: the server becomes a plain database."""
        belonging = self._belonging
        self._answers = self._answers or trio.Event()
        with trio.move_on_after(self.settings.leave_seconds) as scope:
            await belonging.leave(plain=plain)
            await belonging.left.wait()
        if not scope.cancelled_caught:
            return Departure()
        return departed(belonging.engine)

    def stop(self) -> None:
        if self._answers is not None:
            self._answers.set()
        self._gateway.stop()

    async def answered(self) -> None:
        """Return when the operator who asked to leave has the answer."""
        if self._answers is not None:
            with trio.move_on_after(_FAREWELL_SECONDS):
                await self._answers.wait()

    # The member

    @property
    def _belonging(self) -> Belonging:
        belonging = self._gateway.belonging
        if belonging is None:
            raise self._fixed()
        return belonging

    def _fixed(self) -> ConfigurationError:
        return ConfigurationError(
            f"the members of group {self._gateway.options.node.group!r} are fixed: this command "
            "needs a group whose members come and go (--found, --join)"
        )

    @property
    def engine(self) -> GroupEngine:
        return self._belonging.engine

    @property
    def incarnation(self) -> str:
        return self.engine.me

    @property
    def standing(self) -> Standing:
        return self.engine.standing

    @property
    def channel(self) -> Channel:
        return self._belonging.peers.channel

    async def changed(self) -> None:
        await self._belonging.changed.park()

    def evict(self, *members: str, force: bool = False) -> None:
        self._belonging.evict(*members, force=force)

    def withdraw(self, *members: str) -> None:
        self._belonging.withdraw(*members)

    def raise_level(self, level: int) -> None:
        self._belonging.raise_level(level)

    def surrender(self) -> None:
        self._belonging.surrender()

    def cut(self, name: str) -> None:
        self._belonging.peers.cut(self._belonging.other(name))

    def heal(self, name: str) -> None:
        self._belonging.peers.heal(self._belonging.other(name))


class GatewayAdmin(Admin):
    """Answers for a gateway: the requests that every member answers, and those about keys."""

    def __init__(self, gateway: Gateway, operated: Operated, secrets: Sequence[bytes]) -> None:
        super().__init__(operated, secrets, objects=_OBJECTS)
        self._gateway = gateway
        self._requests |= {"verify": self._verify, "repair": self._repair}

    async def _verify(self, asked: Asked) -> Any:
        outcome = await self._gateway.rounds.verify()
        silent = sorted(set(self._gateway.others_with_data()) - set(outcome["members"]))
        different = {
            in_words(key): dict(found.values) for key, found in sorted(outcome["different"].items())
        }
        return {
            "equal": not different and not silent,
            "objects": outcome["keys"],
            "compared": outcome["keys"],
            "changing": 0,
            "unknown": 0,
            "different": different,
            "silent": silent,
            "members": outcome["members"],
            "not_replicated": outcome["not_replicated"],
        }

    async def _repair(self, asked: Asked) -> Any:
        key = asked.get("key")
        source = asked.get("source")
        wanted = None
        if key is not None:
            wanted = self._name(
                text(asked, "key").encode(errors="surrogateescape"), asked.get("db")
            )
        return await self._gateway.rounds.repair(
            wanted, None if source is None else text(asked, "source")
        )

    def _name(self, key: bytes, db: object) -> bytes:
        databases = self._gateway.committer.keyspace.databases
        if db is None or (type(db) is int and db in databases.clients):
            return name_of(db or 0, key)
        raise LocalProtocolError(
            f"invalid db {db!r}: the server has {databases.count} databases, and {databases.ours} "
            "is the gateway's own"
        )


async def serve_operators(
    operated: Operated,
    settings: MemberSettings,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the admin socket until cancelled. Raises ConfigurationError if it cannot listen there."""
    secrets = () if is_path(settings.admin_place) else settings.secrets()
    listener = await sockets.listen_at(settings.admin_place)
    task_status.started()
    admin = GatewayAdmin(operated.gateway, operated, secrets)
    await trio.serve_listeners(admin.serve, [listener])
