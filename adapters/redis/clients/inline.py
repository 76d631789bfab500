"""Inline commands, as typed into telnet or netcat: one line, split into words as Valkey does it."""

from __future__ import annotations

import re

from crdtcast.exceptions import RemoteProtocolError

_BLANKS = re.compile(rb"\s*")
_PART = re.compile(
    rb"""([^ \t\r\n"']+)|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\'|\\(?!'))*)'""", re.DOTALL
)
"""A part of a word: bare, in double quotes, in single quotes."""
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")


def split_line(line: bytes) -> list[bytes]:
    r"""The words of a line without its line feed; none if it is empty.

    `"…"` allows `\n \r \t \b \a \xHH` and `\` before any other byte; `'…'` allows only `\'`. Parts without a blank
    between them are one word (Redis refuses that, Valkey 9 does not). Raises RemoteProtocolError if quotes are
    unbalanced, or for control bytes: they show another protocol.
    """
    if control := _CONTROL.search(line):
        raise RemoteProtocolError(
            f"expected '*' or an inline command, got byte {control.group()[0]}"
        )
    words: list[bytes] = []
    position = _after_blanks(line, 0)
    while position < len(line):
        parts: list[bytes] = []
        while position < len(line) and line[position] not in b" \t\r\n":
            part = _PART.match(line, position)
            if part is None:
                raise RemoteProtocolError("unbalanced quotes in request")
            parts.append(_bytes_of(part))
            position = part.end()
        words.append(b"".join(parts))
        position = _after_blanks(line, position)
    return words


def _after_blanks(line: bytes, position: int) -> int:
    blanks = _BLANKS.match(line, position)
    assert blanks is not None
    return blanks.end()


def _bytes_of(part: re.Match[bytes]) -> bytes:
    bare, double, single = part.groups()
    if double is not None:
        return _ESCAPE.sub(_unescaped, double)
    return bare if bare is not None else single.replace(rb"\'", b"'")


def _unescaped(escape: re.Match[bytes]) -> bytes:
    digits, letter = escape.groups()
    return bytes.fromhex(digits.decode()) if digits else _LETTERS.get(letter, letter)
