"""A waiter that looked at a revision learns of every later change, however much else has changed."""

from hypothesis import given
from hypothesis import strategies as st

from crdtcast.replica.recent import Recent

KEYS = [*"abcde"]


@given(st.lists(st.sampled_from([*KEYS, None]), max_size=30), st.integers(1, 5))
def test_no_change_is_missed_and_few_are_made_up(touched: list[str | None], most: int) -> None:
    recent, last, all_at = Recent(most), dict.fromkeys(KEYS, 0), 0
    for revision, key in enumerate(touched, 1):
        if key is None:
            recent.all_changed(revision)
            all_at = revision
        else:
            recent.touch(key, revision)
            last[key] = revision
        for each in KEYS:
            for since in range(revision + 1):
                changed = max(last[each], all_at) > since
                assert recent.changed(each, since) or not changed
                if most == len(KEYS):
                    assert recent.changed(each, since) == changed
            assert not recent.changed(each, revision)
