"""Schedules written as text: `send a / crash b`, founders and witnesses by letters."""

from crdtcast.engine import Durability
from crdtcast.simulator.campaign import Outcome, run_schedule
from crdtcast.simulator.schedule import Action, Schedule


def actions(text: str) -> tuple[Action, ...]:
    """The actions, numbers as numbers."""
    return tuple(
        tuple(int(word) if word.isdigit() else word for word in action.split())
        for action in text.split(" / ")
    )


def play(founders: str, text: str, witnesses: str = "", engine: str | None = None) -> Outcome:
    """Carry it out, settle, and judge. engine: a mutant."""
    schedule = Schedule(
        tuple(founders),
        Durability.IMMEDIATE,
        actions(text),
        engine=engine,
        dynamic=True,
        witnesses=tuple(witnesses),
    )
    return run_schedule(schedule)
