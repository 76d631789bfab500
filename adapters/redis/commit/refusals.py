"""Why a request is refused: its key, its size, its level, or that this member cannot send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crdtcast.adapters.redis.clients.large_request import size_of
from crdtcast.adapters.redis.clients.transaction import discarded_because
from crdtcast.adapters.redis.commit.batch import MAX_COMMAND_BYTES
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.databases import db_of, described, key_of
from crdtcast.engine import GroupEngine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from crdtcast.adapters.redis.clients.client import Request
    from crdtcast.adapters.redis.clients.transaction import Transaction
    from crdtcast.adapters.redis.commit.plan import Plan
    from crdtcast.adapters.redis.commit.round import Commit
    from crdtcast.adapters.redis.group.format_level import FormatLevel
    from crdtcast.adapters.redis.store.keyspace import Keyspace
    from crdtcast.engine import Engine

_ENDING = ReplyError(
    "ERR crdtcast: this gateway is no longer a member of its group, or is leaving it; nothing "
    "was written: use another region's gateway"
)


class Refusals:
    """Answers requests that cannot be executed, and counts the writes among them."""

    def __init__(self, formats: FormatLevel) -> None:
        self._formats = formats
        self._engine: Engine | GroupEngine | None = None
        self._group: GroupEngine | None = None
        self._keyspace: Keyspace | None = None
        self._takes_all = False
        """Whether neither the level nor the member's standing can ever prevent a write: the members are fixed."""
        self.growth: ReplyError | None = None
        """The answer to writes that need memory, while the server has none to spare."""
        self.writes: int = 0
        """Writes refused since the start. Errors that a plain server gives, too, do not count."""

    def resume(self, engine: Engine | GroupEngine, keyspace: Keyspace) -> None:
        """Use this engine and this keyspace from now on."""
        self._engine, self._keyspace = engine, keyspace
        self._group = engine if isinstance(engine, GroupEngine) else None
        is_highest = self._formats.in_force(engine) >= effects.READS.highest
        self._takes_all = self._group is None and is_highest

    @property
    def is_ending(self) -> bool:
        """Whether the engine has stopped sending."""
        group = self._group
        return group is not None and not group.standing.can_send

    def count(self, request: Request) -> None:
        """Count a refused request."""
        self.writes += request.writes

    @property
    def elsewhere(self) -> ReplyError | None:
        """Why the group cannot have keys of databases other than 0, or keys that begin with 0xff; None if it can."""
        level, engine = effects.ELSEWHERE_LEVEL, self._engine
        if engine is None or level <= self._formats.in_force(engine):
            return None
        what = "a key of another database than 0, or one that begins with the byte 0xff,"
        return self._formats.refusal(engine, what, level)

    def hinder_writes(self, commit: Commit) -> bool:
        """Whether a write of this commit may be refused, whatever its key holds."""
        if self.growth is not None or commit.size > MAX_COMMAND_BYTES:
            return True
        if self._takes_all:
            return False
        group = self._group
        if group is not None and group.is_plain and group.level >= effects.READS.highest:
            return False  # as nearly always
        return self.is_ending or self._exceeds_level(commit)

    def answer(self, plan: Plan, request: Request, *, hindered: bool) -> bool:
        """Refuse a request if necessary; return whether it was. hindered: it may be refused whatever its key holds."""
        assert self._keyspace is not None
        refusal = self.by_key(request) if self._keyspace.refused else None
        if refusal is None and hindered and request.writes:
            refusal = self._of_write(request)
        if refusal is None:
            return False
        self.count(request)
        plan.answer_with(request, refusal)
        return True

    def answer_transaction(self, plan: Plan, transaction: Transaction) -> bool:
        """Refuse a whole transaction if necessary; return whether it was."""
        refusal = self._of_transaction(transaction)
        if refusal is None:
            return False
        self.count(transaction)
        plan.answer_with(transaction, discarded_because(refusal))
        return True

    def by_key(self, request: Request) -> ReplyError | None:
        """Why a request is refused for one of its keys, which was changed directly in a server; None if it is not."""
        assert self._keyspace is not None
        return _of_keys(self._keyspace, request.command.keys_of(request.args))

    def _of_transaction(self, transaction: Transaction) -> ReplyError | None:
        assert self._keyspace is not None
        if (refusal := _of_keys(self._keyspace, transaction.keys())) is not None:
            return refusal
        if not transaction.writes:
            return None
        if (refusal := self._of_member()) is not None:
            return refusal
        for call in transaction.calls:
            if (refusal := self._of_level(call)) is not None:
                return refusal
        if any(call.command.grows for call in transaction.calls):
            return self.growth
        return None

    def _of_write(self, request: Request) -> ReplyError | None:
        if (refusal := self._of_member() or self._of_level(request)) is not None:
            return refusal
        if self.growth is not None and request.command.grows:
            return self.growth
        size = size_of(request.args)
        return _too_large(size) if size > MAX_COMMAND_BYTES else None

    def _of_member(self) -> ReplyError | None:
        return _ENDING if self.is_ending else None

    def _of_level(self, request: Request) -> ReplyError | None:
        command, engine = request.command, self._engine
        if engine is None or command.level <= self._formats.in_force(engine):
            return None
        return self._formats.refusal(engine, command.name, command.level)

    def _exceeds_level(self, commit: Commit) -> bool:
        assert self._engine is not None
        in_force = self._formats.in_force(self._engine)
        if in_force >= effects.READS.highest:
            return False
        return any(request.command.level > in_force for request in commit.requests)


def _of_keys(keyspace: Keyspace, keys: Iterable[bytes]) -> ReplyError | None:
    for key in keys:
        shown = described(key)
        if key in keyspace.disputed:
            words = key_of(key).decode(errors="replace") + _option(key)
            return ReplyError(
                f"ERR crdtcast: key {shown} was changed directly in a server, and the members "
                f"held different values of it: run `crdtcast repair {words} --from NAME` at another "
                "member than NAME, the one that has the right value; or, if all values are equal "
                f"again, `crdtcast repair {words}` at any"
            )
        if key in keyspace.damaged:
            return ReplyError(
                f"ERR crdtcast: key {shown} was overwritten directly in the server and is being "
                "restored from another region: try again"
            )
        if key in keyspace.incomplete:
            return ReplyError(
                f"ERR crdtcast: key {shown} was changed directly in a server and is being "
                "repaired: try again"
            )
    return None


def _option(key: bytes) -> str:
    return f" --db {db}" if (db := db_of(key)) else ""


def _too_large(size: int) -> ReplyError:
    return ReplyError(
        f"ERR crdtcast: this write has {size} bytes; one replicated write may have at most "
        f"{MAX_COMMAND_BYTES}: split it"
    )
