"""Commands about one connection and not the data: greeting, password, names, the table of commands, settings, INFO.

The gateway answers all of them at once and alone, with the texts of a native server. Requests that turn out to be for
the server (a read behind a subcommand) are submitted after all.
"""

import fnmatch
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from crdtcast.adapters.redis.adoption.left_out import NONE, LeftOut
from crdtcast.adapters.redis.clients.client import NO_REPLY, Request
from crdtcast.adapters.redis.clients.client_state import Family
from crdtcast.adapters.redis.clients.command_context import Conversation
from crdtcast.adapters.redis.clients.connection_phases import IN_MULTI, ConnectionPhase, Replies
from crdtcast.adapters.redis.clients.info import Info
from crdtcast.adapters.redis.clients.subscriptions import BEGINNING, ENDING, Subscriptions
from crdtcast.adapters.redis.clients.transaction import Call
from crdtcast.adapters.redis.commands.arguments import integer
from crdtcast.adapters.redis.commands.errors import NOT_AN_INTEGER
from crdtcast.adapters.redis.commands.names import database
from crdtcast.adapters.redis.commands.table import (
    Command,
    CommandKind,
    Table,
    describe,
    unknown_command,
)
from crdtcast.adapters.redis.server.resp import OK, Raw, ReplyError, StatusReply, Verbatim
from crdtcast.adapters.redis.store.databases import Databases

if TYPE_CHECKING:
    from crdtcast.adapters.redis.clients.client import Client
    from crdtcast.adapters.redis.clients.listener import Front

_PONG, _RESET = StatusReply(b"PONG"), StatusReply(b"RESET")
_NOAUTH_HELLO = ReplyError(
    "NOAUTH HELLO must be called with the client already authenticated, otherwise the "
    "HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the "
    "RESP protocol version at the same time"
)
_WRONGPASS = ReplyError("WRONGPASS invalid username-password pair or user is disabled.")
_NO_PASSWORD = ReplyError(
    "ERR AUTH <password> called without any password configured for the default user. "
    "Are you sure your configuration is correct?"
)
_NO_SHARDS_INSIDE = ReplyError("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client")
_SYNTAX = ReplyError("ERR syntax error")
_BAD_NAME = ReplyError("ERR Client names cannot contain spaces, newlines or special characters.")

# Server settings that CONFIG GET may show. The server's passwords, users and paths are hidden from the gateway's
# clients.
_PUBLIC_SETTINGS = (
    *("appendfsync", "appendonly", "databases", "maxclients", "maxmemory", "maxmemory-policy"),
    *("no-appendfsync-on-rewrite", "proto-max-bulk-len", "save", "timeout", "hz", "io-threads"),
    *("hash-max-listpack-entries", "hash-max-listpack-value", "set-max-intset-entries"),
    *("set-max-listpack-entries", "set-max-listpack-value", "list-max-listpack-size"),
    *("zset-max-listpack-entries", "zset-max-listpack-value", "notify-keyspace-events"),
)


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What the gateway's server says about itself in HELLO and INFO: clients look at both.

    redis_version: the version of Redis that it is compatible with.
    version: its own version.
    """

    name: str = "valkey"
    version: str = "7.2.4"
    redis_version: str = "7.2.4"

    def fields(self) -> dict[str, object]:
        """The fields in INFO."""
        return {
            "redis_version": self.redis_version,
            "server_name": self.name,
            f"{self.name}_version": self.version,
        }


class Waits(Protocol):
    """Commands that wait for other regions, as the session sees them."""

    def wait(self, request: Request) -> None:
        """Answer WAIT, at once or later."""

    def unblock(self, client: "Client", *, with_error: bool) -> bool:
        """Let a client's command wait no longer. Returns whether one was waiting."""


