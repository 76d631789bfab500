"""Groups of one name that were founded apart: who is in a group is linked with its founder by the
members that STARTs list. Where members are fixed these are names, which tell nothing.
"""

from collections.abc import Sequence

from crdtcast.causality.member_id import name_of
from crdtcast.eventlog.check.segments import Log
from crdtcast.eventlog.format import listed_members


def founded_apart(logs: Sequence[Log]) -> list[list[Log]]:
    """The logs of each group; all in one where not every log lists members."""
    linked: dict[str, str] = {}

    def root(one: str) -> str:
        while linked.setdefault(one, one) != one:
            linked[one] = one = linked[linked[one]]
        return one

    for log in logs:
        ids = [one for one in listed_members(log.start) if name_of(one)]
        if log.start is None or not ids:
            return [list(logs)]
        for one in (*ids, *(log.start.vector or ())):
            linked[root(one)] = root(log.incarnation)
    parts: dict[str, list[Log]] = {}
    for log in logs:
        parts.setdefault(root(log.incarnation), []).append(log)
    return list(parts.values())
