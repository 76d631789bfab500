"""TLS 1.3 between nodes: both ends show a certificate of the group's own CA that names the node.

A node's name is a DNS name among the certificate's subject alternative names, spelled exactly like
the node; there are no wildcards, and hosts do not count, since nodes may move.
"""

import contextlib
import os
import ssl

import trio

from crdtcast.exceptions import ConfigurationError
from crdtcast.handshake import Reason, Refused
from crdtcast.options import FilePath
from crdtcast.wire import Refusal, encode

RECORD_TYPES = (b"\x15", b"\x16")
"""First byte of what an end of TLS says first (an alert, a handshake): no frame of ours begins so."""

_EXPIRED, _NOT_YET = 10, 9  # X509_V_ERR_…
_NOT_SHOWN = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
_TOO_OLD = {"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"}


class Tls:
    """One node's certificate, key and CA. Raises ConfigurationError when they cannot be used."""

    def __init__(self, name: str, certificate: FilePath, key: FilePath, ca: FilePath) -> None:
        self.name = name
        self._files = [os.fspath(path) for path in (certificate, key, ca)]
        self._seen: list[tuple[int, int]] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the files anew if they have changed: certificates are renewed while nodes run.

        Raises ConfigurationError when they cannot be used; what was read before counts on.
        """
        certificate, key, ca = self._files
        try:
            seen = [(stat.st_mtime_ns, stat.st_size) for stat in map(os.stat, self._files)]
            if seen == self._seen:
                return
            server = _context(ssl.PROTOCOL_TLS_SERVER, *self._files)
            # A resumed session would skip the look at the certificate.
            server.num_tickets = 0
            client = _context(ssl.PROTOCOL_TLS_CLIENT, *self._files)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"cannot use certificate {certificate} with key {key} and CA {ca}: {_what(error)}; they "
                "must be readable PEM files that belong together, the key without a password"
            ) from error
        if objection := _objection(self.name, client, server):
            raise ConfigurationError(
                f"peers will not accept the certificate in {certificate}: {objection}"
            )
        self._server, self._client, self._seen = server, client, seen

    def objection(self) -> str | None:
        """What peers have against this node's certificate by now, if anything."""
        return _objection(self.name, self._client, self._server)

    async def secured(
        self, stream: trio.abc.Stream, *, dialled: bool
    ) -> trio.SSLStream[trio.abc.Stream]:
        """`stream` with TLS on it; `Refused` if the other end has no business here."""
        secured = trio.SSLStream(
            stream,
            self._client if dialled else self._server,
            server_side=not dialled,
            # An end without a farewell is an end; frames have lengths, and what is lost is repaired.
            https_compatible=True,
        )
        try:
            await secured.do_handshake()
        except trio.BrokenResourceError as error:
            cause = error.__cause__
            if isinstance(cause, ssl.SSLEOFError):
                raise trio.BrokenResourceError("closed by the peer") from error
            if not isinstance(cause, ssl.SSLError):
                raise
            refusal = _refusal(cause, self.name)
            if refusal.reason == Reason.SECURITY and not dialled:
                # It may be a node without TLS: it understands this.
                await stream.send_all(encode(refusal))
            raise Refused(refusal, by_peer=False) from error
        return secured


def names_in(secured: trio.SSLStream[trio.abc.Stream]) -> set[str]:
    """The names of nodes in the certificate that the other end has shown."""
    return _names(secured.getpeercert())


def _names(certificate: "ssl._PeerCertRetDictType | None") -> set[str]:
    entries = (certificate or {}).get("subjectAltName", ())
    return {str(entry[1]) for entry in entries if entry[0] == "DNS"}


def _context(protocol: int, certificate: str, key: str, ca: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ca)
    # Without the empty password an encrypted key would ask on the terminal.
    context.load_cert_chain(certificate, key, password="")
    return context


def _objection(name: str, client: ssl.SSLContext, server: ssl.SSLContext) -> str | None:
    """A handshake with oneself, in memory, shows what peers will find wrong."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True))
    try:
        for end in ends * 2:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return _why(error)
    except ssl.SSLError as error:
        return f"no handshake is possible with it: {_what(error)}"
    names = _names(ends[1].getpeercert())
    if name in names:
        return None
    return (
        f"it is for {listed(names)}, not for node {name!r}: the node's name must be a DNS name among "
        "its subject alternative names"
    )


def _refusal(error: ssl.SSLError, name: str) -> Refusal:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Refusal(Reason.CERTIFICATE, f"its certificate is not accepted: {_why(error)}")
    if error.reason == _NOT_SHOWN:
        return Refusal(
            Reason.CERTIFICATE,
            "it has shown no certificate: every node needs one of the group's CA",
        )
    if error.reason in _TOO_OLD:
        return Refusal(Reason.SECURITY, f"it has no TLS 1.3, which node {name!r} demands")
    said = _what(error)
    if "alert" in said:
        return Refusal(Reason.CERTIFICATE, f"it does not accept this node's certificate: {said}")
    return Refusal(
        Reason.SECURITY,
        f"node {name!r} demands TLS: give all members of the group certificate, key and ca ({said})",
    )


def _why(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code == _EXPIRED:
        return "it has expired; issue a new one"
    if error.verify_code == _NOT_YET:
        return "it is not valid yet; is a clock wrong?"
    return f"the group's CA has not signed it ({error.verify_message}); issue one by that CA"


def _what(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "no PEM").lower().replace("_", " ")
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


def listed(names: set[str]) -> str:
    """Names of nodes, for a sentence."""
    return ", ".join(map(repr, sorted(names))) or "no node"