class Session:
    """Answers SESSION commands, refuses what must be refused, passes on the rest.

    status: gives the values of INFO's section `crdtcast`.
    admin: gets the requests of CRDTCAST and answers them.
    waits: answers WAIT, and ends the waiting of other clients.
    password: the gateway's own (None: no AUTH needed).
    refuse_growth: returns why writes that need memory are refused, if they are.
    refuse_elsewhere: returns why keys of other databases than 0 are refused, if they are.
    """

    def __init__(
        self,
        table: Table,
        *,
        status: Callable[[], Mapping[str, object]],
        subscriptions: Subscriptions,
        admin: "Callable[[Request], None]",
        waits: "Waits",
        password: str | None = None,
        refuse_growth: Callable[[], ReplyError | None] = lambda: None,
        refuse_elsewhere: Callable[[], ReplyError | None] = lambda: None,
    ) -> None:
        self.server: ServerIdentity = ServerIdentity()
        self.info: Info = Info(table, identity=lambda: self.server.fields(), status=status)
        self._table = table
        self._admin = admin
        self._waits = waits
        self._subscriptions = subscriptions
        self._conversation = Conversation(
            table, self._carry_out, refuse_growth, admin, self._hang_up, refuse_elsewhere
        )
        self._password = None if password is None else password.encode()
        self._front: Front | None = None
        self._handlers: dict[str, Callable[[Request], object]] = {
            "PING": self._ping,
            "ECHO": lambda request: request.args[1],
            "HELLO": self._hello,
            "AUTH": self._auth,
            "SELECT": self._select,
            "QUIT": self._quit,
            "RESET": self._reset,
            "INFO": lambda request: Verbatim(self.info.text(request.args[1:])),
            "CLIENT ID": lambda request: request.client.id,
            "CLIENT GETNAME": lambda request: request.client.name or None,
            "CLIENT SETNAME": self._setname,
            "CLIENT SETINFO": self._setinfo,
            "CLIENT LIST": self._client_list,
            "CLIENT INFO": lambda request: Verbatim(self._client_line(request.client) + b"\n"),
            "CLIENT NO-EVICT": _on_or_off,
            "CLIENT NO-TOUCH": _on_or_off,
            "CLIENT REPLY": _client_reply,
            "CLIENT UNBLOCK": self._client_unblock,
            "UNWATCH": lambda _: OK,
            "COMMAND": self._command,
            "COMMAND COUNT": lambda _: len(self._table.supported()),
            "COMMAND DOCS": lambda _: {},
            "COMMAND INFO": self._command_info,
            "COMMAND LIST": self._command_list,
        }

    def attach(self, front: "Front", submit: "Callable[[Request], None]") -> None:
        """Connect the session with the front, which has the clients, and with `submit`, which takes requests for the
        server. To be called once.
        """
        self._front = self.info.front = front
        self.submit_by(submit)

    def use(self, server: ServerIdentity, databases: Databases, left_out: LeftOut = NONE) -> None:
        """Use this server from now on. To be called at each connection.

        left_out: keys that clients cannot use.
        """
        self.server = server
        self._conversation.left_out = left_out
        if left_out:
            self._table.take_none_directly()
        self.info.databases = self._conversation.databases = databases

    def submit_by(self, submit: "Callable[[Request], None]") -> None:
        """Set where requests go that the session does not answer itself."""
        self._conversation.submit = submit

    def welcome(self, client: "Client") -> None:
        """A new connection. Without a password set, it is trusted at once."""
        client.trust(self._password is None)

    def handle(self, request: Request) -> None:
        """Answer, refuse, queue or submit one request, in the order of its client."""
        self._conversation.handle(request)

    def _carry_out(self, request: Request, submit: Callable[[Request], None]) -> None:
        """Answer a request, or pass it to `submit`."""
        command = request.command
        if command.forwarded:
            submit(request)
        elif command.kind is CommandKind.ADMIN:
            self._admin(request)
        elif command.name == "WAIT":
            self._waits.wait(request)
        elif command.name == "CONFIG GET":
            self._config_get(request, submit)
        elif command.name in _KEY_FINDERS:
            # For refused commands, too: the server knows where their keys are.
            request.command = _KEY_FINDERS[command.name]
            submit(request)
        elif command.name in BEGINNING:
            self._subscribe(request, BEGINNING[command.name])
        elif command.name in ENDING:
            self._subscriptions.unsubscribe(request, ENDING[command.name], request.args[1:])
        else:
            try:
                reply = self._handlers[command.name](request)
            except ReplyError as error:
                reply = error
            request.answer(reply)

    def _hang_up(self, request: Request) -> None:
        """Close without a reply and without another command: the connection carries another protocol."""
        assert self._front is not None
        client = request.client
        self._front.warn(
            "cross-protocol",
            f"possible attack: closed client {client.id} ({client.address}), which sends a "
            f"request of another protocol: {b' '.join(request.args)[:80]!r}: check whether a web "
            "page or mail client was made to connect here",
        )
        client.close()

    def _subscribe(self, request: Request, family: Family) -> None:
        if family is Family.SHARDS and isinstance(request, Call):
            request.answer(_NO_SHARDS_INSIDE)
        else:
            self._subscriptions.subscribe(request, family, request.args[1:])

    def _ping(self, request: Request) -> object:
        if len(request.args) > 2:
            raise request.command.arity_error()
        if request.client.only_listens:
            return [b"pong", request.args[1] if len(request.args) == 2 else b""]
        return request.args[1] if len(request.args) == 2 else _PONG

    def _quit(self, request: Request) -> object:
        request.client.end()
        return OK

    def _reset(self, request: Request) -> object:
        client = request.client
        client.name = b""
        client.protocol = request.protocol = 2
        if client.subscribed is not None:
            client.subscribed.end()
        client.db = client.next_db = 0
        client.stand(ConnectionPhase.OPEN, Replies.ON)
        self.welcome(client)
        return _RESET

    def _select(self, request: Request) -> object:
        number = database(request.args[1], self.info.databases)
        if isinstance(number, ReplyError):
            raise number
        request.client.select(number)
        return OK

    def _auth(self, request: Request) -> object:
        args = request.args
        if len(args) > 3:
            raise _SYNTAX
        if len(args) == 2 and self._password is None:
            raise _NO_PASSWORD
        self._log_in(request.client, args[1] if len(args) == 3 else b"default", args[-1])
        return OK

    def _log_in(self, client: "Client", user: bytes, password: bytes) -> None:
        expected = self._password
        if user != b"default" or not (expected is None or hmac.compare_digest(password, expected)):
            raise _WRONGPASS
        client.trust(True)

    def _hello(self, request: Request) -> object:
        client, args = request.client, request.args
        protocol, name, credentials = client.protocol, None, None
        if len(args) > 1:
            try:
                protocol = int(args[1])
            except ValueError:
                raise ReplyError("ERR Protocol version is not an integer or out of range") from None
            if protocol not in (2, 3):
                raise ReplyError("NOPROTO unsupported protocol version")
        position = 2
        while position < len(args):
            option, left = args[position].upper(), len(args) - position - 1
            if option == b"AUTH" and left >= 2:
                credentials = args[position + 1], args[position + 2]
                position += 3
            elif option == b"SETNAME" and left >= 1:
                name = _checked_name(args[position + 1])
                position += 2
            else:
                raise ReplyError(b"ERR Syntax error in HELLO option '%b'" % args[position][:128])
        if credentials is not None:
            self._log_in(client, *credentials)
        if not client.authenticated:
            raise _NOAUTH_HELLO
        if name is not None:
            client.name = name
        client.protocol = request.protocol = protocol
        client.stand(client.phase, client.replies)
        return {
            b"server": self.server.name.encode(),
            b"version": self.server.version.encode(),
            b"proto": protocol,
            b"id": client.id,
            b"mode": b"standalone",
            b"role": b"master",
            b"modules": [],
        }

    def _setname(self, request: Request) -> object:
        request.client.name = _checked_name(request.args[2])
        return OK

    def _setinfo(self, request: Request) -> object:
        option, value = request.args[2].lower(), request.args[3]
        if option not in (b"lib-name", b"lib-ver"):
            raise ReplyError(b"ERR Unrecognized option '%b'" % request.args[2][:128])
        if not _printable(value):
            raise ReplyError(
                b"ERR %b cannot contain spaces, newlines or special characters." % option
            )
        request.client.info[option.decode()] = value
        return OK

    def _client_unblock(self, request: Request) -> object:
        assert self._front is not None
        number, *how = request.args[2:]
        with_error = False
        if how:
            if len(how) > 1 or (word := how[0].upper()) not in (b"TIMEOUT", b"ERROR"):
                raise ReplyError("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
            with_error = word == b"ERROR"
        if (known := integer(number)) is None:
            raise NOT_AN_INTEGER
        client = self._front.clients.get(known)
        return int(client is not None and self._waits.unblock(client, with_error=with_error))

    def _client_list(self, request: Request) -> object:
        assert self._front is not None
        clients = self._front.clients
        args = request.args[2:]
        if not args:
            chosen = list(clients.values())
        elif args[0].upper() == b"ID" and len(args) > 1:
            if not all(arg.isdigit() for arg in args[1:]):
                raise ReplyError("ERR Invalid client ID")
            numbers = map(int, args[1:])
            chosen = [clients[number] for number in numbers if number in clients]
        elif args[0].upper() == b"TYPE" and len(args) == 2:
            kind = args[1].lower()
            listens = {b"normal": False, b"pubsub": True}.get(kind)
            chosen = [c for c in clients.values() if (c.subscriptions > 0) is listens]
        else:
            raise _SYNTAX
        return Verbatim(b"".join(self._client_line(client) + b"\n" for client in chosen))

    @staticmethod
    def _client_line(client: "Client") -> bytes:
        multi = 0 if client.phase in IN_MULTI else -1
        if client.queue is not None:
            multi = len(client.queue.calls)
        age = int(time.monotonic() - client.connected_at)
        command = client.last_command.name.lower().replace(" ", "|") or "NULL"
        names = None if client.subscribed is None else client.subscribed.names
        sub, psub = (
            0 if names is None else len(names[f]) for f in (Family.CHANNELS, Family.PATTERNS)
        )
        flags = "P" * (client.subscriptions > 0) + "x" * (multi >= 0)
        flags += "b" * (client.blocked is not None)
        library = [client.info.get(name, b"").decode() for name in ("lib-name", "lib-ver")]
        return (
            f"id={client.id} addr={client.address} laddr={client.local_address} "
            f"name={client.name.decode()} age={age} flags={flags or 'N'} db={client.db} "
            f"sub={sub} psub={psub} multi={multi} "
            f"pending={len(client.pending)} omem={len(client.unread)} cmd={command} user=default "
            f"resp={client.protocol} lib-name={library[0]} lib-ver={library[1]}"
        ).encode()

    def _command(self, request: Request) -> object:
        if len(request.args) > 1:
            return unknown_command(request.args)
        return [describe(command) for command in self._table.supported()]

    def _command_info(self, request: Request) -> object:
        supported = self._table.supported()
        names = request.args[2:]
        if not names:
            return [describe(command) for command in supported]
        known = {command.name.lower().encode(): command for command in supported}
        missing = Raw(b"*-1\r\n") if request.protocol == 2 else None
        return [
            describe(known[name.lower()]) if name.lower() in known else missing for name in names
        ]

    def _command_list(self, request: Request) -> object:
        names = [command.name.lower().encode() for command in self._table.supported()]
        match [arg.upper() for arg in request.args[2:4]], request.args[4:]:
            case [], []:
                return names
            case [b"FILTERBY", b"PATTERN"], [pattern]:
                matches = _matcher(pattern)
                return [name for name in names if matches(name.decode())]
            case [b"FILTERBY", b"ACLCAT" | b"MODULE"], [_]:
                return []
        raise _SYNTAX

    def _config_get(self, request: Request, submit: Callable[[Request], None]) -> None:
        """Pass on the names of public settings that match; the server knows their values."""
        names: list[bytes] = []
        for pattern in request.args[2:]:
            matches = _matcher(pattern)
            names += [name.encode() for name in _PUBLIC_SETTINGS if matches(name)]
        if not names:
            request.answer({})
            return
        request.args = [b"CONFIG", b"GET", *dict.fromkeys(names)]
        request.command = _CONFIG_GET
        submit(request)


_CONFIG_GET = Command("CONFIG GET", CommandKind.READ, -3)
_KEY_FINDERS = {
    name: Command(name, CommandKind.READ, -3)
    for name in ("COMMAND GETKEYS", "COMMAND GETKEYSANDFLAGS")
}


def _matcher(pattern: bytes) -> Callable[[str], bool]:
    text = pattern.decode("utf-8", "replace").lower()
    return lambda name: fnmatch.fnmatchcase(name, text)


def _printable(value: bytes) -> bool:
    return all(33 <= byte <= 126 for byte in value)


def _checked_name(name: bytes) -> bytes:
    if not _printable(name):
        raise _BAD_NAME
    return name


def _on_or_off(request: Request) -> object:
    if request.args[2].upper() not in (b"ON", b"OFF"):
        raise _SYNTAX
    return OK


def _client_reply(request: Request) -> object:
    client = request.client
    match request.args[2].upper():
        case b"ON":
            client.stand(client.phase, Replies.ON)
            return OK
        case b"OFF":
            client.stand(client.phase, Replies.OFF)
        case b"SKIP":
            if client.replies is Replies.ON:
                client.stand(client.phase, Replies.SKIP)
        case _:
            raise _SYNTAX
    return NO_REPLY
