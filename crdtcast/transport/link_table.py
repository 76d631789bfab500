"""All links of one node: dialling, accepting, their lives, and their log lines. `transport/greeting.py` identifies the
other end.

Both sides dial, so connections cross. Of two nodes the one with the lesser name settles: it numbers the connections
that it welcomes, in rising order, and both keep the highest number. So a connection from a peer that lost the old one
wins over a half-open rest, and crossing connections end as one.

The handshake: the dialler sends hello; the acceptor checks it and answers hello or a refusal; the dialler checks as
well. With a shared secret both prove that they know it. Then the greater name sends welcome(0), and the lesser one
welcome(n): from then on the link is up.
"""

import logging
from collections.abc import Awaitable, Callable

import trio

from crdtcast.exceptions import RemoteProtocolError, SupersededError
from crdtcast.transport.connection_limits import ConnectionAdmission, Visit
from crdtcast.transport.greeting import REPEAT, Agreed, Greeting
from crdtcast.transport.link import CLOSED_BY_PEER, STREAM_ERRORS, Link, LinkHost, ReadGate
from crdtcast.transport.log_throttle import Throttle, cause_of
from crdtcast.transport.options import NodeOptions, format_address
from crdtcast.transport.peers import LinkEvent, LinkPeer, LinkPhase
from crdtcast.wire.frames import FrameKind, Welcome, encode
from crdtcast.wire.handshake import Patience, Reason, Refused, patience

Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]
_STEADY = 1.0
"""A link that lived for so many seconds was a success: the back-off starts again."""
_STARTING = 3.0
"""For so many seconds a peer without a link may only be starting or stopping, like this node: no problem yet."""
_STOPPED = "this node has stopped"
_REPLACED = "replaced by a newer connection"
_ASKS_FOR_PORT = (
    ": is this the port where the other member listens for members (listen=, --listen)? What listens there "
    "does not answer as one"
)
_ORDINARY = {_STOPPED, _REPLACED}


