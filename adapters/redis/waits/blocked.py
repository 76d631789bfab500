"""WAIT, CRDTCAST TOKEN and CRDTCAST ATLEAST: what clients ask of other regions, and the connections that wait for it.

A connection that waits keeps its later requests, as at a native server; other connections go on. For connections that
never ask, nothing is noted: a connection's writes and reads are part of what this gateway has when it asks.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio

from crdtcast.adapters.redis.clients.client import Client, Request
from crdtcast.adapters.redis.clients.transaction import Call
from crdtcast.adapters.redis.commands.arguments import integer
from crdtcast.adapters.redis.commands.errors import NOT_AN_INTEGER
from crdtcast.adapters.redis.commit.phase import SERVING, ServerPhase
from crdtcast.adapters.redis.server.resp import OK, ReplyError
from crdtcast.adapters.redis.waits import reach
from crdtcast.adapters.redis.waits.barrier import Barrier
from crdtcast.adapters.redis.waits.lines import Notion, WaitingLines
from crdtcast.causality.tags import Dot
from crdtcast.engine import Engine, GroupEngine, Standing
from crdtcast.exceptions import UnusableInputError
from crdtcast.replica.session import Token

_LOOK_SECONDS = 1.0
"""Between two looks at whether something can still come."""
_GRACE_SECONDS = 1.0
"""A command whose time is over before all earlier ones are answered may wait for so long more, to look once."""
_BAD_TIMEOUT = ReplyError("ERR timeout is not an integer or out of range")
_NEGATIVE = ReplyError("ERR timeout is negative")
_UNBLOCKED = ReplyError("UNBLOCKED client unblocked via CLIENT UNBLOCK")
_BEGAN_ANEW = ReplyError(
    "ERR crdtcast: this gateway has become a new member since this connection was opened: its earlier writes may have "
    "been sent again or dropped: read what you need, and ask again"
)
_ENDED = ReplyError(
    "ERR crdtcast: this gateway has ended as a member of its group, so it cannot tell what other regions hold: "
    "ask again when it has joined again"
)
_STOPS = ReplyError(
    "ERR crdtcast: this gateway stops while this command waits: ask another region's gateway"
)
_ENDING = frozenset({Standing.EVICTED, Standing.LEFT})


class Waiting:
    """One command that waits for other regions."""

    def __init__(self, request: Request, seconds: float) -> None:
        self.request: Request = request
        self.seconds: float = seconds
        self.over: trio.Event = trio.Event()
        self.has_begun: bool = False
        self.is_late: bool = False
        """Whether its time is over: it looks once."""

    @abstractmethod
    def begin(self, engine: Engine | GroupEngine) -> object:
        """Its reply, or the notion and counter of the message that it waits for. All earlier requests are answered."""

    @abstractmethod
    def lost(self, engine: Engine | GroupEngine) -> ReplyError | None:
        """Why what it waits for cannot come any more; None if it can, or has come."""

    @abstractmethod
    def late(self, engine: Engine | GroupEngine | None) -> object:
        """Its reply when its time is over."""


class _WaitForRegions(Waiting):
    """WAIT: the reply is the number of other regions that have all that this gateway had written when it came."""

    def __init__(self, request: Request, seconds: float, others: int) -> None:
        super().__init__(request, seconds)
        self._others = others
        self._target: Dot | None = None

    def begin(self, engine: Engine | GroupEngine) -> object:
        """See `Waiting`."""
        if self._target is None:
            self._target = Dot(engine.me, engine.vector.get(engine.me, 0))
        held = reach.holders(engine, self._target.counter)
        if held >= self._others:
            return held
        # All that ask for more regions than there are wait for the same: that there is one more.
        return Notion(engine.me, min(self._others, reach.others(engine) + 1)), self._target.counter

    def lost(self, engine: Engine | GroupEngine) -> ReplyError | None:
        """See `Waiting`."""
        if isinstance(engine, GroupEngine) and engine.standing in _ENDING:
            return _ENDED
        return (
            _BEGAN_ANEW if self._target is not None and self._target.origin != engine.me else None
        )

    def late(self, engine: Engine | GroupEngine | None) -> object:
        """See `Waiting`."""
        if engine is None or self._target is None:
            return 0  # it does not even know yet what to count
        return self.lost(engine) or reach.holders(engine, self._target.counter)


class _WaitForToken(Waiting):
    """CRDTCAST ATLEAST: OK when this region's server has all that the token has seen."""

    def __init__(self, request: Request, seconds: float, token: Token) -> None:
        super().__init__(request, seconds)
        self._token = token

    def begin(self, engine: Engine | GroupEngine) -> object:
        """See `Waiting`."""
        missing = reach.missing(engine, self._token.dots)
        if not missing:
            return OK
        return self.lost(engine) or (Notion(missing[0].origin, 0), missing[0].counter)

    def lost(self, engine: Engine | GroupEngine) -> ReplyError | None:
        """See `Waiting`."""
        why = reach.never(engine, reach.missing(engine, self._token.dots))
        return None if why is None else ReplyError(f"TOKENLOST crdtcast: {why}")

    def late(self, engine: Engine | GroupEngine | None) -> object:
        """See `Waiting`."""
        missing = () if engine is None else reach.missing(engine, self._token.dots)
        names = reach.described(missing) or "other regions"
        return ReplyError(
            f"NOTYET crdtcast: this region does not have all that the token has seen: writes of {names} have not "
            "arrived: wait longer, or use the gateway that gave the token"
        )


