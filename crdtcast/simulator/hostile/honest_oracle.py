"""The oracle of a group with a hostile member: it believes nothing that this member says."""

from collections.abc import Iterable

from crdtcast.causality.tags import Dot, Tag
from crdtcast.simulator.oracle import Checker, FailureKind


class HonestChecker(Checker):
    """Judges honest members in full. Of other messages it knows only what honest members got: each is delivered once,
    at all of them, before what depends on it, and becomes stable. Its own past is not judged: a lie has no true past.
    """

    def delivered(self, member: str, dot: Dot, tag: Tag | None = None) -> None:
        """See `Checker`."""
        if dot.origin in self._views:
            super().delivered(member, dot, tag)
            return
        view = self._views[member]
        if dot not in self._index:
            self._index[dot] = len(self._dots)
            self._dots.append(dot)
            self._sender.append(dot.origin)
            self._past.append(0)
            self._past_vector.append({} if tag is None else dict(tag.past))
        index = self._index[dot]
        if view.known >> index & 1:
            self._find(FailureKind.DUPLICATE, member, dot)
            return
        view.add(index, dot)

    def stable(self, member: str, dot: Dot, members: Iterable[str] = ()) -> None:
        """See `Checker`."""
        if dot.origin in self._views:
            super().stable(member, dot, members)
            return
        view, index = self._views[member], self._index.get(dot)
        if index is None or not view.known >> index & 1:
            self._find(FailureKind.STABLE_UNDELIVERED, member, dot)
        elif view.stable >> index & 1:
            self._find(FailureKind.STABLE_TWICE, member, dot)
        else:
            view.add_stable(index, dot)