class Links(Greeting):
    """The links of one node. Its owner runs `keep_linked` for every peer to dial, and `maintain`."""

    def __init__(
        self, host: LinkHost, options: NodeOptions, connect: Connect, logger: logging.Logger
    ) -> None:
        super().__init__(host, options, logger)
        self.gate: ReadGate = ReadGate()
        self._connect = connect
        self._quietly = Throttle(logger)
        # Separate throttles: strangers' lines must not displace lines about peers.
        self._strangers = Throttle(logger)
        self._strangers_rarely = Throttle(logger, REPEAT)
        self._admission = ConnectionAdmission(options.max_handshakes, options.max_host_connections)

    def cut(self, name: str) -> None:
        """Drop the link with `name`, and refuse new ones in both directions until `heal`."""
        if name in self.up:
            self._detach(self.up[name], "an operator cut the link", LinkEvent.CUT)
        else:
            self.peer(name).life.move(LinkEvent.CUT)

    def heal(self, name: str) -> None:
        """Allow links with `name` again and dial at once."""
        peer = self.peer(name)
        if peer.life.phase is LinkPhase.CUT:
            peer.life.move(LinkEvent.HEAL)
        peer.nudge()

    def restart(self, reason: str) -> None:
        """Close everything, including handshakes under way, and dial again under the node's present identity."""
        self._generation += 1
        for link in list(self.up.values()):
            self._detach(link, reason)
        for peer in self.dialled:
            peer.nudge()

    # Tasks

    @trio.lowlevel.enable_ki_protection
    async def maintain(self) -> None:
        """Send keep-alives, and end links whose peer sends none."""
        interval = self._options.keepalive_interval
        while True:
            self._watch_certificate()
            await trio.sleep(interval / 4)
            now = trio.current_time()
            for link in list(self.up.values()):
                link.watch(now, interval)

    @trio.lowlevel.enable_ki_protection
    async def keep_linked(self, peer: LinkPeer) -> None:
        """Dial `peer` whenever there is no link with it, until it is forgotten."""
        while peer in self.dialled:
            if peer.life.phase in (LinkPhase.UP, LinkPhase.CUT):
                await peer.life.changed.park()
                continue
            nudged = peer.nudged
            verdict = await self._dial(peer)
            delay = peer.backoff.next_delay()
            if verdict is not Patience.RETRY:
                delay = self._options.slow_retry * (0.5 + self._rng.random())
            with trio.move_on_after(delay):
                await nudged.wait()

    @trio.lowlevel.enable_ki_protection
    async def accept(self, stream: trio.abc.Stream) -> None:
        """Serve one incoming connection to its end. Never raises."""
        host = host_of(stream)
        scope = trio.CancelScope()
        visit = Visit(host, scope.cancel)
        if not self._admission.enter(visit):
            self._turned_away(f"too many connections from {host}: refused one")
            await trio.aclose_forcefully(stream)
            return
        try:
            with scope:
                await self._converse(stream, None, visit)
            if scope.cancelled_caught:
                self._turned_away(f"too many handshakes at once, most from {host}: ended one")
        finally:
            self._admission.leave(visit)

    def _turned_away(self, text: str) -> None:
        self.refusals["limit"] += 1
        self._strangers.log(trio.current_time(), "too many", logging.WARNING, text)

    async def _dial(self, peer: LinkPeer) -> Patience:
        address = peer.address
        assert address is not None
        peer.life.move(LinkEvent.DIAL)
        try:
            with trio.fail_after(self._options.connect_timeout):
                stream = await self._connect(*address)
        except trio.TooSlowError:
            return self._unreachable(peer, "no answer")
        except Exception as error:
            # Not only OSError: a host name that cannot be encoded is a UnicodeError, for example.
            return self._unreachable(peer, cause_of(error))
        return await self._converse(stream, peer)

    def _unreachable(self, peer: LinkPeer, cause: str) -> Patience:
        text = f"cannot reach {peer.at(format_address(peer.address))}: {cause}"
        if trio.current_time() - peer.unlinked_since >= _STARTING:
            self._trouble(peer, text)
        else:
            peer.life.move(LinkEvent.FAIL, text)
        return Patience.RETRY

    async def _converse(
        self, stream: trio.abc.Stream, dialled: LinkPeer | None, visit: Visit | None = None
    ) -> Patience:
        """Handshake and life of one connection. Each way it can end gives one log line, and never an exception."""
        label = dialled.at(_remote(stream)) if dialled else _remote(stream)
        link = None
        trouble = None
        level = logging.WARNING
        verdict = Patience.RETRY
        try:
            with trio.fail_after(self._options.handshake_timeout):
                link = self._attach(await self._shake_hands(stream, dialled))
            if visit is not None:
                self._admission.greeted(visit)
            await link.run(self._host.received, self.gate)
            if link.objection and trio.current_time() - link.since < _STEADY:
                # As good as a refusal in the handshake: the same would happen again at once.
                verdict = Patience.SLOW
        except Refused as refused:
            verdict = self._refused(refused, dialled, label)
        except trio.TooSlowError:
            self.refusals["time"] += 1
            trouble = f"handshake not finished within {self._options.handshake_timeout:g} s"
            if dialled is not None:
                trouble += _ASKS_FOR_PORT
        except RemoteProtocolError as error:
            self.refusals[Reason.PROTOCOL] += 1
            trouble = str(error) + self._hint(dialled)
            if dialled is not None and link is None:
                trouble += _ASKS_FOR_PORT
        except STREAM_ERRORS as error:
            level = logging.INFO  # a dialler may give up, or have another connection
            trouble = (
                f"connection broke during the handshake: {cause_of(error)}{self._hint(dialled)}"
            )
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
                text = f"connection from {label} closed: {trouble}"
                self._strangers.log(trio.current_time(), (_host(label), level), level, text)
        return verdict

    def _hint(self, dialled: LinkPeer | None) -> str:
        """A peer that rejects our certificate just closes; TLS reports nothing more."""
        if self._tls is None or dialled is None:
            return ""
        if (objection := self._tls.objection()) is not None:
            return f"; no peer will accept this node's certificate: {objection}"
        return "; if that lasts, the peer's log shows why it rejects this node's certificate"

    def _attach(self, agreed: Agreed) -> Link:
        talk, hello, number, zstd, settles = agreed
        if (rival := self.up.get(hello.name)) is not None:
            self._detach(rival, _REPLACED)
        peer = self.peer(hello.name)
        talk.decoder.limit = self._options.max_frame
        talk.decoder.zstd = zstd
        link = Link(
            talk.stream,
            talk.decoder,
            hello,
            number=number,
            zstd=zstd,
            traffic=peer.traffic,
            queue_bytes=self._options.queue_bytes,
            fill=self._host.fill,
            logger=self._logger,
        )
        if settles:
            link.offer(FrameKind.WELCOME, encode(Welcome(number)))
        self.up[hello.name] = link
        peer.times_up += 1
        peer.rival = ""
        peer.life.move(LinkEvent.LINK)
        self._rarely.forget(peer.label)
        self._logger.info(
            "linked with %s (%s)", hello.name, hello.incarnation, extra={"peer": hello.name}
        )
        try:
            self._host.link_up(link)
        except BaseException:
            self._detach(link, "this node failed when the link came up")
            raise
        return link

    def _detach(self, link: Link, reason: str, event: LinkEvent = LinkEvent.LOSE) -> None:
        """Remove a link from the table and end it. A reason that the link has already counts instead of this one."""
        link.close(reason)
        if self.up.get(link.name) is not link:
            return
        del self.up[link.name]
        peer = self.peer(link.name)
        if trio.current_time() - link.since >= _STEADY:
            peer.backoff.reset()
        peer.life.move(event, link.closed)
        peer.unlinked_since = trio.current_time()
        if link.closed not in _ORDINARY:
            level = logging.INFO if link.closed == CLOSED_BY_PEER else logging.WARNING
            text = f"link with {link.name} is down: {link.closed}"
            if link.objection:
                # The peer chooses these words, or causes them, so there is one line for all.
                key = (link.name, "objection")
                self._rarely.log(trio.current_time(), key, logging.ERROR, text, peer=link.name)
            else:
                self._quietly.log(trio.current_time(), link.name, level, text)
        self._host.link_down(link)

    # Log lines

    def _refused(self, refused: Refused, dialled: LinkPeer | None, label: str) -> Patience:
        refusal = refused.refusal
        verdict = patience(refusal.reason)
        if refused.by_peer and not refused.trusted and verdict is Patience.ENDED:
            # Any program can send that; it does not prove the secret.
            verdict = Patience.SLOW
        if not refused.by_peer and verdict is not Patience.RETRY:
            self.refusals[refusal.reason] += 1
        if refusal.reason == Reason.OWN_ADDRESS and (dialled is None or dialled.name is None):
            return self._met_itself(dialled)
        by = f"refused by {label}" if refused.by_peer else f"{label} refused"
        if dialled is not None:
            event = LinkEvent.FAIL if verdict is Patience.RETRY else LinkEvent.REFUSE
            dialled.life.move(event, refusal.text)
        refuser = dialled if dialled is not None else self._peers.get(refused.name)
        if refuser is not None and refused.by_peer and refused.trusted:
            refuser.rival = refusal.text if refusal.reason == Reason.NAME_IN_USE else ""
        if verdict is Patience.ENDED and refused.by_peer:
            self._host.ended(SupersededError(refusal.text))
            return verdict
        if refusal.reason == Reason.LINKED:
            level = logging.DEBUG
        else:
            level = logging.INFO if verdict is Patience.RETRY else logging.ERROR
        text, now = f"{by}: {refusal.text}", trio.current_time()
        name = (dialled.name if dialled is not None else None) or refused.name
        if dialled is None and name not in self._peers:
            # A stranger chooses its words and its port, but not its host and the reason.
            room, key = self._strangers_rarely, (_host(label), refusal.reason)
        else:
            # Trouble with a peer is logged once, on either side's dialling, and for any port.
            room, key = self._rarely, (name or refusal.text, refusal.reason)
        room.log(now, key, level, text, reason=refusal.reason)
        return verdict

    def _met_itself(self, dialled: LinkPeer | None) -> Patience:
        """The list of members has this node's own address, written in another way than `listen`."""
        if dialled in self.dialled:
            self.dialled.remove(dialled)
            level = logging.INFO if self.dialled or self.up else logging.ERROR
            self._logger.log(
                level,
                "%s is this node's own address%s",
                format_address(dialled.address),
                "" if level == logging.INFO else ": no address of another member is known: add one",
            )
        return Patience.SLOW

    def _trouble(self, peer: LinkPeer, text: str) -> None:
        """A failed attempt: log one line, then none until an attempt has succeeded."""
        peer.life.move(LinkEvent.FAIL, text)
        self._rarely.log(trio.current_time(), peer.label, logging.WARNING, text, peer=peer.label)


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


def host_of(stream: trio.abc.Stream) -> str:
    """The host at the other end of a connection; empty if it has none."""
    return _host(_remote(stream))
