"""The package is built in layers: imports point down, nothing for users needs the tools, nothing imports in a circle,
and no folder grows too long to read.

Reads the sources and imports none of them. The lists of exceptions may only shrink: one that is not needed any more
makes its test fail, too.
"""

import ast
import os
import tomllib
from collections.abc import Iterator, Mapping, Set
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

import crdtcast

LAYERS = (
    "exceptions extras phases short_repr backoff msgpack_limits quantities option_checks private_files ports"
    " child_processes",
    "causality",
    "engine",
    "wire",
    "journal",
    "transport",
    "fixed",
    "eventlog",
    "group",
    "datatypes",
    "replica",
    "aio sync",
    "testing",
    "integrations",
    "service",
    "adapters",
    "commands",
    "lowlevel cli handle_source __main__ crdtcast",
)
"""From the bottom to the top. An import points to a lower line, or stays in its own."""

TOOLS = frozenset({"simulator", "chaos", "conformance", "demo"})
"""Packages for developers and for demonstrations, beside the layers: they may import anything."""
NOT_FOR_USE = frozenset({*TOOLS, "testing", "tests", "benchmarks"})
TEST_KIT = ("testing", "integrations.pytest_plugin")

MOST_MODULES = 15
LONG_FOLDERS = {"datatypes", "engine"}


class Imports(NamedTuple):
    """What a module imports when it runs, also inside functions; and what only its annotations need."""

    at_run_time: set[str]
    for_types: set[str]


Edges: TypeAlias = Mapping[str, Set[str]]
"""Module -> modules that it imports."""


def files() -> Iterator[tuple[str, Path]]:
    """The modules of the package, without its name in front; the package itself is `crdtcast`."""
    top = Path(crdtcast.__file__).parent
    for folder, folders, names in os.walk(top, followlinks=True):
        folders[:] = [one for one in folders if one != "__pycache__"]
        for name in names:
            if name.endswith(".py"):
                path = Path(folder, name)
                *parents, last = path.relative_to(top).with_suffix("").parts
                parts = parents if last == "__init__" else [*parents, last]
                yield ".".join(parts) or "crdtcast", path


