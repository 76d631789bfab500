"""The commands that ask a running node: `crdtcast status`, `members`, `verify`, `repair`, `evict`, `leave`, …"""

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
    "{members} will be evicted even without a majority. If it is alive, or others beyond a cut are, and they do "
    "the same, the group is DISPUTED: both sides take writes, and never meet again until one side is given "
    "up with `crdtcast surrender`. What nobody here has of it comes back only with {members} itself. "
    "Do this only if you know that it is dead."
)
_WANTED = "it stays wanted; `crdtcast evict --withdraw` takes it back"


def asks(command: F) -> F:
    """Give a command the options that say which node to ask; `place` and `secret` are what it gets."""
    options = (
        click.option(
            "--node",
            metavar="NAME",
            help="Which node of this machine; GROUP.NAME if there are two.",
        ),
        click.option(
            "--admin",
            metavar="PATH|HOST:PORT",
            envvar="CRDTCAST_ADMIN",
            help="Where it listens for operators, unless that is the usual place.",
        ),
        click.option(
            "--secret-file",
            type=click.Path(dir_okay=False, path_type=Path),
            envvar="CRDTCAST_SECRET_FILE",
            help="The group's secret, for HOST:PORT; otherwise CRDTCAST_SECRET.",
        ),
    )
    for decorate in reversed(options):
        command = decorate(command)
    return command


as_json = click.option("--json", "as_json", is_flag=True, help="One JSON value.")


class Where:
    """Which node to ask."""

    def __init__(self, node: str | None, admin: str | None, secret_file: Path | None) -> None:
        self.place = find(node, admin)
        self.secrets = read_secrets(secret_file)

    def ask(self, do: str, **more: Any) -> Any:
        """One request. See `Operator.ask`. What it waits for is told on stderr."""

        async def once() -> Any:
            async with operator(self.place, self.secrets) as node:
                return await node.ask(do, tell=lambda said: click.echo(said, err=True), **more)

        return trio.run(once)


def _print(found: Any, as_json: bool, view: Callable[[Any], str]) -> None:
    click.echo(json.dumps(found) if as_json else view(found))


def _confirm(question: str, options: str) -> None:
    """Go on only if the operator says yes. A script has to give the options instead."""
    if not sys.stdin.isatty():
        raise UnusableInputError(f"give {options} if you are sure: nobody is here to ask")
    click.confirm(question, abort=True, err=True)


@click.command()
@asks
@as_json
def status(as_json: bool, **where: Any) -> None:
    """What a node is, holds and lacks, and how its links are."""
    _print(Where(**where).ask("status"), as_json, views.status)


@click.command()
@asks
@as_json
def members(as_json: bool, **where: Any) -> None:
    """Who is in the group and has a vote, what is about to be decided, who is silent or holds stability back."""
    _print(Where(**where).ask("members"), as_json, views.members)


@click.command()
@asks
@click.option("--seconds", default=30.0, show_default=True, help="How long to wait for all.")
@as_json
def verify(seconds: float, as_json: bool, **where: Any) -> None:
    """Compare the objects, or keys, of all members, while everybody goes on writing. Exit code 1 if any differ."""
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
    help="The member whose values are right, for all that differs.",
)
@click.option(
    "--db", type=click.IntRange(0), metavar="N", help="The database of KEY.  [default: 0]"
)
@asks
@as_json
def repair(
    key: str | None, source: str | None, db: int | None, as_json: bool, **where: Any
) -> None:
    """Put KEY of a gateway's server right, or all its keys, from the states that the other members hold.

    For what was changed past a gateway: deleted, renamed, flushed, overwritten. Without --from, what most members hold
    is right, and of two members nothing is lost. Writers may go on. Exit code 1 if keys are left that differ.
    """
    if db is not None and key is None:
        raise click.UsageError("--db goes with KEY: without one all keys are put right")
    found = Where(**where).ask("repair", key=key, source=source, db=db)
    _print(found, as_json, views.repaired)
    if found["left"]:
        raise SystemExit(1)


