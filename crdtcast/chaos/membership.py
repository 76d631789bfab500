"""The members of the group, as its nodes report them. One node's answer proves nothing: it may have been away, and not
know yet which members joined or were evicted.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import trio

from crdtcast.chaos.nodes import LateError, MisbehavedError

PATIENCE = 120.0
"""Seconds that a change of members may take while other faults happen."""

_PAUSE = 0.2

View = Mapping[str, Any]
"""A node's answer to `members`: its `view`, and the list `members`."""


class ChaosMachine(Protocol):
    """See `ChaosHost`."""

    name: str
    present: bool
    lies: int


M = TypeVar("M", bound=ChaosMachine)


class ChaosMembership:
    """Of the group of these hosts. ask: returns a node's answer, or raises MisbehavedError; see `Course`."""

    def __init__(self, hosts: Mapping[str, M], ask: Callable[..., Awaitable[Any]]) -> None:
        self._hosts = hosts
        self._ask = ask

    async def whole(self) -> None:
        """Wait until the expected members are in the same view, see the same members, are established and vote. Liars
        that were killed are evicted first. Raises LateError if that takes too long.

        A member that is about to return counts for no majority: if one of two others died meanwhile, it could only be
        evicted by force.
        """
        meant = {host.name: host for host in self._hosts.values() if host.present}
        liars = {host.name for host in self._hosts.values() if host.lies} - meant.keys()
        views: dict[str, View] = {}
        with trio.move_on_after(PATIENCE):
            while True:
                for host in meant.values():
                    with suppress(MisbehavedError):
                        views[host.name] = view = await self._ask(host, "members")
                        if dead := sorted(liars & _names(view)):
                            await self._ask(host, "evict", members=dead, seconds=10)
                if not amiss(meant, views):
                    return
                await trio.sleep(_PAUSE)
        why = "; ".join(amiss(meant, views))
        raise LateError(f"not all members see the expected members after {PATIENCE:g} s: {why}")

    async def evict(self, victim: ChaosMachine) -> None:
        """Wait until one of the others that had it as a member has evicted it. They are asked one after the other: some
        may have faults, too, but will be up. Raises LateError if none has.
        """
        others = [host for host in self._hosts.values() if host is not victim and host.present]
        knew = set[str]()
        last = "no node has answered"
        with trio.move_on_after(PATIENCE):
            while True:
                for host in others:
                    try:
                        view: View = await self._ask(host, "members")
                        if victim.name in _names(view):
                            knew.add(host.name)
                            await self._ask(host, "evict", members=[victim.name], seconds=10)
                            return
                        if host.name in knew:
                            return
                        last = f"{host.name} does not know it"
                    except MisbehavedError as error:
                        last = str(error)
                await trio.sleep(_PAUSE)
        raise LateError(f"{victim.name} is not evicted after {PATIENCE:g} s: {last}")


def amiss(meant: Collection[str], views: Mapping[str, View]) -> list[str]:
    """What is wrong in the last answers of the expected members. Empty if they agree on the view, on each other and on
    their incarnations, and each is established and votes.
    """
    found: dict[str, list[str]] = {}
    lives: dict[str, set[str]] = {}
    for viewer in sorted(meant):
        for complaint in _complaints(meant, views.get(viewer)):
            found.setdefault(complaint, []).append(viewer)
        for member in views[viewer]["members"] if viewer in views else ():
            lives.setdefault(member["name"], set()).add(member["incarnation"])
    lines = [f"{complaint} {', '.join(viewers)}" for complaint, viewers in sorted(found.items())]
    several = sorted(name for name, ids in lives.items() if len(ids) > 1)
    names = {viewer: view["view"]["name"] for viewer, view in views.items() if viewer in meant}
    if len(set(names.values())) > 1:
        lines.append(
            f"several views: {', '.join(f'{v} {name}' for v, name in sorted(names.items()))}"
        )
    return lines + [f"{name} appears in {len(lives[name])} incarnations" for name in several]


def _names(view: View) -> set[str]:
    return {member["name"] for member in view["members"]}


def _complaints(meant: Collection[str], view: View | None) -> list[str]:
    """The complaints of one member, each without its name, which follows."""
    if view is None:
        return ["no answer from"]
    seen = _names(view)
    return [
        *(f"{name} is still a member, at" for name in seen.difference(meant)),
        *(f"{name} is not a member, at" for name in set(meant) - seen),
        *(
            f"{member['name']} may not yet be known everywhere, at"
            for member in view["members"]
            if not member["established"] and member["name"] in meant
        ),
        *(
            f"{member['name']} has no vote yet, at"
            for member in view["members"]
            if not member["votes"] and member["name"] in meant
        ),
    ]
