"""What the documentation says is there is there: examples, links, commands."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crdtcast.cli import SUBCOMMANDS

CITING = ("crdtcast.adapters.redis", "crdtcast.datatypes", "crdtcast.conformance")
ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_anchors_are_headings(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text()):
        if "://" not in target:
            headings = anchors(page.parent / target if target else page)
            assert anchor in headings, f"{page.name} links to {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_short_but_in_tables(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    for page in ROOT.glob("docs/*.md"):
        assert page.name == "index.md" or f"]({page.name})" in index


def test_readme_shows_the_embedding_example_verbatim() -> None:
    readme = (ROOT / "README.md").read_text()
    example = (ROOT / "examples" / "embedding.py").read_text()
    assert f"<!-- examples/embedding.py -->\n```python\n{example}```" in readme


def test_every_house_rule_that_the_code_cites_is_explained() -> None:
    rules = (ROOT / "docs" / "redis-rules.md").read_text()
    explained = set(re.findall(r"^\| \*\*(H\d+)\*\* \| \S", rules, flags=re.MULTILINE))
    folders = [Path(importlib.import_module(name).__file__ or "").parent for name in CITING]
    cited = {
        rule
        for folder in folders
        for file in folder.rglob("*.py")
        for rule in re.findall(r"\bH\d+\b", file.read_text())
    }
    assert cited and cited <= explained, cited - explained


def test_the_subcommands_that_the_pages_show_exist() -> None:
    shown = {
        name
        for page in PAGES
        for name in re.findall(r"crdtcast ([a-z]+)\b", "\n".join(code_of(page)))
    }
    assert shown and shown <= SUBCOMMANDS.keys()


def code_of(page: Path) -> list[str]:
    """Blocks and spans of code that are commands."""
    text = page.read_text()
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [block for language, block in fenced if not language] + re.findall(
        r"`(crdtcast [a-z]+[^`]*)`", text
    )


@pytest.mark.process
@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.name)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", example],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    # A replica that ends while bytes are on their way to it breaks the link: the log of another one may tell.
    said = [
        line for line in done.stderr.splitlines() if " is down: the connection broke: " not in line
    ]
    assert (done.returncode, said) == (0, [])
    assert done.stdout


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("crdtcast.")
    for top in ("crdtcast", "adapters", "datatypes", "integrations")
    for path in (ROOT / top).rglob("*.py")
}
"""Without the package's name in front."""
PACKAGES = {module.removesuffix(".__init__") for module in MODULES if module.endswith(".__init__")}


def unknown_modules(text: str) -> set[str]:
    """What a text names in backticks like a module of a package, `engine.stability`, and is neither that nor in it."""
    found = set()
    for name in re.findall(r"`(?:crdtcast\.)?([a-z_]+(?:\.[a-z_]+)+)`", text):
        package, _, last = name.rpartition(".")
        if package not in PACKAGES or name in {*MODULES, *PACKAGES}:
            continue
        if not hasattr(importlib.import_module(f"crdtcast.{package}"), last):
            found.add(name)
    return found


def test_docstrings_name_existing_modules() -> None:
    tops = [ROOT / top for top in ("crdtcast", "adapters", "datatypes", "integrations")]
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for top in tops
        for path in top.rglob("*.py")
        for name in unknown_modules(path.read_text())
    }
    assert wrong == {"crdtcast/transport/channel.py: engine.me"}, "an attribute of an engine"


def test_docstring_with_a_missing_module_is_found() -> None:
    text = "see `engine.pasts`, `crdtcast.engine.stability`, `engine.GroupEngine` and `crdtcast.engine`"
    assert unknown_modules(text) == {"engine.pasts"}
