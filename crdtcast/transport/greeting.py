"""One connection before it is a link: frames one at a time, refusals, the identity of the other end, whether it may be
linked, and which of two connections with one peer counts. The order of frames: see `link_table.py`.
"""

import logging
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, NoReturn, TypeVar

import trio

from crdtcast.exceptions import ConfigurationError, NotReadyError, RemoteProtocolError
from crdtcast.transport.link import LinkHost
from crdtcast.transport.log_throttle import Throttle
from crdtcast.transport.options import NodeOptions
from crdtcast.transport.peers import LinkPeer, PeerTable
from crdtcast.transport.tls import RECORD_TYPES, Tls, listed, names_in
from crdtcast.wire import compression
from crdtcast.wire.auth import Role, proof, proves
from crdtcast.wire.decoder import FrameDecoder
from crdtcast.wire.frames import (
    MAX_HANDSHAKE_FRAME,
    NONCE_BYTES,
    Frame,
    Hello,
    Proof,
    Refusal,
    Welcome,
    encode,
)
from crdtcast.wire.handshake import Reason, Refused, judge

_SPEAKS_TLS = Refusal(
    Reason.SECURITY,
    "the peer uses TLS, and this node does not: set certificate, key and ca on all members of "
    "the group",
)
_F = TypeVar("_F", Hello, Proof, Welcome)


class Handshake:
    """One handshake, on a connection that either side dialled.

    secrets: both sides must prove one; see `NodeOptions`.
    trusted: the other end has shown that it belongs to the group, as far as this node requires that.
    """

    def __init__(self, stream: trio.abc.Stream, *, dialled: bool, secrets: Sequence[bytes]) -> None:
        self.stream: trio.abc.Stream = stream
        self.decoder: FrameDecoder = FrameDecoder(MAX_HANDSHAKE_FRAME)
        self.trusted: bool = not secrets
        self.name = ""
        """The name that the other end has given; empty before."""
        self._secrets = secrets
        self._dialled = dialled
        self._tls: Tls | None = None
        self._names: set[str] | None = None
        self._heard = False

    async def secure(self, tls: Tls) -> None:
        """Put TLS on the stream, and note the names in the other end's certificate."""
        secured = await tls.secured(self.stream, dialled=self._dialled)
        self.stream = secured
        self._tls = tls
        self._names = names_in(secured)

    async def say(self, frame: Frame) -> None:
        """Send a frame."""
        await self.stream.send_all(encode(frame))

    async def hear(self) -> Frame:
        """The next frame. Raises `Refused` if it is a refusal."""
        while (frame := self.decoder.next_frame()) is None:
            try:
                piece = await self.stream.receive_some(MAX_HANDSHAKE_FRAME)
            except trio.BrokenResourceError as error:
                if self._tls is not None and (told := self._tls.told(error)) is not None:
                    raise Refused(told, by_peer=True) from error
                raise
            if not piece:
                raise trio.BrokenResourceError("closed by the peer")
            if not self._heard and piece[:1] in RECORD_TYPES:
                await self.refuse(_SPEAKS_TLS)
            self._heard = True
            self.decoder.push(piece)
        if isinstance(frame, Refusal):
            raise Refused(frame, by_peer=True, trusted=self.trusted, name=self.name)
        return frame

    async def hear_a(self, kind: type[_F]) -> _F:
        """The next frame, which must be of that kind."""
        frame = await self.hear()
        if isinstance(frame, kind):
            return frame
        raise RemoteProtocolError(
            f"expected a {kind.__name__.lower()}, got a {type(frame).__name__}"
        )

    async def refuse(self, refusal: Refusal) -> NoReturn:
        """Tell the other end why it is refused, and give up."""
        await self.say(refusal)
        raise Refused(refusal, by_peer=False, name=self.name)

    async def check_certificate(self, peer: Hello) -> None:
        """Refuse a peer whose certificate does not name it."""
        if self._names is not None and peer.name not in self._names:
            text = (
                f"the certificate of node {peer.name!r} is for {listed(self._names)}: issue one "
                f"with {peer.name!r} among its subject alternative names"
            )
            await self.refuse(Refusal(Reason.CERTIFICATE, text))

    async def prove(self, own: Hello, peer: Hello) -> None:
        """Prove the secret to each other. The dialler begins, so that a dialler without the secret learns nothing that
        it could test guesses on.
        """
        if not self._secrets:
            return
        dialler, acceptor = (own, peer) if self._dialled else (peer, own)
        mine, theirs = Role.ACCEPTOR, Role.DIALLER
        if self._dialled:
            mine, theirs = theirs, mine
            await self.say(Proof(proof(self._secrets[0], mine, dialler, acceptor)))
        heard = await self.hear_a(Proof)
        if not proves(heard.mac, self._secrets, theirs, dialler, acceptor):
            one, other = sorted((own.name, peer.name))  # the same line on both sides
            text = (
                f"nodes {one!r} and {other!r} have different shared secrets, or an attacker "
                "replays a handshake: use the same secret on all members of the group"
            )
            await self.refuse(Refusal(Reason.SECRET, text))
        if not self._dialled:
            await self.say(Proof(proof(self._secrets[0], mine, dialler, acceptor)))
        self.trusted = True


