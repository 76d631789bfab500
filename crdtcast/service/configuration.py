"""Options from a command line, the environment, a TOML file and their defaults, in this order of precedence.

The options are the fields of a dataclass, each made by `option`. Reports every error, not only the first.
"""

import enum
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

from crdtcast.causality.member_id import valid_name
from crdtcast.exceptions import ConfigurationError
from crdtcast.option_checks import nearest
from crdtcast.private_files import check_private
from crdtcast.quantities import seconds, size
from crdtcast.transport.options import parse_address

PREFIX = "CRDTCAST_"
"""Prefix of the environment variables: `CRDTCAST_LISTEN` is `listen`."""
_ELSEWHERE = {
    PREFIX + name for name in ("SECRET", "CONFIG", "ADMIN", "EFFORT", "SEED", "RECORD", "DEV_DIR")
}
"""Our variables that are not options of a member."""
_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off"}

S = TypeVar("S")


class OptionKind(enum.Enum):
    """The type of an option; its value is shown in a command's help."""

    TEXT = "TEXT"
    ADDRESS = "HOST:PORT"
    ADDRESSES = "HOST:PORT,…"
    NAMES = "NAME,…"
    NAMED_ADDRESSES = "NAME=HOST:PORT,…"
    PATH = "PATH"
    FLAG = "yes|no"
    SECONDS = "DURATION"
    BYTES = "SIZE"
    NUMBER = "NUMBER"


def option(kind: OptionKind, about: str, default: Any = MISSING, *, letter: str = "") -> Any:
    """A field of a dataclass of options. about: one sentence. Without a default the option is required.

    letter: for the command line, of an option that people type.
    """
    metadata = {"kind": kind, "about": about, "letter": letter}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a dataclass."""

    key: str
    kind: OptionKind
    about: str
    default: Any
    letter: str = ""

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return "--" + self.key.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.key.upper()

    @property
    def required(self) -> bool:
        return self.default is MISSING


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """The result of `load`.

    settings: None if there is an error.
    sources: where each value comes from.
    wrong: all errors.
    notes: what is valid, but looks like a mistake.
    """

    settings: S | None
    values: Mapping[str, Any]
    sources: Mapping[str, str]
    wrong: tuple[str, ...]
    notes: tuple[str, ...]

    def get(self) -> S:
        """The settings. Raises ConfigurationError, in one line, if there is an error."""
        if self.settings is None:
            raise ConfigurationError("; ".join(self.wrong))
        return self.settings


def options_of(kind: type[Any]) -> list[Option]:
    """The options of the dataclass."""
    return [
        Option(
            each.name,
            each.metadata["kind"],
            each.metadata["about"],
            each.default,
            each.metadata["letter"],
        )
        for each in fields(kind)
    ]


def load(
    kind: type[S],
    file: Path | None = None,
    *,
    given: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Loaded[S]:
    """The settings, from these sources. given: from the command line; None stands for an omitted option.

    A class may check its values together: its `wrong()` returns lines. Never raises UnusableInputError: a file that
    cannot be read is an error like any other.
    """
    options = options_of(kind)
    values: dict[str, Any] = {o.key: o.default for o in options if not o.required}
    sources = dict.fromkeys(values, "default")
    wrong: list[str] = []
    unusable: set[str] = set()
    is_whole = True

    def take(source: str, found: Mapping[str, Any], name: Callable[[Option], str]) -> None:
        for each in options:
            if found.get(each.key) is None:
                continue
            try:
                values[each.key] = _read(each.kind, found[each.key])
                sources[each.key] = source
            except ConfigurationError as error:
                sources.setdefault(each.key, source)
                unusable.add(each.key)
                wrong.append(f"{name(each)}: {error}")

    if file is not None:
        table, trouble = _table(file)
        if table is None:
            table, is_whole = {}, False
        wrong += trouble
        wrong += [_unknown(str(file), key, options) for key in table if not _is_in(key, options)]
        take(str(file), table, lambda o: f"{o.key} in {file}")
    variables = {o.key: environment[o.variable] for o in options if environment.get(o.variable)}
    take("environment", variables, lambda o: o.variable)
    take("command line", given or {}, lambda o: o.flag)
    if not is_whole:  # missing options may be in the file
        return Loaded(None, values, sources, tuple(wrong), tuple(_unused(environment, options)))
    wrong += [_missing(o, file) for o in options if o.required and o.key not in sources]
    settings = None
    if all(o.key in values for o in options):
        settings = kind(**values)
        check = getattr(settings, "wrong", None)
        # A line about a value that could not be read may be wrong for that reason alone.
        wrong += [
            line
            for line in (check() if check is not None else [])
            if not any(re.search(rf"\b{key}\b", line) for key in unusable)
        ]
    return Loaded(
        None if wrong else settings,
        values,
        sources,
        tuple(wrong),
        tuple(_unused(environment, options)),
    )


def without_passwords(key: str, value: Any) -> Any:
    """The value of an option for display, without any password, also in an address."""
    if key == "password" and value is not None:
        return "***"
    if not isinstance(value, str):
        return value
    return re.sub(r"((//[^:@/]*:)[^@/]*(?=@))|([?&]password=)[^&]*", r"\2\3***", value)


def keys_in(file: Path) -> set[str]:
    """The keys that a file sets; empty if it cannot be read."""
    try:
        return set(tomllib.loads(file.read_text()))
    except (OSError, ValueError, RecursionError):
        return set()


def _missing(each: Option, file: Path | None) -> str:
    """The error for a required option without a value."""
    if file is not None:
        return f"{each.key} is missing: set it in the file, as {each.variable} or {each.flag}"
    flag = f"-{each.letter} ({each.flag})" if each.letter else each.flag
    return f"{flag} is missing: give it, or set {each.variable}"


def with_flags(line: str, options: Iterable[Option]) -> str:
    """An error about options with their names on the command line. A key that is also an English word is one only at
    the beginning, after a word that options follow, or next to another one.
    """
    flags = {o.key: o.flag for o in options}
    key = rf"(?:{'|'.join(sorted(flags, key=len, reverse=True))})\b"
    values = {" = true": "", ' = ["host:port"]': " host:port"}
    values[' = {name = "host:port", …}'] = " name=host:port,…"
    for written, typed in values.items():
        line = re.sub(
            rf"(?:\bset )?\b({key}){re.escape(written)}",
            lambda found, typed=typed: flags[found[1]] + typed,  # type: ignore[misc]
            line,
        )
    rows = rf"(^|\b(?:set|needs?|with|invalid|excludes?) )({key}(?:(?:,| and| or| \(or) {key})*)"
    line = re.sub(rows, lambda found: found[1] + re.sub(key, lambda k: flags[k[0]], found[2]), line)
    return re.sub(rf"(?<![-\w]){key}", lambda k: flags[k[0]] if "_" in k[0] else k[0], line)


def _table(file: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The content of the file, None if it cannot be read; and the errors in it."""
    try:
        table = tomllib.loads(file.read_text())
        if any(isinstance(v, str) and without_passwords(key, v) != v for key, v in table.items()):
            check_private(file, "a password")
    except OSError as error:
        return None, [f"cannot read {file}: {error.strerror}: correct the path"]
    except ConfigurationError as error:
        return table, [str(error)]
    except (ValueError, RecursionError) as error:  # too long numbers and too deep lists, too
        return None, [f"{file} is not valid TOML: {error}"]
    return table, []


