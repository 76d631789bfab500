"""`crdtcast version`: which program this is, and which formats it reads and writes."""

import importlib.metadata
import json
import platform
from typing import Any

import click

from crdtcast.engine.level import PROGRAM
from crdtcast.eventlog.format import SCHEMA_VERSION
from crdtcast.journal.format import FORMAT
from crdtcast.wire.frames import OLDEST_VERSION, PROTOCOL_VERSION

_PACKAGES = (
    "trio",
    "msgpack",
    "click",
    "redis",
    "hiredis",
    "zstandard",
    "prometheus_client",
    "pyspark",
)


def program_version() -> str:
    """The version of the installed distribution."""
    return importlib.metadata.version("crdtcast")


def describe() -> dict[str, Any]:
    """The program, its platform, its formats, and the packages that are installed."""
    return {
        "version": program_version(),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        # `platform.platform()` starts a process, and reports less.
        "platform": "-".join((platform.system(), platform.release(), platform.machine())),
        "formats": formats(),
        "packages": dict(_installed()),
    }


def formats() -> dict[str, Any]:
    """See docs/formats.md. A pair is the lowest and the highest. Those of gateways need what gateways need."""
    return {
        "wire": [OLDEST_VERSION, PROTOCOL_VERSION],
        "journal": FORMAT,
        "event_log": SCHEMA_VERSION,
        "level": list(PROGRAM),
        **_of_gateways(),
    }


def _of_gateways() -> dict[str, Any]:
    try:
        from crdtcast.adapters.redis.store import effects, local_file, metadata
    except ModuleNotFoundError as missing:
        if missing.name != "hiredis":
            raise
        return {}
    return {
        "gateway_level": list(effects.READS),
        "gateway_metadata": metadata.FORMAT,
        "gateway_file": local_file.FORMAT,
    }


def _installed() -> list[tuple[str, str]]:
    found = []
    for name in _PACKAGES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def version(as_json: bool) -> None:
    """Print the version of this program, and the formats that it reads and writes."""
    found = describe()
    if as_json:
        click.echo(json.dumps(found))
        return
    click.echo(f"crdtcast {found['version']} (Python {found['python']}, {found['platform']})")
    for key, value in found["formats"].items():
        shown = "-".join(map(str, value)) if isinstance(value, list) else value
        click.echo(f"{key.replace('_', ' ')}: {shown}")
    click.echo(
        "with " + ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    )
