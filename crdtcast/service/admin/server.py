"""The admin socket of a node or gateway: one JSON object a line asks, one a line answers.

`{"do": "status"}` is answered by `{"ok": true, "result": …}`, or by `{"ok": false, "error": "…"}` with one line that
says what to do. If a request takes long, lines that say what it waits for come first: `{"waits": "…"}`.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import trio

from crdtcast.causality.member_id import name_of
from crdtcast.exceptions import CrdtcastError, LocalProtocolError, RemoteProtocolError
from crdtcast.group.status import as_json
from crdtcast.service.admin import views
from crdtcast.service.admin.administered import Administered, AdministeredMembership, Departure
from crdtcast.service.admin.lines import Lines, greet
from crdtcast.service.policy import level_to_raise, why_not_evicted
from crdtcast.transport.link import STREAM_ERRORS

_GREETING_SECONDS = 5.0
_FAREWELL_SECONDS = 1.0
_LOOK_SECONDS = 0.05
_TELL_SECONDS = 0.5
_TELL_AGAIN_SECONDS = 30.0
_SECONDS = 30.0
"""Longest duration of evictions, comparisons and waits, unless the request sets another one."""
_MOST_SECONDS = 365 * 86_400.0

_LOOKS = frozenset({"status", "members", "objects", "get"})
"""Requests that change nothing."""

_OF_OBJECTS = frozenset({"verify", "objects", "get", "perform", "delete"})
"""Requests that only a process with objects answers."""

Asked = dict[str, Any]
Tell = Callable[[str], Awaitable[None]]
"""Sends a line to the client before the answer."""


class Admin:
    """Answers for one process; `NodeAdmin` also answers requests about objects.

    secrets: clients must know one of them; empty if the socket is protection enough.
    objects: the refusal of requests about objects, which says where to turn.
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
            "withdraw": self._withdraw,
            "surrender": self._surrender,
            "stop": self._stop,
            "cut": self._cut,
            "heal": self._heal,
        }
        self._lasting: dict[str, Callable[[Asked, Tell], Awaitable[Any]]] = {
            "evict": self._evict,
            "raise": self._raise,
            "leave": self._leave,
        }

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection to its end. Never raises."""
        lines = Lines(stream)
        try:
            with trio.fail_after(_GREETING_SECONDS):
                trusted = await greet(lines, self._process.settings.name, self._secrets)
            while trusted and (asked := await lines.receive()) is not None:
                answer = await self._answer(asked, partial(_tell, lines))
                try:
                    await lines.send(answer)
                finally:
                    if self._ends:
                        self._process.stop()
        except RemoteProtocolError as error:
            self._logger.warning("closed an operator's connection: %s", error)
            with trio.move_on_after(_FAREWELL_SECONDS), suppress(*STREAM_ERRORS):
                await lines.send(_refused(str(error)))
        except trio.TooSlowError:
            self._logger.warning("closed an operator's connection: it sent nothing")
        except STREAM_ERRORS:
            pass
        finally:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _answer(self, asked: Asked, tell: Tell) -> dict[str, Any]:
        do = asked.get("do")
        request = self._requests.get(str(do))
        if (lasting := self._lasting.get(str(do))) is not None:

            async def request(asked: Asked) -> Any:
                return await lasting(asked, tell)

        if request is None and self._elsewhere and str(do) in _OF_OBJECTS:
            return _refused(self._elsewhere)
        if request is None:
            known = ", ".join([*self._requests, *self._lasting])
            return _refused(f"unknown request {do!r}: use one of {known}")
        try:
            return {"ok": True, "result": await request(asked)}
        except CrdtcastError as error:
            return _refused(str(error))
        except STREAM_ERRORS:
            raise  # the client is gone
        except Exception as error:
            if do not in _LOOKS:
                raise  # it may be half done, so the node ends
            self._logger.exception("unexpected error in the request %s", do)
            return _refused(f"{do}: unexpected {type(error).__name__}: see the node's log")

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
        members = [
            {
                **member,
                "suspect": suspects.get(member["name"]),
                "holds_back_since": holders.get(member["name"]),
            }
            for member in found["members"]
        ]
        return {"standing": found["standing"], "view": found["view"], "members": members}

    # Members

    async def _evict(self, asked: Asked, tell: Tell) -> Any:
        member, names = self._process.member, texts(asked, "members")
        if not names:
            raise LocalProtocolError("members is empty: give the names of the members to evict")
        wanted = {who for who in member.engine.evictable if name_of(who) in names or who in names}
        member.evict(*names, force=asked.get("force") is True)

        def left() -> set[str]:
            left = {who for who in wanted if not member.engine.is_over(who)}
            if left and left.isdisjoint(member.engine.wants.victims):
                raise LocalProtocolError(
                    f"{_names(left)} not evicted: the eviction was withdrawn, or this node was "
                    "evicted itself"
                )
            return left

        if await self._until(lambda: not left(), seconds_of(asked), tell):
            on = sorted(map(name_of, member.engine.going_on()))
            return {"evicted": sorted(wanted), "members": on}
        suspects = {suspect.name for suspect in self._process.status().suspects}
        raise LocalProtocolError(why_not_evicted(member.engine, left(), suspects, self._described))

    async def _withdraw(self, asked: Asked) -> Any:
        member = self._process.member
        before = member.engine.wants.victims.keys()
        member.withdraw(*texts(asked, "members"))
        left = member.engine.wants.victims.keys()
        return {"withdrawn": sorted(before - left), "wanted": sorted(left)}

    async def _raise(self, asked: Asked, tell: Tell) -> Any:
        member, wanted = self._process.member, asked.get("level")
        if wanted is not None and (type(wanted) is not int or wanted < 1):
            raise LocalProtocolError(f"invalid level {wanted!r}: give a number")
        level = level_to_raise(member.engine, wanted)
        member.raise_level(level)
        if await self._until(lambda: member.engine.level >= level, seconds_of(asked), tell):
            return {"level": level}
        waits = self._described(member.engine.waits_for()) or "the others"
        raise LocalProtocolError(
            f"format level {level} was requested and is not in force yet: it waits for {waits}. "
            "It comes into force when all members are back and can read it; `crdtcast status` "
            "shows when"
        )

    async def _until(self, done: Callable[[], bool], most: float, tell: Tell) -> bool:
        """Returns whether `done` came true within `most` seconds; meanwhile the client learns what it waits for."""
        waiting = _Waiting(self._process.member, self._described, tell)
        with trio.move_on_after(most):
            while not done():
                await waiting.look()
                await trio.sleep(_LOOK_SECONDS)
        return done()

    def _described(self, incarnations: Sequence[str]) -> str:
        """Names of members, and why they do not answer."""
        engine = self._process.member.engine
        silences = {each.name: each.silence for each in self._process.status().suspects}
        words = []
        for who in incarnations:
            name = name_of(who)
            why = ["being evicted"] if who in engine.victims else []
            if name in silences:
                why.append(f"silent for {views.seconds(silences[name])}")
            elif who in engine.unheard:
                why.append("admitted, nothing received yet")
            words.append(f"{name} ({', '.join(why)})" if why else name)
        return ", ".join(words)

    async def _surrender(self, asked: Asked) -> Any:
        self._process.member.surrender()

    async def _leave(self, asked: Asked, tell: Tell) -> Any:
        member = self._process.member
        refused: CrdtcastError | None = None
        departure = Departure()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_Waiting(member, self._described, tell).keep_telling)
            try:
                departure = await self._process.leave(plain=asked.get("plain") is True)
            except CrdtcastError as error:
                refused = error
            nursery.cancel_scope.cancel()
        if refused is not None:
            raise refused
        self._ends = True  # not before: the leave may be refused, other requests may come
        if (warning := departure.warning(self._process.settings.leave_seconds)) is not None:
            self._logger.warning("%s", warning)  # the client may be gone by now
        if not departure.left:
            raise LocalProtocolError(f"{warning}. The node stops now")
        return {
            "left": member.incarnation,
            "confirmed": departure.confirmed,
            "waits_for": list(departure.waits_for),
        }

    async def _stop(self, asked: Asked) -> Any:
        self._ends = True

    async def _cut(self, asked: Asked) -> Any:
        self._process.member.cut(text(asked, "member"))

    async def _heal(self, asked: Asked) -> Any:
        self._process.member.heal(text(asked, "member"))


class _Waiting:
    """Sends the members that a member waits for, whenever they change; and now and then, to notice that the client is
    gone.
    """

    def __init__(
        self, member: AdministeredMembership, described: Callable[[Sequence[str]], str], tell: Tell
    ) -> None:
        self._member = member
        self._described = described
        self._tell = tell
        self._told: list[str] = []
        self._due = trio.current_time() + _TELL_SECONDS

    async def look(self) -> None:
        """Send if there is news. Raises what the connection raises."""
        now, waits_for = trio.current_time(), self._member.engine.waits_for()
        if not waits_for or now < self._due:
            return
        if waits_for != self._told or now >= self._due + _TELL_AGAIN_SECONDS:
            self._told, self._due = waits_for, now + _TELL_SECONDS
            await self._tell(f"waits for {self._described(waits_for)}")

    async def keep_telling(self) -> None:
        """Send until the client is gone."""
        with suppress(*STREAM_ERRORS):
            while True:
                await self.look()
                await trio.sleep(_LOOK_SECONDS)


async def _tell(lines: Lines, what: str) -> None:
    await lines.send({"waits": " ".join(what.split())})


def _names(incarnations: Iterable[str]) -> str:
    names = sorted(map(name_of, incarnations))
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _refused(why: str) -> dict[str, Any]:
    return {"ok": False, "error": " ".join(why.split())}


def text(asked: Asked, key: str, default: str | None = None) -> str:
    """A text of the request. Raises LocalProtocolError if it is not a text."""
    value = asked.get(key, default)
    if isinstance(value, str):
        return value
    raise LocalProtocolError(f"invalid {key} {value!r}: give a text")


def texts(asked: Asked, key: str) -> list[str]:
    """A list of texts of the request, empty if missing. Raises LocalProtocolError if it is not a list of texts."""
    value = asked.get(key, [])
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return value
    raise LocalProtocolError(f"invalid {key} {value!r}: give a list of texts")


def seconds_of(asked: Asked) -> float:
    """How long the request may take; null is no limit. Raises LocalProtocolError if it is not a number."""
    value = asked.get("seconds", _SECONDS)
    if value is None:
        return _MOST_SECONDS
    if isinstance(value, (int, float)) and value >= 0:
        return min(value, _MOST_SECONDS)
    raise LocalProtocolError(f"invalid seconds {value!r}: give a number")
