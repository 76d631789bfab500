"""The samples of docs/rooms.md run; its commands are those of the example, which tests/clients/test_editor.py runs."""

import re
from pathlib import Path
from typing import Any

import pytest
import trio

from crdtcast.adapters.pycrdt import Access, RoomLimits, Visit
from crdtcast.adapters.pycrdt.rooms.channels import CloseCode
from crdtcast.ports import free_ports
from tests.adapters.pycrdt.browsers import Browser
from tests.adapters.pycrdt.test_room_servers import browse

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "rooms.md").read_text()
SAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


def run(sample: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "sample"}
    exec(compile(sample, "docs/rooms.md", "exec"), names)
    return names


# hypercorn does not close the socket on which it listens.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_sample_for_trio_serves_a_browser() -> None:
    port = free_ports(1)[0]
    (sample,) = (each for each in SAMPLES if "hypercorn" in each)
    main = run(sample.replace("8001", str(port)))["main"]

    async def use() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(main)
            with trio.fail_after(60):
                while True:
                    try:
                        (await trio.open_tcp_stream("127.0.0.1", port)).socket.close()
                        break
                    except OSError:
                        await trio.sleep(0.01)
            ann, bob = Browser(), Browser()
            for each in (ann, bob):
                nursery.start_soon(browse, each, f"ws://127.0.0.1:{port}/welcome")
            ann.text += "Hello"
            await bob.reads("Hello")
            nursery.cancel_scope.cancel()

    trio.run(use)


def test_sample_of_a_judge_decides() -> None:
    (sample,) = (each for each in SAMPLES if "async def judge" in each)
    judge = run(sample)["judge"]
    token = "token=c29tZSBsb25nIHRva2Vu"
    home, away = {"origin": "https://eu.example"}, {"origin": "https://evil.example"}

    async def decide(*arguments: Any) -> Access:
        decided: Access = await judge(Visit(*arguments))
        return decided

    async def decisions() -> list[Access]:
        return [
            await decide("page", home, token),
            await decide("page", {}, token),
            await decide("page", away, token),
            await decide("page", home, "token=guess"),
            await decide("welcome", home, ""),
        ]

    none, read, write = Access.NONE, Access.READ, Access.WRITE
    assert trio.run(decisions) == [write, write, none, none, read]


def test_tables_name_each_code_and_limit_with_its_default() -> None:
    codes = re.findall(r"^\| (\d{4}) \|", PAGE, flags=re.MULTILINE)
    assert codes == [str(int(code)) for code in CloseCode]
    limits = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+)", PAGE, flags=re.MULTILINE))
    defaults = RoomLimits()
    assert limits.keys() == set(RoomLimits.__dataclass_fields__)
    for name, shown in limits.items():
        default = getattr(defaults, name)
        assert float(shown) == (default / 2**20 if name.endswith("bytes") else default), name


def test_commands_of_the_page_are_those_of_the_example() -> None:
    example = (ROOT / "examples" / "web" / "fastapi_editor.py").read_text()
    shown = re.search(r"^```\n(npm.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert shown is not None
    commands = shown[1].strip().splitlines()
    install = " && ".join(commands[:2])
    for line in (install, *commands[2:]):
        assert f"    {line}\n" in example
