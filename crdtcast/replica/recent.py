"""Which objects have changed since a revision, for waiters that cannot look and wait in one step: those of other
threads and loops.
"""

from typing import Final

_MOST: Final = 4096
"""Objects remembered."""


class Recent:
    """The revision at which each object was touched last. What is long ago counts as changed: waiters look again."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._touched: dict[str, int] = {}
        self._known_since = 0

    def touch(self, name: str, revision: int) -> None:
        """The object changes with this revision."""
        self._touched.pop(name, None)
        self._touched[name] = revision
        if len(self._touched) > self._most:
            oldest = next(iter(self._touched))
            self._known_since = self._touched.pop(oldest)

    def all_changed(self, revision: int) -> None:
        """All objects change with this revision."""
        self._touched.clear()
        self._known_since = revision

    def changed(self, name: str, since: int) -> bool:
        """Whether the object may have changed after that revision."""
        return since < self._known_since or self._touched.get(name, 0) > since
