"""Ctrl-C and `sys.exit` in a program that has members in Trio: as in one without, and no message is half applied."""

import signal
import subprocess
import sys

import pytest
import trio

from crdtcast import open_replica

PROGRAM = """
import signal, sys, trio
from crdtcast import StateMachine, open_member

class Interrupted(StateMachine):
    def __init__(self):
        self.got = []

    def tcdeliver(self, payload, tag):
        if self is machines[sys.argv[1]]:
            signal.raise_signal(signal.SIGINT)
        self.got.append(payload)

machines = {"sender": Interrupted(), "receiver": Interrupted()}

async def main():
    async with (
        open_member("a", found=True, machine=machines["sender"]) as a,
        open_member("b", join=a.address, machine=machines["receiver"]) as b,
    ):
        await a.wait_delivered(a.tcbroadcast(b"one"), count=2)
        await trio.sleep_forever()

try:
    trio.run(main)
except KeyboardInterrupt:
    print(machines[sys.argv[1]].got)
"""


@pytest.mark.process
@pytest.mark.parametrize("whose", ["sender", "receiver"])
def test_interrupt_comes_when_a_message_is_applied(whose: str) -> None:
    words = [sys.executable, "-c", PROGRAM, whose]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[b'one']\n", done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_exit_of_the_program_is_not_in_a_group(error: type[BaseException]) -> None:
    async def main() -> None:
        async with open_replica("a", found=True) as a, open_replica("b", join=a.address):
            raise error(3)

    with pytest.raises(error, match="3"):
        trio.run(main)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_exit_in_a_nursery_is_in_the_group_of_that_only(error: type[BaseException]) -> None:
    async def main() -> None:
        async with open_replica("a", found=True), trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise error(3)

    with pytest.raises(BaseExceptionGroup) as told:
        trio.run(main)
    assert [*map(type, told.value.exceptions)] == [error]


@trio.lowlevel.enable_ki_protection
def interrupt_at_next_checkpoint() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("first", [None, KeyboardInterrupt, ValueError])
def test_interrupt_of_a_blocks_end_is_not_in_a_group(first: type[BaseException] | None) -> None:
    async def main() -> None:
        async with open_replica("a", found=True) as a, open_replica("b", join=a.address):
            interrupt_at_next_checkpoint()
            if first is not None:
                raise first

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
