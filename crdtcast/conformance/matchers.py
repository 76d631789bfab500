"""Whether a reply is what a scenario expects, and what the difference is. Pure: replies in, text
out.

A reply is what RESP 2 carries: bytes, an integer, None, a list, or an error (`ErrorReply`).
"""

from collections.abc import Sequence
from typing import Any

from crdtcast.adapters.redis.server.raw_client import ErrorReply, Reply


def matches(expected: Any, reply: Reply) -> bool:
    """Whether `reply` is `expected`: a literal, a list of them, or a matcher.

    Raises ValueError if the matcher is unknown.
    """
    if isinstance(expected, dict):
        return matcher_holds(expected, reply)
    if isinstance(expected, list):
        return (
            isinstance(reply, list)
            and len(reply) == len(expected)
            and all(matches(one, other) for one, other in zip(expected, reply, strict=True))
        )
    if expected is None:
        return reply is None
    if isinstance(expected, bool):
        raise ValueError(f"{expected} is not a valid reply: quote it if it is text")
    if isinstance(expected, int):
        return type(reply) is int and reply == expected
    return isinstance(reply, bytes) and reply == str(expected).encode()


def matcher_holds(matcher: dict[str, Any], reply: Reply) -> bool:
    """Whether `reply` satisfies one matcher, given as `{name: value}`."""
    if len(matcher) != 1:
        raise ValueError(f"a matcher has one name, not {', '.join(map(str, matcher))}")
    ((name, value),) = matcher.items()
    match name:
        case "any_of":
            return any(matches(one, reply) for one in value)
        case "not":
            return not matches(value, reply)
        case "error":
            return isinstance(reply, ErrorReply) and reply.text.startswith(str(value))
        case "hex":
            return reply == bytes.fromhex(str(value))
        case "between":
            number = number_of(reply)
            return number is not None and value[0] <= number <= value[1]
        case "map":
            return isinstance(reply, list) and matches_map(value, reply)
        case "unordered":
            return isinstance(reply, list) and matches_unordered(value, reply)
        case "contains_in_order":
            rest = iter(reply if isinstance(reply, list) else ())
            return all(any(matches(one, other) for other in rest) for one in value)
    raise ValueError(f"unknown matcher {name!r}")


def number_of(reply: Reply) -> float | None:
    """The number that a reply is or spells."""
    if isinstance(reply, int):
        return reply
    if isinstance(reply, bytes):
        try:
            return float(reply)
        except ValueError:
            return None
    return None


def matches_map(expected: dict[Any, Any], reply: list[Reply]) -> bool:
    """Whether a flat list of names and values is the mapping `expected`, with no name twice."""
    if len(reply) != 2 * len(expected):
        return False
    names: list[Reply] = reply[::2]
    pairs = zip(names, reply[1::2], strict=True)
    found = {name: value for name, value in pairs if isinstance(name, bytes)}
    wanted = {str(name).encode(): value for name, value in expected.items()}
    return found.keys() == wanted.keys() and all(
        matches(value, found[name]) for name, value in wanted.items()
    )


def matches_unordered(expected: Sequence[Any], reply: Sequence[Reply]) -> bool:
    """Whether the elements can be paired off, whatever their order.

    Elements may be matchers that fit several replies, so pairs are found by augmenting paths, not
    by sorting.
    """
    if len(expected) != len(reply):
        return False
    fitting = [
        [place for place, found in enumerate(reply) if matches(one, found)] for one in expected
    ]
    taken_by: dict[int, int] = {}

    def place_for(one: int, tried: set[int]) -> bool:
        for place in fitting[one]:
            if place not in tried:
                tried.add(place)
                if place not in taken_by or place_for(taken_by[place], tried):
                    taken_by[place] = one
                    return True
        return False

    return all(place_for(one, set()) for one in range(len(expected)))


ANY_ORDER = frozenset((b"SMEMBERS", b"SUNION", b"SINTER", b"SDIFF", b"KEYS", b"HKEYS", b"HVALS"))
"""Commands whose reply has no defined order in Redis: it depends on the order of insertion."""


def comparable(command: Sequence[bytes], reply: Reply) -> Reply:
    """The form of a reply that must be the same at all replicas.

    It is the reply itself; for commands without a defined order, its elements are sorted.
    """
    verb = command[0].upper() if command else b""
    if isinstance(reply, list) and verb in ANY_ORDER:
        return sorted(reply, key=repr)
    if isinstance(reply, list) and verb == b"HGETALL":
        pairs = zip(reply[::2], reply[1::2], strict=True)
        return [item for pair in sorted(pairs, key=repr) for item in pair]
    return reply


def show(reply: Reply) -> str:
    """A reply for people, shortened if it is long."""
    match reply:
        case bytes():
            text = repr(reply)[1:]
        case ErrorReply():
            text = f"error {reply.text!r}"
        case list():
            shown = ", ".join(show(item) for item in reply[:20])
            text = f"[{shown}]" if len(reply) <= 20 else f"[{shown}, …] ({len(reply)} elements)"
        case None:
            text = "null"
        case _:
            text = str(reply)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"
