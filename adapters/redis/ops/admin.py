"""Commands for a running gateway at its clients' port: CRDTCAST TOKEN, ATLEAST, STATUS, VERIFY, MEMBERS, and with
`admin_commands` REPAIR, EVICT, WITHDRAW, LEAVE, SURRENDER, RAISE, CUT, HEAL, ADVANCE and SKEW.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol

from crdtcast.adapters.redis.clients.client import Request
from crdtcast.adapters.redis.clients.listener import Front
from crdtcast.adapters.redis.clock import Clock
from crdtcast.adapters.redis.compare.verify import digest_everything
from crdtcast.adapters.redis.group.lifecycle import Belonging
from crdtcast.adapters.redis.group.peers import GroupPeers
from crdtcast.adapters.redis.ops.probes import Observed, member_status
from crdtcast.adapters.redis.ops.recorder import Recorder
from crdtcast.adapters.redis.server.resp import OK, ReplyError
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.databases import name_of
from crdtcast.adapters.redis.waits.blocked import BlockedCommands
from crdtcast.engine import GroupEngine
from crdtcast.exceptions import CrdtcastError, LocalProtocolError
from crdtcast.fixed.node import Node
from crdtcast.group.status import as_json
from crdtcast.service.policy import level_to_raise

_LAST_MS = 130 * 365 * 86_400_000
_FOR_TESTS = frozenset({b"CUT", b"HEAL", b"ADVANCE", b"SKEW"})
"""Subcommands without a command of the program `crdtcast`."""
_COMMANDS = {b"WITHDRAW": "evict --withdraw"}
"""The program's command for a subcommand, if its name differs."""
_MOST_NAMES = 1000
_WANTS = frozenset({b"EVICT", b"WITHDRAW", b"RAISE"})
"""Subcommands that are answered after the server has stored them: they stay in force after a restart."""
_ANSWERED_HERE = frozenset({b"TOKEN", b"ATLEAST", b"STATUS", b"VERIFY", b"REPAIR"})
_HELP = (
    "TOKEN, ATLEAST token [milliseconds], STATUS, VERIFY, MEMBERS, REPAIR [key] [FROM name], "
    "EVICT name [name ...] [FORCE], WITHDRAW [name ...], "
    "LEAVE [PLAIN], SURRENDER, RAISE [level], CUT name, HEAL name, ADVANCE milliseconds, "
    "SKEW milliseconds"
)


