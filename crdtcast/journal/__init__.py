"""Journals make what a member sent, delivered and reported durable, before anything that depends on it is sent.

`FileJournal` for nodes, `MemoryJournal` for tests, `Journal` for your own. See docs/journal.md.
"""

from crdtcast.journal.file import FileJournal
from crdtcast.journal.interface import Journal, Recovered
from crdtcast.journal.memory import MemoryJournal

__all__ = ["FileJournal", "Journal", "MemoryJournal", "Recovered"]
