"""A dot that is taken before its message is made: for what another program does, and reports in its own time."""

from typing import NamedTuple

from crdtcast.causality.tags import Dot


class Reservation(NamedTuple):
    """The next own message of an engine, as far as it is known. See `Core.reserve`."""

    dot: Dot
    context: tuple[Dot, ...]
