"""`crdtcast config`: what a configuration file says, before it is used."""

import json
from pathlib import Path
from typing import Any

import click

from crdtcast.exceptions import ConfigurationError
from crdtcast.service.cli import FILE, loaded
from crdtcast.service.configuration import Loaded, keys_in, options_of, without_passwords
from crdtcast.service.settings import NodeSettings


@click.group()
def config() -> None:
    """Check a configuration before you use it."""


@config.command()
@click.argument("file", type=FILE)
@click.option("--redis", "gateway", is_flag=True, help="The file is for `crdtcast redis`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(file: Path, gateway: bool, as_json: bool) -> None:
    """Print every option that `crdtcast node --config FILE` would use, with its source, or every error in FILE.

    With --redis: the same for `crdtcast redis --config FILE`.
    """
    kind = _gateway_settings() if gateway else NodeSettings
    found: Loaded[Any] = loaded(kind, file, {})
    if not gateway and (of_gateways := _of_gateways(file)):
        raise ConfigurationError(f"{file} is a gateway's file (it sets {of_gateways}): add --redis")
    keys = [each.key for each in options_of(kind)]
    if as_json:
        click.echo(
            json.dumps(
                {
                    "ok": not found.wrong,
                    "wrong": found.wrong,
                    "notes": found.notes,
                    "options": {
                        key: {
                            "value": without_passwords(key, found.values.get(key)),
                            "from": found.sources.get(key),
                        }
                        for key in keys
                    },
                }
            )
        )
    else:
        for line in found.wrong:
            click.echo(f"error: {line}", err=True)
        for line in found.notes:
            click.echo(f"note: {line}", err=True)
        if not found.wrong:
            for key in keys:
                value = json.dumps(without_passwords(key, found.values[key]))
                click.echo(f"{key} = {value}  # {found.sources[key]}")
    if found.wrong:
        raise SystemExit(2)


def _gateway_settings() -> type[Any]:
    """Imported when it is needed: a machine with nodes only lacks what gateways need."""
    from crdtcast.adapters.redis.settings import GatewaySettings

    return GatewaySettings


def _of_gateways(file: Path) -> str:
    """Keys in a file that only gateways have; empty if there are none, if the file cannot be read, or if this machine
    lacks what gateways need.
    """
    own = {each.key for each in options_of(NodeSettings)}
    try:
        theirs = {each.key for each in options_of(_gateway_settings())} - own
    except ModuleNotFoundError:
        return ""
    return ", ".join(sorted(theirs & keys_in(file)))
