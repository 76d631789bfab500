"""Journals: what a member has sent, delivered and said, durable before anything that depends on it leaves.

`FileJournal` for nodes, `MemoryJournal` for tests, `Journal` for your own. See docs/journal.md.
"""

from crdtcast.journal.file import FileJournal
from crdtcast.journal.interface import Journal, Recovered
from crdtcast.journal.memory import MemoryJournal

__all__ = ["FileJournal", "Journal", "MemoryJournal", "Recovered"]
