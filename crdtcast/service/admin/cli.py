"""The commands that query or change a running node: `crdtcast status`, `members`, `verify`, `repair`, `evict`, …"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import trio

from crdtcast.exceptions import UnusableInputError
from crdtcast.service.admin import views
from crdtcast.service.admin.client import find, operator
from crdtcast.wire.auth import read_secrets

F = TypeVar("F", bound=Callable[..., Any])

_FORCE_WARNING = (
    "{members} will be evicted even without a majority. If it is alive, or if members beyond a "
    "network cut do the same, the group becomes DISPUTED: both sides take writes and do not meet "
    "again until you give one side up with `crdtcast surrender`. Data that only {members} "
    "holds returns only with that member. Do this only if you know that it is dead."
)
_WANTED = "the eviction stays requested; `crdtcast evict --withdraw` takes it back"


def asks(command: F) -> F:
    """Give a command the options `--node`, `--admin` and `--secret-file`, which `Where` takes."""
    options = (
        click.option(
            "--node",
            metavar="NAME",
            help="The node on this machine to ask; GROUP.NAME if the name is ambiguous.",
        ),
        click.option(
            "--admin",
            metavar="PATH|HOST:PORT",
            envvar="CRDTCAST_ADMIN",
            help="The node's admin socket or address, if it is not the default one.",
        ),
        click.option(
            "--secret-file",
            type=click.Path(dir_okay=False, path_type=Path),
            envvar="CRDTCAST_SECRET_FILE",
            help="File with the group's secret, for HOST:PORT; default: CRDTCAST_SECRET.",
        ),
    )
    for decorate in reversed(options):
        command = decorate(command)
    return command


as_json: Callable[[F], F] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON value."
)


class Where:
    """The node to ask."""

    def __init__(self, node: str | None, admin: str | None, secret_file: Path | None) -> None:
        self.place: str = find(node, admin)
        self.secrets: tuple[bytes, ...] = read_secrets(secret_file)

    def ask(self, do: str, **more: Any) -> Any:
        """Send one request. See `Operator.ask`. What it waits for is printed on stderr."""

        async def once() -> Any:
            async with operator(self.place, self.secrets) as node:
                return await node.ask(do, tell=lambda said: click.echo(said, err=True), **more)

        return trio.run(once)


def _print(found: Any, as_json: bool, view: Callable[[Any], str]) -> None:
    click.echo(json.dumps(found) if as_json else view(found))


def _confirm(question: str, options: str) -> None:
    """Continue only if the operator says yes. A script must use the options instead."""
    if not sys.stdin.isatty():
        raise UnusableInputError(f"add {options} to confirm: there is no terminal to ask on")
    click.confirm(question, abort=True, err=True)


@click.command()
@asks
@as_json
def status(as_json: bool, **where: Any) -> None:
    """Show the state of a node: membership, messages, storage, and links."""
    _print(Where(**where).ask("status"), as_json, views.status)


@click.command()
@asks
@as_json
def members(as_json: bool, **where: Any) -> None:
    """Show the members of the group: votes, pending changes, silent members, members that hold stability back."""
    _print(Where(**where).ask("members"), as_json, views.members)


@click.command()
@asks
@click.option(
    "--seconds", default=30.0, show_default=True, help="How long to wait for all members."
)
@as_json
def verify(seconds: float, as_json: bool, **where: Any) -> None:
    """Compare the objects or keys of all members, while writes go on.

    Exit code 1 if any differ.
    """
    found = Where(**where).ask("verify", seconds=seconds)
    _print(found, as_json, views.verification)
    if not found["equal"]:
        raise SystemExit(1)


@click.command()
@click.argument("key", required=False)
@click.option(
    "--from",
    "source",
    metavar="NAME",
    help="The member whose values are right.",
)
@click.option(
    "--db", type=click.IntRange(0), metavar="N", help="The database of KEY.  [default: 0]"
)
@asks
@as_json
def repair(
    key: str | None, source: str | None, db: int | None, as_json: bool, **where: Any
) -> None:
    """Repair KEY in a gateway's server, or all its keys, from the states of the other members.

    For keys that were changed directly in the server: deleted, renamed, flushed, or overwritten. Without --from, the
    value of the majority wins; without a majority, no data is lost. Writes may go on. Exit code 1 if some keys still
    differ.
    """
    if db is not None and key is None:
        raise click.UsageError("--db needs a KEY: without a KEY all keys are repaired")
    found = Where(**where).ask("repair", key=key, source=source, db=db)
    _print(found, as_json, views.repaired)
    if found["left"]:
        raise SystemExit(1)


def _timeout(command: F) -> F:
    return click.option(
        "--timeout",
        type=click.FloatRange(0),
        metavar="SECONDS",
        help=(
            "Stop waiting after this time; the request stays.  [default: wait until the group "
            "decides]"
        ),
    )(command)


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1)
@click.option(
    "--withdraw",
    is_flag=True,
    help="Take back all evictions that this node requested, or that of NAME.",
)
@click.option(
    "--force", is_flag=True, help="Evict without a majority: may split the group permanently."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation of --force.")
@_timeout
@asks
@as_json
def evict(
    names: tuple[str, ...],
    withdraw: bool,
    force: bool,
    yes: bool,
    timeout: float | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Remove dead or unreachable members from the group, in one change.

    NAME is a member's name or incarnation. The group decides when all other members have answered and a majority
    agrees. Name all members that are dead, since the decision waits for every other one. Nothing else stops
    meanwhile. An evicted member that comes back joins again by itself, and sends again what the group does not have.
    """
    at = Where(**where)
    if withdraw:
        if force:
            raise click.UsageError("--withdraw and --force exclude each other")
        _print(at.ask("withdraw", members=names), as_json, views.withdrawn)
        return
    if not names:
        raise click.UsageError("give the names of the members to evict")
    if force and not yes:
        members = ", ".join(names)
        click.echo(_FORCE_WARNING.format(members=members), err=True)
        _confirm(f"Evict {members} by force?", "--yes with --force")
    try:
        found = at.ask("evict", members=names, force=force, seconds=timeout)
    except KeyboardInterrupt:
        click.echo(_WANTED, err=True)
        raise SystemExit(130) from None
    _print(
        found,
        as_json,
        lambda f: f"evicted: {', '.join(f['evicted'])}; members: {', '.join(f['members'])}",
    )