def imports_of(source: str, module: str, is_package: bool, modules: Set[str]) -> Imports:
    """The modules, and packages outside, that a source imports."""
    tree = ast.parse(source)
    typing = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
        for statement in block.body
        for node in ast.walk(statement)
    }
    package = f"crdtcast.{module}" if is_package else f"crdtcast.{module}".rpartition(".")[0]
    found = Imports(set(), set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        kind = found.for_types if id(node) in typing else found.at_run_time
        kind.update(target(name, modules) for name in names)
    return found


def target(name: str, modules: Set[str]) -> str:
    """The module that an import of this name means; outside of the package its first part."""
    top, _, inside = name.partition(".")
    if top != "crdtcast":
        return top
    while inside and inside not in modules:
        inside = inside.rpartition(".")[0]
    return inside or "crdtcast"


@cache
def house() -> dict[str, Imports]:
    """Each module of the package, with its imports."""
    paths = dict(files())
    return {
        module: imports_of(path.read_text(), module, path.name == "__init__.py", paths.keys())
        for module, path in paths.items()
    }


def edges(*, types: bool) -> Edges:
    """Who imports whom."""
    return {
        module: found.at_run_time | found.for_types if types else found.at_run_time
        for module, found in house().items()
    }


def upward(graph: Edges) -> set[str]:
    """The imports that point to a higher layer."""
    rank = {part: height for height, line in enumerate(LAYERS) for part in line.split()}

    def height(module: str) -> int | None:
        return rank.get(module.partition(".")[0])

    return {
        f"{module} -> {imported}"
        for module, imports in graph.items()
        for imported in imports
        if (own := height(module)) is not None
        and (other := height(imported)) is not None
        and own < other
    }


def use_of_tools(graph: Edges) -> set[str]:
    """The imports of tools and of what is for tests, in what users run."""
    return {
        f"{module} -> {imported}"
        for module, imports in graph.items()
        if module.partition(".")[0] not in TOOLS
        if not any(f"{module}.".startswith(f"{kit}.") for kit in TEST_KIT)
        for imported in imports
        if imported.partition(".")[0] in NOT_FOR_USE
    }


def cycles(graph: Edges) -> set[str]:
    """The largest groups of modules that all reach each other by imports."""
    reach = {module: reached(module, graph) for module in graph}
    return {
        " ".join(sorted(other for other in reach[module] if module in reach[other]))
        for module in graph
        if module in reach[module]
    }


def reached(module: str, graph: Edges) -> set[str]:
    """All that a module imports, directly or through others."""
    found: set[str] = set()
    ahead = [module]
    while ahead:
        new = {one for one in graph[ahead.pop()] if one in graph} - found
        found |= new
        ahead += new
    return found


def long_folders(modules: Set[str]) -> set[str]:
    """The folders with too many modules; those that are packages do not count."""
    inside: dict[str, int] = {}
    for module in modules:
        folder, _, name = module.rpartition(".")
        is_package = any(other.startswith(f"{module}.") for other in modules)
        if not is_package and name not in ("__main__", "crdtcast"):
            inside[folder] = inside.get(folder, 0) + 1
    return {folder for folder, count in inside.items() if count > MOST_MODULES}


def test_every_package_and_module_at_the_top_has_its_layer() -> None:
    known = {*TOOLS, *" ".join(LAYERS).split()}
    assert {module.partition(".")[0] for module in house()} == known


def test_every_package_is_in_the_distributions() -> None:
    root = Path(crdtcast.__file__).parent
    with open(root.parent / "pyproject.toml", "rb") as file:
        listed = tomllib.load(file)["tool"]["setuptools"]["packages"]
    walked = os.walk(root, followlinks=True)
    folders = [Path(folder) for folder, _, files in walked if "__init__.py" in files]
    assert sorted(listed) == sorted(
        ".".join(each.relative_to(root.parent).parts) for each in folders
    )


def test_imports_point_down() -> None:
    assert upward(edges(types=True)) == set()


def test_user_code_imports_no_tools() -> None:
    assert use_of_tools(edges(types=True)) == set()


@pytest.mark.parametrize("types", [False, True], ids=["run", "types"])
def test_no_modules_import_each_other(types: bool) -> None:
    assert cycles(edges(types=types)) == set()


def test_no_folder_is_too_long_to_read() -> None:
    assert long_folders(house().keys()) == LONG_FOLDERS


def test_a_planted_fault_is_found() -> None:
    graph = {
        "wire.frames": {"group.member", "causality.tags", "exceptions"},
        "group.member": {"group.open", "simulator", "testing.kit", "msgpack"},
        "group.open": {"wire.frames", "group.member", "tests"},
        "testing.kit": {"simulator", "testing.kit"},
        "simulator": {"testing.kit"},
        "exceptions": {"crdtcast"},
    }
    assert upward(graph) == {
        "wire.frames -> group.member",
        "group.member -> testing.kit",
        "exceptions -> crdtcast",
    }
    assert use_of_tools(graph) == {
        "group.member -> simulator",
        "group.member -> testing.kit",
        "group.open -> tests",
    }
    assert cycles(graph) == {"group.member group.open wire.frames", "simulator testing.kit"}
    many = {f"wire.{number}" for number in range(16)}
    assert long_folders({"wire", "wire.0.deeper", *many}) == set()
    assert long_folders({"wire", *many}) == {"wire"}


def test_imports_are_found_at_any_depth() -> None:
    source = """
import os, crdtcast.wire.frames
from typing import TYPE_CHECKING
from crdtcast import exceptions, Engine
from crdtcast.wire import encoder, VERSION
from .open import open_member
if TYPE_CHECKING:
    from crdtcast.group.member import Member
else:
    import benchmarks.node
def late() -> None:
    from crdtcast.group import status
"""
    modules = {"wire", "wire.frames", "wire.encoder", "exceptions", "group", "group.open"} | {
        "group.member",
        "group.status",
    }
    at_run_time, for_types = imports_of(source, "group.limits", False, modules)
    assert for_types == {"group.member"}
    assert at_run_time == {
        *("os", "typing", "benchmarks", "crdtcast", "exceptions"),
        *("wire", "wire.frames", "wire.encoder", "group.open", "group.status"),
    }
