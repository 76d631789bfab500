"""Whatever comes over an admin socket is done, or refused with one line; the node goes on."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.exceptions import CrdtcastError, StoreFullError
from crdtcast.replica.objects import known_types
from crdtcast.service.admin.lines import LONGEST, Lines, be_greeted
from crdtcast.service.admin.sockets import connect
from crdtcast.service.run import NodeProcess
from crdtcast.service.settings import NodeSettings
from tests.effort import examples

TYPES = sorted(known_types())
OPERATIONS = sorted({each for crdt in known_types().values() for each in crdt.OPERATIONS})
TEXTS = st.text(st.characters(), max_size=4)  # halves of surrogate pairs, too
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
DOING = st.sampled_from(
    ["status", "members", "verify", "evict", "withdraw", "surrender", "cut", "heal"]
) | st.sampled_from(["objects", "get", "perform", "delete", "dance"])
REQUESTS = st.fixed_dictionaries(
    {"do": DOING},
    optional={
        "member": st.sampled_from(["a", "b"]) | VALUES,
        "members": st.lists(st.sampled_from(["a", "b"])) | VALUES,
        "name": st.sampled_from(["x", "y"]) | VALUES,
        "type": st.sampled_from(TYPES) | VALUES,
        "operation": st.sampled_from(OPERATIONS) | VALUES,
        "args": st.lists(VALUES, max_size=2) | VALUES,
        "wait": st.sampled_from([1, "stable"]) | VALUES,
        "seconds": st.just(0) | VALUES,
        "force": VALUES,
        "prefix": VALUES,
    },
)
PERFORM = {"do": "perform", "name": "x", "type": "counter_pn", "operation": "increment"}

Asking = Callable[[bytes], Awaitable[dict[str, Any]]]


async def until_ready(process: NodeProcess) -> None:
    while process.waits_for() is not None:  # noqa: ASYNC110 (it tells nobody)
        await trio.sleep(0.001)


def node_with(talk: Callable[[NodeProcess, Asking], Awaitable[None]], **options: Any) -> None:
    """Talk to a node of a group of its own, a connection for each request."""

    async def main(where: Path) -> None:
        settings = NodeSettings(
            name="a", found=True, listen="127.0.0.1:0", admin=str(where / "a.sock"), **options
        )
        process = NodeProcess(settings)

        async def ask(line: bytes) -> dict[str, Any]:
            async with await connect(settings.admin_place) as stream:
                lines = Lines(stream)
                await be_greeted(lines, None)
                await stream.send_all(line + b"\n")
                return await lines.receive() or {}

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(process.run)
                await until_ready(process)
                await talk(process, ask)
                process.stop()

    with TemporaryDirectory() as where:
        trio.run(main, Path(where))


@settings(max_examples=examples(25))
@given(st.lists(REQUESTS, min_size=1, max_size=12))
def test_any_admin_request_is_answered_and_the_node_continues(asked: list[dict[str, Any]]) -> None:
    async def talk(process: NodeProcess, ask: Asking) -> None:
        for request in asked:
            answer = await ask(json.dumps(request).encode())
            assert answer["ok"] or answer["error"].count("\n") == 0
        assert process.waits_for() is None

    node_with(talk)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (json.dumps(PERFORM | {"name": "\ud800"}), "not valid JSON: 'utf-8' codec can't encode"),
        (json.dumps(PERFORM | {"args": [10**400]}), "counter_pn.increment"),
        (json.dumps(PERFORM | {"args": json.loads("[" * 900 + "]" * 900)}), "counter_pn.increment"),
        (json.dumps(PERFORM | {"name": "x" * 17_000_000, "args": [1]}), "fit into a frame"),
        (json.dumps({"do": "evict", "members": ["b"], "seconds": 10**400}), "not a member"),
        (json.dumps({"do": "evict", "members": []}), "members to evict"),
        (json.dumps({"do": "evict", "members": "b"}), "give a list of texts"),
        (json.dumps({"do": "withdraw", "members": ["b"]}), "has not asked to evict b"),
        ("{" * 100_000, "not valid JSON"),
        ("nonsense", "not valid JSON"),
    ],
)
def test_invalid_admin_request_is_refused_with_one_line(line: str, expected: str) -> None:
    async def talk(process: NodeProcess, ask: Asking) -> None:
        answer = await ask(line.encode())
        assert answer["ok"] is False and expected in answer["error"]
        assert process.waits_for() is None

    assert len(line) < LONGEST
    node_with(talk)


def test_comparison_that_cannot_start_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def talk(process: NodeProcess, ask: Asking) -> None:
        def full(payload: bytes) -> Any:
            raise StoreFullError("cannot store more")

        with monkeypatch.context() as filled:
            filled.setattr(process.member, "tcbroadcast", full)
            answer = await ask(b'{"do": "verify"}')
        assert answer == {"ok": False, "error": "cannot store more"}
        assert (await ask(b'{"do": "verify"}'))["result"]["equal"]
        comparing = process.objects().machine.comparing
        comparing.ask("1", ["a"])
        comparing.forget()
        with pytest.raises(CrdtcastError, match="nothing was compared"):
            comparing.end("1")

    node_with(talk)
