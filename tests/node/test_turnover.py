"""Operators read in the log of any member who has come and gone, and how."""

import logging

import pytest

from crdtcast.causality.member_id import name_of
from crdtcast.testing import simulated
from tests.node.group_support import members_are, world


@simulated
async def test_each_member_logs_joins_leaves_and_evictions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "crdtcast"):
        async with world("a", "b", "c", "d") as group:
            a, b, c, d = group.up.values()
            await d.member.leave()
            await members_are(a.member, "a", "b", "c")
            group.crash(c.name)
            a.member.evict("c")
            await members_are(a.member, "a", "b")
            group.crash(b.name)
            a.member.evict("b", force=True)
            await members_are(a.member, "a")
    said = [
        (name_of(words[0]), " ".join(words[1:]))
        for words in (record.getMessage().split() for record in caplog.records)
        if "members are" in " ".join(words)
    ]
    for line in (
        ("b", "has joined group g; its members are a, b"),
        ("d", "has left group g; its members are a, b, c"),
        ("c", "was evicted from group g; its members are a, b"),
        ("b", "was evicted by force from group g; its members are a"),
    ):
        assert line in said, f"{line} is not among {said}"
    asked = [
        (name_of(words[0]), " ".join(words[1:-1]), words[-1])
        for words in map(str.split, caplog.messages)
        if "asks" in words
    ]
    assert asked == [
        ("d", "asks to", "leave"),  # d says so
        ("d", "asks to", "leave"),  # and a, b, c
        ("d", "asks to", "leave"),
        ("d", "asks to", "leave"),
        ("a", "asks to evict", "c"),
        ("a", "asks to evict", "c"),
    ]
    assert said.count(("b", "has joined group g; its members are a, b")) == 1, "b told it of itself"