class AdministeredGateway(Observed, Protocol):
    """The parts of a gateway that operators' commands use."""

    @property
    def node(self) -> Node | GroupPeers | None:
        """None before there are links."""

    @property
    def belonging(self) -> Belonging | None:
        """None where the members are fixed."""

    @property
    def promise(self) -> str:
        """What acknowledged writes survive."""

    @property
    def clock(self) -> Clock: ...
    @property
    def front(self) -> Front: ...
    @property
    def recorder(self) -> Recorder: ...
    @property
    def waits(self) -> BlockedCommands: ...
    def spawn(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run something in the background until the gateway ends. It must handle its own errors."""


class GatewayCommands:
    """Answers requests of the kind ADMIN."""

    def __init__(self, gateway: AdministeredGateway) -> None:
        self._gateway = gateway
        self._guarded: dict[bytes, Callable[[bytes], None]] = {
            b"CUT": self._cut,
            b"HEAL": self._heal,
            b"ADVANCE": self._advance,
            b"SKEW": self._skew,
        }
        self._of_the_group: dict[bytes, tuple[range, Callable[..., object]]] = {
            b"MEMBERS": (range(1), self._members),
            b"EVICT": (range(1, _MOST_NAMES), self._evict),
            b"WITHDRAW": (range(_MOST_NAMES), self._withdraw),
            b"LEAVE": (range(2), self._leave),
            b"SURRENDER": (range(1), self._surrender),
            b"RAISE": (range(2), self._raise),
        }

    def handle(self, request: Request) -> None:
        """Answer `CRDTCAST subcommand …`."""
        verb, *rest = request.args[1:]
        verb = verb.upper()
        if verb == b"TOKEN" and not rest:
            self._gateway.waits.token(request)
        elif verb == b"ATLEAST" and len(rest) in (1, 2):
            self._gateway.waits.at_least(request, rest)
        elif verb == b"STATUS" and not rest:
            request.answer(json.dumps(self.status()).encode())
        elif verb == b"VERIFY" and not rest:
            self._verify(request)
        elif verb == b"REPAIR" and (wanted := _repair_of(rest)) is not None:
            self._repair(request, *wanted)
        elif verb in self._of_the_group and len(rest) in self._of_the_group[verb][0]:
            reply = self._run_for_group(verb, rest)
            if verb in _WANTS and reply is OK:
                self._answer_behind_a_commit(request)
            else:
                request.answer(reply)
        elif verb in self._guarded and len(rest) == 1:
            reply = self._run_guarded(verb, rest[0])
            if verb == b"ADVANCE" and reply is OK:
                self._answer_behind_a_commit(request)
            else:
                request.answer(reply)
        else:
            known = _ANSWERED_HERE | self._of_the_group.keys() | self._guarded.keys()
            trouble = "unknown subcommand"
            if verb in known:
                trouble = f"wrong number or form of arguments for CRDTCAST {verb.decode()}"
            request.answer(ReplyError(f"ERR crdtcast: {trouble}: CRDTCAST has {_HELP}"))

    def _run_guarded(self, verb: bytes, argument: bytes) -> object:
        if not self._gateway.options.admin_commands:
            return _not_for_clients(verb)
        try:
            self._guarded[verb](argument)
        except (ValueError, CrdtcastError) as error:
            return ReplyError(f"ERR crdtcast: {error}")
        return OK

    def _run_for_group(self, verb: bytes, arguments: list[bytes]) -> object:
        belonging = self._gateway.belonging
        if belonging is None:
            return ReplyError(
                f"ERR crdtcast: CRDTCAST {verb.decode()} needs a group whose members come and go "
                "(--found, --join); the members of this group are fixed"
            )
        if verb != b"MEMBERS" and not self._gateway.options.admin_commands:
            return _not_for_clients(verb)
        try:
            return self._of_the_group[verb][1](belonging, *arguments)
        except CrdtcastError as error:
            return ReplyError(f"ERR crdtcast: {error}")

    @staticmethod
    def _members(belonging: Belonging) -> object:
        return json.dumps(belonging.members()).encode()

    @staticmethod
    def _evict(belonging: Belonging, *words: bytes) -> object:
        force = len(words) > 1 and words[-1].upper() == b"FORCE"
        belonging.evict(*_names(words[:-1] if force else words), force=force)
        return OK

    @staticmethod
    def _withdraw(belonging: Belonging, *words: bytes) -> object:
        belonging.withdraw(*_names(words))
        return OK

    def _leave(self, belonging: Belonging, word: bytes = b"") -> object:
        plain = word.upper() == b"PLAIN"
        if word and not plain:
            raise LocalProtocolError("use CRDTCAST LEAVE, or CRDTCAST LEAVE PLAIN")
        if belonging.engine.reserved is None:
            belonging.leave_now(plain=plain)  # before the client's next command
        else:
            self._gateway.spawn(partial(belonging.leave, plain=plain))
        return OK

    @staticmethod
    def _surrender(belonging: Belonging) -> object:
        belonging.surrender()
        return OK

    @staticmethod
    def _raise(belonging: Belonging, level: bytes | None = None) -> object:
        if level is not None and not level.isdigit():
            raise LocalProtocolError("use CRDTCAST RAISE, or CRDTCAST RAISE level")
        wanted = None if level is None else int(level)
        belonging.raise_level(level_to_raise(belonging.engine, wanted))
        return OK

    def _peer(self, raw: bytes) -> str:
        name = raw.decode(errors="replace")
        belonging = self._gateway.belonging
        if belonging is not None:
            return belonging.other(name)
        if name not in self._gateway.options.node.named_peers:
            known = ", ".join(sorted(self._gateway.options.node.named_peers)) or "none"
            raise ValueError(f"no peer is called {name!r}: use one of: {known}")
        return name

    def _cut(self, argument: bytes) -> None:
        if self._gateway.node is not None:
            self._gateway.node.cut(self._peer(argument))

    def _heal(self, argument: bytes) -> None:
        if self._gateway.node is not None:
            self._gateway.node.heal(self._peer(argument))

    def _advance(self, argument: bytes) -> None:
        """Let time pass: deadlines come nearer."""
        self._skew(argument)
        self._gateway.committer.advance(int(argument))

    def _answer_behind_a_commit(self, request: Request) -> None:
        """Answer OK after the server has executed the next commit."""

        def answer(reply: object) -> None:
            request.answer(reply if isinstance(reply, Exception) else OK)
            self._gateway.front.flush()

        self._gateway.committer.ask([([b"PING"], answer)])

    def _skew(self, argument: bytes) -> None:
        """Set the gateway's clock off; deadlines follow the server's clock."""
        offset = int(argument)
        if not 0 <= self._gateway.clock.ms() + offset < _LAST_MS:
            raise ValueError("the clock can only move to a time between 1970 and 2100")
        self._gateway.clock.offset_ms += offset

    def _verify(self, request: Request) -> None:
        self._answer_later(request, "VERIFY", self._digest)

    async def _digest(self) -> dict[str, Any]:
        return await digest_everything(self._gateway.committer, self._gateway.recorder)

    def _repair(self, request: Request, key: bytes | None, source: str | None) -> None:
        if not self._gateway.options.admin_commands:
            request.answer(_not_for_clients(b"REPAIR"))
            return
        name = None if key is None else name_of(request.client.db, key)
        self._answer_later(request, "REPAIR", lambda: self._gateway.rounds.repair(name, source))

    def _answer_later(
        self, request: Request, verb: str, work: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        async def answer() -> None:
            try:
                request.answer(json.dumps(await work()).encode())
            except CrdtcastError as error:
                request.answer(ReplyError(f"ERR crdtcast: {error}"))
            except Exception as error:
                logging.getLogger("crdtcast.gateway").exception("%s failed", verb)
                request.answer(ReplyError(f"ERR crdtcast: {verb} failed: {error}"))
            self._gateway.front.flush()

        self._gateway.spawn(answer)

    def status(self) -> dict[str, Any]:
        """The state of this gateway as JSON values; INFO shows it, too."""
        gateway = self._gateway
        committer, node, engine = gateway.committer, gateway.node, gateway.committer.engine
        options = gateway.options
        level = gateway.durability.level
        status: dict[str, Any] = {
            "name": options.node.name,
            "group": options.node.group,
            "server": str(options.server),
            "server_up": committer.serving,
            "durability": level.value,
            "promise": gateway.promise,
            "commits": committer.commits,
            "committing": committer.working,
            "changed_past_the_gateway": committer.changed_behind,
            "type_conflicts": committer.keyspace.conflicts,
            "hidden_keys": len(committer.keyspace.hidden),
            "unstable_atoms": len(committer.keyspace.log),
            "clock_drift_refused": gateway.hlc.refused,
            "constant_keys": sorted(key.decode() for key in metadata.CONSTANT_KEYS),
        }
        status |= gateway.rounds.status()
        if engine is not None:
            counters = engine.counters()
            status |= {
                "incarnation": engine.me,
                "vector": dict(engine.vector),
                "stable": dict(engine.stable),
                "unstable": counters.unstable,
                "pending": counters.pending,
                "store_bytes": counters.store_bytes,
                "quiet": engine.quiet and not committer.working,
                "held_back_by": engine.held_back_by(),
                "format": gateway.formats.status(engine),
            }
        if isinstance(engine, GroupEngine):
            status["standing"] = engine.standing.value
            status["members"] = sorted(engine.members)
            status["left_out"] = gateway.belonging.left_out if gateway.belonging else {}
            outline = None if gateway.adopted is None else gateway.adopted.outline()
            status["adopting"] = None if outline is None else asdict(outline)
            status["left_out_keys"] = [
                pattern.decode(errors="backslashreplace")
                for pattern in committer.keyspace.left_out.patterns
            ]
            status["yielded"] = gateway.belonging.yielded if gateway.belonging else 0
        if node is not None:
            status["links"] = {name: asdict(link) for name, link in node.status().items()}
        if gateway.runtime is not None:
            status["member"] = as_json(member_status(gateway))
        return status


def _repair_of(words: list[bytes]) -> tuple[bytes | None, str | None] | None:
    """Key and source of `REPAIR [key] [FROM name]`; None for anything else."""
    key: bytes | None = None
    if len(words) in (1, 3):
        key, *words = words
    match words:
        case []:
            return key, None
        case [word, name] if word.upper() == b"FROM":
            return key, name.decode(errors="replace")
    return None


def _names(words: Sequence[bytes]) -> list[str]:
    return [word.decode(errors="replace") for word in words]


def _not_for_clients(verb: bytes) -> ReplyError:
    word = verb.decode()
    command = _COMMANDS.get(verb, word.lower())
    if verb in _FOR_TESTS:
        return ReplyError(
            f"ERR crdtcast: CRDTCAST {word} is for tests: start the gateway with --admin-commands "
            "to allow it for all clients"
        )
    return ReplyError(
        f"ERR crdtcast: CRDTCAST {word} is for operators: run `crdtcast {command}` on the "
        "gateway's machine, or start the gateway with --admin-commands to allow it for all "
        "clients"
    )
