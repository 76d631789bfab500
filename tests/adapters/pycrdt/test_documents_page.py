"""The samples of docs/pycrdt.md that are whole programs run, one after the other."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "pycrdt.md").read_text()
SAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_samples_for_trio_and_threads_share_one_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    in_trio, in_threads = (each for each in SAMPLES if "import" in each)
    for sample in (in_trio, in_threads):
        exec(compile(sample, "docs/pycrdt.md", "exec"), {"__name__": "sample"})
    assert capsys.readouterr().out == "hello\nhello again\n"