REPEAT = 600.0
"""Seconds between two log lines about the same lasting problem."""
_DAY = 86_400.0


class Agreed(NamedTuple):
    """The result of a handshake: a link of that number. settles: this side has chosen the number, and sends it with the
    first frame.
    """

    talk: Handshake
    peer: Hello
    number: int
    zstd: bool
    settles: bool


class Greeting(PeerTable):
    """Decides whether the other end of a new connection may be linked."""

    def __init__(self, host: LinkHost, options: NodeOptions, logger: logging.Logger) -> None:
        super().__init__(options)
        self.refusals: Counter[str] = Counter()
        """Connections that this node has refused, by `Reason`; "time": too slow, "limit": too many. Ordinary refusals,
        for example because a link is up already, do not count.
        """
        self._host = host
        self._logger = logger
        self._rarely = Throttle(logger, REPEAT)
        self._daily = Throttle(logger, _DAY)
        self._numbers = 0
        self._generation = 0
        self._tls: Tls | None = None
        if options.certificate is not None and options.key is not None and options.ca is not None:
            self._tls = Tls(options.name, options.certificate, options.key, options.ca)

    async def _shake_hands(self, stream: trio.abc.Stream, dialled: LinkPeer | None) -> Agreed:
        """Raises what ends the handshake: Refused, RemoteProtocolError, or errors of the stream."""
        generation = self._generation
        known = self._options.secrets
        talk = Handshake(stream, dialled=dialled is not None, secrets=known)
        if self._tls is not None:
            self._renew(self._tls)
            await talk.secure(self._tls)
        nonce = b"" if not known else secrets.token_bytes(NONCE_BYTES)
        try:
            own = self._hello(nonce)
        except NotReadyError as error:
            await talk.refuse(Refusal(Reason.BUSY, str(error)))
        if dialled is not None:
            await talk.say(own)
        peer = await talk.hear_a(Hello)
        talk.name = peer.name
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
            raise RemoteProtocolError(f"unexpected link number {answer!r:.100}")
        # The state may have changed while we waited; from here to the table there must be no waiting.
        refusal = self._judge(self._hello(nonce), peer, expected, trusted=True)
        rival = self.up.get(peer.name)
        if generation != self._generation:
            refusal = Refusal(Reason.BUSY, f"node {own.name!r} is changing its identity")
        elif refusal is None and rival is not None and rival.peer.process == peer.process:
            # Crossing connections. If we settle, our own dialling proves nothing against a link
            # that is up; otherwise the higher number counts.
            late = dialled is not None if settling else rival.number > answer.number
            if late:
                refusal = Refusal(
                    Reason.LINKED, f"{own.name!r} and {peer.name!r} are already linked"
                )
        if refusal is not None:
            await talk.refuse(refusal)
        if settling:
            self._numbers += 1
        number = self._numbers if settling else answer.number
        return Agreed(talk, peer, number, own.zstd and peer.zstd, settling)

    def _hello(self, nonce: bytes) -> Hello:
        zstd = self._options.compress and compression.available()
        return replace(self._host.hello(), nonce=nonce, zstd=zstd)

    def _judge(
        self, own: Hello, peer: Hello, expected: str | None, *, trusted: bool
    ) -> Refusal | None:
        """trusted: it has proved that it belongs to the group. Before that nothing is done on its word, and it learns
        nothing about others.
        """
        linked = self.up.get(peer.name) if trusted else None
        refusal = judge(
            own,
            peer,
            expected=expected,
            linked=linked.peer if linked is not None else None,
            cut=self._is_cut(peer.name),
            max_drift_ms=self._options.max_drift_ms,
        )
        return refusal or (self._host.admit(peer) if trusted else None)

    def _watch_certificate(self) -> None:
        """Log once a day that the certificate ends soon. No established link needs it, so that could stay unnoticed."""
        if self._tls is None or self._tls.expiry(time.time()) is None:
            return
        self._renew(self._tls)
        if (text := self._tls.expiry(time.time())) is not None:
            self._daily.log(trio.current_time(), "expiry", logging.WARNING, text)

    def _renew(self, tls: Tls) -> None:
        try:
            tls.refresh()
        except ConfigurationError as error:
            text = f"{error} (the former certificate stays in use)"
            self._rarely.log(trio.current_time(), text, logging.ERROR, text)
