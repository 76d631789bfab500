"""The peers of a gateway in a group whose members come and go: links to learned addresses, and the durability barrier,
which holds messages until the commit that they rest on is synced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from crdtcast.adapters.redis.commit.durability_barrier import DurabilityBarrier
from crdtcast.causality.member_id import name_of
from crdtcast.causality.messages import Transmit
from crdtcast.engine import GroupEngine, How
from crdtcast.transport.channel import Channel
from crdtcast.transport.engine_driver import no_work
from crdtcast.transport.host import SharedLinks
from crdtcast.transport.options import Address, NodeOptions
from crdtcast.transport.peers import LinkStatus


class GroupPeers:
    """The counterpart of `Node`, which serves groups of fixed members.

    behind: whether the engine has changed since its state was last stored, or is being stored.
    number: of the last commit.
    """

    def __init__(
        self,
        options: NodeOptions,
        *,
        advertise: Address | None,
        behind: Callable[[], bool],
        number: Callable[[], int],
        on_work: Callable[[], None],
        logger: logging.Logger,
    ) -> None:
        self.shared: SharedLinks = SharedLinks(options, advertise=advertise, logger=logger)
        self.shared.will_own()
        self.channel: Channel = Channel(self.shared, options.group)
        self.channel.hold = True  # the barrier takes the outbox
        self.channel.on_work = on_work
        self.gate: DurabilityBarrier = DurabilityBarrier(self._transmit)
        self.before_leaving: Callable[[], None] = no_work
        """Called before messages of the engine go to the links."""
        self.hold = True
        self._behind = behind
        self._number = number
        self._members: set[str] = set()

    async def run(
        self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen and dial until cancelled. Raises what `SharedLinks.run` raises."""
        await self.shared.run(task_status=task_status)

    @property
    def address(self) -> Address:
        """The address where the other gateways reach this one."""
        return self.shared.address

    @property
    def engine(self) -> GroupEngine | None:
        """The present engine; None before this gateway is a member."""
        return self.channel.engine

    def start(self, engine: GroupEngine, group_id: str) -> None:
        """Take part with this engine, whose state was just read from the server and may not be synced."""
        self.gate.begin(self._number() - 1)
        self.channel.group_id = group_id
        self.channel.start(engine)

    def set_aside(self) -> None:
        """Nothing to do: the barrier knows on which commit each effect rests."""

    def release(self) -> None:
        """Nothing to do, as above."""

    @property
    def has_outgoing(self) -> bool:
        """Whether `flush` has something to do: messages may leave, or peers may be read from again."""
        engine = self.engine
        return engine is not None and (
            self.gate.is_releasing or engine.has_outbox or self.channel.congested()
        )

    def flush(self) -> None:
        """Send what may leave. Never blocks."""
        engine = self.engine
        if engine is None:
            return
        self._look(engine)
        if not self.hold and not self._behind():
            self.gate.add(engine.take_outbox(), self._number())
        self.gate.release()
        self.channel.flush()

    def _transmit(self, effects: list[Transmit]) -> None:
        self.before_leaving()
        self.channel.send_effects(effects)

    def _look(self, engine: GroupEngine) -> None:
        """Keep links to the members of the group only."""
        members = set(map(name_of, engine.members))
        if members != self._members:
            # A member evicted by force may have evicted us, too: only a link can show that.
            forced = {name_of(x) for x, cut in engine.tombs.items() if cut.how is How.FORCED}
            for name in self._members - members - forced:
                self.shared.unwant(name)
            self._members = members
        for name in sorted(members):
            if name not in self.channel.here:
                self.shared.want(name)

    def status(self) -> dict[str, LinkStatus]:
        """State of the links to all known gateways."""
        return self.shared.status()

    def cut(self, name: str) -> None:
        """Drop the link to that gateway until `heal`."""
        self.shared.cut(name)

    def heal(self, name: str) -> None:
        """Undo `cut`."""
        self.shared.heal(name)
