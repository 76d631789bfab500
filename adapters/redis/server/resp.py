"""Reply values and their encoding in RESP2 and RESP3. This file knows no sockets and no commands.

The gateway's own replies are Python values, which this file encodes. It does *not* decode and encode
a native server's reply: hiredis returns the same Python types for sets and arrays, statuses and bulk
strings, verbatim strings and big numbers, so the round trip would not be exact. Such replies travel
as `Raw` bytes (see `parsing.ReplySplitter`), from a server connection in the client's protocol.
"""

from collections.abc import Callable, Mapping
from math import inf, isinf, isnan

import hiredis

from crdtcast.exceptions import CrdtcastError


class StatusReply(bytes):
    """A simple string, such as `+OK`. It must not hold CR or LF."""

    __slots__ = ()


class Verbatim(bytes):
    """Text for a person to read (INFO): a verbatim string in RESP3, a bulk string in RESP2."""

    __slots__ = ()


class Push(list[object]):
    """Out-of-band data: `>` in RESP3, an ordinary array in RESP2."""

    __slots__ = ()


class DoubleText(bytes):
    """A double as a server has printed it: a double in RESP3, a bulk string in RESP2."""

    __slots__ = ()


class ScorePairs(list[tuple[bytes, DoubleText]]):
    """Members with scores: an array of pairs in RESP3, a flat array in RESP2."""

    __slots__ = ()


class Raw(bytes):
    """One whole reply, already encoded in its client's protocol."""

    __slots__ = ()

    @property
    def is_error(self) -> bool:
        """Whether the reply is an error as a whole (an error inside an array does not count)."""
        return self[:1] in (b"-", b"!")


class ReplyError(CrdtcastError):
    """An error reply, as a value or raised. Its text begins with the code, such as `ERR` or `WRONGTYPE`.

    In contrast to other errors it reaches one client only, as the answer to one command.
    """

    def __init__(self, message: str | bytes) -> None:
        text = message if isinstance(message, str) else message.decode("utf-8", "surrogateescape")
        super().__init__(text)

    @property
    def message(self) -> bytes:
        """The text in one line of bytes, as the client gets it."""
        return _one_line(str(self).encode("utf-8", "surrogateescape"))


NULL_ARRAY = object()
"""The null array, which RESP3 does not tell from null."""
OK = StatusReply(b"OK")
OK_REPLY = b"+OK\r\n"
SMALL_INTEGERS = {number: b":%d\r\n" % number for number in range(1024)}
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_MANY = 16
_NULL = {2: b"$-1\r\n", 3: b"_\r\n"}


def encode(value: object, protocol: int) -> bytes:
    """One reply as bytes.

    `protocol` is 2 or 3. RESP2 has no sets, maps, doubles, booleans and nulls. There, as at a native
    server, a set becomes an array, a map a flat array, a double the bulk string that the server
    prints, a boolean 1 or 0, None the null bulk string, and an integer beyond 64 bits a bulk string.

    Raises TypeError if the value has another type.
    """
    kind = type(value)
    if kind is int:
        return _integer(value, protocol)  # type: ignore[arg-type]
    if kind is bytes:
        return b"$%d\r\n%b\r\n" % (len(value), value)  # type: ignore[arg-type, str-format]
    if value is OK:
        return OK_REPLY
    if kind is Raw:
        return value  # type: ignore[return-value]
    if value is None:
        return _NULL[protocol]
    if kind is list:
        return _aggregate(b"*", value, protocol)  # type: ignore[arg-type]
    return _uncommon(value, protocol)


def _integer(value: int, protocol: int) -> bytes:
    if value in SMALL_INTEGERS:
        return SMALL_INTEGERS[value]
    if _INT64_MIN <= value <= _INT64_MAX:
        return b":%d\r\n" % value
    if protocol == 3:
        return b"(%d\r\n" % value
    text = b"%d" % value
    return b"$%d\r\n%b\r\n" % (len(text), text)