def _is_in(key: str, options: Iterable[Option]) -> bool:
    return any(key == o.key for o in options)


def _unknown(where: str, key: str, options: list[Option]) -> str:
    line = f"unknown option {key} in {where}"
    near = nearest(key.replace("-", "_"), [o.key for o in options])
    return f"{line}, did you mean {near}?" if near else f"{line}: remove it"


def _unused(environment: Mapping[str, str], options: list[Option]) -> list[str]:
    """Variables that look like a typing error: other programs of ours use the prefix, too."""
    names = [o.variable for o in options]
    found = []
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in names and variable not in _ELSEWHERE:
            near = nearest(variable, names, likeness=0.8)
            if near:
                found.append(f"{variable} is set but unused: did you mean {near}?")
    return found


def _read(kind: OptionKind, value: Any) -> Any:
    """A value, given in TOML's type or as text. Raises ConfigurationError if it is invalid."""
    match kind:
        case OptionKind.TEXT | OptionKind.PATH if isinstance(value, str) and value:
            return value
        case OptionKind.ADDRESS if isinstance(value, str):
            parse_address(value)
            return value
        case OptionKind.ADDRESSES:
            listed = value.split(",") if isinstance(value, str) else value
            if isinstance(listed, (list, tuple)) and all(isinstance(each, str) for each in listed):
                for each in listed:
                    parse_address(each.strip())
                return tuple(each.strip() for each in listed)
        case OptionKind.NAMED_ADDRESSES:
            if isinstance(value, dict):
                value = [f"{name}={address}" for name, address in value.items()]
            listed = [value] if isinstance(value, str) else value
            if isinstance(listed, (list, tuple)) and all(isinstance(each, str) for each in listed):
                return tuple(
                    _named_address(one.strip()) for each in listed for one in each.split(",")
                )
        case OptionKind.NAMES:
            listed = value.split(",") if isinstance(value, str) else value
            if isinstance(listed, (list, tuple)) and all(isinstance(each, str) for each in listed):
                return tuple(each.strip() for each in listed)
        case OptionKind.FLAG if isinstance(value, bool):
            return value
        case OptionKind.FLAG if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
            return value.lower() in _TRUE
        case OptionKind.SECONDS:
            return seconds(value)
        case OptionKind.BYTES:
            return size(value)
        case OptionKind.NUMBER if not isinstance(value, bool):
            number = _number(value)
            if number is not None:
                return number
        case _:
            pass
    raise ConfigurationError(f"{value!r:.300} is not a {_NAMES[kind]}")


def _named_address(text: str) -> str:
    name, equals, address = text.partition("=")
    if not equals or not valid_name(name):
        raise ConfigurationError(f"{text!r:.300} is not a named address: write name=host:port")
    parse_address(address)
    return text


def _number(value: Any) -> int | None:
    try:
        number = int(str(value))
    except ValueError:
        return None
    return number if 0 <= number < 2**31 else None


_NAMES = {
    OptionKind.TEXT: "text",
    OptionKind.ADDRESS: "valid address: write host:port",
    OptionKind.ADDRESSES: 'list of addresses: write host:port, in a file ["host:port", …]',
    OptionKind.NAMED_ADDRESSES: 'list of named addresses: write name=host:port, in a file {name = "host:port", …}',
    OptionKind.NAMES: 'list of names: in a file ["name", …]',
    OptionKind.PATH: "path",
    OptionKind.FLAG: "flag: write true or false",
    OptionKind.NUMBER: "whole number",
}
