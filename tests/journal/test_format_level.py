"""A journal of a format level that this program does not read."""

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from crdtcast import open_member
from crdtcast.engine import GroupEngine, Span
from crdtcast.exceptions import OutdatedError
from crdtcast.journal import FileJournal
from crdtcast.journal.saved import Saved, pack_saved


def test_older_program_refuses_a_journal_and_leaves_it_whole(tmp_path: Path) -> None:
    me = "a.00640a3bcc5a0f001"
    state = GroupEngine.found(me, [], reads=Span(1, 2)).state()
    state = replace(state, view=replace(state.view, level=2))
    saved = Saved("g", "a", group_id=me, incarnation=me, state=state)
    journal = FileJournal(tmp_path / "journal")
    journal.load()
    journal.compact(pack_saved(saved))
    journal.sync()
    journal.close()

    async def start() -> None:
        async with open_member("a", group="g", found=True, journal=tmp_path / "journal"):
            await trio.sleep_forever()

    for _ in range(2):
        with pytest.raises(OutdatedError, match="start a program that reads level 2"):
            trio.run(start)
    found = FileJournal(tmp_path / "journal").load()
    assert found.snapshot == pack_saved(saved)
    assert not found.damage and not found.records