_pack: Callable[[tuple[bytes, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


def _aggregate(sign: bytes, items: "list[object] | tuple[object, ...]", protocol: int) -> bytes:
    if len(items) > _MANY and set(map(type, items)) == {bytes}:
        strings: tuple[bytes, ...] = tuple(items)  # type: ignore[arg-type]
        packed = _pack(strings)  # a command is an array of bulk strings
        return packed if sign == b"*" else sign + packed[1:]
    parts = [b"%b%d\r\n" % (sign, len(items))]
    parts += [encode(item, protocol) for item in items]
    return b"".join(parts)


def _uncommon(value: object, protocol: int) -> bytes:
    resp3 = protocol == 3
    if value is NULL_ARRAY:
        return _NULL[3] if resp3 else b"*-1\r\n"
    match value:
        case bool():
            return (b"#t\r\n" if value else b"#f\r\n") if resp3 else SMALL_INTEGERS[value]
        case StatusReply():
            return b"+%b\r\n" % bytes(value)
        case DoubleText():
            return b",%b\r\n" % bytes(value) if resp3 else encode(bytes(value), protocol)
        case ScorePairs():
            pairs: list[object] = list(value)
            return _aggregate(
                b"*", pairs if resp3 else [w for pair in value for w in pair], protocol
            )
        case Verbatim():
            if resp3:
                return b"=%d\r\ntxt:%b\r\n" % (len(value) + 4, bytes(value))
            return b"$%d\r\n%b\r\n" % (len(value), bytes(value))
        case str():
            return encode(value.encode("utf-8", "surrogateescape"), protocol)
        case float():
            text = double_text(value)
            return b",%b\r\n" % text if resp3 else b"$%d\r\n%b\r\n" % (len(text), text)
        case ReplyError():
            return b"-%b\r\n" % value.message
        case hiredis.ReplyError():
            return b"-%b\r\n" % _one_line(str(value).encode("utf-8", "surrogateescape"))
        case Push() | hiredis.PushNotification():
            return _aggregate(b">" if resp3 else b"*", value, protocol)
        case list() | tuple():
            return _aggregate(b"*", value, protocol)
        case set() | frozenset():
            return _aggregate(b"~" if resp3 else b"*", list(value), protocol)
        case Mapping():
            flat = [part for pair in value.items() for part in pair]
            body = b"".join([encode(part, protocol) for part in flat])
            return b"%b%d\r\n%b" % (
                b"%" if resp3 else b"*",
                len(value) if resp3 else len(flat),
                body,
            )
        case bytes() | bytearray() | memoryview():
            return encode(bytes(value), protocol)
        case int():
            return _integer(int(value), protocol)
    raise TypeError(
        f"cannot make a reply of a {type(value).__name__}: see crdtcast.adapters.redis.server.resp"
    )


def _one_line(text: bytes) -> bytes:
    """An error ends at its first line break, so inner breaks become spaces, as in the server."""
    if b"\r" in text or b"\n" in text:
        return text.rstrip(b"\r\n").replace(b"\r", b" ").replace(b"\n", b" ")
    return text


def double_text(value: float) -> bytes:
    """A double as Valkey and Redis (from 7.2 on) print it: the shortest digits that restore it exactly.

    Whole numbers are printed as integers up to half of the 64-bit range. For all others the choice
    between plain and scientific notation follows the number of digits, not Python's rule.
    """
    if isnan(value):
        return b"nan"
    if isinf(value):
        return b"inf" if value == inf else b"-inf"
    if value == 0:
        return b"-0" if str(value)[0] == "-" else b"0"
    if value.is_integer() and abs(value) <= 2**62:
        return b"%d" % int(value)
    sign, digits, exponent = _shortest(value)
    leading = abs(exponent + len(digits) - 1)  # of the first digit
    if exponent >= 0 and leading < len(digits) + 7:
        body = digits + "0" * exponent
    elif exponent < 0 and (exponent > -7 or leading < 4):
        point = len(digits) + exponent
        body = f"{digits[:point]}.{digits[point:]}" if point > 0 else f"0.{'0' * -point}{digits}"
    else:
        power = exponent + len(digits) - 1
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        body = f"{digits[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power)}"
    return (sign + body).encode()


def _shortest(value: float) -> tuple[str, str, int]:
    """Sign, shortest significant digits, and the power of ten of the last digit."""
    mantissa, _, power = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = fraction.rstrip("0")
    exponent = int(power or 0) - len(fraction)
    digits = (whole + fraction).lstrip("0")
    stripped = digits.rstrip("0")
    return ("-" if value < 0 else "", stripped, exponent + len(digits) - len(stripped))
