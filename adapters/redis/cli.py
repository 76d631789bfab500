"""`crdtcast gateway`: options in, one `ready` line out, a clear message and an exit code at the end."""

from __future__ import annotations

import os
from pathlib import Path

import click
import trio

from crdtcast.adapters.redis.gateway import Gateway, GatewayOptions
from crdtcast.adapters.redis.probes import serve_probes
from crdtcast.adapters.redis.server import ServerAddress
from crdtcast.exceptions import ConfigurationError
from crdtcast.jsonlog import log_to_stderr
from crdtcast.options import Address, NodeOptions, format_address, parse_address
from crdtcast.proof import read_secret
from crdtcast.running import run_until_signal


def parse_peer(text: str) -> tuple[str, Address]:
    """`name=host:port`. Raises ConfigurationError for anything else."""
    name, equals, address = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(
            f"{text!r} is no peer: write NAME=HOST:PORT, for example us=127.0.0.1:7001"
        )
    return name, parse_address(address)


@click.command()
@click.option("--name", required=True, help="This node's name; unique in the group.")
@click.option("--group", default="default", show_default=True, help="The group to replicate in.")
@click.option(
    "--listen",
    default="127.0.0.1:6380",
    show_default=True,
    help="Where clients connect, HOST:PORT; port 0 takes a free one.",
)
@click.option(
    "--peer-listen",
    default="127.0.0.1:7380",
    show_default=True,
    help="Where the other gateways connect, HOST:PORT.",
)
@click.option("--peer", "peers", multiple=True, help="Each other member, NAME=HOST:PORT.")
@click.option(
    "--server",
    default="redis://127.0.0.1:6379",
    show_default=True,
    help="The Redis or Valkey server beside this gateway, redis://[user:password@]HOST:PORT.",
)
@click.option(
    "--state-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the small local file that must survive the server.",
)
@click.option(
    "--log-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the event log that `crdtcast audit` reads; none without it.",
)
@click.option(
    "--metadata-db",
    default=15,
    show_default=True,
    type=click.IntRange(1),
    help="The server's database for our metadata.",
)
@click.option(
    "--password",
    envvar="CRDTCAST_PASSWORD",
    help="What clients must AUTH with. Better given as CRDTCAST_PASSWORD in the environment.",
)
@click.option(
    "--digest-interval",
    type=float,
    help="Seconds between two digests: stability lag against traffic. Without it, adaptive.",
)
@click.option(
    "--certificate",
    type=click.Path(path_type=Path),
    help="This gateway's certificate (PEM), which names it; with --key and --ca: TLS between all gateways.",
)
@click.option("--key", type=click.Path(path_type=Path), help="The certificate's private key (PEM).")
@click.option("--ca", type=click.Path(path_type=Path), help="The group's own CA (PEM).")
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    help="A file with the group's shared secret; without it CRDTCAST_SECRET in the environment counts.",
)
@click.option("--cut", multiple=True, help="Start with the link to this peer cut.")
@click.option("--admin", is_flag=True, help="Allow CRDTCAST CUT, HEAL and ADVANCE: for tests.")
@click.option("--clock-offset", default=0, help="Milliseconds added to the clock: for tests.")
@click.option(
    "--metrics", metavar="HOST:PORT", help="Where /metrics, /ready and /live are served over HTTP."
)
@click.option("--verbose", is_flag=True, help="Log links that come and go.")
@click.option("--log-json", is_flag=True, help="Log lines as JSON objects.")
def gateway(
    name: str,
    group: str,
    listen: str,
    peer_listen: str,
    peers: tuple[str, ...],
    server: str,
    state_dir: Path,
    log_dir: Path | None,
    metadata_db: int,
    password: str | None,
    digest_interval: float | None,
    certificate: Path | None,
    key: Path | None,
    ca: Path | None,
    secret_file: Path | None,
    cut: tuple[str, ...],
    admin: bool,
    clock_offset: int,
    metrics: str | None,
    verbose: bool,
    log_json: bool,
) -> None:
    """Replicate a Redis or Valkey server: clients connect to this gateway instead of the server."""
    log_to_stderr(name, "info" if verbose else "warning", as_json=log_json)
    if peers and len(dict(map(parse_peer, peers))) < len(peers):
        raise ConfigurationError("a peer's name is given twice: each member has its own")
    options = GatewayOptions(
        node=NodeOptions(
            name=name,
            group=group,
            listen=parse_address(peer_listen),
            peers=dict(map(parse_peer, peers)),
            cut=frozenset(cut),
            digest_interval=digest_interval,
            certificate=certificate,
            key=key,
            ca=ca,
            secret=read_secret(secret_file),
        ),
        listen=parse_address(listen),
        server=ServerAddress.parse(server),
        state_dir=state_dir,
        log_dir=log_dir,
        metadata_db=metadata_db,
        password=password,
        admin_commands=admin,
    )
    runner = Gateway(options)
    runner.clock.offset_ms = clock_offset
    trio.run(_main, runner, None if metrics is None else parse_address(metrics))


async def _main(runner: Gateway, metrics: Address | None) -> None:
    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            if metrics is not None:
                await nursery.start(serve_probes, runner, metrics)
            await nursery.start(runner.run)
            assert runner.node is not None
            engine = runner.committer.engine
            print(
                f"ready name={runner.options.node.name} listen={format_address(runner.address)} "
                f"peer={format_address(runner.node.address)} "
                f"incarnation={engine.me if engine is not None else ''}",
                flush=True,
            )

    try:
        await run_until_signal(serve)
    except OSError as error:
        where = getattr(error, "filename", None) or ""
        raise ConfigurationError(
            f"cannot listen: {os.strerror(error.errno or 0)} {where}"
        ) from error
