"""Real processes on this machine: the commands that operators type, and what they see."""

import json
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from crdtcast.cli import main
from crdtcast.exceptions import LocalProtocolError
from crdtcast.ports import free_ports
from tests.operations.processes import Running, killed_at_the_end

pytestmark = pytest.mark.process

TEA = {"name": "cart", "type": "set_aw", "operation": "add", "args": ["tea"]}


def crdtcast(*words: str, at: Running | None = None, code: int = 0) -> Result:
    """A command, as typed."""
    place = [] if at is None else ["--admin", at.admin]
    result = CliRunner().invoke(main, [*words, *place])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def answer(*words: str, at: Running, code: int = 0) -> Any:
    """The JSON that it prints."""
    return json.loads(crdtcast(*words, "--json", at=at, code=code).stdout)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running]]:
    """eu and us hold objects, w is a witness; frames are owed each half second."""
    where = tmp_path_factory.mktemp("nodes")
    common = ("--group", "shop", "--keepalive-interval", "0.5", "--log-json")
    with ExitStack() as stack:
        eu = Running(where, "eu", "--found", "--metrics", "127.0.0.1:0", *common)
        stack.enter_context(killed_at_the_end(eu))
        eu.wait_ready()
        us = Running(where, "us", "--join", eu.listen, "--leave-on-stop", *common)
        w = Running(where, "w", "--join", eu.listen, *common, command="witness")
        stack.enter_context(killed_at_the_end(us, w))
        yield {"eu": eu, "us": us.wait_ready(), "w": w.wait_ready()}


def test_operators_see_change_and_compare_a_group(group: dict[str, Running]) -> None:
    eu, us, w = group.values()
    done = answer("object", "do", "cart", "set_aw", "add", "milk", "--wait", "stable", at=eu)
    assert done["tag"][0] == eu.ready["incarnation"]
    crdtcast("object", "do", "hits", "counter_pn", "increment", "3", "--wait", "3", at=us)
    assert answer("object", "get", "hits", at=eu)["value"] == 3
    assert "milk" in crdtcast("object", "get", "cart", at=us).stdout
    assert [o["name"] for o in answer("object", "list", at=eu)] == ["cart", "hits"]
    found = answer("status", at=eu)
    assert (found["node"], found["group"], found["standing"]) == ("eu", "shop", "member")
    assert found["ready"] and found["objects"] == 2
    assert [(m["name"], m["witness"]) for m in answer("members", at=w)] == [
        ("eu", False),
        ("us", False),
        ("w", True),
    ]
    assert answer("verify", at=us) == {
        "equal": True,
        "members": ["eu", "us"],
        "objects": 2,
        "compared": 2,
        "changing": 0,
        "unknown": 0,
        "different": {},
        "silent": [],
    }
    assert "equal" in crdtcast("verify", at=eu).stdout
    crdtcast("object", "delete", "hits", at=us)
    for words in (("status",), ("members",), ("object", "list"), ("top", "--rounds", "1")):
        assert "eu" in crdtcast(*words, at=eu).stdout or words[0] == "object"
    assert json.loads(crdtcast("top", "--rounds", "1", "--json", at=eu).stdout)["node"] == "eu"


