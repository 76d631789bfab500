"""TLS 1.3 between nodes: both ends show a certificate of the group's own CA that names the node.

A node's name is a DNS name among the certificate's subject alternative names, spelled exactly like
the node; there are no wildcards, and hosts do not count, since nodes may move.
"""

import contextlib
import os
import ssl
import time
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import trio

from crdtcast.exceptions import ConfigurationError
from crdtcast.private_files import check_private
from crdtcast.transport.options import FilePath
from crdtcast.wire.frames import Refusal, encode
from crdtcast.wire.handshake import Reason, Refused

RECORD_TYPES = (b"\x15", b"\x16")
"""First byte of the first record of TLS (an alert or a handshake); no frame of ours begins with one of these."""

_Certificate: TypeAlias = Mapping[str, Any]
"""A certificate as `ssl` describes it."""

_DAY = 86_400.0
_SOON = 30 * _DAY
"""Seconds before its end at which warnings about a certificate begin; at the last fifth of its time if that is
shorter.
"""
_EXPIRED, _NOT_YET = 10, 9  # X509_V_ERR_…
_NOT_SHOWN = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
_ALERTS = {
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has expired, or the CA at the peer has: issue a new one",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it is not valid yet at the peer: check the clocks",
    "TLSV1_ALERT_UNKNOWN_CA": (
        "the peer trusts no CA that has signed it: use the same CA, and certificates signed by "
        "it, on all members of the group"
    ),
}
_TOO_OLD = {"UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION"}


