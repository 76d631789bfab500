"""Options that a caller gives by keyword: unknown names and values of a wrong type are errors that name the right one.

Without these checks a wrong type would raise somewhere deep inside, perhaps only when a link breaks.
"""

import difflib
import os
import types
from collections.abc import Iterable, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from crdtcast.exceptions import ConfigurationError
from crdtcast.short_repr import shown

FOREVER = 1e9
"""Seconds that are as good as for ever: a clock cannot add any number."""
_TEXTS = (str, str | None)
"""Names and addresses: the code that reads them shows an example."""


def check_options(who: str, given: Mapping[str, object], known: type, *parameters: str) -> None:
    """Raises ConfigurationError for an unknown option or one of a wrong type.

    known: the TypedDict of the options.
    parameters: the caller's other keywords, to suggest them, too.
    """
    hints = get_type_hints(known)
    for name, value in given.items():
        if name not in hints:
            words = sorted({*hints, *parameters})
            near = nearest(name, words)
            advice = f"did you mean {near}?" if near else f"choose one of {', '.join(words)}"
            raise ConfigurationError(f"{who}: unknown option {name!r}: {advice}")
        if hints[name] not in _TEXTS and not fits(value, hints[name]):
            raise ConfigurationError(
                f"{who}: option {name} has the value {shown(value)}: give {words_of(hints[name])}"
            )
        if _is_path(hints[name]) and isinstance(value, str | os.PathLike):
            check_path(f"{who}: option {name}", value)


def check_path(what: str, path: str | os.PathLike[str]) -> None:
    """Raises ConfigurationError if no file can have that path."""
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise ConfigurationError(f"{what} has the value {shown(path)}: no file can have that path")


def _is_path(hint: Any) -> bool:
    return any((get_origin(each) or each) is os.PathLike for each in get_args(hint))


def nearest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known word that is most like a misspelt one; None if none is. likeness: from 0 to 1 for the same."""
    return next(iter(difflib.get_close_matches(word, list(known), 1, likeness)), None)


def fits(value: object, hint: Any) -> bool:
    """Whether the value has that type. The types of elements and of a function's arguments are not looked at."""
    if get_origin(hint) in (Union, types.UnionType):
        return any(fits(value, each) for each in get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, get_origin(hint) or hint)


def words_of(hint: Any) -> str:
    """The type as users write it."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(map(words_of, get_args(hint)))
    plain = get_origin(hint) or hint
    return "None" if plain is type(None) else str(plain.__name__)
