"""Where a process listens and dials: the life of its links, and operators' actions on them."""

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

import trio

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.engine.core import Core
from crdtcast.exceptions import LocalProtocolError
from crdtcast.transport.link import Link, LinkHost
from crdtcast.transport.link_table import Links
from crdtcast.transport.log_throttle import Throttle
from crdtcast.transport.monitor import Monitor
from crdtcast.transport.options import Address, NodeOptions, format_address
from crdtcast.transport.peers import LinkPeer, LinkStatus
from crdtcast.transport.tcp import TRANSPORT, is_loopback
from crdtcast.wire.encoder import Encoder
from crdtcast.wire.frames import Frame, FrameKind, Hello, Refusal, encode
from crdtcast.wire.group_frames import Grouped

_LARGE_BYTES = 256 * 1024
"""A message's payload from this size on is large: a link notes that it is under way."""


class Endpoint(LinkHost):
    """Listens under one name, and keeps links with others. Subclasses decide what is sent on them."""

    def __init__(self, options: NodeOptions, logger: logging.Logger) -> None:
        self.options = options
        self.process: bytes = secrets.token_bytes(8)
        self._transport = TRANSPORT.get()
        self._logger = logger
        self._throttle = Throttle(logger)
        self.failure: Exception | None = None
        """What `run` raises at its end."""
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery | None = None
        self._address: Address | None = None
        self._links: Links | None = None
        self._encoder = Encoder(options.max_frame)
        self._due: list[Callable[[], None]] = []
        self._early: list[Callable[[Links], None]] = []
        self._watching = Monitor(options.keepalive_interval, logger)

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

    # Life

    def tasks(self) -> list[Callable[[], Awaitable[None]]]:
        """The tasks that run next to the links; subclasses override it."""
        return []

    def engines(self) -> Mapping[str, Core]:
        """The engines, by group; subclasses override it."""
        raise NotImplementedError

    def not_here(self) -> Collection[str]:
        """Names of members that speak in no group, even if a link has that name; subclasses override it."""
        return ()

    def describe(self) -> str:
        """What listens, for the log; subclasses override it."""
        return f"node {self.name}"

    async def run(
        self, *, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen, dial and tick until cancelled or `stop`ped. With `nursery.start`, returns the address once bound.

        Raises SupersededError if a peer proves that this incarnation has ended, RolledBackError (without
        `on_rolled_back`), and ConfigurationError if it cannot listen. No error of a peer ends it.
        """
        connect = partial(self._transport.connect, self.name)
        links = Links(self, self.options, connect, self._logger)
        self._address, listeners = await self._transport.listen(self.name, self.options.listen)
        self._links = links
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
                    nursery.start_soon(self._watch)
                    for task in self.tasks():
                        nursery.start_soon(task)
                    self._logger.info(
                        "%s listens on %s", self.describe(), format_address(self.address)
                    )
                    self._warn_if_exposed(self.address)
                    task_status.started(self.address)
        finally:
            self._nursery = None
            with trio.CancelScope(shield=True):
                for listener in listeners:
                    await listener.aclose()
        if self.failure is not None:
            raise self.failure

    def _warn_if_exposed(self, address: Address) -> None:
        options = self.options
        if options.certificate is None and not options.secrets and not is_loopback(address[0]):
            self._logger.warning(
                "every program that reaches %s can link as a member of group %r: use certificates "
                "or a shared secret, or listen on 127.0.0.1 (docs/security.md)",
                format_address(address),
                options.group,
            )

    def stop(self) -> None:
        """Let `run` return. Frames that are queued and not yet written are repaired at the next start."""
        self._scope.cancel()

    def ended(self, error: Exception) -> None:
        """Let `run` raise `error`."""
        if self.failure is None:
            self.failure = error
        self._scope.cancel()

    def send(self, links: Sequence[Link], kind: FrameKind, frames: Sequence[Frame]) -> None:
        """Queue frames of one kind on some links. Logs if a link drops some, or if one is too long."""
        if len(links) == 1 and links[0].has_large:  # it may repair what is still under way
            frames = [f for f in frames if not links[0].is_under_way(_large_name(f))]
        kinds = {link.zstd for link in links}
        for zstd in kinds:
            alike = links if len(kinds) == 1 else [link for link in links if link.zstd is zstd]
            for piece in self._encoder.pieces(frames, zstd, self._too_long):
                for link in alike:
                    if not (self._tell_numbers(link) and link.offer(kind, *piece)):
                        self._dropped(link)
                    elif piece.longest >= _LARGE_BYTES:
                        names = map(_large_name, frames)
                        link.note_large(name for name in names if name is not None)

    def before_writing(self, fill: Callable[[], None]) -> bool:
        """Call `fill` soon, before anything more is written to a link. Returns False if no link is up."""
        if self._links is None or not self._links.up:
            return False
        self._due.append(fill)
        for link in self._links.up.values():
            link.queue.expect()
        return True

    def fill(self, link: Link) -> None:
        """The link may write next: call what `before_writing` was given, then `idle` if nothing is queued on it."""
        due, self._due = self._due, []
        try:
            for fill in due:
                fill()
            if not link.queue.queued_bytes and link.closed is None:
                self.idle(link)
        except Exception as error:
            self.ended(error)  # not an error of the link that is about to write

    def idle(self, link: Link) -> None:
        """Nothing is queued for that peer; subclasses may send more."""

    def _too_long(self, error: LocalProtocolError) -> None:
        self._throttle.log(trio.current_time(), "too long", logging.ERROR, str(error))

    def _tell_numbers(self, link: Link) -> bool:
        """Send the meanings of new numbers, which the peer must know first. Returns False if a frame was dropped."""
        numbering = self._encoder.numbering
        if link.told == numbering.following:
            return True
        for named in numbering.names(link.told):
            if not link.offer(FrameKind.NAMED, encode(named)):
                return False
            link.told = named.first + len(named.ids)
        return True

    def _dropped(self, link: Link) -> None:
        if link.closed is None:
            self._throttle.log(
                trio.current_time(),
                ("full", link.name),
                logging.WARNING,
                f"{link.name} is too slow ({link.queue.queued_bytes:,} bytes wait for it): frames "
                "are dropped, and repaired later",
                peer=link.name,
            )

    @trio.lowlevel.enable_ki_protection
    async def _watch(self) -> None:
        while True:
            self.watching()
            await trio.sleep(self._watching.period)

    # Operators

    def watching(self) -> Monitor:
        """The members that are silent, and those that hold stability back, as of now."""
        up = {} if self._links is None else self._links.up
        speak = [up[name] for name in up.keys() - set(self.not_here())]
        self._watching.look(trio.current_time(), self.name, speak, self.engines())
        return self._watching

    def status(self) -> dict[str, LinkStatus]:
        """State of the link with each peer, by name."""
        return self._links.status() if self._links is not None else {}

    def refusals(self) -> dict[str, int]:
        """How many connections this node has refused, by reason: see `Links.refusals`."""
        return dict(self._links.refusals) if self._links is not None else {}

    def links(self) -> Links:
        """The table of links; for tests and metrics."""
        if self._links is None:
            raise LocalProtocolError(f"node {self.name!r} is not running")
        return self._links

    def cut(self, name: str) -> None:
        """Drop the link with peer `name` and refuse it, in both directions, until `heal`."""
        self._with_links(lambda links: links.cut(name))

    def heal(self, name: str) -> None:
        """Undo `cut`; the peer is dialled at once."""
        self._with_links(lambda links: links.heal(name))

    def set_address(self, name: str, address: Address) -> None:
        """Dial peer `name` at `address` from now on."""
        self._with_links(lambda links: self._keep(links, links.set_address(name, address)))

    def _keep(self, links: Links, peer: LinkPeer | None) -> None:
        if peer is not None and self._nursery is not None and not self._scope.cancel_called:
            self._nursery.start_soon(links.keep_linked, peer)

    def _with_links(self, step: Callable[[Links], None]) -> None:
        if self._links is None:
            self._early.append(step)
        else:
            step(self._links)

    # LinkHost

    def hello(self) -> Hello:
        """This process's present hello; subclasses define it."""
        raise NotImplementedError

    def admit(self, peer: Hello) -> Refusal | None:
        """Why a peer whose handshake is in order is refused; None if it is not. Subclasses define it."""
        raise NotImplementedError

    def link_up(self, link: Link) -> None:
        """A handshake has succeeded; subclasses define what follows."""
        raise NotImplementedError

    def link_down(self, link: Link) -> None:
        """The link is down; subclasses define what follows."""
        raise NotImplementedError

    def received(self, link: Link, frames: list[Frame]) -> None:
        """Take all frames from one piece of a stream, in order; subclasses define how."""
        raise NotImplementedError


def _large_name(frame: Frame) -> tuple[int, Dot] | None:
    """The group and dot of a large message; None for other frames."""
    number, message = frame if type(frame) is Grouped else (-1, frame)
    if type(message) is Message and len(message.payload) >= _LARGE_BYTES:
        return number, message.dot
    return None


@trio.lowlevel.enable_ki_protection
async def _serve(
    handler: Callable[[trio.abc.Stream], Awaitable[None]],
    listeners: Sequence[trio.abc.Listener[trio.abc.Stream]],
) -> None:
    async with trio.open_nursery() as nursery:
        await trio.serve_listeners(handler, list(listeners), handler_nursery=nursery)