class Tls:
    """One node's certificate, key and CA. Raises ConfigurationError if they cannot be used."""

    def __init__(self, name: str, certificate: FilePath, key: FilePath, ca: FilePath) -> None:
        self.name = name
        self._files = [os.fspath(path) for path in (certificate, key, ca)]
        self._seen: list[tuple[int, int]] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the files again if they have changed: certificates are renewed while nodes run.

        Raises ConfigurationError if they cannot be used; then the former ones stay in use.
        """
        certificate, key, ca = self._files
        try:
            seen = [(stat.st_mtime_ns, stat.st_size) for stat in map(os.stat, self._files)]
            if seen == self._seen:
                return
            check_private(key, "this node's key")
            server = _context(ssl.PROTOCOL_TLS_SERVER, *self._files)
            # A resumed session would skip the check of the certificate.
            server.num_tickets = 0
            client = _context(ssl.PROTOCOL_TLS_CLIENT, *self._files)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"cannot use certificate {certificate} with key {key} and CA {ca}: "
                f"{_what(error)}: use readable PEM files that belong together, the key without a "
                "password"
            ) from error
        objection, shown = _look_at(self.name, client, server)
        if objection:
            raise ConfigurationError(
                f"peers will not accept the certificate in {certificate}: {objection}"
            )
        self._server, self._client, self._seen, self._shown = server, client, seen, shown

    def objection(self) -> str | None:
        """Why peers reject this node's certificate now; None if they accept it."""
        return _look_at(self.name, self._client, self._server)[0]

    def expiry(self, now: float) -> str | None:
        """A warning if the certificate, or the CA's, ends soon or has ended; None otherwise.

        now: seconds since the epoch.
        """
        certificate, _, ca = self._files
        last = max(self._client.get_ca_certs(), key=_end, default=self._shown)
        for what, file, found in (("certificate", certificate, self._shown), ("CA", ca, last)):
            left = _end(found) - now
            if left < min(_SOON, (_end(found) - _begin(found)) / 5):
                days = max(int(left // _DAY), 0)
                when = "has expired" if left <= 0 else f"expires in {days} day{'s' * (days != 1)}"
                return (
                    f"the {what} in {file} {when} ({found['notAfter']}): replace the file; the "
                    "node reads it without a restart"
                )
        return None

    def told(self, error: BaseException) -> Refusal | None:
        """The other end's reason for rejecting this node's certificate, if its last record was such an alert."""
        said = getattr(error.__cause__, "reason", None) or ""
        if said not in _ALERTS:
            return None
        why = self.objection() or _ALERTS[said]
        return Refusal(Reason.CERTIFICATE, f"it rejects this node's certificate: {why}")

    async def secured(
        self, stream: trio.abc.Stream, *, dialled: bool
    ) -> trio.SSLStream[trio.abc.Stream]:
        """`stream` with TLS on it. Raises `Refused` if either end rejects the other."""
        context = _OneConnection(self._client if dialled else self._server)
        secured = trio.SSLStream(
            stream,
            cast(ssl.SSLContext, context),
            server_side=not dialled,
            # A connection may end without TLS's farewell: frames have lengths, and lost ones are repaired.
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
            if (told := self.told(error)) is not None:
                raise Refused(told, by_peer=True) from error
            refusal = _refusal(cause, self.name, self._client)
            last_words = context.outgoing.read()
            if refusal.reason == Reason.SECURITY and not dialled:
                # It may be a node without TLS: it understands this.
                last_words = encode(refusal)
            await stream.send_all(last_words)
            raise Refused(refusal, by_peer=False) from error
        return secured


class _OneConnection:
    """A context that keeps the outgoing bytes: Trio does not send the last ones of a failed handshake, an alert that
    tells the other end why.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.outgoing = ssl.MemoryBIO()

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any
    ) -> ssl.SSLObject:
        self.outgoing = outgoing
        return self._context.wrap_bio(incoming, outgoing, **options)


def names_in(secured: trio.SSLStream[trio.abc.Stream]) -> set[str]:
    """The names of nodes in the other end's certificate."""
    return _names(secured.getpeercert() or {})


def _end(certificate: _Certificate) -> float:
    return ssl.cert_time_to_seconds(str(certificate["notAfter"]))


def _begin(certificate: _Certificate) -> float:
    return ssl.cert_time_to_seconds(str(certificate["notBefore"]))


def _names(certificate: _Certificate) -> set[str]:
    entries = certificate.get("subjectAltName", ())
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


def _look_at(
    name: str, client: ssl.SSLContext, server: ssl.SSLContext
) -> tuple[str | None, _Certificate]:
    """A handshake with oneself, in memory: it shows what peers see, and whether they reject it."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True))
    try:
        for end in ends * 2:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return _why(error, client), {}
    except ssl.SSLError as error:
        return f"no handshake is possible with it: {_what(error)}", {}
    shown = ends[1].getpeercert() or {}
    names = _names(shown)
    if name in names:
        return None, shown
    return (
        f"it is for {listed(names)}, not for node {name!r}: issue one with the node's name as a "
        "DNS name among its subject alternative names"
    ), shown


def _refusal(error: ssl.SSLError, name: str, client: ssl.SSLContext) -> Refusal:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _why(error, client)
        return Refusal(Reason.CERTIFICATE, f"its certificate is rejected: {why}")
    if error.reason == _NOT_SHOWN:
        return Refusal(
            Reason.CERTIFICATE,
            "it showed no certificate: every node needs one signed by the group's CA",
        )
    if error.reason in _TOO_OLD:
        return Refusal(
            Reason.SECURITY, f"it does not support TLS 1.3, which node {name!r} requires"
        )
    said = _what(error)
    return Refusal(
        Reason.SECURITY,
        f"node {name!r} requires TLS: set certificate, key and ca on all members of the group "
        f"({said})",
    )


def _why(error: ssl.SSLCertVerificationError, client: ssl.SSLContext) -> str:
    authorities = client.get_ca_certs()
    if error.verify_code == _EXPIRED:
        if authorities and max(map(_end, authorities)) < time.time():
            return "the group's CA has expired: create a new one, and certificates signed by it"
        return "it has expired: issue a new one"
    if error.verify_code == _NOT_YET:
        return "it is not valid yet: check the clocks"
    return f"the group's CA has not signed it ({error.verify_message}): issue one signed by that CA"


def _what(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not a PEM file").lower().replace("_", " ")
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


def listed(names: set[str]) -> str:
    """Names of nodes, for a sentence."""
    return ", ".join(map(repr, sorted(names))) or "no node"
