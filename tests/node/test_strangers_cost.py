"""What strangers may cost: no line of the log that is about a peer, and two places of members for each contact."""

import logging
from dataclasses import replace

import pytest
import trio
import trio.testing

from crdtcast.causality.member_id import base_of, name_of
from crdtcast.exceptions import NotReadyError
from crdtcast.group.join_server import check_crowd
from crdtcast.testing import eventually, simulated
from crdtcast.wire.frames import Hello, encode
from tests.node.fixed import group, incarnation
from tests.node.group_support import LedgerHost, world

HELLO = Hello(group="default", name="b", incarnation=incarnation("b"), process=b"stranger")


@simulated
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("says", ["hello", "another group's hello", "nonsense"])
async def test_thousand_strangers_suppress_no_log_line_about_peers(
    says: str, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with group("a", "b", node={"a": {"logger": logging.getLogger("a")}}) as (
        network,
        members,
    ):
        a = members["a"]
        await eventually(lambda: a.linked() == {"b"})
        caplog.clear()
        for number in range(1100):
            name = f"zz{number}"
            hello = replace(HELLO, name=name, incarnation=incarnation(name))
            if says.startswith("another"):
                hello = replace(hello, shared=True, group=f"group{number}")
            near, far = trio.testing.memory_stream_pair()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(a.node.links().accept, far)
                await near.send_all(b"GET /%d" % number if says == "nonsense" else encode(hello))
                if waits:
                    while await near.receive_some():
                        pass
                await near.aclose()
        assert len([r for r in caplog.records if r.name == "a"]) <= 2
        network.cut("b")  # nobody can be dialled any more
        a.node.links().restart("the test says so")
        await eventually(lambda: any("cannot reach b" in line for line in caplog.messages))
        assert any("link with b is down" in line for line in caplog.messages)


@simulated
async def test_contact_with_two_unheard_joiners_redirects_the_next() -> None:
    async with world("a", "b", "c") as present:
        a, b = present.up["a"], present.up["b"]
        await eventually(lambda: a.member.engine.unheard == b.member.engine.unheard == ())
        for name in ("d", "e"):  # they ask to be let in, and are never heard of again
            engine = a.member.engine
            engine.admit(
                incarnation(name),
                covered=dict(engine.vector),
                copied_from=engine.me,
                reads=engine.reads,
            )
            a.member.channel.after()
        assert {name_of(i) for i in a.member.engine.unheard} == {"d", "e"}
        with pytest.raises(NotReadyError, match="has admitted d, e"):
            check_crowd(a.member.engine, "f.1")
        check_crowd(a.member.engine, base_of(a.member.engine.unheard[0]))  # it asks again
        check_crowd(b.member.engine, "f.1")
        await (await present.start("f", "a")).join()
        await eventually(lambda: {"d", "e", "f"} <= names(b))
        for name in ("d", "e"):
            a.member.evict(name)
        await eventually(lambda: names(a) == names(b) == {"a", "b", "c", "f"})
        assert a.member.engine.unheard == ()


def names(host: LedgerHost) -> set[str]:
    return set(map(name_of, host.member.engine.members))
