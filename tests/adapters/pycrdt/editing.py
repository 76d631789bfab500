"""A `YDoc` whose operations are edits by number: tools that know no document can issue them."""

import random
from collections.abc import Sequence
from typing import Any, ClassVar
from zlib import crc32

from pycrdt import Array, Doc, Map, Text, XmlElement, XmlFragment, XmlText

from crdtcast.adapters.pycrdt import YDoc
from crdtcast.adapters.pycrdt.content import content_of
from crdtcast.datatypes.operations import Operation, integer


def edit(doc: "Doc[Any]", rng: random.Random) -> None:
    """One random edit of the texts, arrays, maps and XML of a document."""
    text, array = doc.get("text", type=Text), doc.get("array", type=Array)
    mapping, xml = doc.get("map", type=Map), doc.get("xml", type=XmlFragment)
    length = len(str(text))
    match rng.randrange(10):
        case 0 | 1 | 2:
            at = len(str(text)[: rng.randint(0, length)].encode())
            text.insert(at, rng.choice(["a", "bc", "déf", "x😀y"]))
        case 3 if length:
            begin = rng.randrange(length)
            end = min(length, begin + rng.randint(1, 3))
            before, gone = str(text)[:begin], str(text)[begin:end]
            del text[len(before.encode()) : len((before + gone).encode())]
        case 4 if length > 1:
            first = len(str(text)[0].encode())
            text.format(0, first, {"bold": rng.choice([True, None])})
        case 5 | 6:
            value = rng.choice([1, "s", None, b"raw", [1, {"k": True}], Map({"q": 1}), Text("in")])
            array.insert(rng.randint(0, len(array)), value)
        case 7 if len(array):
            del array[rng.randrange(len(array))]
        case 8:
            key = rng.choice("abc")
            if key in mapping and rng.random() < 0.4:
                del mapping[key]
            elif isinstance(mapping.get(key), Array):
                mapping[key].append("more")
            else:
                mapping[key] = rng.choice([1, "v", Array([3]), Map({"deep": Array([])})])
        case _:
            xml.children.append(XmlElement("p", {"k": "v"}, contents=[XmlText("z")]))


def edited(base: bytes, client: int, seed: int) -> bytes:
    """The update that some edits of that document make."""
    doc: Doc[Any] = Doc(client_id=client)
    doc.apply_update(base)
    before = doc.get_state()
    rng = random.Random(seed)
    for _ in range(rng.randint(1, 4)):
        edit(doc, rng)
    return doc.get_update(before)


def plain(updates: Sequence[bytes]) -> dict[str, Any]:
    """The content after these updates, in a document of pycrdt."""
    doc: Doc[Any] = Doc()
    for update in updates:
        doc.apply_update(update)
    return content_of(doc.get_update())


class EditedDoc(YDoc):
    """`edit(seed)` issues the update of some edits, by a client of this replica's own."""

    TYPE: ClassVar[str] = "ydoc_edited_kept"
    OPERATIONS: ClassVar[Any] = {
        **YDoc.OPERATIONS,
        "edit": Operation("Edit the document.", seed=integer, sent_as="apply"),
    }

    def prepare(self, name: str, *args: Any, after: Sequence[Sequence[Any]] = ()) -> list[Any]:
        if name != "edit":
            return super().prepare(name, *args, after=after)
        doc: Doc[Any] = Doc()
        for update in (self.update_since(), *(operation[1] for operation in after)):
            doc.apply_update(update)
        client = 1 + crc32(self._located().owner.encode())
        return super().prepare("apply", edited(doc.get_update(), client, args[0]), after=after)
