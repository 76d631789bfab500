"""Debian's Chromium, headless, driven by Selenium; and the page of the editor example, built by npm once."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60.0


def need_browser() -> None:
    """Skip the test where there is no Chromium."""
    pytest.importorskip("selenium")
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(
                f"{program} is not installed (Debian: apt install chromium chromium-driver)"
            )


def build_editor(commands: list[str]) -> None:
    """Install what the page is made of, and build it, by these commands in the root of the checkout."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    for command in commands:
        done = subprocess.run(
            command.split(),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode and " ci " in command:
            pytest.skip(f"npm cannot install the packages of the example: {done.stderr[-500:]}")
        assert done.returncode == 0, done.stderr


@contextmanager
def browser(profile: Path) -> Iterator[Any]:
    """A browser with a new profile."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver") or ""))
    try:
        driver.set_page_load_timeout(PATIENCE)
        yield driver
    finally:
        driver.quit()
