"""`crdtcast redis`: options in, one `ready` line out, a clear message and an exit code at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import trio

from crdtcast.adapters.redis.gateway import Gateway
from crdtcast.adapters.redis.ops.operating import Operated, serve_operators
from crdtcast.adapters.redis.ops.probes import GatewayProbes, serve_probes
from crdtcast.adapters.redis.settings import SECTIONS, GatewaySettings
from crdtcast.group.running import run_until_signal
from crdtcast.service.admin import sockets
from crdtcast.service.cli import SectionedCommand, serving, takes_settings
from crdtcast.service.level_policy import raise_when_all_read_more
from crdtcast.service.supervisor import Supervisor
from crdtcast.transport.options import Address, format_address, parse_address


@click.command(cls=SectionedCommand, sections=SECTIONS, name="redis")
@takes_settings(GatewaySettings)
def redis(file: Path | None, **given: Any) -> None:
    """Replicate a Redis or Valkey server: clients connect to this gateway instead of the server.

    \b
    The first region:      crdtcast redis -n eu --found
    Each further region:   crdtcast redis -n us -j HOST:7380

    You can also set every option in the file of --config (listen, log_json, …) and in the environment
    (CRDTCAST_LISTEN, …). The command line overrides the environment, and the environment the file.
    """
    with serving(GatewaySettings, file, given) as settings:
        runner = Gateway(settings.gateway_options())
        runner.clock.offset_ms = settings.clock_offset
        trio.run(_main, runner, settings)


async def _main(runner: Gateway, settings: GatewaySettings) -> None:
    probes = GatewayProbes(runner)
    supervisor = Supervisor()
    operated = Operated(runner, probes, settings.leave_seconds)

    async def run(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
        await runner.run(task_status=task_status)
        await operated.answered()
        scope.cancel()  # the gateway has left its group, and the operator has the answer

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(supervisor.keep_alive)
            metrics = ""
            if settings.metrics is not None:
                address = parse_address(settings.metrics)
                bound: Address = await nursery.start(serve_probes, runner, probes, address)
                metrics = format_address(bound)
            await nursery.start(serve_operators, operated, settings)
            try:
                await nursery.start(run, nursery.cancel_scope)
                assert runner.node is not None
                engine = runner.committer.engine
                supervisor.ready()
                print(
                    f"ready name={settings.name} listen_clients={format_address(runner.address)} "
                    f"listen={format_address(runner.node.address)} admin={settings.admin_place} "
                    f"metrics={metrics} incarnation={engine.me if engine is not None else ''}",
                    flush=True,
                )
                if settings.evict_after is not None:
                    from crdtcast.service.run import evict_the_silent  # with all data types

                    nursery.start_soon(evict_the_silent, operated, settings.evict_after)
                if settings.is_open and settings.raise_after > 0:
                    nursery.start_soon(raise_when_all_read_more, operated, settings.raise_after)
                await trio.sleep_forever()
            finally:
                sockets.remove(settings.admin_place)

    async def before_stop() -> None:
        supervisor.stopping()
        await runner.leave_first()

    await run_until_signal(serve, before_stop=before_stop)
