"""`/live`, `/ready` and `/metrics` of a gateway."""

from __future__ import annotations

from typing import Protocol

import trio

from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.commit.durability import DurabilityProbe
from crdtcast.adapters.redis.compare.rounds import CompareRounds
from crdtcast.adapters.redis.deadlines.adopted import AdoptedIndex
from crdtcast.adapters.redis.group.format_level import FormatLevel
from crdtcast.adapters.redis.options import GatewayOptions
from crdtcast.causality.hlc import HLC
from crdtcast.exceptions import NotReadyError
from crdtcast.fixed.node import Node
from crdtcast.group.status import Status, status
from crdtcast.service.admin.probes import Probes
from crdtcast.service.readiness import Readiness
from crdtcast.transport.channel import Channel
from crdtcast.transport.endpoint import Endpoint
from crdtcast.transport.options import Address
from crdtcast.transport.tcp import listen


class Observed(Protocol):
    """The parts of a gateway that show its state."""

    @property
    def options(self) -> GatewayOptions: ...
    @property
    def committer(self) -> Committer: ...
    @property
    def durability(self) -> DurabilityProbe: ...
    @property
    def formats(self) -> FormatLevel: ...
    @property
    def hlc(self) -> HLC: ...
    @property
    def rounds(self) -> CompareRounds: ...
    @property
    def adopted(self) -> AdoptedIndex | None:
        """How far the index of a database that was taken over is made."""

    @property
    def runtime(self) -> Node | Channel | None:
        """What transports the engine's messages; None before there is an engine."""

    @property
    def endpoint(self) -> Endpoint:
        """The links. Raises NotReadyError if they do not exist yet."""


class GatewayProbes:
    """Whether a gateway is ready for clients: its server answers, and its present incarnation has caught up once."""

    def __init__(self, gateway: Observed) -> None:
        self._gateway = gateway
        self._readiness = Readiness()

    def waits_for(self) -> str | None:
        """Why the gateway is not ready for clients; None if it is."""
        gateway = self._gateway
        if gateway.runtime is None:
            return not_in(gateway)
        if (refusal := gateway.committer.refusal) is not None:
            return refusal
        if not gateway.committer.serving:
            return f"the server {gateway.options.server} does not answer"
        endpoint = gateway.endpoint
        return self._readiness.obstacle(
            gateway.runtime.driven(), endpoint.watching().suspects, endpoint.status()
        )

    def status(self) -> Status:
        """See `member_status`."""
        return member_status(self._gateway)


def member_status(gateway: Observed) -> Status:
    """The status that every kind of member reports (docs/operations.md). A gateway's journal is its server.

    Raises NotReadyError if the gateway is not a member yet.
    """
    engine = gateway.committer.engine
    if gateway.runtime is None or engine is None:
        raise NotReadyError(not_in(gateway))
    return status(
        gateway.runtime,
        refused_writes=gateway.committer.refusals.writes,
        clock_drift_refused=gateway.hlc.refused,
        journal={
            "server": str(gateway.options.server),
            "durability": gateway.durability.level.value,
        },
        level=gateway.formats.in_force(engine),
        comparison=gateway.rounds.outline(),
        adoption=None if gateway.adopted is None else gateway.adopted.outline(),
    )


def not_in(gateway: Observed) -> str:
    """The message while the gateway is not a member yet."""
    node = gateway.options.node
    return f"gateway {node.name!r} is not in group {node.group!r} yet: wait, or see its log"


async def serve_probes(
    gateway: Observed,
    own: GatewayProbes,
    address: Address,
    *,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve probes until cancelled; `nursery.start` returns the address. Raises ConfigurationError if it is in use."""
    listeners = await listen(address)
    options = gateway.options.node
    serve = Probes(options.name, options.group, waits_for=own.waits_for, status=own.status).serve
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, serve, listeners)
        task_status.started(listeners[0].socket.getsockname()[:2])
