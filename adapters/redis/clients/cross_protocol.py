"""Requests of other protocols at the clients' port, which a browser or a mail client was tricked into sending.

A web page can make a browser POST to any port of its user's machine; the body would be executed line by line. So the
connection is closed at the first line that can only come from such a program, as a native server does at `POST` and
`Host:`.
"""

from __future__ import annotations

from collections.abc import Sequence

_VERBS = frozenset({b"POST", b"EHLO", b"HELO", b"LHLO", b"MAIL", b"RCPT", b"STARTTLS"})
"""First words that browsers and mail clients send, and that are not commands of Redis or Valkey."""
_VERSIONS = (b"HTTP/", b"RTSP/", b"SIP/")


def is_cross_protocol(args: Sequence[bytes], *, is_known: bool) -> bool:
    """Whether an invalid request comes from HTTP, mail or the like: its method, a header line, or a form's boundary.

    is_known: whether its first word is a command's name.
    """
    first = args[0].upper()
    if first in _VERBS or first.startswith(b"--") or (first.endswith(b":") and first != b":"):
        return True
    if len(args) < 2:
        return False
    # A key may begin with a colon, as Django's do, but hardly any command has a hyphen, as headers do.
    if not is_known and (args[1] == b":" or (args[1].startswith(b":") and b"-" in first)):
        return True
    return args[-1].upper().startswith(_VERSIONS)
