"""The protocol of an admin socket: lines of JSON, after a greeting that may require a proof.

The server greets with its node's name and, if there is a secret, a nonce. Then the client proves that it knows the
secret, and the server does the same, as on links (`crdtcast.wire.auth`): HMAC-SHA256 over role, name and both nonces. A
Unix socket needs no proof: only its user can open the file.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Sequence
from typing import Any

import msgpack
import trio

from crdtcast.exceptions import RemoteProtocolError
from crdtcast.wire.auth import Role

LONGEST = 64 * 2**20
"""Longest line, in bytes."""
UNTRUSTED = 4096
"""Longest line, in bytes, of a peer that has proved nothing yet."""
_NONCE_BYTES = 32
_READ = 64 * 1024


class Lines:
    """JSON objects on a stream, one a line. Raises RemoteProtocolError if a line is not a JSON object."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.longest = UNTRUSTED
        self._buffer = bytearray()

    async def send(self, value: dict[str, Any]) -> None:
        await self.stream.send_all(json.dumps(value, separators=(",", ":")).encode() + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """The next object; None at the end of the stream."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > self.longest:
                raise RemoteProtocolError(f"line too long: more than {self.longest:,} bytes")
            piece = await self.stream.receive_some(_READ)
            if not piece:
                if self._buffer:
                    raise RemoteProtocolError("the connection closed in the middle of a line")
                return None
            self._buffer += piece
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            value = json.loads(line)
            if b"\\u" in line:
                # Half of a surrogate pair is valid JSON but no valid text: it cannot be sent or logged.
                json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"a line is not valid JSON: {error}") from error
        if not isinstance(value, dict):
            raise RemoteProtocolError("a line is not a JSON object")
        return value


async def greet(lines: Lines, name: str, known: Sequence[bytes]) -> bool:
    """The server's side. Returns whether the client may send requests; if not, the client has got the reason.

    known: secrets, of which the client must prove one; empty if the socket is protection enough.
    """
    nonce = "" if not known else secrets.token_hex(_NONCE_BYTES)
    await lines.send({"node": name, "nonce": nonce})
    if known:
        answer = await lines.receive()
        if answer is None:
            return False
        theirs, mac = str(answer.get("nonce")), str(answer.get("proof"))
        shared = next(
            (one for one in known if _proves(mac, one, Role.DIALLER, name, nonce, theirs)), None
        )
        if shared is None:
            await lines.send({"ok": False, "error": f"wrong secret for node {name!r}"})
            return False
        await lines.send({"proof": _proof(shared, Role.ACCEPTOR, name, nonce, theirs)})
    lines.longest = LONGEST
    return True


async def be_greeted(lines: Lines, known: Sequence[bytes]) -> str:
    """The client's side. Returns the node's name. known: secrets; the first one is proved.

    Raises RemoteProtocolError if one side does not trust the other.
    """
    greeting = await lines.receive() or {}
    name, nonce = greeting.get("node"), greeting.get("nonce")
    if not isinstance(name, str) or not isinstance(nonce, str):
        raise RemoteProtocolError("not a crdtcast admin socket")
    lines.longest = LONGEST
    if not nonce:
        return name
    if not known:
        raise RemoteProtocolError(
            f"node {name!r} requires the group's secret: add --secret-file, or set CRDTCAST_SECRET"
        )
    own = secrets.token_hex(_NONCE_BYTES)
    proof = _proof(known[0], Role.DIALLER, name, nonce, own)
    await lines.send({"nonce": own, "proof": proof})
    answer = await lines.receive() or {}
    if "error" in answer:
        raise RemoteProtocolError(str(answer["error"]))
    if not _proves(str(answer.get("proof")), known[0], Role.ACCEPTOR, name, nonce, own):
        raise RemoteProtocolError(
            f"the peer does not know the secret of {name!r}, so it may be another program"
        )
    return name


def _proof(secret: bytes, role: Role, name: str, acceptor: str, dialler: str) -> str:
    said = ["crdtcast admin", role.value, name, acceptor, dialler]
    return hmac.new(secret, msgpack.packb(said), hashlib.sha256).hexdigest()


def _proves(mac: str, secret: bytes, role: Role, name: str, acceptor: str, dialler: str) -> bool:
    return hmac.compare_digest(mac.encode(), _proof(secret, role, name, acceptor, dialler).encode())
