"""The examples for FastAPI under uvicorn and Django under gunicorn, as their users run them."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crdtcast.ports import free_ports

WEB = Path(__file__).parents[2] / "examples" / "web"
PATIENCE = 60.0

pytestmark = [pytest.mark.process, pytest.mark.slow]


@contextmanager
def served(words: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            env={**os.environ, **environment},
            stdout=said,
            stderr=said,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def ask(method: str, url: str, session: str = "") -> tuple[Any, str]:
    """The answer and the session; asked again while nobody listens."""
    until = time.monotonic() + PATIENCE
    request = urllib.request.Request(
        url, method=method, headers={"session": session} if session else {}
    )
    while True:
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer), answer.headers.get("session", "")
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError) or time.monotonic() > until:
                raise


def test_fastapi_client_reads_its_own_writes_in_another_region(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    first, eu, us = free_ports(3)
    words = ["uvicorn", "--app-dir", str(WEB), "fastapi_carts:app", "--port"]
    with (
        served(
            [*words, str(eu)],
            tmp_path / "eu.log",
            NAME="eu",
            LISTEN=f"127.0.0.1:{first}",
            FOUND="yes",
        ) as eu_process,
        served([*words, str(us)], tmp_path / "us.log", NAME="us", JOIN=f"127.0.0.1:{first}"),
    ):
        at = {"eu": f"http://127.0.0.1:{eu}/carts/42", "us": f"http://127.0.0.1:{us}/carts/42"}
        ask("GET", at["us"])
        session = ""
        for number in range(20):
            here, there = ("eu", "us") if number % 2 else ("us", "eu")
            _, session = ask("POST", f"{at[here]}/item-{number:02}")
            items, _ = ask("GET", at[there], session)
            assert items == [f"item-{n:02}" for n in range(number + 1)]
        eu_process.terminate()
        assert eu_process.wait(PATIENCE) in (0, -signal.SIGTERM)
        items, session = ask("POST", f"{at['us']}/last")
        assert len(items) == 21
        items, _ = ask("DELETE", f"{at['us']}/last", session)
        assert len(items) == 20
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask("GET", at["us"], "no-token")
    for name in ("eu", "us"):
        said = (tmp_path / f"{name}.log").read_text()
        assert "Traceback" not in said and "Application shutdown complete" in said, said


def test_django_workers_share_what_each_of_them_stores(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn")
    *ports, web = free_ports(3)
    environment = {
        "ADDRESSES": ",".join(f"127.0.0.1:{port}" for port in ports),
        "JOURNALS": str(tmp_path / "data"),
    }
    words = ["gunicorn", "--chdir", str(WEB), "--workers", "2", "--threads", "4"]
    words += ["--bind", f"127.0.0.1:{web}", "django_carts:application"]
    url = f"http://127.0.0.1:{web}/carts/7"
    stored = 0
    for life in range(2):
        with served(words, tmp_path / f"{life}.log", **environment):
            until = time.monotonic() + PATIENCE
            wrote: set[str] = set()
            with ThreadPoolExecutor(8) as pool:
                while wrote != {"web0", "web1"}:
                    assert time.monotonic() < until, f"only {wrote} answer"
                    posts = [f"{url}?item={number}" for number in range(stored, stored + 40)]
                    wrote |= {answer["worker"] for answer, _ in pool.map(ask, ["POST"] * 40, posts)}
                    stored += 40
            whole: set[str] = set()
            while whole != {"web0", "web1"}:
                assert time.monotonic() < until, f"only {whole} have all {stored} items"
                answer, _ = ask("GET", url)
                if len(answer["items"]) == stored:
                    whole.add(answer["worker"])
        assert "Traceback" not in (tmp_path / f"{life}.log").read_text()


@pytest.mark.parametrize("door", ["asyncio", "threads"])
def test_killed_process_loses_nothing_acknowledged(door: str) -> None:
    pytest.importorskip("gunicorn")
    words = ["--door", door, "--minutes", "0.2", "--kills", "1", "--clients", "50"]
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.web", *words],
        cwd=WEB.parents[1],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert "killed" in ran.stdout and "nothing acknowledged was lost" in ran.stdout
