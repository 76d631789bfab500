"""The editor example: the published y-websocket client in real browsers, at different nodes, one of which dies."""

import re
import shlex
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crdtcast.ports import free_ports
from tests.clients.browsers import PATIENCE, ROOT, browser, build_editor, need_browser
from tests.clients.test_web_examples import served

pytestmark = [pytest.mark.process, pytest.mark.slow]


class Tab:
    """One browser with the page open."""

    def __init__(self, driver: Any, name: str, *web: int) -> None:
        self.driver = driver
        self.typed: list[str] = []
        nodes = ",".join(f"127.0.0.1:{port}" for port in web)
        driver.get(f"http://127.0.0.1:{web[0]}/?room=a%20page&name={name}&nodes={nodes}")

    @property
    def text(self) -> str:
        """As the editor shows it."""
        return str(self.driver.execute_script("return window.crdtcast.view.state.doc.toString()"))

    def shown(self, what: str) -> str:
        return str(self.driver.find_element("id", what).text)

    @property
    def cursor(self) -> str | None:
        """The name at the other one's cursor."""
        found = "return document.querySelector('.cm-ySelectionInfo')?.textContent"
        return self.driver.execute_script(found)  # type: ignore[no-any-return]

    def type(self, text: str) -> None:
        self.typed.append(text)
        self.driver.switch_to.active_element.send_keys(text)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"not {what}: {self.text!r}, {self.shown('status')!r}")
            time.sleep(0.05)


def test_two_browsers_at_two_nodes_lose_nothing_when_one_dies(tmp_path: Path) -> None:
    need_browser()
    *builds, at_eu, at_us = commands_of_page()
    build_editor(builds)
    ports = dict(zip(("7001", "8001", "8002"), free_ports(3), strict=True))
    eu, us = ports["8001"], ports["8002"]

    def node(command: str, log: str) -> Any:
        for shown, port in ports.items():
            command = command.replace(shown, str(port))
        words = shlex.split(command)
        places = dict(word.split("=") for word in words if "=" in word)
        places["JOURNAL"] = str(tmp_path / places["NAME"])
        return served([word for word in words if "=" not in word], tmp_path / log, **places)

    with (
        node(at_us, "us.log"),
        browser(tmp_path / "ann-profile") as ann_browser,
        browser(tmp_path / "bob-profile") as bob_browser,
    ):
        with node(at_eu, "eu.log") as first_life:
            wait_for_page(eu)
            wait_for_page(us)
            ann, bob = Tab(ann_browser, "Ann", eu, us), Tab(bob_browser, "Bob", us, eu)
            for tab, port in ((ann, eu), (bob, us)):
                tab.until(lambda tab=tab: tab.shown("status").startswith("connected"), "connected")
                assert tab.shown("status") == f"connected: 127.0.0.1:{port}"
            ann.type("Hello from Ann. ")
            bob.until(lambda: "Ann" in bob.text, "told of Ann's words")
            bob.type("Hello from Bob. ")
            ann.until(lambda: "Bob" in ann.text, "told of Bob's words")
            for tab, other in ((ann, "Bob"), (bob, "Ann")):
                tab.until(lambda tab=tab, other=other: tab.shown("others") == other, "seen")
                tab.until(lambda tab=tab, other=other: tab.cursor == other, "seen by the cursor")
            for number in range(10):
                ann.type(f"ann-{number} ")
            first_life.send_signal(signal.SIGKILL)
            for number in range(10, 20):
                ann.type(f"ann-{number} ")
                bob.type(f"bob-{number} ")
            everything = ann.typed + bob.typed
            for tab in (ann, bob):
                tab.until(lambda tab=tab: has_all(tab.text, everything), "whole")
            ann.until(lambda: ann.text == bob.text, "equal")
            assert ann.shown("status") == f"connected: 127.0.0.1:{us}"
            for tab, other in ((ann, "Bob"), (bob, "Ann")):
                tab.until(lambda tab=tab, other=other: tab.shown("others") == other, "seen again")
        # The dead node starts again, from its journal; the other one dies.
        with node(at_eu, "eu-again.log"):
            wait_for_page(eu)
            eva = Tab(ann_browser, "Eva", eu)
            eva.until(lambda: has_all(eva.text, everything), "whole after a restart")
            eva.type("Eva was here. ")
            bob.until(lambda: "Eva was here. " in bob.text, "told of Eva's words")
            assert bob.text == eva.text
    for log in ("eu-again.log", "us.log"):
        assert "Traceback" not in (tmp_path / log).read_text()


def commands_of_page() -> list[str]:
    """Those of the quick start in docs/rooms.md, which run in the root of a checkout."""
    page = (ROOT / "docs" / "rooms.md").read_text()
    block = re.search(r"^```\n(npm.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    assert block is not None
    return block[1].strip().splitlines()


def has_all(text: str, typed: list[str]) -> bool:
    return all(word in text for each in typed for word in each.split())


def wait_for_page(port: int) -> None:
    """Return when the node serves its page."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
