"""The Trio runtime of one member: its engine, its timer and its links. It stores nothing and applies nothing.

The application polls deliveries from the engine; the node tells it when to look (`on_work`). `flush` moves the engine's
outbox to the links; a caller with a journal delays it until it has synced.
"""

import logging
from collections.abc import Awaitable, Callable

from crdtcast.causality.messages import Digest, Message, Transmit
from crdtcast.engine import Engine
from crdtcast.engine.core import Core
from crdtcast.exceptions import (
    RemoteProtocolError,
    RolledBackError,
    SupersededError,
)
from crdtcast.transport.endpoint import Endpoint
from crdtcast.transport.engine_driver import REPAIR_AT_ONCE, EngineDriver, no_work, runs
from crdtcast.transport.link import Link
from crdtcast.transport.options import NodeOptions
from crdtcast.wire.frames import Frame, FrameKind, Hello, KeepAlive, Refusal
from crdtcast.wire.handshake import Reason, admit
from crdtcast.wire.offer_frames import Asking


class Node(Endpoint, EngineDriver):
    """One member on the network. All methods except `run` are synchronous, and belong to the Trio thread.

    engine: decides. The node may call it between any two calls of the application, which polls it.
    fence_epoch: of the owner of the gateway's server; 0 without one.
    databases: see `Hello`.
    on_work: called whenever something may be deliverable or stable, or a tick has passed. Must not block; an exception
        from it ends the node.
    on_rolled_back: called once when a peer remembers more of this incarnation than the engine does. Then the links are
        closed, and dialled again after `replace_engine`. Without it `run` raises the error.
    clock_ms: wall clock for the handshake's drift check (`NodeOptions.max_drift_ms`).
    """

    def __init__(
        self,
        options: NodeOptions,
        engine: Engine,
        *,
        fence_epoch: int = 0,
        databases: tuple[int, int] | None = None,
        on_work: Callable[[], None] = no_work,
        on_rolled_back: Callable[[RolledBackError], None] | None = None,
        clock_ms: Callable[[], int] | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        Endpoint.__init__(self, options, logger or logging.getLogger("crdtcast.node"))
        EngineDriver.__init__(self, options.digest_interval, on_work)
        self.engine: Engine = engine
        engine.repair_at_once = REPAIR_AT_ONCE
        self.fence_epoch: int = fence_epoch
        self.databases = databases
        self._on_rolled_back = on_rolled_back
        self._clock_ms = clock_ms
        self._fences: dict[str, tuple[str, int]] = {}
        self.on_asked: Callable[[str, Asking], None] = _not_asked
        """Takes the questions and answers of peers, by name. An error of the peer is raised as RemoteProtocolError."""
        self.on_gone: Callable[[str], None] = _nothing_of_it
        """Takes the names of peers whose link is down."""
        self.before_leaving: Callable[[], None] = no_work
        """Called before messages of the engine go to the links."""
        self._aside: list[Transmit] = []  # may leave later than what is released
        self._released: list[Transmit] = []
        self.on_held: Callable[[], None] = self._send_released
        self._ended = False
        self._backlog = 0

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """See `Endpoint`: the timer."""
        return [self.ticking.run]

    def engines(self) -> dict[str, Engine]:
        """See `Endpoint`."""
        return {self.options.group: self.engine}

    def describe(self) -> str:
        """See `Endpoint`."""
        return f"node {self.name} ({self.engine.me})"

    # The application's side

    def driven(self) -> Core:
        """The present engine."""
        return self.engine

    def _tick(self) -> None:
        if not self._ended:
            super()._tick()

    def transmit(self) -> None:
        """See `EngineDriver`."""
        if self._ended or self._links is None:
            return
        effects = [*self._released, *self._aside, *self.engine.take_outbox()]
        self._released, self._aside = [], []
        self._send_all(effects)

    @property
    def has_outgoing(self) -> bool:
        """Whether `flush` has something to do: messages may leave, or peers may be read from again."""
        waits = self._released or self._aside or self.engine.has_outbox
        return bool(waits) or self.congested()

    def set_aside(self) -> None:
        """What the engine has sent so far may leave, after the next `release`, although the node holds the rest."""
        self._aside += self.engine.take_outbox()

    def release(self) -> None:
        """What was set aside may leave, with the next `flush`."""
        self._released += self._aside
        self._aside = []

    def _send_released(self) -> None:
        if self._released and not self._ended and self._links is not None:
            released, self._released = self._released, []
            self._send_all(released)

    def _send_all(self, effects: list[Transmit]) -> None:
        if effects:
            self.before_leaving()
        for to, kind, messages in runs(effects):
            self.send(self._reached(to), kind, messages)

    def _reached(self, to: str | None) -> list[Link]:
        """The link with that incarnation, or all links."""
        assert self._links is not None
        up = self._links.up
        if to is None:
            return list(up.values())
        link = up.get(to.rpartition(".")[0])
        return [link] if link is not None and link.incarnation == to else []

    @property
    def linked(self) -> list[str]:
        """Names of the peers whose links are up."""
        return [] if self._links is None else sorted(self._links.up)

    def ask(self, name: str, frame: Asking) -> None:
        """Queue a question or an answer for a peer, if it is linked."""
        link = None if self._links is None else self._links.up.get(name)
        if link is not None:
            self.send([link], FrameKind.ASK, [frame])

    def replace_engine(self, engine: Engine, fence_epoch: int | None = None) -> None:
        """Continue with another engine, after state was read again or a new incarnation was begun. All links are closed
        and dialled again.
        """
        self.engine = engine
        self._aside, self._released = [], []
        engine.repair_at_once = REPAIR_AT_ONCE
        if fence_epoch is not None:
            self.fence_epoch = fence_epoch
        self._ended = False
        self._backlog = 0
        if self._links is not None:
            self._links.gate.open()
            self._links.restart("this node continues under another identity or state")

    def congested(self) -> bool:
        """Whether so much waits for the application that the node has stopped reading from its peers."""
        return self._links is not None and self._links.gate.closed

    # LinkHost

    def hello(self) -> Hello:
        """This node's present hello."""
        return Hello(
            group=self.options.group,
            name=self.name,
            incarnation=self.engine.me,
            process=self.process,
            fence=self.fence_epoch,
            max_frame=self.options.max_frame,
            clock_ms=self._clock_ms() if self._clock_ms is not None else None,
            level=self.options.level,
            reads=self.options.reads,
            databases=self.databases,
        )

    def admit(self, peer: Hello) -> Refusal | None:
        """Introduce a peer to the engine, or return why it is refused."""
        if self._ended:
            return Refusal(Reason.BUSY, f"node {self.name!r} is changing its incarnation")
        return admit(peer, self.engine.introduce, self._fences)

    def link_up(self, link: Link) -> None:
        """Connect the engine with the peer."""
        self.engine.connected(link.incarnation)
        self.after()

    def link_down(self, link: Link) -> None:
        """Disconnect the engine from the peer."""
        if link.wrong is not None:
            self.engine.blames.note_link(link.incarnation, link.wrong)
        self.engine.disconnected(link.incarnation)
        self.ticking.gone(link.incarnation)
        self.on_gone(link.name)

    def idle(self, link: Link) -> None:
        """Nothing is queued for that peer: send more repairs."""
        if not self._ended:
            self.repair_on(link.incarnation)

    def received(self, link: Link, frames: list[Frame]) -> None:
        """Take all frames from one piece of a stream, in order."""
        receive = self.engine.receive
        sender = link.incarnation
        try:
            for frame in frames:
                if type(frame) is Message:
                    receive(sender, frame)
                    self._backlog += len(frame.payload) + 64
                elif type(frame) is Digest:
                    self.ticking.heard(sender, frame)
                    receive(sender, frame)
                elif isinstance(frame, Asking):
                    self.on_asked(link.name, frame)
                elif type(frame) is Refusal:
                    link.refused(frame.text)
                    return
                elif type(frame) is not KeepAlive:
                    raise RemoteProtocolError(
                        f"unexpected {type(frame).__name__} after the handshake"
                    )
        except RolledBackError as error:
            self._rolled_back(error)
        except SupersededError as error:
            self.ended(error)
        finally:
            self.after()

    def _rolled_back(self, error: RolledBackError) -> None:
        if self._on_rolled_back is None:
            self.ended(error)
            return
        self._ended = True
        self._logger.error("%s", error)
        if self._links is not None:
            self._links.restart(str(error))
        self._on_rolled_back(error)

    def relieve(self) -> None:
        """Read on when the application has taken everything; stop reading when too much waits for it."""
        if self._links is None:
            return
        if not self.engine.has_deliverable():
            self._backlog = 0
            if self._links.gate.closed:
                self._links.gate.open()
        elif self._backlog > self.options.backlog_bytes:
            self._links.gate.close()


def _not_asked(name: str, frame: Asking) -> None:
    raise RemoteProtocolError(
        f"{name} sent a {type(frame).__name__}, which this node does not know"
    )


def _nothing_of_it(name: str) -> None:
    pass
