"""What each region writes and the expected result, computed without the code under test.

Words are counted in counters `count:WORD` and collected in the set `vocabulary`. In the clean-up one region removes
words and deletes their counters, while another, cut off, adds half of them again and goes on counting. The removals
have not seen what it adds, so exactly that stays; the rest is gone.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

VOCABULARY = "vocabulary"
COUNT_PREFIX = "count:"

Command = tuple[str, ...]
Batch = list[Command]


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The clean-up: one region removes `removed`, while another adds some of them, `kept`, again.

    The other region counts each of the kept words `times[word]` times more. A third region counts `elsewhere`, words
    that are not removed.
    """

    removed: tuple[str, ...]
    times: Mapping[str, int]
    elsewhere: tuple[str, ...]

    @property
    def kept(self) -> tuple[str, ...]:
        """The words that are added again during their removal."""
        return tuple(self.times)


@dataclass(frozen=True, slots=True)
class Expected:
    """The only correct end state: every counter, and every member of the set."""

    counts: Mapping[str, int]
    vocabulary: frozenset[str]


def counting(words: Sequence[str], batch_size: int) -> Iterator[Batch]:
    """Commands that count `words` and collect them: in each batch one INCR per word, then one SADD."""
    for start in range(0, len(words), batch_size):
        part = words[start : start + batch_size]
        batch: Batch = [("INCR", COUNT_PREFIX + word) for word in part]
        batch.append(("SADD", VOCABULARY, *dict.fromkeys(part)))
        yield batch


def removing(words: Sequence[str], batch_size: int) -> Iterator[Batch]:
    """Commands that remove `words` from the vocabulary and delete their counters."""
    for start in range(0, len(words), batch_size):
        part = words[start : start + batch_size]
        batch: Batch = [("DEL", COUNT_PREFIX + word) for word in part]
        batch.append(("SREM", VOCABULARY, *part))
        yield batch


def counting_again(clean_up: CleanUp) -> list[str]:
    """The words that the isolated region counts during the clean-up."""
    return [word for word, times in clean_up.times.items() for _ in range(times)]


def plan_clean_up(thirds: Sequence[Sequence[str]], share: int = 4) -> CleanUp:
    """Every `share`-th word of the vocabulary is removed; every second of these is added again, 1 to 5 times."""
    vocabulary = sorted(set().union(*thirds))
    removed = tuple(vocabulary[::share])
    times = {word: 1 + number % 5 for number, word in enumerate(removed[::2])}
    return CleanUp(removed, times, tuple(vocabulary[1::share]))


def expected(thirds: Sequence[Sequence[str]], clean_up: CleanUp) -> Expected:
    """The end state after all words were counted, some removed, and some of these added again meanwhile."""
    counts: Counter[str] = Counter()
    for words in thirds:
        counts.update(words)
    counts.update(clean_up.elsewhere)
    for word in clean_up.removed:
        del counts[word]
    counts.update(clean_up.times)
    return Expected(dict(counts), frozenset(counts))
