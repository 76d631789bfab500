"""The content of a document as plain Python values, and its digest.

Yjs does not say what a root is: a text, an array or a map is one only for the program that asks for it. So it is told
from what is in it, the same at every replica.
"""

import enum
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from pycrdt import Array, Doc, Map, Text, XmlElement, XmlFragment, XmlText

from crdtcast.adapters.pycrdt.structure import Parent, Tree
from crdtcast.adapters.pycrdt.update import (
    ANY,
    DELETED,
    EMBED,
    FORMAT,
    GC,
    MAP,
    STRING,
    SUBDOCUMENT,
    TYPE,
    Id,
    Struct,
    Update,
    encoded_deletions,
    parsed,
    with_sorted_json,
    with_sorted_maps,
)
from crdtcast.datatypes.canonical import canonical

Content: TypeAlias = (
    bool | int | float | str | bytes | list["Content"] | dict[str, "Content"] | None
)
"""A text or XML as a str, an array as a list, a map as a dict; numbers as floats, as pycrdt reads them."""

_ARRAY: Final = 0
_XML: Final = frozenset({3, 4, 5, 6})
_OF_TEXT: Final = frozenset({STRING, EMBED, FORMAT})
_XML_TYPES: Final = (XmlFragment, XmlElement, XmlText)


class RootKind(enum.Enum):
    """What a root is read as."""

    TEXT = "text"
    ARRAY = "array"
    MAP = "map"
    XML = "xml"


def content_of(encoded: bytes) -> dict[str, Content]:
    """What is in each root of a document that is not empty, by the root's name.

    A root whose arrays have pieces of text in them, as no program of Yjs makes them, is None: pycrdt 0.14 does not
    return from reading it.
    """
    update = parsed(encoded)
    kinds, unreadable = _roots(Tree(update))
    doc: Doc[Any] = Doc()
    doc.apply_update(encoded)
    found: dict[str, Content] = {}
    for name, kind in sorted(kinds.items()):
        content = None if name in unreadable else read_root(doc, name, kind)
        if content is None or content:
            found[name] = content
    return found


def read_root(doc: "Doc[Any]", name: str, kind: RootKind) -> Content:
    """What is in that root, read as that kind."""
    match kind:
        case RootKind.TEXT:
            return str(doc.get(name, type=Text))
        case RootKind.ARRAY:
            return _plain(doc.get(name, type=Array))
        case RootKind.MAP:
            return _plain(doc.get(name, type=Map))
    return str(doc.get(name, type=XmlFragment))


def _plain(value: Any) -> Content:
    if isinstance(value, (Text, *_XML_TYPES)):
        return str(value)
    if isinstance(value, (Array, list)):
        return [_plain(item) for item in value]
    if isinstance(value, Map | dict):
        return {key: _plain(value.get(key)) for key in sorted(value.keys())}
    if isinstance(value, Doc):
        return {"guid": value.guid}
    plain: Content = bytes(value) if isinstance(value, bytes | bytearray) else value
    return plain


def _roots(tree: Tree) -> tuple[dict[str, RootKind], set[str]]:
    """The kinds of roots with something in them, and those that cannot be read."""
    inside: dict[Parent, set[tuple[int, int, bool]]] = {}
    for client, structs in tree.document.structs.items():
        for each in structs:
            if each.kind in (GC, DELETED):
                continue
            parent, keyed = tree.place(client, each)
            if parent is not None:
                kind = tree.document.type_of(each) if each.kind == TYPE else -1
                inside.setdefault(parent, set()).add((each.kind, kind, keyed))
    kinds: dict[str, RootKind] = {}
    unreadable: set[str] = set()
    for parent, pieces in inside.items():
        items = {(kind, type_of) for kind, type_of, keyed in pieces if not keyed}
        has_text = any(kind in _OF_TEXT for kind, _ in items)
        if isinstance(parent, str):
            if has_text:
                kinds[parent] = RootKind.TEXT
            elif any(type_of in _XML for _, type_of in items):
                kinds[parent] = RootKind.XML
            else:
                kinds[parent] = RootKind.ARRAY if items else RootKind.MAP
        elif has_text and _is_array(tree, parent):
            unreadable.add(_root_of(tree, parent))
    return kinds, unreadable


def _is_array(tree: Tree, of: Id) -> bool:
    found = tree.find(of)
    return found is not None and found.kind == TYPE and tree.document.type_of(found) == _ARRAY


def _root_of(tree: Tree, part: Id) -> str:
    here: Parent | None = part
    while isinstance(here, Id):
        found = tree.find(here)
        here = None if found is None else tree.parent(here.client, found)
    return here or ""


def digest_of_document(encoded: bytes) -> str:
    """128 bits, in hex, of a whole document: equal for equal ones, however its items are cut and in whatever order they
    have arrived.
    """
    update = parsed(encoded)
    digest = blake2b(digest_size=16)
    for client, structs in sorted(update.structs.items()):
        digest.update(canonical([client, structs[-1].end if structs else 0]))
        for run in _runs(update, client, structs):
            digest.update(canonical(run))
    digest.update(encoded_deletions(update.deletions))
    return digest.hexdigest()


def _runs(update: Update, client: int, structs: list[Struct]) -> Iterator[list[Any]]:
    """The items of a client, in pieces as long as possible; what is deleted is only a number."""
    run: list[Any] = []
    last: Struct | None = None
    for each in structs:
        gone = each.kind in (GC, DELETED)
        goes_on = last is not None and (
            (gone and last.kind in (GC, DELETED))
            or (
                each.kind == last.kind
                and each.kind in (STRING, ANY)
                and each.origin == Id(client, each.clock - 1)
                and each.right_origin == last.right_origin
            )
        )
        if not goes_on:
            if run:
                yield run
            run = ["gone"] if gone else [each.kind, *_place(each)]
        if not gone:
            run.append(_own_content(update, each))
        last = each
        if goes_on and not gone:
            run[-2:] = [run[-2] + run[-1]]
    if run:
        yield run


def _place(each: Struct) -> list[Any]:
    parts: list[Any] = [each.clock, each.origin, each.right_origin, each.parent, each.key]
    return [list(part) if isinstance(part, Id) else part for part in parts]


def _own_content(update: Update, each: Struct) -> bytes:
    """Its content in one form for equal ones, without the number of its parts."""
    body = sorted_content(update, each)
    if each.kind not in (STRING, ANY):
        return body
    begin = 0
    while body[begin] > 0x7F:
        begin += 1
    return body[begin + 1 :]


def sorted_document(encoded: bytes) -> bytes:
    """The same document, with maps and deletions in one order: pycrdt writes them in any."""
    update = parsed(encoded)
    pieces: list[bytes] = []
    at = 0
    for structs in update.structs.values():
        for each in structs:
            if each.kind in _WITH_MAPS:
                pieces += [encoded[at : each.body.start], sorted_content(update, each)]
                at = each.body.stop
    pieces += [encoded[at : update.deletions_at], encoded_deletions(update.deletions)]
    return b"".join(pieces)


_WITH_MAPS: Final = frozenset({ANY, EMBED, FORMAT, SUBDOCUMENT})


def sorted_content(update: Update, each: Struct) -> bytes:
    """The content of a struct, with the maps in it sorted."""
    body = update.encoded[each.body]
    if each.kind in (ANY, SUBDOCUMENT) and MAP in body:
        return with_sorted_maps(body, each.kind)
    if each.kind in (EMBED, FORMAT) and b"{" in body:
        return with_sorted_json(body, each.kind)
    return body
