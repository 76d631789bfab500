"""What things weigh on the wire, as frames of `crdtcast.wire.frames`: ours, and other engines' in the same packing.

TCP and IP are left out. Ids of members are numbers, as between links that have told each other what they stand for
(`crdtcast.wire.id_table`); how much it would be with ids spelled out is counted beside.
"""

from collections.abc import Sequence
from typing import Any

import msgpack

from benchmarks.experiments.timed import Sent
from crdtcast.causality.messages import Digest, Message
from crdtcast.wire.frames import encode_body

from .codec import Codec

_LENGTH = 4


class Traffic:
    """Bytes of a run, over all links: `messages`, `digests` (whatever tells without a payload) and `repairs` add up.

    spelled: all of it, had the ids been spelled out. dependencies: what each message names to say what is before it,
    dots of its context or entries of its vectors.
    """

    def __init__(self, ids: Sequence[str], engine: str) -> None:
        self._codec = Codec(ids, engine)
        self.messages = self.digests = self.repairs = 0
        self.spelled = self.digest_count = 0
        self.dependencies: list[int] = []

    @property
    def total(self) -> int:
        """All bytes."""
        return self.messages + self.digests + self.repairs

    def add(self, sent: Sent) -> None:
        """Count one transmission, once for every receiver."""
        message, receivers = sent.message, sent.receivers
        self.spelled += (_LENGTH + len(_spelled_out(message))) * receivers
        size = (_LENGTH + len(self._codec.encode(message))) * receivers
        if not hasattr(message, "payload"):
            self.digests += size
            self.digest_count += receivers
        elif sent.relayed:
            self.repairs += size
        else:
            self.messages += size
            self.dependencies.append(_dependencies(message))


def _spelled_out(message: Any) -> bytes:
    if isinstance(message, Message | Digest):
        return encode_body(message)
    body: bytes = msgpack.packb(message.wire_fields())
    return body


def _dependencies(message: Any) -> int:
    if hasattr(message, "context"):
        return len(message.context)
    return len(message.vector) + len(getattr(message, "application_vector", ()))
