"""What an evicted gateway sends again, at one go."""

from collections.abc import Sequence

from crdtcast.adapters.redis.group.rebase import Mine, Rebased, rebasing


def rebased(mine: Sequence[Mine]) -> Rebased:
    """See `rebasing`, all steps of it."""
    steps = rebasing(mine)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: Rebased = ended.value
            return result
