"""The lies that chaos leaves out, since a group would have to believe them."""

import random
from collections import Counter

from crdtcast.causality.messages import Digest, DigestKind
from crdtcast.chaos.liar import is_believed
from crdtcast.simulator.hostile.mutation import Lore, Mutation
from tests.engine.town import Town


def test_liar_sends_no_proof_that_a_disk_was_set_back() -> None:
    """A restarted member believes it: three of five were told so at once, and no majority was left."""
    town = Town("abc")
    town.send("a", b"1")
    town.run()
    lore = Lore.of(town.engines["c"])
    chance = random.Random(0)
    frames = [Mutation(chance, lore).frame(town.id("a")) for _ in range(3000)]
    kinds = Counter[DigestKind]()
    for frame in frames:
        if isinstance(frame, Digest):
            kinds[frame.kind] += 1
            more = frame.vector.get(town.id("a"), 0) > lore.vector[town.id("a")]
            assert is_believed(frame, town.id("a"), lore) == (more or frame.kind is DigestKind.TOLD)
    assert kinds[DigestKind.TOLD] and kinds[DigestKind.NEWS], kinds
