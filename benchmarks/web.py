"""What a web application with replicas costs its clients, and what they lose when a process is killed.

    python -m benchmarks.web [--door asyncio | threads] [--minutes 30] [--clients 200] [--pause 0.5] [--kills 6]
        [--seed 1]

The examples run as their users run them: asyncio is `fastapi_carts.py`, two regions under uvicorn; threads is
`django_carts.py`, two workers under gunicorn with 16 threads each. Every client has a cart of its own. It puts a number
in, takes the oldest of more than ten out, and now and then looks, each time in a region by chance, with the session of
its last answer, and pauses in between. Meanwhile processes are killed by SIGKILL, one after the other, and start again
with their journals. At each look, and at the end in every region, a cart must hold what was acknowledged; of what got
no answer either may be.

Printed are the milliseconds of a write (median, 99 of a hundred, longest; and the same for writes while all processes
run), the answers that failed, and the memory of each process through time. All processes and this one share the
machine's cores: give its load with the figures.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import aiohttp

from crdtcast.ports import free_ports

WEB = Path(__file__).parents[1] / "examples" / "web"
PATIENCE = 20.0
"""Seconds that a client waits for an answer."""
MOST = 10
"""Numbers in a cart."""
SAMPLE = 60.0
"""Seconds between two looks at the memory."""


class Application(ABC):
    """The processes of an application, which can be killed."""

    urls: list[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._said: IO[bytes] = (folder / "said.log").open("ab")

    def start(self, words: list[str], **environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            env={**os.environ, **environment},
            stdout=self._said,
            stderr=self._said,
        )

    @abstractmethod
    def pids(self) -> dict[str, int]:
        """The processes with a replica, by name."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """Kill one and start it again."""

    @abstractmethod
    def close(self) -> None:
        """End all of them."""

    @abstractmethod
    def request(self, region: int, cart: str, number: int | None) -> tuple[str, dict[str, str]]:
        """URL and parameters for a number in a cart, or for the cart."""


class FastAPI(Application):
    """Two regions under uvicorn."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        *listen, eu, us = free_ports(4)
        self.urls = [f"http://127.0.0.1:{port}" for port in (eu, us)]
        self._founders = {"eu": listen[0], "us": listen[1]}
        self._web = {"eu": eu, "us": us}
        self._processes = {name: self._started(name, False) for name in self._web}

    def _started(self, name: str, again: bool) -> subprocess.Popen[bytes]:
        known = {"FOUND": "yes"} if name == "eu" else {"JOIN": f"127.0.0.1:{self._founders['eu']}"}
        options = ["--app-dir", str(WEB), "--port", str(self._web[name]), "--no-access-log"]
        return self.start(
            ["uvicorn", *options, "fastapi_carts:app"],
            NAME=name,
            LISTEN=f"127.0.0.1:{self._founders[name]}",
            JOURNAL=str(self.folder / name),
            **({} if again else known),
        )

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()
        self._processes[name] = self._started(name, True)

    def close(self) -> None:
        for process in self._processes.values():
            process.terminate()
            process.wait()

    def request(self, region: int, cart: str, number: int | None) -> tuple[str, dict[str, str]]:
        place = f"{self.urls[region]}/carts/{cart}"
        return (place if number is None else f"{place}/{number}"), {}


