"""`crdtcast node`, `crdtcast witness` and `crdtcast config`: options in, one `ready` line out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import trio

from crdtcast.configuration import Kind, Loaded, load, options_of
from crdtcast.jsonlog import log_to_stderr
from crdtcast.service.settings import NodeSettings

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(dir_okay=False, path_type=Path)


def takes_settings(command: F) -> F:
    """Give a command `--config` and an option for each setting; those not given are None."""
    for each in reversed(options_of(NodeSettings)):
        about = each.about
        if not each.required and each.default not in (None, (), False):
            about += f"  [default: {each.default}]"
        if each.kind is Kind.FLAG:
            decorate = click.option(
                f"{each.flag}/--no-{each.flag[2:]}", each.key, default=None, help=about
            )
        else:
            many = each.kind in (Kind.ADDRESSES, Kind.NAMES)
            decorate = click.option(
                each.flag,
                each.key,
                multiple=many,
                default=None,
                metavar=each.kind.value.removesuffix(",…"),
                help=about + ("  May be repeated." if many else ""),
            )
        command = decorate(command)
    return click.option(
        "--config", "file", type=_FILE, envvar="CRDTCAST_CONFIG", help="A TOML file of options."
    )(command)


def _loaded(file: Path | None, given: dict[str, Any]) -> Loaded[NodeSettings]:
    return load(NodeSettings, file, given={k: v for k, v in given.items() if v not in (None, ())})


@click.command()
@takes_settings
def node(file: Path | None, **given: Any) -> None:
    """Run one member of a group, with replicated objects that `crdtcast object` reads and changes.

    Every option may also stand in the file of --config (listen, log_json, …) and in the environment
    (CRDTCAST_LISTEN, …). The command line comes before the environment, that before the file.
    """
    loaded = _loaded(file, given)
    settings = loaded.get()
    log_to_stderr(settings.name, settings.log_level, as_json=settings.log_json)
    from crdtcast.service.run import NodeProcess

    trio.run(NodeProcess(settings).run)


@click.command()
@takes_settings
@click.pass_context
def witness(ctx: click.Context, /, file: Path | None, **given: Any) -> None:
    """Run a member that votes and stores, and holds no objects: `crdtcast node --witness`.

    For the third place beside two regions: with it, either region may be lost and the rest is a
    majority.
    """
    ctx.invoke(node, file=file, **{**given, "witness": True})


@click.group()
def config() -> None:
    """Look at a configuration before it is used."""


@config.command()
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def check(file: Path, as_json: bool) -> None:
    """Print what `crdtcast node --config FILE` would use here, and from where; or all that is wrong."""
    loaded = _loaded(file, {})
    keys = [each.key for each in options_of(NodeSettings)]
    if as_json:
        click.echo(
            json.dumps(
                {
                    "ok": not loaded.wrong,
                    "wrong": loaded.wrong,
                    "notes": loaded.notes,
                    "options": {
                        key: {"value": loaded.values.get(key), "from": loaded.sources.get(key)}
                        for key in keys
                    },
                }
            )
        )
    else:
        for line in loaded.wrong:
            click.echo(f"wrong: {line}", err=True)
        for line in loaded.notes:
            click.echo(f"note: {line}", err=True)
        if not loaded.wrong:
            for key in keys:
                value = json.dumps(loaded.values[key])
                click.echo(f"{key} = {value}  # {loaded.sources[key]}")
    if loaded.wrong:
        raise SystemExit(2)
