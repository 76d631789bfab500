"""`/live`, `/ready` and `/metrics` over HTTP/1.1: one request a connection, only GET."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import trio

from crdtcast.exceptions import NotReadyError
from crdtcast.group.status import Status
from crdtcast.transport.connection_limits import ConnectionAdmission, Visit
from crdtcast.transport.link import STREAM_ERRORS
from crdtcast.transport.link_table import host_of

_LONGEST = 8192
_PATIENCE = 5.0
_MOST_CONNECTIONS = 64
"""At the same time. Beyond that the oldest connection of the address with most connections is closed."""
_FRESH = 1.0
"""Seconds for which a page of metrics is sent again instead of a new one."""
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}
_REASONS |= {501: "Not Implemented", 503: "Service Unavailable"}
_TEXT = "text/plain; charset=utf-8"


Gauges: TypeAlias = Mapping[str, tuple[str, float]]


class Probes:
    """Answers for one process.

    node, group: their names.
    waits_for: why clients should not be sent to it; None if they should.
    status: may raise NotReadyError while there is none.
    gauges: further ones, name -> sentence and value.
    """

    def __init__(
        self,
        node: str,
        group: str,
        *,
        waits_for: Callable[[], str | None],
        status: Callable[[], Status],
        gauges: Callable[[], Gauges] = dict,
    ) -> None:
        self._node = node
        self._group = group
        self._gauges = gauges
        self._waits_for = waits_for
        self._status = status
        self._admission = ConnectionAdmission(_MOST_CONNECTIONS, 2 * _MOST_CONNECTIONS)
        self._page: tuple[float, bytes] | None = None

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection to its end. Never raises."""
        patience = trio.move_on_after(_PATIENCE)
        visit = Visit(host_of(stream), patience.cancel)
        entered = self._admission.enter(visit)
        try:
            if not entered:
                return
            with patience:
                head = await _head(stream)
                code, kind, body = self._answer(head)
                lines = [
                    f"HTTP/1.1 {code} {_REASONS[code]}",
                    f"Content-Type: {kind}",
                    f"Content-Length: {len(body)}",
                    "Connection: close",
                ]
                await stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)
        except STREAM_ERRORS:
            pass
        finally:
            if entered:
                self._admission.leave(visit)
            await trio.aclose_forcefully(stream)

    def _answer(self, head: bytes) -> tuple[int, str, bytes]:
        match head.split(b"\r\n", 1)[0].split(b" "):
            case [b"GET", target, _]:
                path = target.partition(b"?")[0]
            case [_, _, _]:
                return 405, _TEXT, b"only GET is allowed\n"
            case _:
                return 400, _TEXT, b"not an HTTP request\n"
        if path == b"/live":
            return 200, _TEXT, b"live\n"
        if path == b"/ready":
            if (obstacle := self._waits_for()) is None:
                return 200, _TEXT, b"ready\n"
            return 503, _TEXT, f"{obstacle}\n".encode()
        if path == b"/metrics":
            return self._metrics()
        return 404, _TEXT, b"unknown path: use /live, /ready or /metrics\n"

    def _metrics(self) -> tuple[int, str, bytes]:
        try:
            from crdtcast.integrations import prometheus
        except ModuleNotFoundError:
            return 501, _TEXT, b"metrics are not installed: pip install 'crdtcast[prometheus]'\n"
        now = trio.current_time()
        if self._page is not None and now - self._page[0] < _FRESH:
            return 200, prometheus.CONTENT_TYPE, self._page[1]
        try:
            statuses = [self._status()]
        except NotReadyError:
            statuses = []
        extra = {"ready": ("Whether clients should be sent here", float(self._waits_for() is None))}
        extra |= self._gauges()
        body = prometheus.page(statuses, extra, node=self._node, group=self._group)
        self._page = now, body
        return 200, prometheus.CONTENT_TYPE, body


async def _head(stream: trio.abc.Stream) -> bytes:
    head = bytearray()
    while b"\r\n\r\n" not in head and len(head) < _LONGEST:
        piece = await stream.receive_some(4096)
        if not piece:
            break
        head += piece
    return bytes(head)
