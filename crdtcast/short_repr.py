"""A value in an error message: one line, short, ASCII. In full it could be megabytes, or too deep or too long for
Python to print.
"""

import reprlib
from typing import Any, Final

_LONGEST_INTEGER: Final = 256
"""Bits. Python refuses to print much longer ones."""


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 60

    def repr_int(self, x: int, level: int) -> str:
        bits = x.bit_length()
        return f"of {bits} bits" if bits > _LONGEST_INTEGER else repr(x)


_SHORT: Final = _Short()


def shown(value: Any, most: int = 60) -> str:
    """`value` as text of at most `most` characters."""
    text = " ".join(_SHORT.repr(value).split()).encode("ascii", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 3]}..."
