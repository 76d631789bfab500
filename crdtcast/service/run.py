"""The life of `crdtcast node`: join or found, serve operators and probes, stop or leave at a signal."""

import logging
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import trio

from crdtcast.causality.member_id import name_of, wall_clock_ms
from crdtcast.engine import GroupEngine, Standing
from crdtcast.exceptions import ConfigurationError, LocalProtocolError, NotReadyError
from crdtcast.group.member import Member
from crdtcast.group.open import open_member
from crdtcast.group.status import Status, status
from crdtcast.journal import FileJournal
from crdtcast.journal.directory import Directory, RealDirectory
from crdtcast.replica.replica import Replica
from crdtcast.service.admin import sockets
from crdtcast.service.admin.administered import Departure, departed
from crdtcast.service.admin.objects import NodeAdmin
from crdtcast.service.admin.probes import Gauges, Probes
from crdtcast.service.policy import to_evict
from crdtcast.service.readiness import Readiness
from crdtcast.service.settings import NodeSettings, is_path
from crdtcast.service.supervisor import Supervisor
from crdtcast.transport.channel import Channel
from crdtcast.transport.options import Address, format_address, parse_address
from crdtcast.transport.tcp import listen

_LARGE = 2**20
"""Bytes of a copy from which on the log shows its progress."""


