"""The admin socket of a node or gateway: one JSON object a line asks, one a line answers.

`{"do": "status"}` is answered by `{"ok": true, "result": …}`, or `{"ok": false, "error": "…"}` with one
line that says what to do.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import trio

from crdtcast.engine import acknowledged
from crdtcast.exceptions import CrdtcastError, LocalProtocolError, RemoteProtocolError
from crdtcast.incarnation import name_of
from crdtcast.link import STREAM_ERRORS
from crdtcast.service import views
from crdtcast.service.administered import Administered
from crdtcast.service.lines import Lines, greet
from crdtcast.service.policy import level_to_raise, why_not_evicted
from crdtcast.service.reserved import unreserved
from crdtcast.status import as_json

_GREETING_SECONDS = 5.0
_FAREWELL_SECONDS = 1.0
_LOOK_SECONDS = 0.1
_SECONDS = 30.0
"""How long evictions, comparisons and waits take at most, unless the request says it."""
_MOST_SECONDS = 365 * 86_400.0

_LOOKS = frozenset({"status", "members", "objects", "get"})
"""Requests that change nothing."""

_OF_OBJECTS = frozenset({"verify", "objects", "get", "perform", "delete"})
"""Requests that only processes with objects answer."""

Asked = dict[str, Any]


class Admin:
    """Answers for one process. secrets: one that clients have to know; none where the socket is enough.

    Beside what is asked of every member there is what is asked of a node's objects: `NodeAdmin`. objects: for
    others, where to turn for that.
    """

    def __init__(self, process: Administered, secrets: Sequence[bytes], objects: str = "") -> None:
        self._process = process
        self._elsewhere = objects
        self._secrets = secrets
        self._logger = logging.getLogger("crdtcast.admin")
        self._ends = False
        self._requests: dict[str, Callable[[Asked], Awaitable[Any]]] = {
            "status": self._status,
            "members": self._members,
            "evict": self._evict,
            "surrender": self._surrender,
            "raise": self._raise,
            "leave": self._leave,
            "stop": self._stop,
            "cut": self._cut,
            "heal": self._heal,
        }

    async def serve(self, stream: trio.abc.Stream) -> None:
        """One connection, to its end. Never raises."""
        lines = Lines(stream)
        try:
            with trio.fail_after(_GREETING_SECONDS):
                trusted = await greet(lines, self._process.settings.name, self._secrets)
            while trusted and (asked := await lines.receive()) is not None:
                answer = await self._answer(asked)
                try:
                    await lines.send(answer)
                finally:
                    if self._ends:
                        self._process.stop()
        except RemoteProtocolError as error:
            self._logger.warning("an operator's connection is closed: %s", error)
            with trio.move_on_after(_FAREWELL_SECONDS), suppress(*STREAM_ERRORS):
                await lines.send(_refused(str(error)))
        except trio.TooSlowError:
            self._logger.warning("an operator's connection is closed: it says nothing")
        except STREAM_ERRORS:
            pass
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _answer(self, asked: Asked) -> dict[str, Any]:
        do = asked.get("do")
        request = self._requests.get(str(do))
        if request is None and self._elsewhere and str(do) in _OF_OBJECTS:
            return _refused(self._elsewhere)
        if request is None:
            known = ", ".join(self._requests)
            return _refused(f"there is no request {do!r} here; there are {known}")
        try:
            return {"ok": True, "result": await request(asked)}
        except CrdtcastError as error:
            return _refused(str(error))
        except Exception as error:
            if do not in _LOOKS:
                raise  # it may be half done: the node ends, as with any error of its application
            self._logger.exception("unexpected error at %s", do)
            return _refused(f"{do}: unexpected {type(error).__name__}: look into the node's log")

    # Looking

    async def _status(self, asked: Asked) -> Any:
        process = self._process
        found = as_json(process.status())
        found["waits_for"] = process.waits_for()
        found["ready"] = found["waits_for"] is None
        return found | self._more_of_status()

    def _more_of_status(self) -> Asked:
        return {}

    async def _members(self, asked: Asked) -> Any:
        found = await self._status(asked)
        suspects = {suspect["name"]: suspect for suspect in found["suspects"]}
        holders = {holder["name"]: holder["since"] for holder in found["held_back_by"]}
        return [
            {
                **member,
                "suspect": suspects.get(member["name"]),
                "holds_back_since": holders.get(member["name"]),
            }
            for member in found["members"]
        ]

    # Members

    async def _evict(self, asked: Asked) -> Any:
        member, victim = self._process.member, text(asked, "member")
        force = asked.get("force") is True
        before = {i for i in member.engine.members if victim in (i, name_of(i))}
        await unreserved(member)
        member.evict(victim, force=force)
        with trio.move_on_after(seconds_of(asked)):
            while before & member.engine.members.keys():
                await member.changed()
        left = sorted(map(name_of, member.engine.members))
        if not before & member.engine.members.keys():
            return {"evicted": sorted(before), "members": left}
        suspects = {suspect.name for suspect in self._process.status().suspects}
        raise LocalProtocolError(why_not_evicted(member.engine, victim, before, suspects))

    async def _raise(self, asked: Asked) -> Any:
        member, wanted = self._process.member, asked.get("level")
        if wanted is not None and (type(wanted) is not int or wanted < 1):
            raise LocalProtocolError(f"level is {wanted!r}: give a number")
        level = level_to_raise(member.engine, wanted)
        await unreserved(member)
        tag = member.raise_level(level)
        with trio.move_on_after(seconds_of(asked)):
            while member.engine.level < level:
                with trio.move_on_after(_LOOK_SECONDS):
                    await member.changed()
        if member.engine.level >= level:
            return {"level": level}
        waits = self._described(acknowledged.unsettled(member.engine, tag.dot)) or "this member"
        raise LocalProtocolError(
            f"format level {level} is asked for, and not in force yet: it lacks an acknowledgement of {waits}. That "
            "comes by itself when all are back and read it; `crdtcast status` says when"
        )

    def _described(self, incarnations: Sequence[str]) -> str:
        """Names of members, and what keeps them from acknowledging anything."""
        victims = self._process.member.engine.victims
        silences = {each.name: each.silence for each in self._process.status().suspects}
        words = []
        for who in incarnations:
            name = name_of(who)
            if who in victims:
                words.append(f"{name} (being evicted)")
            elif name in silences:
                words.append(f"{name} (silent for {views.seconds(silences[name])})")
            else:
                words.append(name)
        return ", ".join(words)

    async def _surrender(self, asked: Asked) -> Any:
        self._process.member.surrender()

    async def _leave(self, asked: Asked) -> Any:
        member = self._process.member
        departure = await self._process.leave()
        self._ends = True  # not before: it may be refused, and others may ask meanwhile
        if (warning := departure.warning(self._process.settings.leave_seconds)) is not None:
            self._logger.warning("%s", warning)  # who has asked may be gone by now
        if not departure.done:
            raise LocalProtocolError(
                f"not left within {self._process.settings.leave_seconds:g} s; the node stops now, and "
                "the others take it for dead: evict it there"
            )
        return {"left": member.incarnation, "silent": list(departure.silent)}

    async def _stop(self, asked: Asked) -> Any:
        self._ends = True

    async def _cut(self, asked: Asked) -> Any:
        self._process.member.cut(text(asked, "member"))

    async def _heal(self, asked: Asked) -> Any:
        self._process.member.heal(text(asked, "member"))


def _refused(why: str) -> dict[str, Any]:
    return {"ok": False, "error": " ".join(why.split())}


def text(asked: Asked, key: str, default: str | None = None) -> str:
    """A text of the request. LocalProtocolError if it is none."""
    value = asked.get(key, default)
    if isinstance(value, str):
        return value
    raise LocalProtocolError(f"{key} is {value!r}: give a text")


def seconds_of(asked: Asked) -> float:
    """How long it may take. LocalProtocolError if that is no number."""
    value = asked.get("seconds", _SECONDS)
    if isinstance(value, (int, float)) and value >= 0:
        return min(value, _MOST_SECONDS)
    raise LocalProtocolError(f"seconds is {value!r}: give a number")
