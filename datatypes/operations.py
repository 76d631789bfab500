"""The declarations of a type's operations, and the checks of their arguments: at the source, and again on arrival.

Rule: an argument arrives as exactly the value that was given, or the operation is refused before it is tagged. So none
passes that msgpack would change (tuples, subclasses), that Python would merge (1, 1.0 and True are one dictionary key),
or that cannot be sent (integers beyond 64 bits, lone surrogates).
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from crdtcast.short_repr import shown

Check: TypeAlias = Callable[[Any], Any]
"""Takes one argument, returns what to send for it, or raises ValueError with the reason. Must accept its own result.
The annotation of its parameter says what it accepts: typed handles show it.
"""

Element: TypeAlias = str | bytes | int
"""Element of a set, key of a map: what `element` accepts."""

Plain: TypeAlias = (
    bool | int | float | str | bytes | list["Plain"] | dict[str | bytes, "Plain"] | None
)
"""A value as it arrives (`exact`)."""

PlainLike: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | Sequence["PlainLike"]
    | Mapping[str, "PlainLike"]
    | Mapping[bytes, "PlainLike"]
    | Mapping[str | bytes, "PlainLike"]
    | None
)
"""A value to send, for type checkers: lists and dictionaries may be variables of narrower types, such as `list[str]`.
`exact` accepts no other sequences and mappings than these two.
"""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Several(Protocol[T_co]):
    """Several values, for type checkers: a list, tuple, set or frozenset. A str or bytes object does not fit, since its
    `in` does not take any object.
    """

    def __contains__(self, value: object, /) -> bool: ...

    def __iter__(self) -> Iterator[T_co]: ...

    def __len__(self) -> int: ...


MAX_DEPTH: Final = 32
"""Most levels of lists and dictionaries in an argument. (The recursion limit of a parser is not reliable.)"""

MIN_INTEGER: Final = -(2**63)
MAX_INTEGER: Final = 2**63 - 1
_MAX_UNSIGNED: Final = 2**64 - 1


class Operation:
    """Declares one operation: a sentence, and a check for each argument, by the argument's name.

    defaults: values of trailing arguments that may be omitted.
    sent_as: another operation of the same type that this name stands for (`clear` for `reset`).
    ships: checks of the data that the type sends after the arguments, from `PureOpCRDT.ship` (a time, an identity). A
        pure operation ships nothing.
    additive: it has the same meaning wherever it is issued again, since it removes and overwrites nothing
        (`PureOpCRDT.rebase`).
    since: the first VERSION of the type that has it. Every program skips a message that claims an older one, as older
        programs do.
    """

    __slots__ = (
        "_arriving",
        "_only",
        "_only_is_exact",
        "additive",
        "arguments",
        "defaults",
        "doc",
        "names",
        "sent_as",
        "ships",
        "since",
    )

    def __init__(
        self,
        doc: str = "",
        /,
        *,
        defaults: tuple[Any, ...] = (),
        sent_as: str | None = None,
        ships: tuple[Check, ...] = (),
        additive: bool = False,
        since: int = 1,
        **arguments: Check,
    ) -> None:
        if type(doc) is not str:
            raise TypeError(
                f"{shown(doc)} is not a text: name the arguments, as in Operation(voter=text)"
            )
        for name, check in arguments.items():
            if not callable(check):
                raise TypeError(f"{name}={shown(check)}: give a check of that argument")
        if len(defaults) > len(arguments):
            raise TypeError(f"{len(defaults)} defaults for {len(arguments)} arguments")
        self.doc: str = doc
        self.names: tuple[str, ...] = tuple(arguments)
        self.arguments: tuple[Check, ...] = tuple(arguments.values())
        self.defaults: tuple[Any, ...] = defaults
        self.sent_as: str | None = sent_as
        self.ships: tuple[Check, ...] = ships
        self.additive: bool = additive
        self.since: int = since
        self._arriving = self.arguments + ships
        # Most operations have one argument: the hot path.
        self._only = self.arguments[0] if len(self._arriving) == 1 and arguments else None
        self._only_is_exact = self._only in _EXACT_CHECKS

    def check(self, given: tuple[Any, ...]) -> list[Any]:
        """Return the arguments to send. Raises ValueError with the reason."""
        only = self._only
        if only is not None and len(given) == 1:
            sent = only(given[0])
            return [sent if self._only_is_exact else exact(sent)]
        missing = len(self.arguments) - len(given)
        if missing:
            if not 0 < missing <= len(self.defaults):
                raise ValueError(self._arity(len(given)))
            given += self.defaults[-missing:]
        return [exact(check(value)) for check, value in zip(self.arguments, given, strict=True)]

    def check_arrived(self, arguments: list[Any]) -> tuple[Any, ...]:
        """Return the arguments of a received operation, where none is omitted. Raises ValueError with the reason."""
        only = self._only
        if only is not None and len(arguments) == 1:
            return (only(arguments[0]),)
        checks = self._arriving
        if len(arguments) != len(checks):
            raise ValueError(f"{len(checks)} arguments were received, not {len(arguments)}")
        return tuple([check(value) for check, value in zip(checks, arguments, strict=True)])

    def _arity(self, given: int) -> str:
        most = len(self.arguments)
        least = most - len(self.defaults)
        wanted = f"{most}" if least == most else f"{least} to {most}"
        return f"takes {wanted} argument{'' if wanted == '1' else 's'}, {given} given"


def exact(value: PlainLike) -> Plain:
    """A copy of `value`, which msgpack returns unchanged at every replica. Raises ValueError if that is impossible.

    Allowed: None, bool, int from -2^63 to 2^64 - 1, float except NaN (it is not equal to itself), str, bytes, list, and
    dict with str or bytes keys. Subclasses count as other types, since they would arrive as their base. It is a copy,
    because a later change by the caller must not change the log.
    """
    copy: Plain = _exact(value, 0)
    return copy


def _exact(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        if not value.isascii():
            _encodable(value)
    elif kind is int:
        if not MIN_INTEGER <= value <= _MAX_UNSIGNED:
            raise ValueError(f"integer {shown(value)} is beyond 64 bits; send it as text or bytes")
    elif kind is float:
        if value != value:
            raise ValueError("NaN is not equal to itself, so replicas could not agree on it")
    elif kind is list or kind is dict:
        if depth == MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        if kind is list:
            return [_exact(item, depth + 1) for item in value]
        return {_exact_key(key): _exact(item, depth + 1) for key, item in value.items()}
    elif kind is not bytes and kind is not bool and value is not None:
        raise ValueError(
            f"{shown(value)} is a {kind.__name__}, which would arrive as another type: use None, "
            "bool, int, float, str, bytes, list or dict"
        )
    return value


def _exact_key(key: Any) -> Any:
    if type(key) is str:
        _encodable(key)
    elif type(key) is not bytes:
        raise ValueError(f"dictionary key {shown(key)} is a {type(key).__name__}: use str or bytes")
    return key


def element(value: Element) -> Element:
    """A set element or map key: str, bytes or a signed 64-bit integer.

    Not float, bool or None: 1, 1.0 and True are one element to Python but three to msgpack, and the order of arrival
    would decide which one stays.
    """
    if type(value) is str:
        if not value.isascii():
            _encodable(value)
    elif type(value) is int:
        return integer(value)
    elif type(value) is not bytes:
        raise ValueError(
            f"{shown(value)} is a {type(value).__name__}: an element is a str, bytes or int"
        )
    return value


def integer(value: int) -> int:
    """A signed 64-bit integer, but not a bool."""
    if type(value) is not int:
        raise ValueError(f"{shown(value)} is a {type(value).__name__}, not an int")
    if not MIN_INTEGER <= value <= MAX_INTEGER:
        raise ValueError(f"integer {shown(value)} is beyond signed 64 bits")
    return value


def natural(value: int) -> int:
    """An integer from 0 to 2^63 - 1."""
    if integer(value) < 0:
        raise ValueError(f"{value} is negative")
    return value


def positive(value: int) -> int:
    """An integer from 1 to 2^63 - 1."""
    if integer(value) < 1:
        raise ValueError(f"{value} is not positive")
    return value


def text(value: str) -> str:
    """A str that UTF-8 can encode."""
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is a {type(value).__name__}, not a str")
    _encodable(value)
    return value


_EXACT_CHECKS: Final = frozenset({exact, element, integer, natural, positive, text})
"""Checks whose results need no check by `exact`."""


def collection_of(check: Callable[[T], T]) -> Callable[[Several[T]], list[T]]:
    """Several values, from a list, tuple, set or frozenset; sent as a list without duplicates, in the given order.

    A set has no order: its values are sent in the order of their encodings, the same for every hash seed.
    """
    return _Collection(check)


class _Collection(Generic[T]):
    """A check of several values, by the check of one."""

    __slots__ = ("check",)

    def __init__(self, check: Callable[[T], T]) -> None:
        self.check = check

    def __call__(self, value: Several[T]) -> list[T]:
        kind: type = type(value)
        if kind not in (list, tuple, set, frozenset):
            raise ValueError(
                f"{shown(value)} is a {kind.__name__}, not a list, tuple, set or frozenset"
            )
        check = self.check
        checked = [check(item) for item in value]
        if kind is set or kind is frozenset:
            checked.sort(key=_order)
        return list(dict.fromkeys(checked))


def accepted(check: Check) -> Any:
    """The type that a check accepts, from the annotation of its parameter; Any without one."""
    if isinstance(check, _Collection):
        several: Any = Several
        return several[accepted(check.check)]
    parameter = next(iter(inspect.signature(check, eval_str=True).parameters.values()))
    return Any if parameter.annotation is parameter.empty else parameter.annotation


def _order(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value


def _encodable(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{shown(value)} is not valid Unicode: {error.reason}") from error
