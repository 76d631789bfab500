"""Session tokens: what a client has seen, small enough for a cookie.

Terry, Demers and others, "Session guarantees for weakly consistent replicated data" (1994). A replica that has
delivered the maximal messages of a causal past has delivered all of it. So a token names only those, and one test gives
all four guarantees.
"""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass

import msgpack

from crdtcast.causality.tags import Dot
from crdtcast.datatypes.short_repr import shown
from crdtcast.exceptions import UnusableInputError

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Token:
    """A cut of one group's history: `dots`, and all messages before them. `str` and `parse` convert it to and from a
    text for a cookie or header.
    """

    group: str
    dots: tuple[Dot, ...]

    def merged(self, other: "Token") -> "Token":
        """The cut of both: for a client that has talked to two replicas."""
        if other.group != self.group:
            raise UnusableInputError(
                f"a token of group {other.group!r} cannot be used in group {self.group!r}"
            )
        return token(self.group, (*self.dots, *other.dots))

    def __str__(self) -> str:
        packed = msgpack.packb([_FORMAT, self.group, [list(dot) for dot in self.dots]])
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @classmethod
    def parse(cls, text: str) -> "Token":
        """The inverse of `str`. Raises UnusableInputError for any other text, since it may come from outside."""
        try:
            if not isinstance(text, str):
                raise ValueError(f"a {type(text).__name__}")
            packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars="-_", validate=True)
            version, group, dots = msgpack.unpackb(packed)
            if version != _FORMAT or not isinstance(group, str):
                raise ValueError(f"format {version!r}")
            named = [Dot(origin, counter) for origin, counter in dots]
            if not all(isinstance(d.origin, str) and type(d.counter) is int for d in named):
                raise ValueError("invalid dots")
        except (ValueError, TypeError, binascii.Error, msgpack.UnpackException) as error:
            raise UnusableInputError(
                f"{shown(text)} is not a session token ({error}): send one that a replica returned"
            ) from error
        return token(group, named)


def token(group: str, dots: Iterable[Dot]) -> Token:
    """The token for these dots: the last one of each origin."""
    last: dict[str, int] = {}
    for origin, counter in dots:
        last[origin] = max(counter, last.get(origin, 0))
    return Token(group, tuple(Dot(*dot) for dot in sorted(last.items())))
