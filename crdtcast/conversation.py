"""One connection before it is a link: frames one at a time, refusals, and who the other end is."""

from collections.abc import Sequence
from typing import NoReturn, TypeVar

import trio

from crdtcast.exceptions import RemoteProtocolError
from crdtcast.tls import RECORD_TYPES, Tls, listed, names_in
from crdtcast.wire.auth import Role, proof, proves
from crdtcast.wire.decoder import FrameDecoder
from crdtcast.wire.frames import MAX_HANDSHAKE_FRAME, Frame, Hello, Proof, Refusal, Welcome, encode
from crdtcast.wire.handshake import Reason, Refused

_SPEAKS_TLS = Refusal(
    Reason.SECURITY,
    "it speaks TLS, and this node does not: give all members of the group certificate, key and ca",
)
_F = TypeVar("_F", Hello, Proof, Welcome)


class Conversation:
    """With whoever dialled us, or was dialled.

    secrets: one to be proved by both sides; see `NodeOptions`. trusted: the other end has shown that it
        belongs to the group, as far as this node demands that.
    """

    def __init__(self, stream: trio.abc.Stream, *, dialled: bool, secrets: Sequence[bytes]) -> None:
        self.stream = stream
        self.decoder = FrameDecoder(MAX_HANDSHAKE_FRAME)
        self.trusted = not secrets
        self.name = ""
        """What the other end calls itself, once it has said so."""
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
        """The next frame. A refusal is raised as `Refused`."""
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
            f"a {type(frame).__name__} where a {kind.__name__.lower()} was expected"
        )

    async def refuse(self, refusal: Refusal) -> NoReturn:
        """Tell the other end why it is refused, and give up."""
        await self.say(refusal)
        raise Refused(refusal, by_peer=False, name=self.name)

    async def check_certificate(self, peer: Hello) -> None:
        """Refuse a peer whose certificate does not name it."""
        if self._names is not None and peer.name not in self._names:
            text = (
                f"node {peer.name!r} has shown the certificate of {listed(self._names)}; issue one that has "
                f"{peer.name!r} among its subject alternative names"
            )
            await self.refuse(Refusal(Reason.CERTIFICATE, text))

    async def prove(self, own: Hello, peer: Hello) -> None:
        """Prove the secret to each other. The dialler begins, so that whoever just connects learns
        nothing that a guess could be tried on.
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
            one, other = sorted((own.name, peer.name))  # the same line, whoever dials
            text = (
                f"nodes {one!r} and {other!r} have different shared secrets, or somebody repeats what "
                "another one said: give all members of a group the same secret"
            )
            await self.refuse(Refusal(Reason.SECRET, text))
        if not self._dialled:
            await self.say(Proof(proof(self._secrets[0], mine, dialler, acceptor)))
        self.trusted = True