def _timeout(command: F) -> F:
    return click.option(
        "--timeout",
        type=click.FloatRange(0),
        metavar="SECONDS",
        help="Do not wait for longer; it stays wanted.  [default: wait until it is decided]",
    )(command)


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1)
@click.option("--withdraw", is_flag=True, help="Take it back: all that this node wants, or NAME.")
@click.option("--force", is_flag=True, help="Without a majority: may split the group for good.")
@click.option("--yes", is_flag=True, help="Do not ask before --force.")
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
    """Put members out that are dead or out of reach, in one change, by their names or incarnations.

    It is decided when all others have said what they have of them and a majority agrees; name all that are gone, since
    it waits for everybody else. Nothing is stopped while it only waits. Whoever comes back after that joins again by
    itself, and sends again what the group does not have.
    """
    at = Where(**where)
    if withdraw:
        if force:
            raise click.UsageError("--withdraw does not go with --force")
        _print(at.ask("withdraw", members=names), as_json, views.withdrawn)
        return
    if not names:
        raise click.UsageError("name whom to evict")
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
@asks
@as_json
def leave(as_json: bool, **where: Any) -> None:
    """Let a node leave its group, in order, and stop: the others have all that it had.

    It says "left", "left, not confirmed" (it is decided, and too few of the others are known to know it), or whom it
    has waited for in vain.
    """
    _print(Where(**where).ask("leave"), as_json, views.departure)


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
@as_json
def surrender(yes: bool, as_json: bool, **where: Any) -> None:
    """Where a group is DISPUTED or SPLIT: give this node's side up. It joins the other one again.

    What had become stable on this side alone is lost.
    """
    if not yes:
        _confirm("What is stable on this side alone is LOST. Give it up?", "--yes")
    _print(Where(**where).ask("surrender"), as_json, lambda _: "given up: it joins the other side")


@click.command(name="raise")
@click.argument("level", type=click.IntRange(1), required=False)
@_timeout
@asks
@as_json
def raise_(level: int | None, timeout: float | None, as_json: bool, **where: Any) -> None:
    """Raise the group's format level, to LEVEL or as far as all members read.

    From then on the group may use what later programs have brought in, and none of its members can go back to a
    program that does not read that. Refused as long as a member does not read it, one that is away included.
    """
    found = Where(**where).ask("raise", level=level, seconds=timeout)
    _print(found, as_json, lambda f: f"the group uses format level {f['level']}")


@click.command()
@asks
@click.option("--every", default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("--rounds", type=click.IntRange(1), help="Stop after so many looks.")
@as_json
def top(every: float, rounds: int | None, as_json: bool, **where: Any) -> None:
    """A live view of a node: rates, links, who is silent. With --json one status a line."""
    from crdtcast.service.admin.top import watch

    at = Where(**where)
    try:
        trio.run(watch, at.place, at.secrets, every, rounds, as_json)
    except KeyboardInterrupt:
        raise SystemExit(0) from None


@click.group(name="object")
def object_() -> None:
    """Read and change the objects that a node holds."""


@object_.command(name="list")
@click.argument("prefix", default="")
@asks
@as_json
def list_(prefix: str, as_json: bool, **where: Any) -> None:
    """The objects whose names begin with PREFIX."""
    _print(Where(**where).ask("objects", prefix=prefix), as_json, views.objects)


@object_.command()
@click.argument("name")
@asks
@as_json
def get(name: str, as_json: bool, **where: Any) -> None:
    """The value of an object."""
    found = Where(**where).ask("get", name=name)
    _print(found, as_json, lambda f: f"{json.dumps(f['value'])}  ({f['type']})")


@object_.command()
@click.argument("name")
@click.argument("type_name", metavar="TYPE")
@click.argument("operation")
@click.argument("args", nargs=-1)
@click.option("--wait", help='"stable", or by how many members it must have been taken.')
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
    """An operation: `crdtcast object do cart set_aw add milk`. An argument is JSON, or a word."""
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
    """Delete what the node has seen of an object."""
    found = Where(**where).ask("delete", name=name)
    _print(found, as_json, lambda f: f"done: message {f['tag'][1]} of {f['tag'][0]}")


def _argument(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
