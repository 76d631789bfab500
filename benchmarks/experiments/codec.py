"""Bodies of frames for the messages of every engine: ours as on a link, the others' in the same packing.

Ids are numbers that all members know. Our own frames are checked in full when they are read, as those of a stranger;
what a baseline sends is taken as it comes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgpack

from benchmarks.baselines.cbcast import Acknowledgement, CbcastMessage, StabilityNotice
from benchmarks.baselines.graph import Phantom
from benchmarks.baselines.twolevel import TwoLevelMessage
from benchmarks.baselines.vectors import VectorMessage, VectorNotice
from crdtcast.causality.messages import Digest, Message
from crdtcast.causality.tags import Dot
from crdtcast.wire.frames import decode, encode_body

_pack: Callable[[object], bytes] = msgpack.Packer().pack
_unpack: Callable[[bytes], Any] = partial(msgpack.unpackb, use_list=False)


class Codec:
    """For the members of one group and one kind of engine, a name of `engines.ENGINES`."""

    def __init__(self, ids: Sequence[str], engine: str) -> None:
        self._ids = sorted(ids)  # as positions in vectors go
        self._names = dict(enumerate(self._ids))
        self._number = {name: number for number, name in self._names.items()}
        self.decode: Callable[[bytes], Any] = {
            "vectors": self._read_vectors,
            "twolevel": self._read_two_level,
            "graph": self._read_graph,
            "cbcast": self._read_cbcast,
        }.get(engine, self._read_ours)
        """The message that a body stands for."""

    def encode(self, message: Any) -> bytes:
        """The body of a message's frame."""
        kind = type(message)
        if kind is Message or kind is Digest:
            return encode_body(message, numbers=self._number)
        if kind is Phantom:
            (origin, counter), number = message.dot, self._number
            context = [(number[depended], n) for depended, n in message.context]
            return _pack((1, number[origin], counter, context))
        fields = message.wire_fields()
        if hasattr(message, "dot"):
            fields[1] = self._number[fields[1]]
        return _pack(fields)

    def _read_ours(self, body: bytes) -> Any:
        return decode(body, self._names)

    def _read_graph(self, body: bytes) -> Any:
        if body[1] != 1:
            return self._read_ours(body)
        ids = self._ids
        _, number, counter, context = _unpack(body)
        dots = tuple([Dot(ids[depended], n) for depended, n in context])
        return Phantom(Dot(ids[number], counter), dots)

    def _read_vectors(self, body: bytes) -> Any:
        fields = _unpack(body)
        if fields[0]:
            return VectorNotice(fields[1])
        _, number, payload, vector = fields
        return VectorMessage(Dot(self._ids[number], vector[number]), vector, payload)

    def _read_two_level(self, body: bytes) -> Any:
        fields = _unpack(body)
        if fields[0]:
            return VectorNotice(fields[1])
        _, number, payload, vector, application = fields
        dot = Dot(self._ids[number], vector[number])
        return TwoLevelMessage(dot, vector, application, payload)

    def _read_cbcast(self, body: bytes) -> Any:
        fields = _unpack(body)
        if fields[0] == 1:
            return Acknowledgement(fields[1], fields[2])
        if fields[0] == 2:
            return StabilityNotice(fields[1], fields[2])
        _, number, payload, stable, vector = fields
        return CbcastMessage(Dot(self._ids[number], vector[number]), vector, stable, payload)
