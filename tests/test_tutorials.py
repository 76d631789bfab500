"""The tutorials, as their readers do them."""

from pathlib import Path

import pytest

from tests import tutorials

PAGES = sorted((tutorials.ROOT / "docs").glob("tutorial-*.md"))

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tutorial_shows_what_it_says(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    tutorials.run(page, tmp_path)


def test_tutorial_that_shows_something_else_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tutorials, "PATIENCE", 0.5)
    page = tmp_path / "page.md"
    page.write_text("```console\na$ echo 7001; cat\na> one\none\n$ echo two\ntwo\na: three\n```\n")
    with pytest.raises(AssertionError, match=r"a does not show 'three', but\n\d+\none"):
        tutorials.run(page, tmp_path)
