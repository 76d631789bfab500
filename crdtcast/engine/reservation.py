"""A dot that is taken before its message exists: for effects that another program reports only afterwards."""

from typing import NamedTuple

from crdtcast.causality.tags import Dot


class Reservation(NamedTuple):
    """The next own message of an engine, as far as it is known. See `Core.reserve`."""

    dot: Dot
    context: tuple[Dot, ...]
