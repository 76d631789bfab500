"""Nodes in this process: what a joiner tells of itself until it is ready, and how it ends."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import trio

from crdtcast.causality.member_id import wall_clock_ms
from crdtcast.datatypes import LWWRegister
from crdtcast.exceptions import NotReadyError
from crdtcast.service.admin.probes import Probes
from crdtcast.service.run import NodeProcess
from crdtcast.service.settings import NodeSettings
from tests.operations.test_requests import until_ready


def node(where: Path, name: str, *, fast_ms: int = 0, **options: Any) -> NodeProcess:
    """fast_ms: how far its clock is ahead."""
    given = {"listen": "127.0.0.1:0", "admin": str(where / f"{name}.sock"), **options}
    return NodeProcess(NodeSettings(name=name, **given), clock_ms=lambda: wall_clock_ms() + fast_ms)


async def scraped(process: NodeProcess, path: str) -> str:
    """What a probe gets."""
    probes = Probes(
        process.settings.name,
        process.settings.group,
        waits_for=process.waits_for,
        status=process.status,
        gauges=process.gauges,
    )
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(probes.serve, far)
        await near.send_all(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        return b"".join([piece async for piece in near]).decode()


def test_joiner_reports_its_progress_and_is_not_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        eu = node(tmp_path, "eu", found=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(eu.run)
            await until_ready(eu)
            eu.objects().perform(("large", "register_lww"), "assign", "x" * 3 * 2**20)
            host, port = eu.member.address
            us = node(tmp_path, "us", join=(f"{host}:{port}",))
            assert "is not in group 'default' yet" in await scraped(us, "/ready")
            assert 'crdtcast_ready{group="default",node="us"} 0.0' in await scraped(us, "/metrics")
            with pytest.raises(NotReadyError):
                us.status()
            nursery.start_soon(us.run)
            await until_ready(us)
            here, of = us.copied
            assert here == of > 3 * 2**20
            sample = re.search(r"crdtcast_copied_bytes{.*} (.*)", await scraped(us, "/metrics"))
            assert sample is not None and float(sample[1]) == of
            us.stop()
            assert us.waits_for() == "node 'us' is stopping"
            eu.stop()

    with caplog.at_level(logging.INFO):
        trio.run(main)
    told = [line for line in caplog.messages if "bytes of the group's state" in line]
    assert 2 <= len(told) <= 11


def test_timestamps_far_ahead_are_refused_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        eu = node(tmp_path, "eu", found=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(eu.run)
            await until_ready(eu)
            host, port = eu.member.address
            us = node(tmp_path, "us", fast_ms=3_600_000, join=(f"{host}:{port}",))
            nursery.start_soon(us.run)
            await until_ready(us)
            tag = us.objects().perform(("x", "register_lww"), "assign", 1)
            await us.member.wait_delivered(tag, count=2)
            x = eu.objects().object("x", LWWRegister)
            assert x.value == 1, "the write itself counts"
            found = re.search(
                r"crdtcast_clock_drift_refused_total{.*} (.*)", await scraped(eu, "/metrics")
            )
            assert found is not None and float(found[1]) == eu.status().clock_drift_refused == 1
            assert "a timestamp of us is 3,600 s ahead of this machine's clock" in caplog.text
            us.stop()
            eu.stop()

    trio.run(main)