@click.command()
@click.option(
    "--plain", is_flag=True, help="A gateway: remove its metadata, so that a plain server is left."
)
@asks
@as_json
def leave(plain: bool, as_json: bool, **where: Any) -> None:
    """Make a node leave its group in order and stop. The other members then have all its data.

    Prints "left"; or "left, not confirmed" (the group has decided, but too few members are known to know it); or the
    members that it waited for without success.
    """
    _print(Where(**where).ask("leave", plain=plain), as_json, views.departure)


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@asks
@as_json
def surrender(yes: bool, as_json: bool, **where: Any) -> None:
    """Give up this node's side of a DISPUTED or SPLIT group. The node then joins the other side.

    Data that is stable on this side alone is lost.
    """
    if not yes:
        _confirm("Data that is stable on this side alone is LOST. Give it up?", "--yes")
    _print(
        Where(**where).ask("surrender"),
        as_json,
        lambda _: "given up: this node joins the other side",
    )


@click.command(name="raise")
@click.argument("level", type=click.IntRange(1), required=False)
@_timeout
@asks
@as_json
def raise_(level: int | None, timeout: float | None, as_json: bool, **where: Any) -> None:
    """Raise the group's format level to LEVEL, or as far as all members can read.

    From then on the group may use the features of newer programs, and no member can go back to a program that does
    not read the level. Refused while some member, even an absent one, cannot read it.
    """
    found = Where(**where).ask("raise", level=level, seconds=timeout)
    _print(found, as_json, lambda f: f"the group now uses format level {f['level']}")


@click.command()
@asks
@click.option("--every", default=1.0, show_default=True, help="Seconds between two updates.")
@click.option("--rounds", type=click.IntRange(1), help="Stop after this many updates.")
@as_json
def top(every: float, rounds: int | None, as_json: bool, **where: Any) -> None:
    """Show a live view of a node: rates, links, silent members.

    With --json: one status a line.
    """
    from crdtcast.service.admin.top import watch

    at = Where(**where)
    try:
        trio.run(watch, at.place, at.secrets, every, rounds, as_json)
    except KeyboardInterrupt:
        raise SystemExit(0) from None


@click.group(name="object")
def object_() -> None:
    """Read and change the objects of a node."""


@object_.command(name="list")
@click.argument("prefix", default="")
@asks
@as_json
def list_(prefix: str, as_json: bool, **where: Any) -> None:
    """List the objects whose names begin with PREFIX."""
    _print(Where(**where).ask("objects", prefix=prefix), as_json, views.objects)


@object_.command()
@click.argument("name")
@asks
@as_json
def get(name: str, as_json: bool, **where: Any) -> None:
    """Print the value of an object."""
    found = Where(**where).ask("get", name=name)
    _print(found, as_json, lambda f: f"{json.dumps(f['value'])}  ({f['type']})")


@object_.command()
@click.argument("name")
@click.argument("type_name", metavar="TYPE")
@click.argument("operation")
@click.argument("args", nargs=-1)
@click.option(
    "--wait", help='Wait until the operation is "stable", or until this many members have it.'
)
@asks
@as_json
def do(
    name: str,
    type_name: str,
    operation: str,
    args: tuple[str, ...],
    wait: str | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Execute an operation on an object, for example: crdtcast object do cart set_aw add milk

    Each argument is JSON, or else a plain word.
    """
    found = Where(**where).ask(
        "perform",
        name=name,
        type=type_name,
        operation=operation,
        args=[_argument(each) for each in args],
        wait=None if wait is None else _argument(wait),
    )
    _print(found, as_json, lambda f: f"done: message {f['tag'][1]} of {f['tag'][0]}")


@object_.command()
@click.argument("name")
@asks
@as_json
def delete(name: str, as_json: bool, **where: Any) -> None:
    """Delete the content of an object, as far as this node has seen it."""
    found = Where(**where).ask("delete", name=name)
    _print(found, as_json, lambda f: f"done: message {f['tag'][1]} of {f['tag'][0]}")


def _argument(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
