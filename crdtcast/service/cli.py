"""`crdtcast node` and `crdtcast witness`: options in, one `ready` line out."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
import trio

from crdtcast.exceptions import expected_failure
from crdtcast.quantities import size_text
from crdtcast.service.configuration import (
    Loaded,
    Option,
    OptionKind,
    load,
    options_of,
    with_flags,
)
from crdtcast.service.gc_tuning import rare_full_collections
from crdtcast.service.json_log import log_to_stderr
from crdtcast.service.settings import MemberSettings, NodeSettings

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")
M = TypeVar("M", bound=MemberSettings)
_LOGGER = logging.getLogger("crdtcast")
FILE = click.Path(dir_okay=False, path_type=Path)


class SectionedCommand(click.Command):
    """A command with many options: its help shows them in sections, what everybody needs first.

    sections: the options of each, by their keys; all others come last.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        left = {
            each.name: record
            for each in self.get_params(ctx)
            if (record := each.get_help_record(ctx)) is not None
        }
        for title, keys in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([left.pop(key) for key in keys])
        with formatter.section("Rarely needed"):
            formatter.write_dl([*left.values()])


def takes_settings(kind: type[Any]) -> Callable[[F], F]:
    """Give a command `--config` and an option for each setting of the class; omitted ones are None."""

    def decorated(command: F) -> F:
        return _with_options(command, kind)

    return decorated


def _with_options(command: F, kind: type[Any]) -> F:
    for each in reversed(options_of(kind)):
        about = each.about
        if not each.required and each.default not in (None, (), False):
            about += f"  [default: {_default(each)}]"
        if each.kind is OptionKind.FLAG:
            decorate = click.option(
                f"{each.flag}/--no-{each.flag[2:]}", each.key, default=None, help=about
            )
        else:
            many = each.kind in (OptionKind.ADDRESSES, OptionKind.NAMED_ADDRESSES, OptionKind.NAMES)
            names = (f"-{each.letter}", each.flag) if each.letter else (each.flag,)
            decorate = click.option(
                *names,
                each.key,
                multiple=many,
                default=None,
                metavar=each.kind.value.removesuffix(",…"),
                help=about + ("  May be repeated." if many else ""),
            )
        command = decorate(command)
    return click.option(
        "--config", "file", type=FILE, envvar="CRDTCAST_CONFIG", help="TOML file with options."
    )(command)


def _default(each: Option) -> str:
    """The default as a user may write it."""
    match each.kind:
        case OptionKind.BYTES:
            return size_text(each.default)
        case OptionKind.SECONDS:
            return f"{each.default:g} s"
        case _:
            return str(each.default)


def loaded(kind: type[S], file: Path | None, given: dict[str, Any]) -> Loaded[S]:
    """The settings from a command with `takes_settings`, and from the other sources."""
    found = load(kind, file, given={k: v for k, v in given.items() if v not in (None, ())})
    if file is not None:
        return found
    options = options_of(kind)
    return replace(found, wrong=tuple(with_flags(line, options) for line in found.wrong))


@contextmanager
def serving(kind: type[M], file: Path | None, given: dict[str, Any]) -> Iterator[M]:
    """The settings of a serving process, with its log set up. If the log is JSON, its last line is, too: why the
    process cannot start or continue (exit code 2), or the traceback of a bug (1).
    """
    found = loaded(kind, file, given)
    as_json = bool(found.values.get("log_json"))
    if as_json:
        log_to_stderr(found.values.get("name", ""), "info", as_json=True)
    try:
        settings = found.get()
        log_to_stderr(settings.name, settings.log_level, as_json=as_json)
        with rare_full_collections():
            yield settings
    except Exception as error:
        if not as_json:
            raise
        expected = expected_failure(error)
        if expected is None:
            _LOGGER.critical("a bug in crdtcast: please report it", exc_info=error)
            raise SystemExit(1) from error
        _LOGGER.critical(expected)
        raise SystemExit(2) from error


@click.command()
@takes_settings(NodeSettings)
def node(file: Path | None, **given: Any) -> None:
    """Run a member of a group, with replicated objects that `crdtcast object` reads and changes.

    You can also set every option in the file of --config (listen, log_json, …) and in the environment
    (CRDTCAST_LISTEN, …). The command line overrides the environment, and the environment the file.
    """
    with serving(NodeSettings, file, given) as settings:
        from crdtcast.service.run import NodeProcess

        trio.run(NodeProcess(settings).run)


@click.command()
@takes_settings(NodeSettings)
@click.pass_context
def witness(ctx: click.Context, /, file: Path | None, **given: Any) -> None:
    """Run a member that votes and stores messages, but holds no objects: `crdtcast node --witness`.

    Place it next to two regions, at a third site: when one region is lost, the other one and the witness are still a
    majority.
    """
    ctx.invoke(node, file=file, **{**given, "witness": True})
