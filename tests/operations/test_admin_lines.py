"""The admin socket's conversation: who may ask, and what is no question."""

import os
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from crdtcast.exceptions import ConfigurationError, RemoteProtocolError, UnusableInputError
from crdtcast.service.admin.client import find, operator
from crdtcast.service.admin.lines import UNTRUSTED, Lines, be_greeted, greet
from crdtcast.service.admin.sockets import listen_at
from crdtcast.service.settings import default_socket

SECRET, OTHER = b"s" * 32, b"t" * 32


async def meet(server: bytes | None, client: bytes | None) -> tuple[Any, Any]:
    """What both sides make of each other."""
    near, far = trio.testing.memory_stream_pair()
    found: list[Any] = [None, None]

    async def one(place: int, work: Callable[[], Any], stream: trio.abc.Stream) -> None:
        try:
            found[place] = await work()
        except RemoteProtocolError as error:
            found[place] = error
            await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, 0, lambda: greet(Lines(near), "eu", server), near)
        nursery.start_soon(one, 1, lambda: be_greeted(Lines(far), client), far)
    return found[0], found[1]


def test_both_prove_the_secret_or_none_is_asked_for() -> None:
    assert trio.run(meet, None, None) == (True, "eu")
    assert trio.run(meet, (), (SECRET,)) == (True, "eu")
    assert trio.run(meet, (SECRET,), (SECRET,)) == (True, "eu")
    assert trio.run(meet, (OTHER, SECRET), (SECRET, OTHER)) == (True, "eu")


def test_missing_or_wrong_secret_is_refused_with_a_remedy() -> None:
    trusted, error = trio.run(meet, (SECRET,), (OTHER,))
    assert trusted is False
    assert "wrong secret for node 'eu'" in str(error)
    _, error = trio.run(meet, (SECRET,), ())
    assert "--secret-file, or set CRDTCAST_SECRET" in str(error)


async def converse(say: Callable[[Lines], Awaitable[None]]) -> bool:
    """Whether the server trusts a client that says this."""
    near, far = trio.testing.memory_stream_pair()
    trusted: list[bool] = []

    async def serve() -> None:
        trusted.append(await greet(Lines(near), "eu", (SECRET,)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        await say(Lines(far))
    return trusted[0]


def test_replayed_proof_and_impostor_are_refused() -> None:
    said: list[dict[str, Any]] = []

    async def record(lines: Lines) -> None:
        send = lines.send

        async def keep(value: dict[str, Any]) -> None:
            said.append(value)
            await send(value)

        lines.send = keep  # type: ignore[method-assign]
        await be_greeted(lines, (SECRET,))

    async def replay(lines: Lines) -> None:
        await lines.receive()
        await lines.send(said[0])
        assert "wrong secret" in str(await lines.receive())

    assert trio.run(converse, record) is True
    assert trio.run(converse, replay) is False

    async def impostor() -> None:
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:

            async def pose() -> None:
                lines = Lines(near)
                await lines.send({"node": "eu", "nonce": "00"})
                proof = await lines.receive() or {}
                await lines.send({"proof": proof["proof"]})  # sent back to its maker

            nursery.start_soon(pose)
            with pytest.raises(RemoteProtocolError, match="does not know the secret"):
                await be_greeted(Lines(far), (SECRET,))

    trio.run(impostor)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"nonsense\n", "not valid JSON"),
        (b"[1]\n", "not a JSON object"),
        (b"[" * 100_000 + b"\n", "more than|not valid JSON"),
        (b"x" * (UNTRUSTED + 2), "more than"),
        (b"{}", "in the middle of a line"),
        (b"\xff\n", "not valid JSON"),
    ],
)
def test_invalid_admin_line_is_refused(sent: bytes, expected: str) -> None:
    async def receive() -> None:
        near, far = trio.testing.memory_stream_pair()
        await near.send_all(sent)
        await near.aclose()
        with pytest.raises(RemoteProtocolError, match=expected):
            await Lines(far).receive()

    trio.run(receive)


def test_socket_is_private_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "new" / "eu.sock"

    async def twice() -> None:
        for _ in range(2):
            listener = await listen_at(str(place))
            assert stat.S_IMODE(place.stat().st_mode) == 0o600
            assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
            with pytest.raises(ConfigurationError, match="another node listens there: stop it"):
                await listen_at(str(place))
            await listener.aclose()
        place.parent.chmod(0o777)
        with pytest.raises(ConfigurationError, match="other users may write"):
            await listen_at(str(place))
        with pytest.raises(ConfigurationError, match="at most 100 bytes"):
            await listen_at(f"{tmp_path}/{'x' * 100}.sock")

    trio.run(twice)


def test_path_that_is_not_a_socket_is_not_replaced(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the group")
    with pytest.raises(ConfigurationError, match="path exists and is not a socket"):
        trio.run(listen_at, str(secret))
    assert secret.read_text() == "of the group"


def test_a_node_is_found_by_name_or_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(UnusableInputError, match="no node of this user has a socket in"):
        find(None, None)
    place = Path(default_socket("shop", "eu"))
    place.parent.mkdir()
    place.touch()
    assert find(None, None) == find("eu", None) == find("shop.eu", None) == os.fspath(place)
    with pytest.raises(UnusableInputError, match="no node 'us' of this user has a socket in"):
        find("us", None)
    assert find(None, "127.0.0.1:1") == "127.0.0.1:1"
    place.unlink()
    with ExitStack() as stack:
        for group, name in (("shop", "eu"), ("shop", "us"), ("blog", "eu")):
            alive = stack.enter_context(socket.socket(socket.AF_UNIX))
            alive.bind(default_socket(group, name))
            alive.listen()
        Path(default_socket("shop", "killed")).touch()
        several = r"several nodes run here \(blog.eu, shop.eu, shop.us\)"
        with pytest.raises(UnusableInputError, match=several):
            find(None, None)
        with pytest.raises(UnusableInputError, match=r"\(blog.eu, shop.eu\).*--node GROUP.NAME"):
            find("eu", None)
        assert find("us", None) == default_socket("shop", "us")
        assert find("blog.eu", None) == default_socket("blog", "eu")


def test_listener_that_is_not_a_node_is_reported(tmp_path: Path) -> None:
    place = str(tmp_path / "x.sock")

    async def ask(say: bytes) -> None:
        listener = await listen_at(place)

        async def serve(stream: trio.SocketStream) -> None:
            await stream.send_all(say)
            await stream.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, serve, [listener])
            async with operator(place):
                pass

    for say in (b"{}\n", b"HTTP/1.1 400\r\n\r\n", b""):
        with pytest.raises(ExceptionGroup) as caught:
            trio.run(ask, say)
        (error,) = caught.value.exceptions
        assert isinstance(error, UnusableInputError)
        assert "cannot talk to the node at" in str(error)
