"""The commands that README shows for members as processes."""

import re
import shlex
from contextlib import ExitStack
from pathlib import Path

import pytest

from crdtcast.ports import free_ports
from tests import preloaded
from tests.operations.processes import Running, killed_at_the_end

README = Path(__file__).parents[2] / "README.md"
HEADING = "## Run members as processes\n"


@pytest.mark.process
def test_readme_commands_run_on_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = README.read_text().split(HEADING)[1].split("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", section, flags=re.DOTALL | re.MULTILINE)
    text = "".join(blocks)
    for shown, port in zip(("7001", "7002", "7003"), free_ports(3), strict=True):
        assert f":{shown}" in text
        text = text.replace(f":{shown}", f":{port}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    sockets = tmp_path / "crdtcast"
    sockets.mkdir(mode=0o700)
    nodes: list[Running] = []
    printed = []
    with ExitStack() as stack:
        for line in text.splitlines():
            program, subcommand, *words = shlex.split(line)
            assert program == "crdtcast"
            if subcommand == "node":
                name = words[words.index("--name") + 1]
                admin = str(sockets / f"default.{name}.sock")  # where one is without --admin
                nodes.append(Running(tmp_path, name, *words, "--admin", admin))
                stack.enter_context(killed_at_the_end(nodes[-1]))
            if subcommand != "node" or "--join" in words:
                for node in nodes:
                    if not node.ready:
                        node.wait_ready()
            if subcommand != "node":
                done = preloaded.crdtcast(subcommand, *words)
                assert done.returncode == 0, (line, done.stderr)
                printed.append(done.stdout)
    assert '["milk"]' in printed[1], printed
    assert [name in printed[2] for name in ("asia", "eu", "us")] == [True] * 3, printed