class Django(Application):
    """Two workers under gunicorn, which starts them again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        *ports, web = free_ports(3)
        self.urls = [f"http://127.0.0.1:{web}"] * 2
        words = ["gunicorn", "--chdir", str(WEB), "--workers", "2", "--threads", "16"]
        self._master = self.start(
            [
                *words,
                "--bind",
                f"127.0.0.1:{web}",
                "--keep-alive",
                "60",
                "django_carts:application",
            ],
            ADDRESSES=",".join(f"127.0.0.1:{port}" for port in ports),
            JOURNALS=str(folder),
        )

    def pids(self) -> dict[str, int]:
        master = self._master.pid
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        return {f"worker {place}": int(pid) for place, pid in enumerate(children)}

    def kill(self, name: str) -> None:
        os.kill(self.pids()[name], signal.SIGKILL)

    def close(self) -> None:
        self._master.terminate()
        self._master.wait()

    def request(self, region: int, cart: str, number: int | None) -> tuple[str, dict[str, str]]:
        parameters = {} if number is None else {"item": str(number)}
        return f"{self.urls[region]}/carts/{cart}", parameters


class Soak:
    """The clients, and what they found."""

    def __init__(self, application: Application, seconds: float, pause: float) -> None:
        self.application = application
        self.pause = pause
        self.until: float = time.monotonic() + seconds
        self.waits: list[float] = []
        self.calm: list[float] = []
        """Of these, the ones while all processes ran."""
        self.failed: int = 0
        self.looks: int = 0
        self.back: float = 0.0
        """When the process killed last is thought to be back."""


class Client:
    """One client with its cart."""

    def __init__(self, soak: Soak, session: aiohttp.ClientSession, name: str, seed: str) -> None:
        self._soak = soak
        self._session = session
        self._name = name
        self._random = random.Random(seed)
        self._seen: dict[str, str] = {}
        self._held: list[int] = []
        self._doubted: set[int] = set()

    async def run(self) -> None:
        """Shop until the soak is over."""
        number = 0
        await asyncio.sleep(self._random.random() * self._soak.pause * 2)
        while time.monotonic() < self._soak.until:
            number += 1
            if await self._write("POST", number):
                self._held.append(number)
            if len(self._held) > MOST:
                oldest = self._held.pop(0)
                await self._write("DELETE", oldest)
            if number % 10 == 0:
                await self.look(self._random.randrange(2))
            await asyncio.sleep(self._random.random() * self._soak.pause * 2)

    async def _write(self, method: str, number: int) -> bool:
        """Whether it was acknowledged."""
        began = time.monotonic()
        if await self._ask(method, self._random.randrange(2), number) is None:
            self._doubted.add(number)
            return False
        self._soak.waits.append(time.monotonic() - began)
        if began > self._soak.back:
            self._soak.calm.append(time.monotonic() - began)
        return True

    async def _ask(self, method: str, region: int, number: int | None) -> list[str] | None:
        """What the cart holds; None if there was no answer."""
        url, parameters = self._soak.application.request(region, self._name, number)
        try:
            async with self._session.request(
                method, url, params=parameters, headers=self._seen
            ) as answer:
                if answer.status == 503:
                    raise aiohttp.ClientConnectionError
                assert answer.status == 200, (answer.status, await answer.text())
                self._seen = {"session": answer.headers["session"]}
                told: Any = await answer.json()
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError):
            self._soak.failed += 1
            return None
        items: list[str] = told["items"] if isinstance(told, dict) else told
        return items

    async def look(self, region: int) -> bool:
        """Compare. Returns whether there was an answer."""
        told = await self._ask("GET", region, None)
        if told is None:
            return False
        items, held = set(map(int, told)), set(self._held)
        self._soak.looks += 1
        assert held <= items, f"cart {self._name} at {region} has lost {sorted(held - items)}"
        more = items - held - self._doubted
        assert not more, f"cart {self._name} at {region} still has {sorted(more)}"
        return True


def resident(pid: int) -> float:
    """Megabytes."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def sample(soak: Soak) -> None:
    """Print the memory of each process, a line a minute."""
    while (left := soak.until - time.monotonic()) > 0:
        megabytes = {name: resident(pid) for name, pid in soak.application.pids().items()}
        shown = ", ".join(f"{name} {each:.1f}" for name, each in megabytes.items())
        print(f"{left:5.0f} s left; MB: {shown}", flush=True)
        await asyncio.sleep(min(SAMPLE, left))


async def disturb(soak: Soak, kills: int, chance: random.Random) -> None:
    """Kill processes, at even times; none in the last eighth."""
    apart = (soak.until - time.monotonic()) * 7 / 8 / (kills + 1)
    for _ in range(kills):
        await asyncio.sleep(apart)
        name = chance.choice(sorted(soak.application.pids()))
        soak.back = time.monotonic() + PATIENCE
        soak.application.kill(name)
        print(f"killed {name}", flush=True)


def shown(waits: list[float]) -> str:
    """Median, 99 of a hundred, the longest, in milliseconds."""
    ordered = sorted(waits)
    places = (len(ordered) // 2, len(ordered) * 99 // 100, -1)
    return "{:.1f}, {:.1f}, {:.1f} ms".format(*(ordered[place] * 1000 for place in places))


async def run(application: Application, options: argparse.Namespace) -> None:
    """The whole soak."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(PATIENCE)
    ) as session:
        await listening(application, session)
        soak = Soak(application, options.minutes * 60, options.pause)
        clients = [
            Client(soak, session, f"{options.seed}-{n}", f"{options.seed} {n}")
            for n in range(options.clients)
        ]
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run())
            group.create_task(sample(soak))
            group.create_task(disturb(soak, options.kills, random.Random(options.seed)))
        for client in clients:
            for region in range(2):
                until = time.monotonic() + 60
                while not await client.look(region):
                    assert time.monotonic() < until, "no answer at the end"
    print(
        f"{len(soak.waits)} writes acknowledged, {soak.failed} requests without an answer, {soak.looks} looks: "
        "nothing acknowledged was lost"
    )
    print(f"a write: {shown(soak.waits)}; while all processes ran: {shown(soak.calm)}")
    print(f"load {os.getloadavg()[0]:.1f}")


async def listening(application: Application, session: aiohttp.ClientSession) -> None:
    """Return when every region answers."""
    until = time.monotonic() + 60
    for region in range(2):
        while True:
            url, parameters = application.request(region, "first", None)
            try:
                async with session.get(url, params=parameters) as answer:
                    assert answer.status == 200
                    break
            except aiohttp.ClientConnectionError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.1)


@contextmanager
def running(door: str) -> Iterator[Application]:
    """The application, until the block ends; what it said is printed if it fails."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        application = {"asyncio": FastAPI, "threads": Django}[door](Path(folder))
        stack.callback(application.close)
        try:
            yield application
        except BaseException:
            print((Path(folder) / "said.log").read_text()[-4000:], file=sys.stderr)
            raise


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--door", choices=("asyncio", "threads"), default="asyncio")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds, on average")
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with running(options.door) as application:
        asyncio.run(run(application, options))


if __name__ == "__main__":
    main()
