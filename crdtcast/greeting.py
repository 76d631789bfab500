"""The handshake of a new connection: who is at the other end, whether it may be linked, and which of two
connections with one peer counts. The order of frames: see `links.py`.
"""

import logging
import secrets
import time
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import trio

from crdtcast.conversation import Conversation
from crdtcast.exceptions import ConfigurationError, NotReadyError, RemoteProtocolError
from crdtcast.link import LinkHost
from crdtcast.logs import Throttle
from crdtcast.options import NodeOptions
from crdtcast.peers import Peer, PeerTable
from crdtcast.tls import Tls
from crdtcast.wire import compression
from crdtcast.wire.encoder import Form
from crdtcast.wire.frames import NONCE_BYTES, NUMBERED_VERSION, Hello, Refusal, Welcome
from crdtcast.wire.handshake import Reason, judge

REPEAT = 600.0
"""Seconds between two log lines about the same lasting trouble."""
_DAY = 86_400.0


class Agreed(NamedTuple):
    """How a handshake has ended: with a link of that number. settles: this side has given the number, and
    says it with the first frame.
    """

    talk: Conversation
    peer: Hello
    number: int
    form: Form
    settles: bool


class Greeting(PeerTable):
    """What a node needs for judging who is at the other end of a new connection."""

    def __init__(self, host: LinkHost, options: NodeOptions, logger: logging.Logger) -> None:
        super().__init__(options)
        self.refusals: Counter[str] = Counter()
        """Connections that this node would not have, by `Reason`; "time": too slow, "limit": too many.
        Not those that are refused in the ordinary course of things, since a link is up for example.
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

    async def _shake_hands(self, stream: trio.abc.Stream, dialled: Peer | None) -> Agreed:
        """Raises what ends the handshake: Refused, RemoteProtocolError, errors of the stream."""
        generation = self._generation
        known = self._options.secrets
        talk = Conversation(stream, dialled=dialled is not None, secrets=known)
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
            raise RemoteProtocolError(f"{answer!r:.100} where another number was expected")
        # The world may have changed while we waited; from here to the table there must be no waiting.
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
        return Agreed(talk, peer, number, form, settling)

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

    def _watch_certificate(self) -> None:
        """Say once a day that it ends soon. A link needs none once it is up: it may be months until one is wanted."""
        if self._tls is None or self._tls.expiry(time.time()) is None:
            return
        self._renew(self._tls)
        if (text := self._tls.expiry(time.time())) is not None:
            self._daily.log(trio.current_time(), "expiry", logging.WARNING, text)

    def _renew(self, tls: Tls) -> None:
        try:
            tls.refresh()
        except ConfigurationError as error:
            text = f"{error} (until then the former certificate is used)"
            self._rarely.log(trio.current_time(), text, logging.ERROR, text)
