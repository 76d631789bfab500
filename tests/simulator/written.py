"""Schedules written as text: `send a / crash b`, founders and witnesses by letters."""

from crdtcast.simulator.campaign import GroupOutcome, run_schedule
from crdtcast.simulator.schedule import Action, GroupSchedule


def actions(text: str) -> tuple[Action, ...]:
    """The actions, numbers as numbers."""
    return tuple(
        tuple(int(word) if word.isdigit() else word for word in action.split())
        for action in text.split(" / ")
    )


def play(founders: str, text: str, witnesses: str = "", engine: str | None = None) -> GroupOutcome:
    """Carry it out, settle, and judge. engine: `module:Class`."""
    schedule = GroupSchedule(
        members=tuple(founders),
        actions=actions(text),
        engine=engine,
        witnesses=tuple(witnesses),
    )
    return run_schedule(schedule)
