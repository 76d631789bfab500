"""A proxy in front of a server that holds bytes back or cuts."""

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.adapters.redis.gateways import PATIENCE


@dataclass(eq=False)
class ProxiedConnection:
    """One connection through the proxy: the gateway's socket and the server's."""

    number: int
    near: socket.socket
    far: socket.socket
    sent: bytearray = field(default_factory=bytearray)
    received: bytearray = field(default_factory=bytearray)
    detached: bool = False
    """The server is not told that the gateway has gone."""

    def detach(self) -> None:
        """The gateway loses its connection; the server does not notice."""
        self.detached = True
        self.near.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        for end in (self.near, self.far):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Between gateway and server. `sending(pair, data)` and `receiving(pair, data)` see the bytes before they go on,
    and return what goes on (they may block, or cut the pair)."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.pairs: list[ProxiedConnection] = []
        self.sending: Callable[[ProxiedConnection, bytes], bytes] = lambda pair, data: data
        self.receiving: Callable[[ProxiedConnection, bytes], bytes] = lambda pair, data: data
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    near.close()
                    continue
                pair = ProxiedConnection(len(self.pairs), near, far)
                self.pairs.append(pair)
                for one, other, outward in ((near, far, True), (far, near, False)):
                    threading.Thread(
                        target=self._pump, args=(pair, one, other, outward), daemon=True
                    ).start()

    def _pump(
        self, pair: ProxiedConnection, one: socket.socket, other: socket.socket, outward: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                hook = self.sending if outward else self.receiving
                data = hook(pair, data)
                (pair.sent if outward else pair.received).extend(data)
                other.sendall(data)
        if not pair.detached:
            with contextlib.suppress(OSError):
                other.shutdown(socket.SHUT_WR if outward else socket.SHUT_RDWR)

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(PATIENCE)
        for pair in self.pairs:
            pair.cut()
            pair.near.close()
            pair.far.close()
