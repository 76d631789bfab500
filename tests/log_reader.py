"""Event logs as events, for tests."""

from collections.abc import Iterator
from pathlib import Path

from crdtcast.eventlog.format import OPEN, SEALED, Event, parse_line
from crdtcast.exceptions import UnusableInputError


class LogReader:
    """Reads a directory of segments sequentially: one incarnation after the other, each in the order of `seq`.

    `torn` counts the lines skipped so far.
    """

    def __init__(self, directory: Path | str) -> None:
        self.torn: int = 0
        self._directory = Path(directory)

    def __iter__(self) -> Iterator[Event]:
        try:
            names = sorted(
                entry.name
                for entry in self._directory.iterdir()
                if entry.name.endswith((SEALED, OPEN))
            )
        except OSError as error:
            raise UnusableInputError(
                f"cannot read event logs in {self._directory}: {error}"
            ) from error
        for name in names:
            with open(self._directory / name, "rb") as segment:
                for line in segment:
                    event = parse_line(line) if line.endswith(b"\n") else None
                    if event is None:
                        self.torn += 1
                    else:
                        yield event
