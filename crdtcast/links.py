"""All links of one node: dialling, accepting, the handshake, and which of two connections with a
peer counts.

Both sides dial, so connections cross. Of any two nodes the one with the lesser name settles: it
numbers the connections it welcomes, in rising order, and both keep the highest number. A connection
that comes from a peer which lost the old one therefore wins over a half-open rest, and crossing
ones end in one.

The handshake: the dialler says hello; the acceptor judges it and answers hello or a refusal; the
dialler judges as well. With a shared secret both prove that they know it. Then the greater name says
welcome(0), and the lesser one welcome(n): that is the moment from which the link is up.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

import trio

from crdtcast import compression
from crdtcast.admission import Admission, Visit
from crdtcast.conversation import Conversation
from crdtcast.encoder import Form
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError, SupersededError
from crdtcast.handshake import Patience, Reason, Refused, judge, patience
from crdtcast.link import CLOSED_BY_PEER, STREAM_ERRORS, Gate, Link
from crdtcast.logs import Throttle
from crdtcast.options import NodeOptions, format_address
from crdtcast.peers import Peer, PeerTable
from crdtcast.tls import Tls
from crdtcast.wire import (
    NONCE_BYTES,
    NUMBERED_VERSION,
    Frame,
    FrameKind,
    Hello,
    Refusal,
    Welcome,
    encode,
)

Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]
_STEADY = 1.0
"""A link that lived for so many seconds was a success: the back-off starts anew."""
_STOPPED = "this node has stopped"
_REPLACED = "replaced by a newer connection"
_ORDINARY = {_STOPPED, _REPLACED}
_REPEAT = 600.0
"""Seconds between two log lines about the same lasting trouble."""


class LinkHost(Protocol):
    """What links need of their node. Everything is synchronous."""

    def hello(self) -> Hello: ...
    def admit(self, peer: Hello) -> Refusal | None: ...
    def link_up(self, link: Link) -> None: ...
    def link_down(self, link: Link) -> None: ...
    def received(self, link: Link, frames: list[Frame]) -> None: ...
    def ended(self, error: Exception) -> None: ...


class Links(PeerTable):
    """The links of one node. Owned by `Node`, which runs `keep_linked` for every peer to dial, and
    `maintain`.
    """

    def __init__(
        self, host: LinkHost, options: NodeOptions, connect: Connect, logger: logging.Logger
    ) -> None:
        super().__init__(options)
        self.gate = Gate()
        self.refusals: Counter[str] = Counter()
        """Connections that this node would not have, by `Reason`; "time": too slow, "limit": too many.
        Not those that are refused in the ordinary course of things, since a link is up for example.
        """
        self._host = host
        self._connect = connect
        self._logger = logger
        self._quietly = Throttle(logger)
        self._rarely = Throttle(logger, _REPEAT)
        self._numbers = 0
        self._generation = 0
        self._admission = Admission(options.max_handshakes, options.max_host_connections)
        self._tls: Tls | None = None
        if options.certificate is not None and options.key is not None and options.ca is not None:
            self._tls = Tls(options.name, options.certificate, options.key, options.ca)

    def cut(self, name: str) -> None:
        """Drop the link with `name`, and refuse new ones in both directions until `heal`."""
        self.cut_names.add(name)
        if name in self.up:
            self._detach(self.up[name], "cut by the operator")
        self.peer(name).turn("cut")

    def heal(self, name: str) -> None:
        """Allow links with `name` again and dial at once."""
        self.cut_names.discard(name)
        peer = self.peer(name)
        if peer.state == "cut":
            peer.turn("down")
        peer.nudge()

    def restart(self, reason: str) -> None:
        """Close everything, handshakes under way too, and dial again under the node's present
        identity.
        """
        self._generation += 1
        for link in list(self.up.values()):
            self._detach(link, reason)
        for peer in self.dialled:
            peer.nudge()

    # Tasks

    async def maintain(self) -> None:
        """Keep-alives, and an end for links whose peer sends none."""
        interval = self._options.keepalive_interval
        while True:
            await trio.sleep(interval / 4)
            now = trio.current_time()
            for link in list(self.up.values()):
                link.watch(now, interval)

    async def keep_linked(self, peer: Peer) -> None:
        """Dial `peer` whenever there is no link with it, until it is to be forgotten."""
        while peer in self.dialled:
            if peer.name is not None and (peer.name in self.up or peer.name in self.cut_names):
                await self.peer(peer.name).changed.park()
                continue
            nudged = peer.nudged
            verdict = await self._dial(peer)
            delay = peer.backoff.next_delay()
            if verdict is not Patience.RETRY:
                delay = self._options.slow_retry * (0.5 + self._rng.random())
            with trio.move_on_after(delay):
                await nudged.wait()

    async def accept(self, stream: trio.abc.Stream) -> None:
        """Serve one connection that somebody opened to us, to its end. Never raises."""
        host = _host(_remote(stream))
        scope = trio.CancelScope()
        visit = Visit(host, scope.cancel)
        if not self._admission.enter(visit):
            self._turned_away(f"too many connections from {host}: one is refused")
            await trio.aclose_forcefully(stream)
            return
        try:
            with scope:
                await self._converse(stream, None, visit)
            if scope.cancelled_caught:
                self._turned_away(f"too many handshakes at once, most from {host}: one is ended")
        finally:
            self._admission.leave(visit)

    def _turned_away(self, text: str) -> None:
        self.refusals["limit"] += 1
        self._quiet("too many", logging.WARNING, text)

    async def _dial(self, peer: Peer) -> Patience:
        address = peer.address
        assert address is not None
        if peer.state != "up":
            peer.turn("dialling")
        try:
            with trio.fail_after(self._options.connect_timeout):
                stream = await self._connect(*address)
        except trio.TooSlowError:
            return self._unreachable(peer, "no answer")
        except Exception as error:
            # Not only OSError: a host name that cannot be encoded is a UnicodeError, for example.
            return self._unreachable(peer, _cause(error))
        return await self._converse(stream, peer)

    def _unreachable(self, peer: Peer, cause: str) -> Patience:
        where = format_address(peer.address)
        self._trouble(peer, f"cannot reach {peer.label} at {where}: {cause}")
        return Patience.RETRY

    async def _converse(
        self, stream: trio.abc.Stream, dialled: Peer | None, visit: Visit | None = None
    ) -> Patience:
        """Handshake and life of one connection. Every way it may end is one log line, and none is
        an exception.
        """
        label = f"{dialled.label} at {_remote(stream)}" if dialled else _remote(stream)
        link = None
        trouble = None
        level = logging.WARNING
        verdict = Patience.RETRY
        try:
            with trio.fail_after(self._options.handshake_timeout):
                link = await self._shake_hands(stream, dialled)
            if visit is not None:
                self._admission.greeted(visit)
            await link.run(self._host.received, self.gate)
            if link.objection and trio.current_time() - link.since < _STEADY:
                # As good as a refusal in the handshake: the same would happen at once again.
                verdict = Patience.SLOW
        except Refused as refused:
            verdict = self._refused(refused, dialled, label)
        except trio.TooSlowError:
            self.refusals["time"] += 1
            trouble = f"handshake not finished within {self._options.handshake_timeout:g} s"
        except RemoteProtocolError as error:
            self.refusals[Reason.PROTOCOL] += 1
            trouble = str(error) + self._hint(dialled)
        except STREAM_ERRORS as error:
            level = logging.INFO  # who dials us may change its mind, or has got another connection
            trouble = f"connection broke during the handshake: {_cause(error)}{self._hint(dialled)}"
        except Exception as error:
            self._logger.exception("unexpected error on the connection with %s", label)
            trouble = f"unexpected {type(error).__name__}: {error}"
        finally:
            if link is not None:
                self._detach(link, _STOPPED)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)
        if trouble is not None:
            if dialled is not None:
                self._trouble(dialled, f"no link with {label}: {trouble}")
            else:
                self._quiet(
                    (_host(label), level), level, f"connection from {label} closed: {trouble}"
                )
        return verdict

    def _hint(self, dialled: Peer | None) -> str:
        """Who does not accept our certificate closes, and TLS tells us no more than that."""
        if self._tls is None or dialled is None:
            return ""
        if (objection := self._tls.objection()) is not None:
            return f"; nobody will accept this node's certificate: {objection}"
        return "; if that lasts, its log says what it has against this node's certificate"

    # Handshake

    async def _shake_hands(self, stream: trio.abc.Stream, dialled: Peer | None) -> Link:
        generation = self._generation
        secret = self._options.secret
        talk = Conversation(stream, dialled=dialled is not None, secret=secret)
        if self._tls is not None:
            self._renew(self._tls)
            await talk.secure(self._tls)
        nonce = b"" if secret is None else secrets.token_bytes(NONCE_BYTES)
        own = self._hello(nonce)
        if dialled is not None:
            await talk.say(own)
        peer = await talk.hear_a(Hello)
        expected = dialled.name if dialled is not None else None
        await talk.check_certificate(peer)
        if refusal := self._judge(own, peer, expected, trusted=talk.trusted):
            await talk.refuse(refusal)
        if dialled is None:
            await talk.say(own)
        if not talk.trusted:
            await talk.prove(own, peer)
            if refusal := self._judge(own, peer, expected, trusted=True):
                await talk.refuse(refusal)
        if dialled is not None and dialled.name is None:
            self._learn_name(dialled, peer.name)
        settling = own.name < peer.name
        if not settling:
            await talk.say(Welcome(0))
        answer = await talk.hear_a(Welcome)
        if (answer.number == 0) is not settling:
            raise RemoteProtocolError(f"{answer!r:.100} where another number was expected")
        # The world may have changed while we waited; from here to the table there is no waiting.
        refusal = self._judge(self._hello(nonce), peer, expected, trusted=True)
        rival = self.up.get(peer.name)
        if generation != self._generation:
            refusal = Refusal(Reason.BUSY, f"node {own.name!r} is changing its identity")
        elif refusal is None and rival is not None and rival.peer.process == peer.process:
            # Crossing connections. If we settle, our own dialling proves nothing against a link
            # that is up; otherwise the higher number counts.
            late = dialled is not None if settling else rival.number > answer.number
            if late:
                refusal = Refusal(Reason.LINKED, f"{own.name!r} and {peer.name!r} are linked")
        if refusal is not None:
            await talk.refuse(refusal)
        if settling:
            self._numbers += 1
        number = self._numbers if settling else answer.number
        form = Form(
            numbered=min(own.version, peer.version) >= NUMBERED_VERSION,
            zstd=own.zstd and peer.zstd,
        )
        return self._attach(talk, peer, number, form, settling)

    def _hello(self, nonce: bytes) -> Hello:
        zstd = self._options.compress and compression.available()
        return replace(self._host.hello(), nonce=nonce, zstd=zstd)

    def _judge(
        self, own: Hello, peer: Hello, expected: str | None, *, trusted: bool
    ) -> Refusal | None:
        """trusted: it has proved that it belongs to the group. Before that nothing is done on its
        word, nor told of others.
        """
        linked = self.up.get(peer.name) if trusted else None
        refusal = judge(
            own,
            peer,
            expected=expected,
            linked=linked.peer if linked is not None else None,
            cut=peer.name in self.cut_names,
            max_drift_ms=self._options.max_drift_ms,
        )
        return refusal or (self._host.admit(peer) if trusted else None)

    def _renew(self, tls: Tls) -> None:
        try:
            tls.refresh()
        except ConfigurationError as error:
            text = f"{error} (until then the former certificate is used)"
            self._rarely.log(trio.current_time(), "certificate", logging.ERROR, text)

    def _attach(
        self, talk: Conversation, hello: Hello, number: int, form: Form, settling: bool
    ) -> Link:
        if (rival := self.up.get(hello.name)) is not None:
            self._detach(rival, _REPLACED)
        peer = self.peer(hello.name)
        talk.decoder.limit = self._options.max_frame
        talk.decoder.numbered, talk.decoder.zstd = form
        link = Link(
            talk.stream,
            talk.decoder,
            hello,
            number=number,
            form=form,
            traffic=peer.traffic,
            queue_bytes=self._options.queue_bytes,
            logger=self._logger,
        )
        if settling:
            link.offer(FrameKind.WELCOME, encode(Welcome(number)))
        self.up[hello.name] = link
        peer.times_up += 1
        peer.error = None
        peer.turn("up")
        self._rarely.forget(peer.label)
        self._logger.info(
            "linked with %s (%s)", hello.name, hello.incarnation, extra={"peer": hello.name}
        )
        self._host.link_up(link)
        return link

    def _detach(self, link: Link, reason: str) -> None:
        """Take a link out of the table and end it. The reason it has already given, if any, is the
        one that counts.
        """
        link.close(reason)
        if self.up.get(link.name) is not link:
            return
        del self.up[link.name]
        peer = self.peer(link.name)
        peer.error = link.closed
        if trio.current_time() - link.since >= _STEADY:
            peer.backoff.reset()
        self._turn(peer, "down")
        if link.closed not in _ORDINARY:
            level = logging.INFO if link.closed == CLOSED_BY_PEER else logging.WARNING
            text = f"link with {link.name} is down: {link.closed}"
            if link.objection:
                self._rarely.log(trio.current_time(), text, logging.ERROR, text, peer=link.name)
            else:
                self._quiet(("down", link.name), level, text)
        self._host.link_down(link)

    # What is said about it

    def _refused(self, refused: Refused, dialled: Peer | None, label: str) -> Patience:
        refusal = refused.refusal
        verdict = patience(refusal.reason)
        if refused.by_peer and not refused.trusted and verdict is Patience.ENDED:
            # Anybody may say that; it would not prove the secret.
            verdict = Patience.SLOW
        if not refused.by_peer and verdict is not Patience.RETRY:
            self.refusals[refusal.reason] += 1
        by = f"refused by {label}" if refused.by_peer else f"{label} refused"
        if dialled is not None and dialled.name not in self.up:
            dialled.error = refusal.text
            self._turn(dialled, "down" if verdict is Patience.RETRY else "refused")
        if verdict is Patience.ENDED and refused.by_peer:
            self._host.ended(SupersededError(refusal.text))
            return verdict
        if refusal.reason == Reason.LINKED:
            level = logging.DEBUG
        else:
            level = logging.INFO if verdict is Patience.RETRY else logging.ERROR
        # The sentence is the key: the same trouble on another port is the same trouble.
        self._rarely.log(
            trio.current_time(), refusal.text, level, f"{by}: {refusal.text}", reason=refusal.reason
        )
        return verdict

    def _trouble(self, peer: Peer, text: str) -> None:
        """A failed attempt: one line, then silence until it has worked again."""
        if peer.name is None or peer.name not in self.up:
            peer.error = text
            self._turn(peer, "down")
        self._rarely.log(trio.current_time(), peer.label, logging.WARNING, text, peer=peer.label)

    def _quiet(self, key: object, level: int, text: str) -> None:
        self._quietly.log(trio.current_time(), str(key), level, text)


def _remote(stream: trio.abc.Stream) -> str:
    if isinstance(stream, trio.SocketStream):
        try:
            host, port = stream.socket.getpeername()[:2]
        except OSError:
            return "a closed connection"
        return format_address((host, port))
    return type(stream).__name__


def _host(remote: str) -> str:
    return remote.rpartition(":")[0]


def _cause(error: BaseException) -> str:
    return str(error) or type(error).__name__
