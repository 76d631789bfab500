"""Updates that no program of Yjs makes: those of a real one with other neighbours, parents, contents and bytes."""

import random

from crdtcast.adapters.pycrdt.update import (
    ANY,
    BINARY,
    DELETED,
    EMBED,
    FORMAT,
    GC,
    SKIP,
    STRING,
    SUBDOCUMENT,
    TYPE,
    Id,
    Struct,
    Update,
    encoded_deletions,
    number,
)


def _text(text: str) -> bytes:
    return number(len(text.encode())) + text.encode()


CONTENTS = (
    (DELETED, number(2)),
    (BINARY, _text("raw")),
    (STRING, _text("s😀")),
    (EMBED, _text('{"a":1,"b":2}')),
    (FORMAT, _text("bold") + _text("true")),
    (TYPE, number(0)),
    (TYPE, number(6)),
    (ANY, number(1) + bytes([126])),
    (SUBDOCUMENT, _text("guid") + bytes([126])),
)


def crafted(update: Update, known: dict[int, int], rng: random.Random) -> bytes:
    """The update with some of its items changed. known: the clocks that items may name."""
    if rng.random() < 0.3:
        changed = bytearray(update.encoded)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(changed))] = rng.choice([0, 1, 127, 128, rng.randrange(256)])
        return bytes(changed)
    written = {client: structs for client, structs in update.structs.items() if structs}
    encoded = number(len(written))
    for client, structs in written.items():
        encoded += number(len(structs)) + number(client) + number(structs[0].clock)
        encoded += b"".join(_changed(update, each, known, rng) for each in structs)
    return encoded + encoded_deletions(update.deletions)


def _changed(update: Update, each: Struct, known: dict[int, int], rng: random.Random) -> bytes:
    if each.kind in (GC, SKIP):
        return bytes([each.kind]) + number(each.length)

    def any_id() -> Id:
        client = rng.choice(sorted(known))
        return Id(client, rng.randrange(known[client]))

    kind, body = each.kind, update.encoded[each.body]
    origin, right, parent, key = each.origin, each.right_origin, each.parent, each.key
    if rng.random() < 0.3:
        origin = rng.choice([any_id(), None])
    if rng.random() < 0.3:
        right = rng.choice([any_id(), None])
    if parent is None or rng.random() < 0.3:
        parent = rng.choice(["text", "array", "new", any_id(), any_id()])
    if rng.random() < 0.15:
        key = rng.choice([None, "a"])
    if rng.random() < 0.15:
        kind, body = rng.choice(CONTENTS)
    flags = 0x80 * (origin is not None) | 0x40 * (right is not None) | 0x20 * (key is not None)
    encoded = bytes([kind | flags])
    for beside in (origin, right):
        if beside is not None:
            encoded += number(beside.client) + number(beside.clock)
    if origin is None and right is None:
        if isinstance(parent, str):
            encoded += number(1) + _text(parent)
        else:
            encoded += number(0) + number(parent.client) + number(parent.clock)
        if key is not None:
            encoded += _text(key)
    return encoded + body
