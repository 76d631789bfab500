"""Real processes on this machine: the commands that operators type, and what they see."""

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
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
    assert [(m["name"], m["witness"]) for m in answer("members", at=w)["members"]] == [
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


def test_failed_command_is_one_line_with_a_remedy(group: dict[str, Running]) -> None:
    eu, _, w = group.values()
    for words, at, expected in (
        (("object", "get", "nothing"), eu, "this node has no object 'nothing'"),
        (("object", "do", "x", "set", "add", "y"), eu, "unknown type 'set': choose one of"),
        (("object", "do", "cart", "counter_pn", "increment"), eu, "is a set_aw at this member"),
        (("object", "do", "cart", "set_aw", "ad", "y"), eu, "has no operation 'ad': use one of"),
        (("object", "do", "x", "set_aw", "add"), eu, "set_aw.add"),
        (("object", "do", "cart", "set_aw", "add", "x", "--wait", "9"), eu, "members from 1 to 3"),
        (("object", "list"), w, "is a witness and holds no objects: ask another member"),
        (("verify",), w, "is a witness"),
        (("evict", "asia"), eu, "'asia' is not a member of group 'shop'"),
        (("evict", "eu"), eu, "is this node itself: use leave"),
        (("evict", "us", "--force"), eu, "add --yes with --force to confirm"),
        (("surrender",), eu, "add --yes to confirm"),
        (("surrender", "--yes"), eu, "has no dispute"),
    ):
        error = crdtcast(*words, at=at, code=2).stderr
        assert expected in error, error
        assert "Traceback" not in error
        assert error.splitlines()[-1].startswith("crdtcast: ")
    with pytest.raises(Exception, match="unknown request 'dance': use one of status, members"):
        eu.ask("dance")
    nobody = crdtcast("status", "--admin", "/tmp/no/such.sock", code=2).stderr
    assert "no node answers at /tmp/no/such.sock" in nobody and "--node or --admin" in nobody


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def suspects(at: Running) -> list[str]:
    return [member["name"] for member in answer("members", at=at)["members"] if member["suspect"]]


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
        assert "us did not answer" in silent.stdout
        with pytest.raises(LocalProtocolError, match=r"not stable after 0 s: .*us \(silent for "):
            eu.ask("perform", **TEA, wait="stable", seconds=0)
        with pytest.raises(LocalProtocolError, match=r"not at 3 members after 0 s: .*us \(silent "):
            eu.ask("perform", **TEA, wait=3, seconds=0)
        cut = answer("evict", "us", at=eu)
        assert cut["members"] == ["eu", "w"]
        assert cut["evicted"] == [us.ready["incarnation"]]
    finally:
        us.process.send_signal(signal.SIGCONT)
    until(lambda: [m["name"] for m in answer("members", at=eu)["members"]] == ["eu", "us", "w"])
    until(lambda: answer("status", at=us)["ready"])
    assert answer("object", "get", "cart", at=us)["value"] == ["milk", "tea"]
    assert answer("verify", at=us)["equal"]
    lines = [json.loads(line) for line in eu.log.read_text().splitlines()]
    assert {"time", "level", "logger", "node", "message"} <= lines[0].keys()
    assert any("suspect" in line["message"] and line.get("peer") == "us" for line in lines)


def test_members_leave_by_command_and_by_signal(group: dict[str, Running]) -> None:
    eu, us, w = group.values()
    left = {"left": w.ready["incarnation"], "confirmed": True, "waits_for": []}
    assert answer("leave", at=w) == left
    assert w.process.wait(30) == 0
    assert us.stop() == 0, us.log.read_text()
    assert [m["name"] for m in answer("members", at=eu)["members"]] == ["eu"]
    assert not Path(us.admin).exists() and not Path(w.admin).exists()
    assert eu.stop(signal.SIGINT) == 0
    assert "SIGINT: the node stops" in eu.log.read_text().splitlines()[-1]


def test_a_node_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    taken = Running(tmp_path, "a", "--found")
    with killed_at_the_end(taken):
        taken.wait_ready()
        for words, expected in (
            ((), "--founders, --found and --join are missing"),
            (("--found", "--listen", taken.listen), "another process listens there"),
            (("--found", "--admin", taken.admin), "another node listens there: stop it"),
            (("--found", "--config", "/no/such.toml"), "cannot read /no/such.toml"),
        ):
            given = ("--name", "b", "--listen", "127.0.0.1:0", "--admin", str(tmp_path / "b.sock"))
            assert expected in crdtcast("node", *given, *words, code=2).stderr
        assert answer("status", at=taken)["ready"], "it was disturbed by those that did not start"


def test_node_that_waits_to_join_says_so_and_stops_at_a_signal(tmp_path: Path) -> None:
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
            assert "is not in group 'default' yet: wait, or see its log" in error
            assert joiner.stop() == 0


def test_admin_port_requires_the_groups_secret(tmp_path: Path) -> None:
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
        assert "wrong secret for node 'eu'" in crdtcast(*asked, str(wrong), code=2).stderr
        assert "add --secret-file" in crdtcast(*asked[:3], code=2).stderr
        assert "eu" in crdtcast(*asked, str(secret)).stdout


def test_dead_one_of_two_goes_only_by_replacement_or_force(
    tmp_path: Path,
) -> None:
    eu = Running(tmp_path, "eu", "--found")
    with killed_at_the_end(eu):
        us = Running(tmp_path, "us", "--join", eu.wait_ready().listen)
        with killed_at_the_end(us):
            us.wait_ready()
            until(lambda: view(eu)["voters"] == ["eu", "us"])
            us.process.kill()
            us.process.wait()
            refused = crdtcast("evict", "us", "--timeout", "1", at=eu, code=2).stderr
            assert re.search(r"waits for us \(being evicted(, silent for [^)]+)?\)", refused)
            assert "us is not evicted yet; the request stays" in refused
            assert "a majority of the voters (eu, us)" in refused
            assert "`crdtcast evict --withdraw us` takes it back" in refused
            assert answer("members", at=eu)["members"][1]["evicting"]
            assert "REQUESTED by this node: evict us" in crdtcast("members", at=eu).stdout
            with pytest.raises(
                LocalProtocolError, match=r"us \(being evicted\) has not acknowledged it"
            ):
                eu.ask("perform", **TEA, wait="stable", seconds=0)
            assert answer("evict", "--withdraw", at=eu)["wanted"] == []
            assert view(eu)["wanted"] is None
            again = crdtcast("evict", "--withdraw", "us", at=eu, code=2).stderr
            assert "has not asked to evict us" in again
            asia = Running(tmp_path, "asia", "--join", eu.listen, "--replaces", "us")
            with killed_at_the_end(asia):
                asia.wait_ready()
                until(lambda: names(asia) == ["asia", "eu"])
                until(lambda: view(eu)["voters"] == ["asia", "eu"])
            forced = crdtcast("evict", "asia", "--force", "--yes", at=eu)
            assert "members: eu" in forced.stdout


def view(at: Running) -> dict[str, Any]:
    found: dict[str, Any] = answer("members", at=at)["view"]
    return found


def names(at: Running) -> list[str]:
    return [member["name"] for member in answer("members", at=at)["members"]]


@contextmanager
def three(where: Path, *options: str) -> Iterator[tuple[Running, Running, Running]]:
    """a, b and c, each with a journal and a vote."""
    with ExitStack() as stack:
        started: list[Running] = []
        for name in "abc":
            first = ("--join", started[0].listen) if started else ("--found",)
            kept = ("--journal", str(where / f"{name}.journal"))
            node = Running(where, name, *first, *kept, "--keepalive-interval", "0.5", *options)
            stack.enter_context(killed_at_the_end(node))
            started.append(node.wait_ready())
        a, b, c = started
        for node in started:
            until(lambda node=node: view(node)["voters"] == ["a", "b", "c"])  # type: ignore[misc]
        yield a, b, c


def test_eviction_that_waits_for_a_second_dead_member_names_it(tmp_path: Path) -> None:
    with three(tmp_path) as (a, b, c):
        for node in (b, c):
            node.process.kill()
            node.process.wait()
        until(lambda: suspects(a) == ["b", "c"])
        said = crdtcast("evict", "b", "--timeout", "1", at=a, code=2).stderr
        assert "waits for c (silent for " in said
        assert "If c is dead, too, evict all in one change: `crdtcast evict b c`" in said
        assert view(a)["change"] is None, "nothing is frozen while it only asks"
        crdtcast("object", "do", "cart", "set_aw", "add", "milk", at=a)
        assert view(a)["wanted"]["evict"] == ["b"]
        # It stays wanted over a restart, and is done as soon as c is back.
        a.process.kill()
        a.process.wait()
        kept = ("--journal", str(tmp_path / "a.journal"), "--keepalive-interval", "0.5")
        with ExitStack() as stack:
            again = Running(tmp_path, "a", *kept)
            stack.enter_context(killed_at_the_end(again))
            again.wait_ready()
            assert view(again)["wanted"]["evict"] == ["b"]
            kept = ("--journal", str(tmp_path / "c.journal"), "--join", again.listen)
            back = Running(tmp_path, "c", *kept, "--keepalive-interval", "0.5")
            stack.enter_context(killed_at_the_end(back))
            back.wait_ready()
            until(lambda: names(again) == ["a", "c"])
            assert view(again)["wanted"] is None
            assert answer("object", "get", "cart", at=back)["value"] == ["milk"]


def test_timed_out_leave_names_its_blockers_and_restart_goes_on(
    tmp_path: Path,
) -> None:
    with three(tmp_path, "--leave-seconds", "2") as (a, b, c):
        b.process.send_signal(signal.SIGSTOP)
        c.process.send_signal(signal.SIGSTOP)
        crdtcast("object", "do", "cart", "set_aw", "add", "milk", at=a)
        said = crdtcast("leave", at=a, code=2).stderr
        assert "waits for b" in said
        assert "did not leave, waited 2 s for b, c: " in said
        assert a.process.wait(30) == 0
        b.process.send_signal(signal.SIGCONT)
        c.process.send_signal(signal.SIGCONT)
        kept = ("--journal", str(tmp_path / "a.journal"), "--join", b.listen)
        again = Running(tmp_path, "a", *kept)
        with killed_at_the_end(again):
            assert again.wait_ready().ready["incarnation"] == a.ready["incarnation"]
            until(lambda: names(c) == ["a", "b", "c"])
            crdtcast("object", "do", "cart", "set_aw", "add", "tea", "--wait", "stable", at=c)
            assert answer("object", "get", "cart", at=c)["value"] == ["milk", "tea"]
            left = crdtcast("leave", at=again).stdout
            assert left.startswith("left: a.")
            assert again.process.wait(30) == 0
            until(lambda: names(b) == ["b", "c"])


@pytest.mark.slow
def test_policy_evicts_all_silent_members_in_one_change(tmp_path: Path) -> None:
    with three(tmp_path, "--evict-after", "6") as (a, b, c), ExitStack() as stack:
        more = [
            Running(tmp_path, name, "--join", a.listen, "--keepalive-interval", "0.5")
            for name in ("d", "e")
        ]
        stack.enter_context(killed_at_the_end(*more))
        for node in more:
            node.wait_ready()
        until(lambda: view(c)["voters"] == ["a", "b", "c", "d", "e"])
        before = view(a)["epoch"]
        for node in more:
            node.process.kill()
        until(lambda: names(a) == names(b) == names(c) == ["a", "b", "c"])
        assert view(a)["epoch"] == before + 1


def test_joiners_that_die_at_once_need_only_an_ordinary_evict(
    tmp_path: Path,
) -> None:
    with three(tmp_path) as (a, b, c):
        joiners = [f"p{number}" for number in range(3)]
        for name in joiners[:2]:
            joiner = Running(tmp_path, name, "--join", a.listen)
            with killed_at_the_end(joiner):
                until(lambda name=name: name in names(a))  # type: ignore[misc]
        until(lambda: set(joiners[:2]) <= set(names(b)) & set(names(c)))
        crdtcast("evict", *joiners[:2], "--timeout", "30", at=a)
        until(lambda: names(b) == names(c) == ["a", "b", "c"])


def test_both_sides_show_a_dispute_until_one_surrenders(tmp_path: Path) -> None:
    with three(tmp_path) as (a, b, c):
        for other in ("a", "b"):
            c.ask("cut", member=other)
        crdtcast("evict", "c", "--timeout", "30", at=a)
        crdtcast("evict", "a", "b", "--force", "--yes", "--timeout", "30", at=c)
        assert names(c) == ["c"] and names(a) == ["a", "b"]
        for other in ("a", "b"):
            c.ask("heal", member=other)
        for node in (a, b, c):
            until(lambda node=node: "DISPUTED" in crdtcast("members", at=node).stdout)  # type: ignore[misc]
        crdtcast("surrender", "--yes", at=c)
        for node in (a, b, c):
            until(lambda node=node: names(node) == ["a", "b", "c"])  # type: ignore[misc]
            until(lambda node=node: "DISPUTED" not in crdtcast("members", at=node).stdout)  # type: ignore[misc]
