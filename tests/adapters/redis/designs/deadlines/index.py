"""The index of deadlines: buckets of time in the server, moved in the same step as the write.

A bucket is a set of keys. Nothing tells the bucket of a key but its native deadline: a key that the server has dropped
must be looked for, in the buckets that may be over.
"""

WIDTH = 4
"""Of a bucket, in the unit of time."""


def bucket_of(at: int) -> int:
    return at // WIDTH


class DeadlineIndex:
    """The buckets, by number and by whether this member has set the deadline last."""

    def __init__(self) -> None:
        self.buckets: dict[tuple[int, bool], set[str]] = {}

    def insert(self, key: str, at: int, mine: bool) -> None:
        self.buckets.setdefault((bucket_of(at), mine), set()).add(key)

    def remove(self, key: str, number: int) -> None:
        for mine in (False, True):
            keys = self.buckets.get((number, mine), set())
            keys.discard(key)
            if not keys:
                self.buckets.pop((number, mine), None)

    def is_mine(self, key: str, number: int) -> bool:
        return key in self.buckets.get((number, True), ())

    def passed_bucket(self, key: str, until: int) -> int | None:
        """The bucket of a key that the server has dropped, if it has: among those up to the one of `until`."""
        for (number, _), keys in self.buckets.items():
            if number <= bucket_of(until) and key in keys:
                return number
        return None

    def due(self, until: int, mine: bool) -> list[str]:
        """Keys in buckets that may be over at `until`."""
        return sorted(
            key
            for (number, own), keys in self.buckets.items()
            if own == mine and number <= bucket_of(until)
            for key in keys
        )

    def entries(self) -> list[tuple[str, int]]:
        return sorted((key, number) for (number, _), keys in self.buckets.items() for key in keys)

    def of(self, key: str) -> list[tuple[int, bool]]:
        return sorted(place for place, keys in self.buckets.items() if key in keys)
