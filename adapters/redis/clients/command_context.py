"""Each command of a connection in its context: executed, queued, or refused together with what it depends on
(`connection_phases`).
"""

from collections.abc import Callable

from crdtcast.adapters.redis.adoption.left_out import NONE, LeftOut
from crdtcast.adapters.redis.clients.client import Request, SilentRequest
from crdtcast.adapters.redis.clients.client_state import Queue, Watch
from crdtcast.adapters.redis.clients.connection_phases import (
    IN_MULTI,
    Answer,
    ConnectionEvent,
    ConnectionPhase,
    Replies,
    ends_watch,
    step,
)
from crdtcast.adapters.redis.clients.cross_protocol import is_cross_protocol
from crdtcast.adapters.redis.clients.subscriptions import BEGINNING, ENDING
from crdtcast.adapters.redis.clients.transaction import (
    DISCARDED,
    Transaction,
    discarded_because,
)
from crdtcast.adapters.redis.clients.watches import refuse_watch, watch_of
from crdtcast.adapters.redis.commands.names import database, named
from crdtcast.adapters.redis.commands.table import Command, CommandKind, Rewrite, Table
from crdtcast.adapters.redis.server.resp import OK, ReplyError, StatusReply
from crdtcast.adapters.redis.store.databases import USUAL, Databases, described

Submit = Callable[[Request], None]

_NOAUTH = ReplyError("NOAUTH Authentication required.")
_BEFORE_AUTH = frozenset(("AUTH", "HELLO", "QUIT", "RESET"))
_QUEUED = StatusReply(b"QUEUED")

_EVENTS = {
    "MULTI": ConnectionEvent.MULTI,
    "EXEC": ConnectionEvent.EXEC,
    "DISCARD": ConnectionEvent.DISCARD,
    "WATCH": ConnectionEvent.WATCH,
    "UNWATCH": ConnectionEvent.UNWATCH,
    "RESET": ConnectionEvent.RESET,
}
_MISPLACED = {
    "MULTI": ReplyError("ERR MULTI calls can not be nested"),
    "WATCH": ReplyError("ERR WATCH inside MULTI is not allowed"),
    "EXEC": ReplyError("ERR EXEC without MULTI"),
    "DISCARD": ReplyError("ERR DISCARD without MULTI"),
}
_AFTER_SELECT = ReplyError(
    "ERR crdtcast: not executed: SELECT was refused on this connection: SELECT another database, "
    "or RESET"
)
_TOO_MUCH_QUEUED = ReplyError(
    "ERR crdtcast: too much waits in the unexecuted transactions of all clients; nothing of this "
    "one was written: try again"
)
_NOT_INSIDE = ReplyError(
    "ERR crdtcast: CRDTCAST TOKEN and ATLEAST are not for transactions: send ATLEAST before MULTI, and TOKEN after EXEC"
)
_WAITING_WORDS = frozenset((b"TOKEN", b"ATLEAST"))
_BEFORE_SELECT = "; this connection executes nothing before another SELECT, or RESET"
_SUBSCRIBING = BEGINNING.keys() | ENDING.keys()
_WHILE_SUBSCRIBED = _SUBSCRIBING | {"PING", "QUIT", "RESET"}
_CHANGES_CONNECTION = _SUBSCRIBING | {"HELLO", "CLIENT SETNAME", "CLIENT SETINFO", "SELECT"}
"""Executed when EXEC comes, and reverted if EXEC is refused after all."""


