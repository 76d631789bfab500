"""Rows of results in CSV files, added as they come and read back; four digits of a number count."""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

R = TypeVar("R")


def add_rows(path: Path, rows: Iterable[R]) -> Iterator[R]:
    """Write each row (a dataclass) to the end of the file as it passes by, and the header before a first one."""
    for row in rows:
        values = {name: _shown(value) for name, value in asdict(row).items()}  # type: ignore[call-overload]
        fresh = not path.exists()
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, values, lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerow(values)
        yield row


def _shown(value: object) -> object:
    if not isinstance(value, float):
        return value
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def read_rows(path: Path, kind: type[R]) -> list[R]:
    """The rows of a file that `add_rows` wrote; none of one that is not there."""
    if not path.exists():
        return []
    types: dict[str, Any] = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    with path.open(newline="") as file:
        return [
            kind(**{name: _parsed(types[name], text) for name, text in row.items()})
            for row in csv.DictReader(file)
        ]


def _parsed(kind: type, text: str) -> Any:
    return text == "True" if kind is bool else kind(text)