class NodeProcess:
    """One member, its objects, and the connections of operators. All of it belongs to the Trio thread.

    directory: the file layer of its journal.
    replica: None if it is a witness.
    copied: bytes of the group's state copied so far, and their total.
    """

    def __init__(
        self,
        settings: NodeSettings,
        *,
        clock_ms: Callable[[], int] = wall_clock_ms,
        logger: logging.Logger | None = None,
        directory: Callable[[Path], Directory] = RealDirectory,
    ) -> None:
        self.settings = settings
        self.copied: tuple[int, int] = (0, 0)
        self._journal: FileJournal | None = None
        if settings.journal is not None:
            self._journal = FileJournal(
                settings.journal, trusted=settings.trust_journal, directory=directory
            )
        self.metrics: Address | None = None
        """Where /metrics is served."""
        self._logger = logger or logging.getLogger("crdtcast.node")
        self.replica: Replica | None = None
        if not settings.witness:
            self.replica = Replica(settings.name, clock_ms=clock_ms, logger=self._logger)
        self._founding: Member | None = None
        self._member: Member | None = None
        self._stop = trio.Event()
        self._scope = trio.CancelScope()
        self._readiness = Readiness()
        self._supervisor = Supervisor()

    # State

    @property
    def member(self) -> Member:
        """Raises NotReadyError until it is a member."""
        if self._member is None:
            if self._founding is not None and self._founding.is_outside:
                raise self._founding.why_outside()
            here, of = self.copied
            copied = f", {here:,} of {of:,} bytes are copied" if of else ""
            raise NotReadyError(
                f"node {self.settings.name!r} is not in group {self.settings.group!r} "
                f"yet{copied}: wait, or see its log"
            )
        return self._member

    def objects(self) -> Replica:
        """Raises ConfigurationError if it is a witness."""
        if self.replica is None:
            raise ConfigurationError(
                f"node {self.settings.name!r} is a witness and holds no objects: ask another member"
            )
        return self.replica

    def status(self) -> Status:
        """Raises NotReadyError until it is a member."""
        refused = 0 if self.replica is None else self.replica.machine.clock.refused
        journal = None
        if self._journal is not None:
            journal = {"path": str(self._journal.path), **self._journal.measures()}
        return status(
            self.member.channel,
            refused_writes=self.member.refused_writes,
            clock_drift_refused=refused,
            journal=journal,
            most_bytes=self.settings.store_most_bytes,
        )

    def waits_for(self) -> str | None:
        """Why clients should not be sent to this process, for people; None if they should."""
        try:
            member = self.member
        except NotReadyError as error:
            return str(error)
        if self._stop.is_set():
            return f"node {self.settings.name!r} is stopping"
        if self.replica is not None and self.replica.machine.torn:
            return f"a data type of node {self.settings.name!r} has failed: see its log"
        if (full := member.fullness()) is not None:
            return full
        if (why := member.kept_out) is not None:
            return (
                f"{member.incarnation} is {member.standing.value}, and its join is refused: {why}"
            )
        shared = member.channel.shared
        return self._readiness.obstacle(member.engine, shared.watching().suspects, shared.status())

    def gauges(self) -> Gauges:
        """Metrics that exist before it is a member, too."""
        here, of = self.copied
        return {
            "copied_bytes": ("Bytes of the group's state copied so far", here),
            "copy_bytes": ("Bytes of the group's state to copy", of),
        }

    async def durable(self) -> None:
        """Return when all operations so far are in the journal; at once without one."""
        if self._journal is not None:
            await self.member.wait_durable()

    # Life

    async def run(self) -> None:
        """Run until a signal, or until it has left the group. Prints one line when it is a member."""
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._supervisor.keep_alive)
                await nursery.start(self._listen_to_signals)
                await self._serve(nursery)
                try:
                    await self._take_part(nursery)
                finally:
                    sockets.remove(self.settings.admin_place)
                nursery.cancel_scope.cancel()

    async def _take_part(self, nursery: trio.Nursery) -> None:
        async with open_member(self.settings.name, **self._group_options()) as member:
            self._founding = member
            await member.begun()
            self._member = member
            if self.replica is not None:
                self.replica.speak_for(member)
            self._say_ready(member)
            if self.settings.evict_after is not None:
                nursery.start_soon(evict_the_silent, member, self.settings.evict_after)
            await self._stop.wait()
            await self._depart(member)

    async def _serve(self, nursery: trio.Nursery) -> None:
        """Answer probes and operators, from the start on."""
        settings = self.settings
        if settings.metrics is not None:
            probes = Probes(
                settings.name,
                settings.group,
                waits_for=self.waits_for,
                status=self.status,
                gauges=self.gauges,
            )
            listeners = await listen(parse_address(settings.metrics))
            self.metrics = listeners[0].socket.getsockname()[:2]
            nursery.start_soon(trio.serve_listeners, probes.serve, listeners)
        admin = NodeAdmin(self, () if is_path(settings.admin_place) else settings.secrets())
        listener = await sockets.listen_at(settings.admin_place)
        nursery.start_soon(trio.serve_listeners, admin.serve, [listener])

    def stop(self) -> None:
        """Let `run` end; at once if it is no member yet, or on a second call."""
        if self._stop.is_set() or self._member is None:
            self._scope.cancel()
        self._stop.set()
        self._supervisor.stopping()

    async def leave(self, *, plain: bool = False) -> Departure:
        """Leave the group, within the time that the settings allow. Call `stop` afterwards.

        Raises LocalProtocolError if it should leave a plain server: only a gateway has one.
        """
        if plain:
            raise LocalProtocolError("--plain is for gateways: this node has no server")
        member = self.member
        with trio.move_on_after(self.settings.leave_seconds) as scope:
            await member.leave()
        return departed(member.engine) if scope.cancelled_caught else Departure()

    def _group_options(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "founders": settings.founder_addresses or None,
            "found": settings.found,
            "join": settings.contacts,
            "group": settings.group,
            "listen": settings.listen,
            "advertise": settings.advertise,
            "machine": None if self.replica is None else self.replica.machine,
            "witness": settings.witness,
            "replaces": settings.replaces,
            "progress": self._copied,
            "journal": self._journal,
            "limits": settings.limits(),
            "event_logs": settings.event_logs,
            "rotation": settings.rotation(),
            **settings.link_options(),
        }

    def _copied(self, here: int, of: int) -> None:
        before, self.copied = self.copied, (here, of)
        if of >= _LARGE and (_tenth(*before) != _tenth(here, of) or here == of):
            self._logger.info("copied %s of %s bytes of the group's state", f"{here:,}", f"{of:,}")

    def _say_ready(self, member: Member) -> None:
        told = {
            "name": self.settings.name,
            "listen": format_address(member.address),
            "admin": self.settings.admin_place,
            "metrics": "" if self.metrics is None else format_address(self.metrics),
            "incarnation": member.incarnation,
        }
        self._supervisor.ready()
        print("ready", *(f"{key}={value}" for key, value in told.items()), flush=True)

    async def _depart(self, member: Member) -> None:
        if not self.settings.leave_on_stop or member.standing is Standing.LEFT:
            return
        try:
            departure = await self.leave()
            if (warning := departure.warning(self.settings.leave_seconds)) is not None:
                self._logger.warning("%s", warning)
        except LocalProtocolError as error:
            self._logger.warning("did not leave: %s", error)

    async def _listen_to_signals(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                self._logger.info("%s: the node stops", signal.Signals(number).name)
                self.stop()


def _tenth(here: int, of: int) -> int:
    return 10 * here // of if of else 0


class Evicting(Protocol):
    """A member that may evict others."""

    @property
    def engine(self) -> GroupEngine: ...
    @property
    def standing(self) -> Standing: ...
    @property
    def channel(self) -> Channel: ...
    def evict(self, *members: str) -> None: ...
    def withdraw(self, *members: str) -> None: ...


async def evict_the_silent(member: Evicting, after: float) -> None:
    """Request to evict members that are silent for `after` seconds; runs forever. A request is withdrawn if the
    member speaks again before the decision. See `crdtcast.service.policy`.
    """
    logger = logging.getLogger("crdtcast.node")
    asked: set[str] = set()
    while True:
        watching = member.channel.shared.watching()
        suspects, engine = watching.suspects, member.engine
        if member.standing.can_send:
            asked &= engine.wants.victims.keys()
            if back := sorted(who for who in asked if name_of(who) not in suspects):
                logger.info("%s speaks again: no longer to be evicted", ", ".join(back))
                member.withdraw(*back)
            if victims := to_evict(engine, suspects, after):
                logger.warning("silent for %g s: evicting by policy: %s", after, ", ".join(victims))
                member.evict(*victims)
                asked.update(victims)
        await trio.sleep(watching.period)
