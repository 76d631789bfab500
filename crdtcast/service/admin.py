"""The admin socket of `crdtcast node`: one JSON object a line asks, one a line answers.

`{"do": "status"}` is answered by `{"ok": true, "result": …}`, or `{"ok": false, "error": "…"}` with one
line that says what to do.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import trio

from crdtcast.exceptions import CrdtcastError, LocalProtocolError, RemoteProtocolError
from crdtcast.incarnation import name_of
from crdtcast.link import STREAM_ERRORS
from crdtcast.service.lines import Lines, greet
from crdtcast.service.values import shown
from crdtcast.status import as_json
from crdtcast.tags import Tag

if TYPE_CHECKING:
    from crdtcast.service.run import NodeProcess

_GREETING_SECONDS = 5.0
_FAREWELL_SECONDS = 1.0
_SECONDS = 30.0
"""How long evictions, comparisons and waits take at most, unless the request says it."""
_MOST_SECONDS = 365 * 86_400.0

_LOOKS = frozenset({"status", "members", "objects", "get"})
"""Requests that change nothing."""

Asked = dict[str, Any]


class Admin:
    """Answers for one process. secret: what clients have to know; None where the socket is enough."""

    def __init__(self, process: "NodeProcess", secret: bytes | None) -> None:
        self._process = process
        self._secret = secret
        self._logger = logging.getLogger("crdtcast.admin")
        self._ends = False
        self._compared = trio.lowlevel.ParkingLot()
        if process.shelf is not None:
            process.shelf.comparing.on_news = self._got_on
        self._requests: dict[str, Callable[[Asked], Awaitable[Any]]] = {
            "status": self._status,
            "members": self._members,
            "verify": self._verify,
            "evict": self._evict,
            "surrender": self._surrender,
            "leave": self._leave,
            "stop": self._stop,
            "cut": self._cut,
            "heal": self._heal,
            "objects": self._objects,
            "get": self._get,
            "perform": self._perform,
            "delete": self._delete,
        }

    async def serve(self, stream: trio.abc.Stream) -> None:
        """One connection, to its end. Never raises."""
        lines = Lines(stream)
        try:
            with trio.fail_after(_GREETING_SECONDS):
                trusted = await greet(lines, self._process.settings.name, self._secret)
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
        if request is None:
            known = ", ".join(self._requests)
            return _refused(f"there is no request {do!r}; there are {known}")
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
        found["ready"] = process.ready()
        if process.shelf is not None:
            found["objects"] = len(process.shelf.listing())
            found["yielded"] = process.shelf.yielded
            found["unreadable"] = process.shelf.unreadable
        return found

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

    async def _verify(self, asked: Asked) -> Any:
        shelf, member = self._process.objects(), self._process.member
        await member.ready()
        number = secrets.token_hex(8)
        comparing = shelf.comparing
        names = [name for name, each in member.members.items() if not each.witness]
        comparing.ask(number, names)
        with trio.move_on_after(_seconds(asked)):
            while comparing.missing(number):
                await self._compared.park()
        outcome = comparing.end(number)
        return {"equal": outcome.equal, "members": sorted(names), **asdict(outcome)}

    def _got_on(self, number: str) -> None:
        self._compared.unpark_all()

    # Members

    async def _evict(self, asked: Asked) -> Any:
        member, victim = self._process.member, _text(asked, "member")
        force = asked.get("force") is True
        before = {i for i in member.engine.members if victim in (i, name_of(i))}
        member.evict(victim, force=force)
        with trio.move_on_after(_seconds(asked)):
            while before & member.engine.members.keys():
                await member.changed()
        left = sorted(map(name_of, member.engine.members))
        if not before & member.engine.members.keys():
            return {"evicted": sorted(before), "members": left}
        others = ", ".join(each for each in left if each not in map(name_of, before))
        raise LocalProtocolError(
            f"{victim} is not cut off yet: the others ({others}) have to say what they have of it, and be a "
            "majority. It goes on when they are back; evict those that are gone, too, or use --force, "
            "which does without a majority"
        )

    async def _surrender(self, asked: Asked) -> Any:
        self._process.member.surrender()

    async def _leave(self, asked: Asked) -> Any:
        member = self._process.member
        self._ends = True
        if not await self._process.leave():
            raise LocalProtocolError(
                f"not left within {self._process.settings.leave_seconds:g} s; the node stops now, and "
                "the others take it for dead: evict it there"
            )
        return {"left": member.incarnation}

    async def _stop(self, asked: Asked) -> Any:
        self._ends = True

    async def _cut(self, asked: Asked) -> Any:
        self._process.member.cut(_text(asked, "member"))

    async def _heal(self, asked: Asked) -> Any:
        self._process.member.heal(_text(asked, "member"))

    # Objects

    async def _objects(self, asked: Asked) -> Any:
        prefix = _text(asked, "prefix", "")
        return [asdict(line) for line in self._process.objects().listing(prefix)]

    async def _get(self, asked: Asked) -> Any:
        name = _text(asked, "name")
        type_name, value = self._process.objects().value(name)
        return {"name": name, "type": type_name, "value": shown(value)}

    async def _perform(self, asked: Asked) -> Any:
        shelf = self._process.objects()
        args = asked.get("args", [])
        if not isinstance(args, list):
            raise LocalProtocolError(f"args is {args!r}: give a list")
        name, type_name = _text(asked, "name"), _text(asked, "type")
        wait, seconds = self._wait(asked), _seconds(asked)
        tag = shelf.perform(name, type_name, _text(asked, "operation"), args)
        return await self._acknowledged(tag, wait, seconds)

    async def _delete(self, asked: Asked) -> Any:
        wait, seconds = self._wait(asked), _seconds(asked)
        tag = self._process.objects().delete(_text(asked, "name"))
        return await self._acknowledged(tag, wait, seconds)

    def _wait(self, asked: Asked) -> str | int | None:
        """ "stable", or how many members have to have it: looked at before anything is done."""
        wait, members = asked.get("wait"), len(self._process.member.members)
        if wait is None or wait == "stable" or (isinstance(wait, int) and 1 <= wait <= members):
            return wait
        raise LocalProtocolError(
            f'wait is {wait!r}: give "stable", or how many of the {members} members are to have it'
        )

    async def _acknowledged(self, tag: Tag, wait: str | int | None, seconds: float) -> Any:
        """When it is durable here, and where it is to be waited for."""
        await self._process.durable()
        member = self._process.member
        with trio.move_on_after(seconds) as scope:
            if isinstance(wait, int):
                await member.wait_delivered(tag, count=wait)
            elif wait is not None:
                await member.wait_stable(tag)
        if scope.cancelled_caught:
            raise LocalProtocolError(
                f"message {tag.dot.counter} of {tag.dot.origin} has taken effect here, and is not where "
                "it was to be waited for: look at `crdtcast members` for who is silent, and do not "
                "repeat it"
            )
        return {"tag": list(tag.dot)}


def _refused(why: str) -> dict[str, Any]:
    return {"ok": False, "error": " ".join(why.split())}


def _text(asked: Asked, key: str, default: str | None = None) -> str:
    value = asked.get(key, default)
    if isinstance(value, str):
        return value
    raise LocalProtocolError(f"{key} is {value!r}: give a text")


def _seconds(asked: Asked) -> float:
    value = asked.get("seconds", _SECONDS)
    if isinstance(value, (int, float)) and value >= 0:
        return min(value, _MOST_SECONDS)
    raise LocalProtocolError(f"seconds is {value!r}: give a number")