def test_what_cannot_be_done_is_one_line_that_says_what_to_do(group: dict[str, Running]) -> None:
    eu, _, w = group.values()
    for words, at, expected in (
        (("object", "get", "nothing"), eu, "there is no object 'nothing' here"),
        (("object", "do", "x", "set", "add", "y"), eu, "there is no type 'set'; there are"),
        (("object", "do", "cart", "counter_pn", "increment"), eu, "is a set_aw here"),
        (("object", "do", "cart", "set_aw", "ad", "y"), eu, "has no operation 'ad'; it has"),
        (("object", "do", "x", "set_aw", "add"), eu, "set_aw.add"),
        (("object", "do", "cart", "set_aw", "add", "x", "--wait", "9"), eu, "of the 3 members"),
        (("object", "list"), w, "is a witness and holds no objects: ask another member"),
        (("verify",), w, "is a witness"),
        (("evict", "asia"), eu, "'asia' is no member of group 'shop'"),
        (("evict", "eu"), eu, "is this node itself: let it leave"),
        (("evict", "us", "--force"), eu, "give --yes with --force if you are sure"),
        (("surrender",), eu, "give --yes if you are sure"),
        (("surrender", "--yes"), eu, "is not in dispute with anybody"),
    ):
        error = crdtcast(*words, at=at, code=2).stderr
        assert expected in error, error
        assert "Traceback" not in error
        assert error.splitlines()[-1].startswith("crdtcast: ")
    with pytest.raises(
        Exception, match="there is no request 'dance' here; there are status, members"
    ):
        eu.ask("dance")
    nobody = crdtcast("status", "--admin", "/tmp/no/such.sock", code=2).stderr
    assert "no node at /tmp/no/such.sock" in nobody and "--node or --admin" in nobody


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def suspects(at: Running) -> list[str]:
    return [member["name"] for member in answer("members", at=at) if member["suspect"]]


