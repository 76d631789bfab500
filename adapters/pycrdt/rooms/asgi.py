"""Rooms as an ASGI application: for uvicorn, hypercorn and others, alone or mounted in FastAPI or Starlette."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from crdtcast.adapters.pycrdt.rooms.channels import Channel, Visit
from crdtcast.exceptions import RemoteProtocolError

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class AsgiChannel:
    """A WebSocket of an ASGI server, which was accepted."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._is_over = False

    async def receive(self) -> bytes | None:
        """See `Channel`."""
        event = await self._receive()
        if event["type"] == "websocket.disconnect":
            self._is_over = True
            return None
        raw: bytes | None = event.get("bytes")
        if raw is None:
            raise RemoteProtocolError("a message of text: this protocol has bytes")
        return raw

    async def send(self, message: bytes) -> None:
        """See `Channel`."""
        await self._tell({"type": "websocket.send", "bytes": message})

    async def close(self, code: int, reason: str) -> None:
        """See `Channel`."""
        await self._tell({"type": "websocket.close", "code": code, "reason": reason})

    async def _tell(self, event: Event) -> None:
        if self._is_over:
            return
        try:
            await self._send(event)
        except Exception:
            # Servers differ in what they raise once the client has gone; `receive` tells that it has.
            self._is_over = True


async def serve_asgi(
    serve: Callable[[Channel, Visit], Awaitable[None]], scope: Scope, receive: Receive, send: Send
) -> None:
    """Serve one scope of an ASGI server."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    elif scope["type"] == "websocket":
        event = await receive()
        if event["type"] == "websocket.connect":
            await send({"type": "websocket.accept"})
            await serve(AsgiChannel(receive, send), visit_of(scope))
    else:
        text = b"this is a room: connect to it with a WebSocket\n"
        headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 426, "headers": headers})
        await send({"type": "http.response.body", "body": text})


async def _live(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return


def visit_of(scope: Scope) -> Visit:
    """Who wants to enter which room."""
    path, root = scope["path"], scope.get("root_path", "")
    if root and path.startswith(root):
        path = path[len(root) :]
    client = scope.get("client")
    return Visit(
        room=path.removeprefix("/"),
        headers={
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        },
        query=scope.get("query_string", b"").decode("latin-1"),
        address="" if client is None else f"{client[0]}:{client[1]}",
    )
