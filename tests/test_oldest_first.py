"""What is dropped from the front of a large dictionary costs one step, however much was dropped before."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from crdtcast.adapters.redis.store import keyspace
from crdtcast.adapters.redis.store.keyspace import Keyspace, Known
from crdtcast.adapters.redis.types.native import NOTHING

ROOT = Path(__file__).parent.parent
PACKAGES = ("crdtcast", "adapters", "datatypes", "integrations")
SOURCES = sorted({path.resolve() for each in PACKAGES for path in (ROOT / each).rglob("*.py")})


def _deletions_of_the_first(source: str) -> list[int]:
    """Lines with `del d[next(iter(d))]` or `d.pop(next(iter(d)))`: in a plain dict, `next` passes every entry that
    was deleted before it, so a loop of these is quadratic. `OrderedDict.popitem(last=False)` is not.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Delete(targets=[ast.Subscript(slice=ast.Call() as key)]):
                pass
            case ast.Call(func=ast.Attribute(attr="pop"), args=[ast.Call() as key, *_]):
                pass
            case _:
                continue
        if ast.unparse(key).startswith("next(iter("):
            found.append(node.lineno)
    return found


def test_deletion_of_a_first_item_is_found() -> None:
    text = "del a.b[next(iter(a.b))]\na.pop(next(iter(a)))\nb.popitem(last=False)\ndel c[next(d)]\n"
    assert _deletions_of_the_first(text) == [1, 2]


def test_no_module_deletes_the_first_item_of_a_plain_dict() -> None:
    found = {str(path): _deletions_of_the_first(path.read_text()) for path in SOURCES}
    assert len(found) > 100, "the packages are elsewhere"
    assert {path: lines for path, lines in found.items() if lines} == {}


class _Counted(dict[bytes, Known]):
    """passed: keys that somebody has looked at on the way through all of them."""

    passed = 0

    def __iter__(self) -> Iterator[bytes]:
        for key in super().__iter__():
            self.passed += 1
            yield key


def test_trimming_at_every_commit_costs_few_steps_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    most, more = 1_000, 10_000
    monkeypatch.setattr(keyspace, "_REMEMBERED_KEYS", most)
    kept = Keyspace(1)
    kept.types = types = _Counted()
    for number in range(more):
        types[b"%d" % number] = NOTHING
        kept.trim()
        assert len(types) <= most * 5 // 4
    assert b"%d" % (more - 1) in types, "the newest went first"
    assert types.passed <= 6 * more
