"""What things weigh on the wire, as frames of `crdtcast.wire`: ours, and other engines' in the same packing.

TCP and IP are left out. With `numbered` ids, each id of a member is replaced by its number, as a link could do after
both sides have told their tables; the difference is what repeated ids cost.
"""

from collections.abc import Sequence
from typing import Any

import msgpack

from crdtcast.messages import Digest, Message
from crdtcast.simulator.timed import Sent
from crdtcast.wire import encode

_LENGTH = 4


class Traffic:
    """Bytes of a run, over all links: `messages`, `digests` (whatever tells without a payload) and `repairs` add up.

    dependencies: what each message names to say what is before it, dots of its context or entries of its vectors.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self._number = {name: place for place, name in enumerate(ids)}
        self.messages = self.digests = self.repairs = 0
        self.numbered = self.digest_count = 0
        self.dependencies: list[int] = []

    @property
    def total(self) -> int:
        """All bytes."""
        return self.messages + self.digests + self.repairs

    def add(self, sent: Sent) -> None:
        """Count one transmission, once for every receiver."""
        message, receivers = sent.message, sent.receivers
        frame = _frame(message)
        size = len(frame) * receivers
        fields = _renamed(msgpack.unpackb(frame[_LENGTH:], strict_map_key=False), self._number)
        self.numbered += (_LENGTH + len(msgpack.packb(fields))) * receivers
        if not hasattr(message, "payload"):
            self.digests += size
            self.digest_count += receivers
        elif sent.relayed:
            self.repairs += size
        else:
            self.messages += size
            self.dependencies.append(_dependencies(message))


def _frame(message: Any) -> bytes:
    if isinstance(message, Message | Digest):
        return encode(message)
    body: bytes = msgpack.packb(message.wire_fields())
    return len(body).to_bytes(_LENGTH, "big") + body


def _renamed(thing: Any, number: dict[str, int]) -> Any:
    if isinstance(thing, str):
        return number.get(thing, thing)
    if isinstance(thing, list):
        return [_renamed(part, number) for part in thing]
    if isinstance(thing, dict):
        return {number.get(key, key): value for key, value in thing.items()}
    return thing


def _dependencies(message: Any) -> int:
    if hasattr(message, "context"):
        return len(message.context)
    return len(message.vector) + len(getattr(message, "application_vector", ()))
