"""`python -m crdtcast.simulator`, faults by name, and files of schedules."""

import json

import pytest

from crdtcast.exceptions import ConfigurationError, UnusableInputError
from crdtcast.simulator.__main__ import main
from crdtcast.simulator.faults import Faults
from crdtcast.simulator.schedule import GroupSchedule

NO_CONTEXT = "tests.simulator.mutants:NoContext"


class TestCommandLine:
    def test_a_clean_campaign(self, capsys):
        assert main(["--seeds", "0:4", "--members", "3", "--json"]) == 0
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (last["runs"], last["failures"]) == (5, 0)
        assert last["delivered"] > 0

    def test_a_failure_is_shrunk_written_and_replayed(self, capsys, tmp_path):
        arguments = ["--seeds", "0:9", "--faults", "reorder", "--engine", NO_CONTEXT]
        assert main([*arguments, "--write", str(tmp_path), "--json"]) == 1
        output = capsys.readouterr().out
        assert json.loads(output.splitlines()[-1])["failures"] > 0
        written = sorted(tmp_path.iterdir())
        assert written
        assert str(written[0]) in output
        assert main(["--replay", str(written[0])]) == 1
        assert "1 runs, 1 failures" in capsys.readouterr().out

    def test_invalid_arguments_exit_with_code_2(self, capsys, tmp_path):
        assert main(["--faults", "gremlins"]) == 2
        assert "unknown fault 'gremlins'" in capsys.readouterr().err
        broken = tmp_path / "broken.json"
        broken.write_text("{}", encoding="utf-8")
        assert main(["--replay", str(broken)]) == 2
        assert main(["--seeds", "9:1"]) == 2


def test_faults_by_name():
    assert Faults.named(("loss", "restart")).names == ("loss", "restart")
    assert Faults.named(()).names == ()
    with pytest.raises(ConfigurationError):
        Faults.named(("nonsense",))


def test_a_file_of_another_format_is_refused(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(UnusableInputError, match="format 99"):
        GroupSchedule.load(path)
