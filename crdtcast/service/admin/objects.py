"""Requests about a node's objects, in addition to those that every member answers."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

import trio

from crdtcast.causality.tags import Tag
from crdtcast.engine import known_deliveries
from crdtcast.exceptions import InvalidOperationError, LocalProtocolError
from crdtcast.group.member import Member
from crdtcast.replica.objects import known_types
from crdtcast.replica.replica import Replica
from crdtcast.service.admin.administered import Administered
from crdtcast.service.admin.server import Admin, Asked, seconds_of, text
from crdtcast.service.admin.values import shown


class AdministeredNode(Administered, Protocol):
    """The process of a node."""

    @property
    def member(self) -> Member: ...
    @property
    def replica(self) -> Replica | None:
        """None if the node is a witness."""

    def objects(self) -> Replica:
        """Raises ConfigurationError if the node is a witness."""

    async def durable(self) -> None:
        """Return when all operations so far are in the journal; at once without one."""


class NodeAdmin(Admin):
    """Answers for `crdtcast node`. See `Admin`."""

    def __init__(self, process: AdministeredNode, secrets: Sequence[bytes]) -> None:
        super().__init__(process, secrets)
        self._node = process
        self._requests |= {
            "verify": self._verify,
            "objects": self._objects,
            "get": self._get,
            "perform": self._perform,
            "delete": self._delete,
        }

    def _more_of_status(self) -> Asked:
        replica = self._node.replica
        if replica is None:
            return {}
        return {
            "objects": len(replica.objects()),
            "yielded": replica.machine.yielded,
            "unreadable": replica.unreadable,
        }

    async def _verify(self, asked: Asked) -> Any:
        outcome = await self._node.objects().verify(seconds_of(asked))
        return {"equal": outcome.equal, **asdict(outcome)}

    async def _objects(self, asked: Asked) -> Any:
        prefix = text(asked, "prefix", "")
        return [asdict(line) for line in self._node.objects().objects(prefix)]

    async def _get(self, asked: Asked) -> Any:
        name, held = text(asked, "name"), self._node.objects().held
        type_name = held.visible_type(name)
        if type_name is None:
            raise LocalProtocolError(f"this node has no object {name!r}")
        value = held.crdt((name, type_name)).value
        return {"name": name, "type": type_name, "value": shown(value)}

    async def _perform(self, asked: Asked) -> Any:
        replica = self._node.objects()
        args = asked.get("args", [])
        if not isinstance(args, list):
            raise LocalProtocolError(f"invalid args {args!r}: give a list")
        name, type_name = text(asked, "name"), text(asked, "type")
        wait, seconds = self._wait(asked), seconds_of(asked)
        if replica.held.type_named(type_name) is None:
            known = ", ".join(sorted(known_types()))
            raise InvalidOperationError(f"unknown type {type_name!r}: choose one of {known}")
        tag = replica.perform((name, type_name), text(asked, "operation"), *args)
        return await self._acknowledged(tag, wait, seconds)

    async def _delete(self, asked: Asked) -> Any:
        wait, seconds = self._wait(asked), seconds_of(asked)
        tag = await self._node.objects().delete(text(asked, "name"))
        return await self._acknowledged(tag, wait, seconds)

    def _wait(self, asked: Asked) -> str | int | None:
        """ "stable", or the number of members that must have it. Checked before the operation is done."""
        wait, members = asked.get("wait"), len(self._node.member.members)
        if wait is None or wait == "stable" or (isinstance(wait, int) and 1 <= wait <= members):
            return wait
        raise LocalProtocolError(
            f'invalid wait {wait!r}: give "stable", or a number of members from 1 to {members}'
        )

    async def _acknowledged(self, tag: Tag, wait: str | int | None, seconds: float) -> Any:
        """Return when the operation is durable, and has reached what `wait` asks for."""
        await self._node.durable()
        member = self._node.member
        with trio.move_on_after(seconds) as scope:
            if isinstance(wait, int):
                await member.wait_delivered(tag, count=wait)
            elif wait is not None:
                await member.wait_stable(tag)
        if scope.cancelled_caught:
            raise LocalProtocolError(self._why_not_acknowledged(tag, wait, seconds))
        return {"tag": list(tag.dot)}

    def _why_not_acknowledged(self, tag: Tag, wait: str | int | None, seconds: float) -> str:
        """The members that a message waits for, and what an operator can do."""
        counted = isinstance(wait, int)
        place = f"at {wait} members" if counted else "stable"
        rule = known_deliveries.lacking if counted else known_deliveries.unsettled
        missing = rule(self._node.member.engine, tag.dot)
        lacks = f"{self._described(missing)} has not acknowledged it. " if missing else ""
        return (
            f"message {tag.dot.counter} of {tag.dot.origin} was applied at this node, but is not "
            f"{place} after {seconds:g} s: {lacks}It gets there when all members are back, or "
            "when dead ones have been evicted; do not repeat it"
        )
