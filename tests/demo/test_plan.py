"""The demo's plan: its expected end state against a naive replay of what each region writes."""

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crdtcast.demo import corpus, plan

WORDS = st.lists(st.sampled_from("abcdefghijkl"), max_size=30)


def replay(thirds: list[list[str]], clean_up: plan.CleanUp) -> plan.Expected:
    """Run the batches on a plain dictionary: first everything counted, then the clean-up.

    What is removed was seen, so removing comes before what the region that is cut off adds.
    """
    counts: Counter[str] = Counter()
    vocabulary: set[str] = set()
    batches = [batch for words in thirds for batch in plan.counting(words, 4)]
    batches += plan.removing(clean_up.removed, 4)
    batches += plan.counting(plan.counting_again(clean_up), 4)
    batches += plan.counting(clean_up.elsewhere, 4)
    for command in (command for batch in batches for command in batch):
        match command:
            case ("INCR", key):
                counts[key.removeprefix(plan.COUNT_PREFIX)] += 1
            case ("DEL", key):
                del counts[key.removeprefix(plan.COUNT_PREFIX)]
            case ("SADD", plan.VOCABULARY, *words):
                vocabulary |= set(words)
            case ("SREM", plan.VOCABULARY, *words):
                vocabulary -= set(words)
            case _:
                raise AssertionError(command)
    return plan.Expected(dict(counts), frozenset(vocabulary))


@given(st.tuples(WORDS, WORDS, WORDS))
def test_expected_end_state_equals_a_replay(
    thirds: tuple[list[str], list[str], list[str]],
) -> None:
    words = list(thirds)
    clean_up = plan.plan_clean_up(words)
    assert plan.expected(words, clean_up) == replay(words, clean_up)


@given(st.tuples(WORDS, WORDS, WORDS))
def test_the_parts_of_the_clean_up_fit_together(
    thirds: tuple[list[str], list[str], list[str]],
) -> None:
    clean_up = plan.plan_clean_up(list(thirds))
    assert set(clean_up.kept) <= set(clean_up.removed)
    assert not set(clean_up.elsewhere) & set(clean_up.removed)
    assert Counter(plan.counting_again(clean_up)) == Counter(clean_up.times)


@given(WORDS, st.integers(1, 7))
def test_batches_hold_every_word_once(words: list[str], size: int) -> None:
    batches = list(plan.counting(words, size))
    counted = [command[1] for batch in batches for command in batch if command[0] == "INCR"]
    assert counted == [plan.COUNT_PREFIX + word for word in words]
    assert sum(map(len, batches)) == len(words) - (-len(words) // size)


def test_thirds_are_the_corpus_in_order(tmp_path: Path) -> None:
    for name, text in {"b.py": "def Main_x1(): pass", "a.py": "# ünïcode words, a 1 bb"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_a.py").write_text("left out")
    files = corpus.source_files(tmp_path)
    assert [path.name for path in files] == ["a.py", "b.py"]
    words = list(corpus.words_of_files(files))
    assert words == ["code", "words", "bb", "def", "main", "pass"]
    assert corpus.thirds(4, files) == [["code", "words"], ["bb"], ["def"]]


def test_the_standard_library_has_enough_words() -> None:
    thirds = corpus.thirds(30_000)
    assert [len(words) for words in thirds] == [10_000] * 3
    first, second, third = map(set, thirds)
    assert first & second & third, "the regions are to write to the same keys"
