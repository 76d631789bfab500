"""One Trio task for many sockets: it waits on a single epoll (or kqueue) descriptor and calls back.
This file knows no protocol.

A task and a stream per client cost several times what a command costs. Instead Trio wakes up once for
all ready sockets, and `after_events` handles everything that they brought as one batch. A turn of Trio still costs more
than a server needs for an answer, so the poller itself waits a moment for answers that are about to come.
"""

import logging
import select
import selectors
import socket
from collections.abc import Callable

import trio

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE

_TURN = 0.002
"""Seconds after which other tasks, such as the links to peers, get their turn, though sockets may be ready."""
_MOMENT = 0.001
"""Seconds to wait for something that is about to come."""


class _Epoll:
    """`select.epoll` with the masks of `selectors`, but without its objects per event."""

    # As in `selectors`: an error or a hang-up sets both directions, so that the next call
    # reports it.
    events = tuple((WRITE if mask & ~1 else 0) | (READ if mask & ~4 else 0) for mask in range(64))
    """The events of a mask that `poll` returned, by its lower bits."""

    def __init__(self) -> None:
        self._epoll = epoll = select.epoll()
        self.fileno = epoll.fileno
        self.close = epoll.close
        self.poll = epoll.poll

    @staticmethod
    def _mask(events: int) -> int:
        return (select.EPOLLIN if events & READ else 0) | (select.EPOLLOUT if events & WRITE else 0)

    def register(self, descriptor: int, events: int) -> None:
        self._epoll.register(descriptor, self._mask(events))

    def modify(self, descriptor: int, events: int) -> None:
        self._epoll.modify(descriptor, self._mask(events))

    def unregister(self, descriptor: int) -> None:
        self._epoll.unregister(descriptor)


class _Portable:
    """The same over `selectors`, for systems without epoll. A paused socket is not in the selector."""

    def __init__(self) -> None:
        self.events = tuple(range(64))
        self._selector = selectors.DefaultSelector()
        self.close = self._selector.close

    def fileno(self) -> int:
        return self._selector.fileno()

    def register(self, descriptor: int, events: int) -> None:
        if events:
            self._selector.register(descriptor, events)

    def modify(self, descriptor: int, events: int) -> None:
        known = descriptor in self._selector.get_map()
        if known and events:
            self._selector.modify(descriptor, events)
        elif known:
            self._selector.unregister(descriptor)
        else:
            self.register(descriptor, events)

    def unregister(self, descriptor: int) -> None:
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def poll(self, seconds: float) -> list[tuple[int, int]]:
        return [(key.fd, events) for key, events in self._selector.select(seconds)]


class _Registered:
    __slots__ = ("callback", "on_error", "socket")

    def __init__(
        self,
        sock: socket.socket,
        callback: Callable[[int], None],
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self.socket = sock
        self.callback = callback
        self.on_error = on_error


class Poller:
    """Sockets and their callbacks. Use it from the Trio thread only.

    A callback gets the ready events (`READ | WRITE`, the masks of `selectors`). If it raises, the
    poller logs that, unregisters this socket only, and calls its `on_error`, or closes the socket.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._log = logger or logging.getLogger(__name__)
        self._backend = _Epoll() if hasattr(select, "epoll") else _Portable()
        self._registered: dict[int, _Registered] = {}

    def register(
        self,
        sock: socket.socket,
        events: int,
        callback: Callable[[int], None],
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        """Watch a non-blocking socket. Unregister it before you close it."""
        descriptor = sock.fileno()
        self._backend.register(descriptor, events)
        self._registered[descriptor] = _Registered(sock, callback, on_error)

    def modify(self, sock: socket.socket, events: int) -> None:
        """Change which events of a registered socket are of interest; 0 pauses it."""
        self._backend.modify(sock.fileno(), events)

    def unregister(self, sock: socket.socket) -> None:
        """Forget a socket. Raises KeyError if it is not registered (for example, closed already)."""
        descriptor = sock.fileno()
        del self._registered[descriptor]
        self._backend.unregister(descriptor)

    async def run(self, after_events: Callable[[], bool | None]) -> None:
        """Serve until cancelled. `after_events` runs once after each round of callbacks; its errors end the loop. It
        returns whether a socket will probably be ready in a moment, while no other task has something to do.
        """
        descriptor = self._backend.fileno()
        poll, masks = self._backend.poll, self._backend.events
        get, now = self._registered.get, trio.lowlevel.current_clock().current_time
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            end = now() + _TURN
            found = poll(0)
            while found:
                for key, mask in found:
                    entry = get(key)
                    if entry is None:  # closed by an earlier callback of this round
                        continue
                    try:
                        entry.callback(masks[mask & 63])
                    except Exception as error:
                        self._fail(key, entry, error)
                is_near = after_events()
                if now() >= end:
                    break
                found = poll(_MOMENT if is_near else 0)

    def _fail(self, descriptor: int, entry: _Registered, error: Exception) -> None:
        self._log.exception("closed a socket, since handling it failed")
        if self._registered.get(descriptor) is entry and entry.socket.fileno() == descriptor:
            self.unregister(entry.socket)
        try:
            if entry.on_error is not None:
                entry.on_error(error)
            else:
                entry.socket.close()
        except Exception:
            self._log.exception("cannot close that socket")

    def close(self) -> None:
        """Release the descriptor. The sockets stay open."""
        self._registered.clear()
        self._backend.close()
