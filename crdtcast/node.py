"""The Trio runtime of one member: its engine, its links and its timer. It stores nothing and
applies nothing.

The application pulls deliveries from the engine itself; the node tells it when to look (`on_work`),
and moves the engine's outbox to the links when told to (`flush`), which a caller with a journal
holds back until it has synced.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable

import trio

from crdtcast.engine import Engine
from crdtcast.exceptions import (
    CrdtcastError,
    LocalProtocolError,
    RemoteProtocolError,
    RolledBackError,
    SupersededError,
)
from crdtcast.handshake import Reason, admit
from crdtcast.link import Link
from crdtcast.links import Connect, Links
from crdtcast.logs import Throttle
from crdtcast.messages import Digest, Message
from crdtcast.options import Address, NodeOptions, format_address
from crdtcast.peers import LinkStatus
from crdtcast.running import run_until_signal, running
from crdtcast.ticking import Ticking
from crdtcast.wire import Frame, FrameKind, Hello, KeepAlive, Refusal, encode

__all__ = ["Node", "NodeOptions", "run_until_signal", "running"]


def _nothing() -> None:
    pass


class Node:
    """One member on the network. All methods are synchronous, but `run`, and belong to the Trio
    thread.

    engine: what decides. Between two of its calls the node may call it; the application polls it.
    fence_epoch: of the owner of the server beside a gateway; 0 without one.
    on_work: called whenever something may be deliverable or stable, or a tick has passed. Must not
        block; an exception from it ends the node.
    on_rolled_back: called once when a peer remembers more of this incarnation than the engine does.
        The links are closed then, and dialled again after `replace_engine`. Without it `run` raises
        the error.
    clock_ms: wall clock for the handshake's drift check (`NodeOptions.max_drift_ms`).
    connect: opens a stream to a host and port; tests give streams in memory.
    """

    def __init__(
        self,
        options: NodeOptions,
        engine: Engine,
        *,
        fence_epoch: int = 0,
        on_work: Callable[[], None] = _nothing,
        on_rolled_back: Callable[[RolledBackError], None] | None = None,
        clock_ms: Callable[[], int] | None = None,
        connect: Connect = trio.open_tcp_stream,
        logger: logging.Logger | None = None,
    ) -> None:
        self.options = options
        self.engine = engine
        self.fence_epoch = fence_epoch
        self.hold = False
        self._on_work = on_work
        self._on_rolled_back = on_rolled_back
        self._clock_ms = clock_ms
        self._connect = connect
        self._logger = logger or logging.getLogger("crdtcast.node")
        self._throttle = Throttle(self._logger)
        self._process = secrets.token_bytes(8)
        self._fences: dict[str, tuple[str, int]] = {}
        self._ended = False
        self._failure: BaseException | None = None
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._address: Address | None = None
        self._links: Links | None = None
        self._early: list[Callable[[Links], None]] = []
        self._backlog = 0
        self.ticking = Ticking(options.digest_interval, lambda: self.engine, self._tick)

    @property
    def name(self) -> str:
        return self.options.name

    @property
    def address(self) -> Address:
        """Host and port that the node listens on; the port is the one bound if 0 was asked for."""
        if self._address is None:
            raise LocalProtocolError(f"node {self.name!r} does not listen yet: start `run` first")
        return self._address

    @property
    def listening(self) -> bool:
        """Whether `run` has bound the address."""
        return self._address is not None

    @property
    def max_payload(self) -> int:
        """The longest payload that may be given to `Engine.send`, in bytes."""
        return self.options.max_payload

    # Life

    async def run(
        self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen, dial and tick until cancelled or `stop`ped. With `nursery.start`, returns the
        address once bound.

        Raises `SupersededError` when a peer proves that this incarnation has ended,
        `RolledBackError` (without `on_rolled_back`), and OSError when it cannot listen. No error of
        a peer ends it.
        """
        listeners = await _listen(self.options.listen)
        self._address = listeners[0].socket.getsockname()[:2]
        self._links = links = Links(self, self.options, self._connect, self._logger)
        try:
            for step in self._early:
                step(links)
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    nursery.start_soon(_serve, links.accept, listeners)
                    for peer in links.dialled:
                        nursery.start_soon(links.keep_linked, peer)
                    nursery.start_soon(links.maintain)
                    nursery.start_soon(self.ticking.run)
                    self._logger.info(
                        "node %s (%s) listens on %s",
                        self.name,
                        self.engine.me,
                        format_address(self.address),
                    )
                    task_status.started(self.address)
        finally:
            self._nursery = None
            for listener in listeners:
                listener.socket.close()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let `run` return. What is queued for peers and not yet written is repaired at the next
        start.
        """
        self._scope.cancel()

    def ended(self, error: CrdtcastError) -> None:
        """(For links.) Let `run` raise `error`."""
        if self._failure is None:
            self._failure = error
        self._scope.cancel()

    def _tick(self) -> None:
        if not self._ended:
            self.engine.tick()
            self._offer_work()

    # The application's side

    def flush(self) -> None:
        """Move what the engine wants sent to the links' queues. Never blocks; does nothing while
        `hold` is set.
        """
        self.ticking.stir()
        self._flush()

    def _flush(self) -> None:
        self._relieve()
        if self.hold or self._ended or self._links is None:
            return
        for effect in self.engine.take_outbox():
            self._transmit(effect.to, effect.message)

    def _transmit(self, to: str | None, message: Message | Digest) -> None:
        assert self._links is not None
        up = self._links.up
        if to is None:
            links = list(up.values())
        else:
            link = up.get(to.rpartition(".")[0])
            links = [link] if link is not None and link.incarnation == to else []
        if not links:
            return
        try:
            frame = encode(message, self.options.max_frame)
        except LocalProtocolError as error:
            self._throttle.log(trio.current_time(), "too long", logging.ERROR, str(error))
            return
        kind = FrameKind.MESSAGE if type(message) is Message else FrameKind.DIGEST
        for link in links:
            if not link.offer(kind, frame) and link.closed is None:
                self._throttle.log(
                    trio.current_time(),
                    ("full", link.name),
                    logging.WARNING,
                    f"{link.name} does not keep up ({link.queue.queued_bytes:,} bytes wait for "
                    "it): frames are dropped, and repaired later",
                    peer=link.name,
                )

    def replace_engine(self, engine: Engine, fence_epoch: int | None = None) -> None:
        """Go on with another engine: state was read again, or a new incarnation begun. All links
        are made anew.
        """
        self.engine = engine
        if fence_epoch is not None:
            self.fence_epoch = fence_epoch
        self._ended = False
        self._backlog = 0
        if self._links is not None:
            self._links.gate.open()
            self._links.restart("this node goes on under another identity or state")

    def congested(self) -> bool:
        """Whether so much waits for the application that the node has stopped reading from its
        peers.
        """
        return self._links is not None and self._links.gate.closed

    # Operators

    def status(self) -> dict[str, LinkStatus]:
        """State of the link with each peer, by name."""
        return self._links.status() if self._links is not None else {}

    def links(self) -> Links:
        """The table of links; for tests and metrics."""
        if self._links is None:
            raise LocalProtocolError(f"node {self.name!r} does not run")
        return self._links

    def cut(self, name: str) -> None:
        """Drop the link with peer `name` and refuse it, in both directions, until `heal`."""
        self._with_links(lambda links: links.cut(name))

    def heal(self, name: str) -> None:
        """Undo `cut`; the peer is dialled at once."""
        self._with_links(lambda links: links.heal(name))

    def set_address(self, name: str, address: Address) -> None:
        """Dial peer `name` at `address` from now on."""

        def dial(links: Links) -> None:
            peer = links.set_address(name, address)
            if peer is not None and self._nursery is not None:
                self._nursery.start_soon(links.keep_linked, peer)

        self._with_links(dial)

    def _with_links(self, step: Callable[[Links], None]) -> None:
        if self._links is None:
            self._early.append(step)
        else:
            step(self._links)

    # The links' side (LinkHost)

    def hello(self) -> Hello:
        """(For links.) Who this node is, now."""
        return Hello(
            group=self.options.group,
            name=self.name,
            incarnation=self.engine.me,
            process=self._process,
            fence=self.fence_epoch,
            max_frame=self.options.max_frame,
            clock_ms=self._clock_ms() if self._clock_ms is not None else None,
        )

    def admit(self, peer: Hello) -> Refusal | None:
        """(For links.) Make a peer known to the engine, or say why not."""
        if self._ended:
            return Refusal(Reason.BUSY, f"node {self.name!r} is about to change its incarnation")
        return admit(peer, self.engine.introduce, self._fences)

    def link_up(self, link: Link) -> None:
        """(For links.)"""
        self.engine.connected(link.incarnation)
        self._after()

    def link_down(self, link: Link) -> None:
        """(For links.)"""
        self.engine.disconnected(link.incarnation)
        self.ticking.gone(link.incarnation)

    def received(self, link: Link, frames: list[Frame]) -> None:
        """(For links.) Everything that one piece of a stream held, in order."""
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
                elif type(frame) is Refusal:
                    link.refused(frame.text)
                    return
                elif type(frame) is not KeepAlive:
                    raise RemoteProtocolError(
                        f"a {type(frame).__name__} after the handshake was over"
                    )
        except RolledBackError as error:
            self._rolled_back(error)
        except SupersededError as error:
            self.ended(error)
        finally:
            self._after()

    def _rolled_back(self, error: RolledBackError) -> None:
        if self._on_rolled_back is None:
            self.ended(error)
            return
        self._ended = True
        self._logger.error("%s", error)
        if self._links is not None:
            self._links.restart(str(error))
        self._on_rolled_back(error)

    def _after(self) -> None:
        """The engine has changed: answers out, then the application's turn."""
        self.ticking.stir()
        self._offer_work()

    def _offer_work(self) -> None:
        self._flush()
        try:
            self._on_work()
        except Exception as error:
            # The application's error, not the peer's whose frame we happen to be at.
            self._failure = self._failure or error
            self._scope.cancel()
        self._relieve()

    def _relieve(self) -> None:
        """Read on when the application has taken everything; stop reading when too much waits for
        it.
        """
        if self._links is None:
            return
        if not self.engine.has_deliverable():
            self._backlog = 0
            if self._links.gate.closed:
                self._links.gate.open()
        elif self._backlog > self.options.backlog_bytes:
            self._links.gate.close()


async def _listen(address: Address) -> list[trio.SocketListener]:
    host, port = address
    listeners = await trio.open_tcp_listeners(port, host=host)
    if port == 0:
        # A name with several addresses would get as many ports.
        for listener in listeners[1:]:
            listener.socket.close()
        del listeners[1:]
    return listeners


async def _serve(
    handler: Callable[[trio.abc.Stream], Awaitable[None]], listeners: list[trio.SocketListener]
) -> None:
    async with trio.open_nursery() as nursery:
        await trio.serve_listeners(handler, listeners, handler_nursery=nursery)
