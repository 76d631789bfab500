"""Values of objects as JSON, for people and scripts to look at."""

from collections.abc import Mapping
from typing import Any


def shown(value: Any) -> Any:
    """The JSON form: sets become sorted lists; bytes and other values become text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Mapping):
        return {str(key): shown(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted((shown(item) for item in value), key=repr)
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    return str(value)
