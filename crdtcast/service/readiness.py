"""Whether clients should be sent to a process, and why not: the same rule for nodes and gateways."""

from collections.abc import Mapping

from crdtcast.causality.member_id import name_of
from crdtcast.engine import GroupEngine
from crdtcast.engine.core import Core
from crdtcast.group.status import is_caught_up, lacking, waiting
from crdtcast.transport.monitor import member_names
from crdtcast.transport.peers import LinkPhase, LinkStatus


class Readiness:
    """Of one process. It is ready once it has caught up in its present incarnation, as long as it takes writes and not
    every other member refuses it. A member that is cut off stays ready: it works alone.
    """

    def __init__(self) -> None:
        self._caught_up = ""

    def obstacle(
        self, engine: Core, suspects: Mapping[str, object], links: Mapping[str, LinkStatus]
    ) -> str | None:
        """Why clients should not be sent to this process; None if they should. suspects, links: by name."""
        if isinstance(engine, GroupEngine) and not engine.standing.can_send:
            return f"{engine.me} is {engine.standing.value}"
        if self._caught_up != engine.me:
            if not is_caught_up(engine, suspects):
                return _not_caught_up(engine, suspects)
            self._caught_up = engine.me
        return _refused_by_all(engine, links)


def _not_caught_up(engine: Core, suspects: Mapping[str, object]) -> str:
    waits = ", ".join(lacking(engine, suspects))
    pending = waiting(engine)
    if not waits and pending:
        return (
            f"{engine.me} has {pending:,} messages that wait for missing ones: see `crdtcast "
            "status`"
        )
    return (
        f"{engine.me} takes writes, but has not caught up with {waits or 'the messages received'}"
    )


def _refused_by_all(engine: Core, links: Mapping[str, LinkStatus]) -> str | None:
    others = [links.get(name) for name in sorted(member_names(engine) - {name_of(engine.me)})]
    refused = [link for link in others if link is not None and link.state is LinkPhase.REFUSED]
    if not refused or len(refused) < len(others):
        return None
    return f"all other members refuse {engine.me}: {refused[0].error}"
