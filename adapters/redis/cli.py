"""`crdtcast gateway`: options in, one `ready` line out, a clear message and an exit code at the end."""

from __future__ import annotations

from pathlib import Path

import click
import trio

from crdtcast.adapters.redis.belonging import GroupOptions
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
@click.option(
    "--peer",
    "peers",
    multiple=True,
    help="Each other member, NAME=HOST:PORT, of a group whose members are fixed.",
)
@click.option(
    "--found",
    is_flag=True,
    help="Be the first member of a group whose members come and go; the others --join.",
)
@click.option(
    "--join",
    "contacts",
    multiple=True,
    help="Where any member of such a group can be dialled, HOST:PORT; the others are learned.",
)
@click.option(
    "--replaces",
    multiple=True,
    help="With --join: a member that is lost for good, by name; it is evicted with the join.",
)
@click.option(
    "--advertise",
    help="Where the other gateways reach this one, HOST:PORT, if --peer-listen is a wildcard.",
)
@click.option(
    "--leave-on-stop",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="On SIGTERM, leave the group first; stop without that after so many seconds.",
)
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
    found: bool,
    contacts: tuple[str, ...],
    replaces: tuple[str, ...],
    advertise: str | None,
    leave_on_stop: float | None,
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
    member = None
    if found or contacts:
        member = GroupOptions(
            founds=found,
            replaces=replaces,
            advertise=None if advertise is None else parse_address(advertise),
            leave_within=leave_on_stop,
        )
    _refuse_mixed(found, contacts, peers, member, (replaces, advertise, leave_on_stop))
    options = GatewayOptions(
        node=NodeOptions(
            name=name,
            group=group,
            listen=parse_address(peer_listen),
            peers=(
                dict(map(parse_peer, peers))
                if member is None
                else list(map(parse_address, contacts))
            ),
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
        member=member,
        admin_commands=admin,
    )
    runner = Gateway(options)
    runner.clock.offset_ms = clock_offset
    trio.run(_main, runner, None if metrics is None else parse_address(metrics))


def _refuse_mixed(
    found: bool,
    contacts: tuple[str, ...],
    peers: tuple[str, ...],
    member: GroupOptions | None,
    of_members: tuple[object, ...],
) -> None:
    """Raises ConfigurationError for options that do not go together."""
    if found and contacts:
        raise ConfigurationError(
            "give --found to the first member of a new group, and --join to all others"
        )
    if member is not None and peers:
        raise ConfigurationError(
            "--peer names the members of a fixed group; with --found and --join they are learned"
        )
    if member is None and any(of_members):
        raise ConfigurationError(
            "--replaces, --advertise and --leave-on-stop are for groups whose members come and go: "
            "give --join (or --found), too"
        )
    if found and of_members[0]:
        raise ConfigurationError("--replaces goes with --join: a founder is the first member")


async def _main(runner: Gateway, metrics: Address | None) -> None:
    async def run(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
        await runner.run(task_status=task_status)
        scope.cancel()  # it has left its group: nothing is left to be told of it

    async def serve() -> None:
        async with trio.open_nursery() as nursery:
            if metrics is not None:
                await nursery.start(serve_probes, runner, metrics)
            await nursery.start(run, nursery.cancel_scope)
            assert runner.node is not None
            engine = runner.committer.engine
            print(
                f"ready name={runner.options.node.name} listen={format_address(runner.address)} "
                f"peer={format_address(runner.node.address)} "
                f"incarnation={engine.me if engine is not None else ''}",
                flush=True,
            )

    await run_until_signal(serve, before_stop=runner.leave_first)