class Conversation:
    """Takes the requests of all connections, each in the order in which they come.

    carry_out: answers a request, or gives it to the function that it gets with it.
    refuse_growth: returns why writes that need memory are refused, if they are.
    refuse_elsewhere: returns why keys of other databases than 0 are refused, if they are.
    submit: takes requests for the core.
    hang_up: closes a connection that carries requests of another protocol.
    """

    def __init__(
        self,
        table: Table,
        carry_out: Callable[[Request, Submit], None],
        refuse_growth: Callable[[], ReplyError | None],
        submit: Submit,
        hang_up: Callable[[Request], None],
        refuse_elsewhere: Callable[[], ReplyError | None],
    ) -> None:
        self.submit = submit
        self.databases: Databases = Databases(USUAL, USUAL - 1)
        self.left_out: LeftOut = NONE
        self._refuse_elsewhere = refuse_elsewhere
        self._hang_up = hang_up
        self._table = table
        self._carry_out = carry_out
        self._refuse_growth = refuse_growth

    def handle(self, request: Request) -> None:
        """Answer, refuse, queue or submit one request, in the order of its client."""
        client = request.client
        if client.held is not None:  # earlier requests decide its database
            client.held.append(request)
            return
        command = self._table.resolve(request.args)
        if not isinstance(command, ReplyError) and command.rewrite is not None:
            command = self._rewritten(request, command.rewrite)
        if not isinstance(command, ReplyError):
            request.command = command
        elif is_cross_protocol(
            request.args, is_known=request.args[0].upper() in self._table.by_name
        ):
            self._hang_up(request)
            return
        if client.replies is not Replies.ON:
            request = self._silenced(
                request, "" if isinstance(command, ReplyError) else command.name
            )
        if isinstance(command, ReplyError):
            is_exec = request.args[0].upper() == b"EXEC"
            self._take_step(
                request,
                ConnectionEvent.EXEC_REJECTED if is_exec else ConnectionEvent.REJECTED,
                command,
            )
            return
        if not client.authenticated and command.name not in _BEFORE_AUTH:
            command.rejected += 1
            request.answer(_NOAUTH)
            return
        if command.kind is CommandKind.REFUSED:
            command.rejected += 1
        else:
            command.calls += 1
        if client.only_listens and command.name not in _WHILE_SUBSCRIBED:
            request.answer(self._only_listens(command))
            return
        event, error = self._classify(command, request)
        if event is ConnectionEvent.COMMAND and (
            client.phase is ConnectionPhase.OPEN or command.name in ("QUIT", "CLIENT REPLY")
        ):
            self._carry_out(request, self.submit)
        else:
            self._take_step(request, event, error)

    def _rewritten(self, request: Request, rewrite: Rewrite) -> Command | ReplyError:
        """The command that does the same; the request gets its words."""
        words = rewrite(request.args)
        if isinstance(words, ReplyError):
            return words
        request.args = words
        return self._table.resolve(words)

    def _only_listens(self, command: Command) -> ReplyError:
        """The server's error for a command of a client that has subscribed in RESP2."""
        kin = "(P|S)" if b"SSUBSCRIBE" in self._table.by_name else "(P)"
        error = ReplyError(
            f"ERR Can't execute '{command.shown}': only {kin}SUBSCRIBE / {kin}UNSUBSCRIBE / PING / QUIT / RESET are "
            "allowed in this context"
        )
        return discarded_because(error) if command.name == "EXEC" else error

    def _classify(
        self, command: Command, request: Request
    ) -> tuple[ConnectionEvent, ReplyError | None]:
        """The kind of command, and its error if it cannot be executed."""
        name = command.name
        is_inside = request.client.phase in IN_MULTI
        if is_inside and ("no_multi" in command.flags or name == "CLIENT REPLY"):
            return ConnectionEvent.REJECTED, command.inside_error()
        if is_inside and command.denied is not None:
            return ConnectionEvent.REJECTED, command.denied
        if is_inside and name == "CRDTCAST" and request.args[1].upper() in _WAITING_WORDS:
            return ConnectionEvent.REJECTED, _NOT_INSIDE
        if name == "SELECT":
            return self._classify_select(request.args[1])
        if command.kind is CommandKind.REFUSED:
            return ConnectionEvent.REJECTED, self._table.refusal_of(command)
        if is_inside and command.grows and (refusal := self._refuse_growth()) is not None:
            return ConnectionEvent.REJECTED, refusal
        client = request.client
        if (client.next_db or client.is_high or command.crosses) and (
            command.forwarded or name == "WATCH"
        ):
            args = named(command, request.args, client.next_db, self.databases)
            if isinstance(args, ReplyError):
                return ConnectionEvent.REJECTED, args
            if type(args) is not list and (refusal := self._refuse_elsewhere()) is not None:
                return ConnectionEvent.REJECTED, refusal
            request.args = args
        if self.left_out and (command.forwarded or name == "WATCH"):
            for key in command.keys_of(request.args):
                if self.left_out.has(key):
                    return ConnectionEvent.REJECTED, self._left_out(key)
        return _EVENTS.get(name, ConnectionEvent.COMMAND), None

    def _left_out(self, key: bytes) -> ReplyError:
        return ReplyError(
            f"ERR crdtcast: key {described(key)} is left out of this group (--leave-out-keys: "
            f"{self.left_out.shown()}): use it at the server's own port"
        )

    def _classify_select(self, word: bytes) -> tuple[ConnectionEvent, ReplyError | None]:
        number = database(word, self.databases)
        if isinstance(number, ReplyError):
            is_ours = word == b"%d" % self.databases.ours
            return (
                (ConnectionEvent.SELECT_OURS, number)
                if is_ours
                else (ConnectionEvent.COMMAND, None)
            )
        if number and (refusal := self._refuse_elsewhere()) is not None:
            return ConnectionEvent.SELECT_OURS, refusal
        return ConnectionEvent.SELECT, None

    def _take_step(
        self, request: Request, event: ConnectionEvent, error: ReplyError | None
    ) -> None:
        client = request.client
        phase = client.phase
        answer, following = step(phase, event)
        if following is not phase:
            client.stand(following, client.replies)
        queue = client.queue if following is ConnectionPhase.QUEUING else client.take_queue()
        watch = client.take_watch() if ends_watch(phase, event, following) else None
        if watch is not None and answer is not Answer.EXECUTE:
            watch.end()
        match answer:
            case Answer.CARRY_OUT:
                self._carry_out(request, self.submit)
            case Answer.OK:
                request.answer(OK)
            case Answer.WATCH:
                self._watch(request)
            case Answer.ERROR:
                way_out = _BEFORE_SELECT if following is ConnectionPhase.DATABASE_REFUSED else ""
                request.answer(ReplyError(f"{error}{way_out}") if way_out else error)
            case Answer.MISPLACED:
                request.answer(_MISPLACED[request.command.name])
            case Answer.QUEUE:
                if event is ConnectionEvent.SELECT:
                    client.next_db = int(request.args[1])
                self._queue(request, queue or Queue())
            case Answer.QUEUE_IN_VAIN:
                request.answer(_QUEUED)
            case Answer.EXECUTE:
                self._execute(request, queue or Queue(), watch)
            case Answer.DISCARDED:
                request.answer(DISCARDED)
            case Answer.REFUSE:
                if event is ConnectionEvent.WATCH:
                    refuse_watch(client)
                request.answer(_AFTER_SELECT)

    def _watch(self, request: Request) -> None:
        watching = watch_of(request, silent=isinstance(request, SilentRequest))
        if isinstance(watching, ReplyError):
            request.answer(watching)
        else:
            request.client.replace(request, watching)
            self.submit(watching)

    def _queue(self, request: Request, queue: Queue) -> None:
        client = request.client
        client.queue = queue
        before = queue.size
        error = queue.add(request.args, request.command)
        if not client.note_queued(queue.size - before) and error is None:
            error = _TOO_MUCH_QUEUED
        if error is None:
            request.answer(_QUEUED)
        else:
            self._take_step(request, ConnectionEvent.REJECTED, error)

    def _execute(self, request: Request, queue: Queue, watch: Watch | None) -> None:
        client = request.client
        changes = any(command.name in _CHANGES_CONNECTION for _, command in queue.calls)
        before = client.protocol, client.name, dict(client.info)
        db = client.db
        selects = any(command.name == "SELECT" for _, command in queue.calls)
        heard = None if client.subscribed is None or not changes else client.subscribed.copy()

        def restore() -> None:
            client.protocol, client.name, client.info = before
            if client.subscribed is not None:
                client.subscribed.restore(heard)
            client.select(db)

        def go_on() -> None:
            for held in client.release():
                self.handle(held)

        transaction = Transaction(
            request,
            queue,
            watch,
            silent=isinstance(request, SilentRequest),
            on_refused=restore if changes else lambda: None,
            on_answered=go_on if selects else lambda: None,
        )
        if selects:
            client.hold()
        client.replace(request, transaction)
        client.charge(queue.size)
        if transaction.begin(self._carry_out):
            self.submit(transaction)

    @staticmethod
    def _silenced(request: Request, name: str) -> Request:
        """The request in the form for a client that may not want replies. name: the name of its command."""
        client = request.client
        is_heard = name in _SUBSCRIBING or (name == "RESET" and client.replies is Replies.OFF)
        if client.replies is Replies.SKIP:
            client.stand(client.phase, Replies.ON)
        if name == "CLIENT REPLY" and client.phase not in IN_MULTI:
            is_heard = request.args[2].upper() == b"ON"
        if is_heard:
            return request
        silent = SilentRequest(client, request.args, request.command)
        client.replace(request, silent)
        return silent
