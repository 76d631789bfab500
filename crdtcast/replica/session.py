"""Session tokens: what a client has seen, small enough for a cookie.

Terry, Demers and others, "Session guarantees for weakly consistent replicated data" (1994). A replica that has
delivered the maximal messages of a causal past has delivered all of it. So a token names only those, and one test gives
all four guarantees.
"""

import base64
import binascii
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgpack

from crdtcast.causality.member_id import valid_incarnation
from crdtcast.causality.tags import MAX_COUNTER, Dot
from crdtcast.exceptions import LocalProtocolError, UnusableInputError
from crdtcast.short_repr import shown

_FORMAT = 2
_CHECKSUM_BYTES = 4
_MOST_CHARACTERS = 1 << 16


@dataclass(frozen=True, slots=True)
class Token:
    """A cut of one group's history: `dots`, and all messages before them. `str` and `parse` convert it to and from a
    text for a cookie or header.
    """

    group: str
    dots: tuple[Dot, ...]

    def merged(self, other: "Token") -> "Token":
        """The cut of both: for a client that has talked to two replicas."""
        if not isinstance(other, Token):
            raise LocalProtocolError(
                f"{shown(other)} is not a token: `Token.parse` reads the text of one"
            )
        if other.group != self.group:
            raise UnusableInputError(
                f"a token of group {other.group!r} cannot be used in group {self.group!r}"
            )
        return token(self.group, (*self.dots, *other.dots))

    def __str__(self) -> str:
        packed = msgpack.packb([_FORMAT, self.group, [list(dot) for dot in self.dots]])
        checksum = zlib.crc32(packed).to_bytes(_CHECKSUM_BYTES, "big")
        return base64.urlsafe_b64encode(checksum + packed).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> "Token":
        """The inverse of `str`. Raises UnusableInputError for any other text, since it may come from outside."""
        try:
            if not isinstance(text, str):
                raise ValueError(f"a {type(text).__name__}")
            if len(text) > _MOST_CHARACTERS:
                raise ValueError("too long")
            whole = base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
            checksum, packed = whole[:_CHECKSUM_BYTES], whole[_CHECKSUM_BYTES:]
            if zlib.crc32(packed) != int.from_bytes(checksum, "big"):
                raise ValueError("damaged")
            version, group, dots = msgpack.unpackb(packed)
            if version != _FORMAT or not isinstance(group, str):
                raise ValueError(f"format {version!r}")
            named = [Dot(origin, counter) for origin, counter in dots]
            for origin, counter in named:
                if not (valid_incarnation(origin) and type(counter) is int):
                    raise ValueError("invalid dots")
                if not 1 <= counter <= MAX_COUNTER:
                    raise ValueError("invalid counter")
        except (ValueError, TypeError, binascii.Error, msgpack.UnpackException) as error:
            raise UnusableInputError(
                f"{shown(text)} is not a session token ({error or 'nested'}): send one that a replica or "
                "gateway has returned"
            ) from error
        return token(group, named)


def token(group: str, dots: Iterable[Dot]) -> Token:
    """The token for these dots: the last one of each origin."""
    last: dict[str, int] = {}
    for origin, counter in dots:
        last[origin] = max(counter, last.get(origin, 0))
    return Token(group, tuple(Dot(*dot) for dot in sorted(last.items())))