def page(at: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(at, timeout=10) as answered:
            return answered.status, answered.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_probes_and_metrics_over_http(group: dict[str, Running]) -> None:
    eu = group["eu"]
    at = f"http://{eu.ready['metrics']}"
    assert page(f"{at}/live") == (200, "live\n")
    assert page(f"{at}/ready") == (200, "ready\n")
    assert page(f"{at}/nothing")[0] == 404
    code, metrics = page(f"{at}/metrics")
    assert code == 200
    assert 'crdtcast_link_up{group="shop",node="eu",peer="us"} 1.0' in metrics
    assert 'crdtcast_ready{group="shop",node="eu"} 1.0' in metrics


def test_a_silent_member_is_suspect_is_evicted_and_comes_back(group: dict[str, Running]) -> None:
    eu, us, _ = group.values()
    us.process.send_signal(signal.SIGSTOP)
    try:
        until(lambda: suspects(eu) == ["us"])
        crdtcast("object", "do", "cart", "set_aw", "add", "tea", at=eu)
        silent = crdtcast("verify", "--seconds", "0.2", at=eu, code=1)
        assert "no answer of us" in silent.stdout
        with pytest.raises(LocalProtocolError, match=r"not stable after 0 s: .*us \(silent for "):
            eu.ask("perform", **TEA, wait="stable", seconds=0)
        with pytest.raises(LocalProtocolError, match=r"not at 3 members after 0 s: .*us \(silent "):
            eu.ask("perform", **TEA, wait=3, seconds=0)
        cut = answer("evict", "us", at=eu)
        assert cut["members"] == ["eu", "w"]
        assert cut["evicted"] == [us.ready["incarnation"]]
    finally:
        us.process.send_signal(signal.SIGCONT)
    until(lambda: [m["name"] for m in answer("members", at=eu)] == ["eu", "us", "w"])
    until(lambda: answer("status", at=us)["ready"])
    assert answer("object", "get", "cart", at=us)["value"] == ["milk", "tea"]
    assert answer("verify", at=us)["equal"]
    lines = [json.loads(line) for line in eu.log.read_text().splitlines()]
    assert {"time", "level", "logger", "node", "message"} <= lines[0].keys()
    assert any("suspect" in line["message"] and line.get("peer") == "us" for line in lines)


def test_members_leave_by_command_and_by_signal(group: dict[str, Running]) -> None:
    eu, us, w = group.values()
    assert answer("leave", at=w) == {"left": w.ready["incarnation"], "silent": []}
    assert w.process.wait(30) == 0
    assert us.stop() == 0, us.log.read_text()
    assert [m["name"] for m in answer("members", at=eu)] == ["eu"]
    assert not Path(us.admin).exists() and not Path(w.admin).exists()
    assert eu.stop(signal.SIGINT) == 0
    assert "SIGINT: the node stops" in eu.log.read_text().splitlines()[-1]


def test_a_node_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    taken = Running(tmp_path, "a", "--found")
    with killed_at_the_end(taken):
        taken.wait_ready()
        for words, expected in (
            ((), "neither found nor join is given"),
            (("--found", "--listen", taken.listen), "another process listens there"),
            (("--found", "--admin", taken.admin), "another node does: stop it"),
            (("--found", "--config", "/no/such.toml"), "cannot read /no/such.toml"),
        ):
            given = ("--name", "b", "--listen", "127.0.0.1:0", "--admin", str(tmp_path / "b.sock"))
            assert expected in crdtcast("node", *given, *words, code=2).stderr
        assert answer("status", at=taken)["ready"], "it was disturbed by those that did not start"


def test_a_node_that_nobody_lets_in_yet_says_so_and_stops_at_a_signal(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as nobody:
        # Taken, and not accepted from: a member that does not answer.
        taken = nobody.getsockname()[1]
        (probes,) = free_ports(1)
        joiner = Running(
            *(tmp_path, "j", "--join", f"127.0.0.1:{taken}", "--metrics", f"127.0.0.1:{probes}")
        )
        with killed_at_the_end(joiner):
            until(Path(joiner.admin).exists)
            assert page(f"http://127.0.0.1:{probes}/live")[0] == 200
            code, why = page(f"http://127.0.0.1:{probes}/ready")
            assert code == 503 and "is not in group 'default' yet" in why
            assert "crdtcast_ready" in page(f"http://127.0.0.1:{probes}/metrics")[1]
            error = crdtcast("status", at=joiner, code=2).stderr
            assert "is not in group 'default' yet: wait, or look into its log" in error
            assert joiner.stop() == 0


def test_a_port_for_operators_wants_the_groups_secret(tmp_path: Path) -> None:
    secret, wrong = tmp_path / "secret", tmp_path / "wrong"
    secret.write_text("s" * 32)
    wrong.write_text("w" * 32)
    for file in (secret, wrong):
        file.chmod(0o600)
    place = f"127.0.0.1:{free_ports(1)[0]}"
    node = Running(tmp_path, "eu", "--found", "--secret-file", str(secret), "--admin", place)
    with killed_at_the_end(node):
        node.wait_ready()
        asked = ("members", "--admin", place, "--secret-file")
        assert "eu" in crdtcast(*asked, str(secret)).stdout
        assert "not the secret of node 'eu'" in crdtcast(*asked, str(wrong), code=2).stderr
        assert "give --secret-file" in crdtcast(*asked[:3], code=2).stderr
        assert "eu" in crdtcast(*asked, str(secret)).stdout


def test_one_of_two_cannot_cut_off_the_other_but_by_force(tmp_path: Path) -> None:
    eu = Running(tmp_path, "eu", "--found")
    with killed_at_the_end(eu):
        us = Running(tmp_path, "us", "--join", eu.wait_ready().listen)
        with killed_at_the_end(us):
            us.wait_ready()
            us.process.kill()
            us.process.wait()
            refused = crdtcast("evict", "us", "--seconds", "0.1", at=eu, code=2).stderr
            assert "us is not cut off yet: the others (eu) have to say what" in refused
            assert answer("members", at=eu)[1]["evicting"]
            with pytest.raises(
                LocalProtocolError, match=r"acknowledgement of us \(being evicted\)\. "
            ):
                eu.ask("perform", **TEA, wait="stable", seconds=0)
            asia = Running(tmp_path, "asia", "--join", eu.listen, "--replaces", "us")
            with killed_at_the_end(asia):
                asia.wait_ready()
                until(lambda: [m["name"] for m in answer("members", at=asia)] == ["asia", "eu"])
            forced = crdtcast("evict", "asia", "--force", "--yes", at=eu)
            assert "members: eu" in forced.stdout
