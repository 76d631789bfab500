"""A member that lies: it works as any other, and also sends made-up frames, in its own name, to all members that it
has links with (`crdtcast.simulator.hostile.mutation`).

It leaves out lies that the group would believe and no vote could undo (docs/security.md): that a member has ended, or
has sent or acknowledged more than its journal says; what others have promised or decided; joiners that it admits.
"""

import random

import trio

from crdtcast.causality.messages import Digest, DigestKind, Ended
from crdtcast.engine.views import Views
from crdtcast.exceptions import NotReadyError
from crdtcast.group.member import Member
from crdtcast.service.run import NodeProcess
from crdtcast.simulator.hostile.mutation import Lore, Mutation
from crdtcast.wire.frames import FrameKind, framed
from crdtcast.wire.group_frames import Admit, InGroup

PERIOD = 0.05
"""Seconds between two lies to all members."""


async def lie(process: NodeProcess, seed: int) -> None:
    """Runs until it is cancelled; it lies while the process is a member."""
    chance = random.Random(seed)
    while True:
        await trio.sleep(PERIOD)
        try:
            member = process.member
        except NotReadyError:
            continue
        _lie_to_all(member, chance)


def _lie_to_all(member: Member, chance: random.Random) -> None:
    lore = Lore.of(member.engine)
    channel = member.channel
    for incarnation in lore.members:
        link = channel.shared.links().up.get(incarnation.partition(".")[0])
        if link is None:
            continue
        mutation = Mutation(chance, lore)
        frame = mutation.frame(incarnation)
        if not is_believed(frame, incarnation, lore) and (body := mutation.body(frame)):
            link.offer(FrameKind.GROUPED, framed(body))


def is_believed(frame: InGroup, receiver: str, lore: Lore) -> bool:
    if isinstance(frame, Digest):
        has_sent = frame.vector.get(receiver, 0) > lore.vector.get(receiver, 0)
        return has_sent or frame.kind is DigestKind.TOLD
    if isinstance(frame, Views):
        of_others = any(record.member != lore.me for record in frame.records)
        return of_others or bool(frame.decided) or receiver in frame.has
    return isinstance(frame, Ended | Admit)
