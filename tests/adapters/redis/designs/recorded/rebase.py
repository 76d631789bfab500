"""What a member that comes back sends again of its former life, in the place of what it had sent."""

from collections.abc import Callable

from tests.adapters.redis.designs.recorded.commands import has_data
from tests.adapters.redis.designs.recorded.effects import Add, Asked, Effect, Kill, Letter, Values


def rebased(
    letter: Letter,
    time: int,
    values: Values,
    yielded: Callable[[int], None],
    *,
    begins: bool = True,
) -> Letter:
    """What is additive goes out again; what removes or overwrites yields, and is reported.

    Whether a key begins with it is asked anew, of the values here: else an orphan deadline, which others may have
    dropped by now, would be that of the new key. begins: False is the planted fault that it is not asked.
    """
    asked, seen = [], dict(values)
    for one in letter.asked:
        effects = _without_beginning(one.effects)
        add = effects[-1]
        if not isinstance(add, Add) or not all(map(_is_additive, effects)):
            yielded(one.request)
            continue
        key = add.slot[0]
        if begins and not has_data(seen, key):
            effects = (Kill("key", key), *effects)
        seen[add.slot] = 1
        asked.append(Asked(one.request, effects))
    return Letter(time, tuple(asked))


def _is_additive(effect: Kill | Add) -> bool:
    if isinstance(effect, Kill):
        return effect.scope == "slots"
    return effect.atom != "register"


def _without_beginning(effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """Without the removal in front of a key that begins anew: it takes nothing that anybody has written."""
    first = effects[0]
    begins = isinstance(first, Kill) and first.scope == "key" and len(effects) > 1
    return effects[1:] if begins else effects