class BlockingCore(Protocol):
    """The parts of the committer that waiting commands use."""

    @property
    def engine(self) -> Engine | GroupEngine | None:
        """None before the gateway is a member."""

    @property
    def phase(self) -> ServerPhase:
        """Of the connection to the server."""

    def submit(self, request: Request) -> None:
        """Take a request into the commits."""


class BlockedCommands:
    """All commands that wait, one for each client.

    group: the group's identity in tokens.
    handle: takes a client's request, as if it had just come.
    spawn: runs something in the background.
    answered: sends replies that are ready, and lets kept requests go on.
    syncs_later: whether this incarnation may continue without messages that were answered, but not synced.
    """

    def __init__(
        self,
        core: BlockingCore,
        *,
        group: Callable[[], str],
        handle: Callable[[Request], None],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        answered: Callable[[], None],
        syncs_later: Callable[[], bool],
    ) -> None:
        self._core = core
        self._syncs_later = syncs_later
        self._synced = 0
        """Number of own messages that are known to be synced, if that comes later."""
        self.tokens: deque[tuple[int, Request, Token]] = deque()
        """Tokens to give when so many own messages are synced."""
        self._group = group
        self._handle = handle
        self._spawn = spawn
        self._answered = answered
        self.waiting: dict[Client, Waiting] = {}
        """By the client that it blocks."""
        self._lines: WaitingLines[Waiting] = WaitingLines(lambda waiting: waiting.over.is_set())
        self._me = ""
        self._since = 0.0
        """Since when this gateway has been its present incarnation; 0: since its start."""
        self._told: set[int] = set()
        """Older clients that know that."""
        self._looked = 0.0

    # What clients send

    def wait(self, request: Request) -> None:
        """WAIT numreplicas timeout."""
        try:
            others, seconds = _count(request.args[1]), _seconds(request.args[2])
        except ReplyError as error:
            request.answer(error)
            return
        if isinstance(request, Call):
            request.answer(self._count_inside(request))
        else:
            self._block(_WaitForRegions(request, seconds, others))

    def token(self, request: Request) -> None:
        """CRDTCAST TOKEN."""

        def reached(error: ReplyError | None) -> None:
            if request.client.closed:
                return
            if (error := error or self._told_anew(request.client)) is not None:
                request.answer(error)
                return
            engine = self._core.engine
            assert engine is not None  # a commit was answered
            token, own = reach.token_of(engine, self._group()), engine.vector.get(engine.me, 0)
            if self._is_synced(own):
                request.answer(str(token).encode())
            else:
                self.tokens.append((own, request, token))

        self._core.submit(Barrier(request, reached))

    def _is_synced(self, own: int) -> bool:
        """Whether so many own messages cannot be lost unnoticed. If the server came back without one that a token
        names, another message would get its dot, and the token would count as seen.
        """
        return own <= self._synced or not self._syncs_later()

    def synced(self, own: int) -> None:
        """So many own messages are synced: give the tokens that wait for that."""
        self._synced = own
        if self.tokens and self.tokens[0][0] <= own:
            self._give_tokens(own)
            self._answered()

    def _give_tokens(self, own: float) -> None:
        while self.tokens and self.tokens[0][0] <= own:
            _, request, token = self.tokens.popleft()
            self._answer_token(request, str(token).encode())

    def _end_tokens(self, reply: ReplyError) -> None:
        tokens, self.tokens = self.tokens, deque()
        for _, request, _ in tokens:
            self._answer_token(request, reply)

    @staticmethod
    def _answer_token(request: Request, reply: object) -> None:
        if not request.client.closed:
            request.answer(reply)

    def at_least(self, request: Request, words: list[bytes]) -> None:
        """CRDTCAST ATLEAST token [milliseconds]."""
        try:
            seconds = _seconds(words[1]) if len(words) > 1 else math.inf
            token = Token.parse(words[0].decode("ascii", "replace"))
        except ReplyError as error:
            request.answer(error)
            return
        except UnusableInputError as error:
            request.answer(ReplyError(f"BADTOKEN crdtcast: {error}"))
            return
        if (group := self._group()) != token.group:
            request.answer(
                ReplyError(
                    f"BADTOKEN crdtcast: the token is of group {token.group!r}, and this gateway of group "
                    f"{group!r}: use a gateway of the token's group, or take a new token"
                )
            )
        else:
            self._block(_WaitForToken(request, seconds, token))

    def unblock(self, client: Client, *, with_error: bool) -> bool:
        """Let a client's command wait no longer: CLIENT UNBLOCK. Returns whether one was waiting."""
        waiting = self.waiting.get(client)
        if waiting is not None:
            self._end(waiting, _UNBLOCKED if with_error else waiting.late(self._core.engine))
        return waiting is not None

    def _count_inside(self, call: Call) -> object:
        """WAIT inside MULTI: it does not wait, and writes that are not answered yet are nowhere else."""
        engine, client = self._core.engine, call.client
        first = next((each for each in client.pending if not each.answered), None)
        if engine is None or first is not call.transaction:
            return 0
        counter = engine.vector.get(engine.me, 0)
        return self._told_anew(client) or reach.holders(engine, counter)

    # Waiting

    def _block(self, waiting: Waiting) -> None:
        client = waiting.request.client
        self.waiting[client] = waiting
        client.block(lambda: self._forget(waiting))
        self._core.submit(Barrier(waiting.request, lambda error: self._reached(waiting, error)))
        if waiting.seconds < math.inf:
            self._spawn(lambda: self._expire(waiting))

    def _reached(self, waiting: Waiting, error: ReplyError | None) -> None:
        """All earlier requests of its client are answered."""
        if waiting.over.is_set():
            return
        if error is None and isinstance(waiting, _WaitForRegions):
            error = self._told_anew(waiting.request.client)
        if error is not None:
            self._end(waiting, error)
        else:
            self._begin(waiting)

    def _begin(self, waiting: Waiting) -> None:
        if waiting.over.is_set():
            return
        engine = self._core.engine
        assert engine is not None  # a commit was answered
        waiting.has_begun = True
        match waiting.begin(engine):
            case (Notion(), int()) if waiting.is_late:
                self._end(waiting, waiting.late(engine))
            case (Notion() as notion, int(counter)):
                self._lines.add(notion, counter, waiting)
            case reply:
                self._end(waiting, reply)

    async def _expire(self, waiting: Waiting) -> None:
        with trio.move_on_after(waiting.seconds):
            await waiting.over.wait()
        if not waiting.has_begun and self._core.phase in SERVING:
            waiting.is_late = True
            with trio.move_on_after(_GRACE_SECONDS):
                await waiting.over.wait()
        if not waiting.over.is_set():
            self._end(waiting, waiting.late(self._core.engine))
            self._answered()

    def _end(self, waiting: Waiting, reply: object) -> None:
        """Answer, and let the requests behind it go on."""
        client = waiting.request.client
        self._forget(waiting)
        waiting.request.answer(reply)
        for request in client.unblock():
            self._handle(request)

    def _forget(self, waiting: Waiting) -> None:
        if waiting.over.is_set():
            return  # the gateway stops, and closes its clients
        del self.waiting[waiting.request.client]
        waiting.over.set()
        self._lines.note_over()

    # Events of the gateway

    def resumed(self, incarnation: str) -> None:
        """The gateway goes on with this incarnation. What was read from its server may not be synced."""
        self._synced = 0
        if self._me not in ("", incarnation):
            self._since = time.monotonic()
            self._told = {request.client.id for _, request, _ in self.tokens}
            self._end_tokens(_BEGAN_ANEW)
        elif not self._syncs_later():
            self._give_tokens(math.inf)
        self._me = incarnation

    def look(self, *, in_step: bool) -> None:
        """Answer what need not wait any more.

        in_step: whether the engine's vector is what the server holds, as when a commit was just answered.
        """
        engine = self._core.engine
        if engine is None:
            return
        is_in_step = in_step or self._core.phase is ServerPhase.READY

        def reached(notion: Notion) -> int:
            if notion.others:
                return reach.held_by(engine, notion.others) if notion.origin == engine.me else 0
            return engine.vector.get(notion.origin, 0) if is_in_step else 0

        for waiting in self._lines.take(reached):
            self._begin(waiting)
        now = time.monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            for waiting in list(self._lines):
                if not waiting.over.is_set():
                    self._look_at(waiting, engine, in_step=is_in_step)

    def _look_at(self, waiting: Waiting, engine: Engine | GroupEngine, *, in_step: bool) -> None:
        """Answer what is lost, and what has come without its message: with a copy of another region's server, which may
        know nothing of an incarnation that has ended.
        """
        reply: object = waiting.lost(engine)
        if reply is None and in_step:
            reply = waiting.begin(engine)
        match reply:
            case None | (Notion(), int()):
                pass
            case _:
                self._end(waiting, reply)

    def stop(self) -> None:
        """The gateway stops: answer everything."""
        self._end_tokens(_STOPS)
        for waiting in list(self.waiting.values()):
            self._forget(waiting)
            waiting.request.answer(_STOPS)

    def _told_anew(self, client: Client) -> ReplyError | None:
        """An error, once, for a client whose earlier writes went out under another incarnation."""
        if client.connected_at >= self._since or client.id in self._told:
            return None
        self._told.add(client.id)
        return _BEGAN_ANEW


def _count(word: bytes) -> int:
    if (number := integer(word)) is None:
        raise NOT_AN_INTEGER
    return number


def _seconds(word: bytes) -> float:
    """A time in milliseconds; 0 is for ever."""
    if (number := integer(word)) is None:
        raise _BAD_TIMEOUT
    if number < 0:
        raise _NEGATIVE
    return number / 1000 if number else math.inf
