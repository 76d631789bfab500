"""Durations and sizes as people write them: `90`, `1.5 h`, `64 MiB`. Pure."""

import re
from collections.abc import Mapping

from crdtcast.exceptions import ConfigurationError

SECONDS: Mapping[str, float] = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
}
BYTES: Mapping[str, int] = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_WRITTEN = re.compile(
    r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?(?:e[+-]?[0-9]{1,3})?)\s*([a-z]*)\s*",
    re.IGNORECASE | re.ASCII,
)
_BEYOND = 2.0**63
"""More seconds or bytes than anyone needs."""


def seconds(value: object) -> float:
    """A number of seconds, or text with a unit of `SECONDS`. Raises ConfigurationError if it is neither."""
    found = _measured(value, SECONDS)
    if found is None:
        raise ConfigurationError(
            f"{value!r:.80} is not a duration: write seconds, or a number with ms, s, min, h or d"
        )
    return found


def size(value: object) -> int:
    """A number of bytes, or text with a unit of `BYTES`: `MB` is 1,000,000, `MiB` is 1,048,576. Raises
    ConfigurationError if it is neither.
    """
    found = _measured(value, BYTES)
    if found is None or found != int(found):
        raise ConfigurationError(
            f"{value!r:.80} is not a size: write bytes, or a number with KiB, MiB, GiB, kB, MB or "
            "GB"
        )
    return int(found)


def size_text(number: int) -> str:
    """A size in the largest binary unit that divides it."""
    for unit in ("GiB", "MiB", "KiB"):
        if number and number % BYTES[unit.lower()] == 0:
            return f"{number // BYTES[unit.lower()]} {unit}"
    return str(number)


def _measured(value: object, units: Mapping[str, float]) -> float | None:
    """In the unit with factor 1; None if it is no such quantity."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value if 0 <= value < _BEYOND else None
    match = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    number, unit = match[1], match[2].lower()
    if unit and unit not in units:
        return None
    factor = units[unit] if unit else 1
    found = int(number) * factor if number.isdigit() else float(number) * factor
    return found if found < _BEYOND else None
