"""The `crdtcast` command.

A subcommand's module is imported only when that subcommand runs. A missing extra gives one line that says what to
install; an error of ours gives one line and exit code 2. Neither prints a traceback.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, NoReturn

import click

from crdtcast.exceptions import expected_failure
from crdtcast.option_checks import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Subcommand:
    """Where a subcommand is, and the extra that installs what it imports."""

    module: str
    attribute: str
    extra: str
    summary: str


def _operators(attribute: str, summary: str) -> Subcommand:
    return Subcommand(
        module="crdtcast.service.admin.cli", attribute=attribute, extra="cli", summary=summary
    )


SUBCOMMANDS: Mapping[str, Subcommand] = {
    "audit": Subcommand(
        module="crdtcast.integrations.spark.cli",
        attribute="audit",
        extra="spark",
        summary="Check the replicas' event logs with Spark and write a report.",
    ),
    "chaos": Subcommand(
        module="crdtcast.chaos.cli",
        attribute="chaos",
        extra="cli",
        summary=(
            "Run real processes under injected faults; check that no write is lost, duplicated "
            "or different."
        ),
    ),
    "check": Subcommand(
        module="crdtcast.eventlog.check.cli",
        attribute="check",
        extra="cli",
        summary="Check the replicas' event logs against the protocol's definitions, without Spark.",
    ),
    "config": Subcommand(
        module="crdtcast.commands.config",
        attribute="config",
        extra="cli",
        summary="Check a configuration file of `crdtcast node` or `crdtcast redis`.",
    ),
    "conformance": Subcommand(
        module="crdtcast.conformance.cli",
        attribute="conformance",
        extra="conformance,redis,embedded",
        summary="Run scenario files against real gateways and servers.",
    ),
    "demo": Subcommand(
        module="crdtcast.demo.cli",
        attribute="demo",
        extra="all",
        summary="Run three replicated servers, write to all of them, and audit the result.",
    ),
    "evict": _operators("evict", "Remove dead or unreachable members from the group."),
    "leave": _operators("leave", "Make a running node or gateway leave its group and stop."),
    "members": _operators(
        "members", "Show the members of the group: votes, pending changes, silent members."
    ),
    "node": Subcommand(
        module="crdtcast.service.cli",
        attribute="node",
        extra="cli",
        summary="Run a member of a group, with replicated objects.",
    ),
    "object": _operators("object_", "Read and change the objects of a running node."),
    "simulate": Subcommand(
        module="crdtcast.simulator.cli",
        attribute="simulate",
        extra="cli",
        summary="Run simulated groups of the causal engine against an oracle.",
    ),
    "status": _operators(
        "status", "Show the state of a running node or gateway, and of its links."
    ),
    "raise": _operators("raise_", "Raise the format level of the group."),
    "redis": Subcommand(
        module="crdtcast.adapters.redis.cli",
        attribute="redis",
        extra="redis",
        summary="Replicate a Redis or Valkey server; clients connect to its gateway.",
    ),
    "repair": _operators("repair", "Repair keys that were changed directly in a server."),
    "surrender": _operators("surrender", "Give up this node's side of a DISPUTED or SPLIT group."),
    "top": _operators("top", "Show a live view of a running node or gateway."),
    "vectors": Subcommand(
        module="crdtcast.testing.vectors.cli",
        attribute="vectors",
        extra="conformance",
        summary="Check the data types against files of expected values.",
    ),
    "version": Subcommand(
        module="crdtcast.commands.version",
        attribute="version",
        extra="cli",
        summary="Print the version, and the formats that this program reads and writes.",
    ),
    "verify": _operators("verify", "Compare the objects or keys of all members of the group."),
    "witness": Subcommand(
        module="crdtcast.service.cli",
        attribute="witness",
        extra="cli",
        summary="Run a member that votes and stores messages, but holds no objects.",
    ),
}


class OneLineError(click.ClickException):
    """An expected failure: one line on stderr, exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the message, folded into one line, to `file` (default: stderr)."""
        click.echo("crdtcast: " + " ".join(self.format_message().split()), file=file, err=True)


class LazyGroup(click.Group):
    """A click group that knows its subcommands by name and summary, and imports one only to run
    it.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, sorted."""
        return sorted(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand. Raises OneLineError if what it needs is not installed."""
        where = SUBCOMMANDS.get(cmd_name)
        if where is None:
            return None
        try:
            command = getattr(importlib.import_module(where.module), where.attribute)
        except ModuleNotFoundError as missing:
            raise_missing_extra(cmd_name, missing)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand. Raises UsageError, with the nearest name, if there is none."""
        name = args[0]
        near = nearest(name, SUBCOMMANDS) if name[:1].isalpha() else None
        if name not in SUBCOMMANDS and near is not None:
            ctx.fail(f"no such command {name!r}: did you mean {near}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the summaries without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUBCOMMANDS[name].summary) for name in sorted(SUBCOMMANDS)])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; our own errors, also those grouped by Trio, become one line."""
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as missing:
            raise_missing_extra(ctx.invoked_subcommand or "", missing)
        except BaseException as error:
            if (expected := expected_failure(error)) is None:
                raise
            raise OneLineError(expected) from error


_EXTRA_WITH = {"hiredis": "redis"}
"""Where a subcommand needs more for some of its options than for others."""


def raise_missing_extra(name: str, missing: ModuleNotFoundError) -> NoReturn:
    """Say which extra the subcommand `name` lacks.

    A module of our own that is missing is a broken installation, not a missing extra: that error
    is raised again.
    """
    module = (missing.name or "").partition(".")[0]
    if module in ("", "crdtcast") or name not in SUBCOMMANDS:
        raise missing
    raise OneLineError(
        f"`crdtcast {name}` needs the module {module!r}, which is not installed: "
        f"pip install 'crdtcast[{_EXTRA_WITH.get(module, SUBCOMMANDS[name].extra)}]'"
    ) from missing


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="crdtcast", prog_name="crdtcast")
def main() -> None:
    """Multi-master replication for Redis, Valkey and Python programs.

    Start with `crdtcast demo`, which shows all of it in one run.
    """
