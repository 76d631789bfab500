"""A gateway in a group of fixed members: which incarnation it continues, and what it delivers to its server again.

See `recovery` for the decision itself, and `lifecycle` for groups whose members come and go.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.group.fence import claim
from crdtcast.adapters.redis.group.recovery import Identity, decide
from crdtcast.adapters.redis.options import GatewayOptions
from crdtcast.adapters.redis.recorded.answer import message_of
from crdtcast.adapters.redis.recorded.derivation import derived
from crdtcast.adapters.redis.recorded.record import ServerRecord
from crdtcast.adapters.redis.server.connection import ServerConnection, Words
from crdtcast.adapters.redis.server.inspection import Inspection, inspect
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.effects import EndsData
from crdtcast.adapters.redis.store.hiding import hidden_key
from crdtcast.adapters.redis.store.local_file import LocalFile
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.causality.member_id import fresh_incarnation
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import covers
from crdtcast.engine import Engine
from crdtcast.exceptions import RolledBackError


class FixedMember:
    """One member of such a group. begin_anew: reconnects to the server and decides again which incarnation this is."""

    def __init__(
        self,
        options: GatewayOptions,
        committer: Committer,
        clock_us: Callable[[], int],
        begin_anew: Callable[[str], None],
    ) -> None:
        self._options = options
        self._committer = committer
        self._clock_us = clock_us
        self._begin_anew = begin_anew
        self._renew = False
        self._kept: tuple[str, list[Message]] = "", []

    async def identify(
        self, connection: ServerConnection, inspection: Inspection, epoch: int
    ) -> tuple[Identity, StoredState, Inspection]:
        """Decide, from what the server holds, which incarnation this is; take the fence.

        Raises ConfigurationError if no way to continue is safe, ServerError if the server fails.
        """
        options = self._options
        group, name = options.node.group, options.node.name
        file = LocalFile.read(options.state_dir, name)
        level = options.node.level
        identity = decide(group, name, file, inspection.found, level)
        if inspection.found.state is not None:
            # The fence stops any other writer (another gateway, or our own last EXEC in flight).
            # Anything read before it may be out of date, and would overwrite newer data.
            await claim(connection, options.metadata_db, inspection.fence, epoch, None)
            inspection = await inspect(connection, options.metadata_db)
            identity = decide(group, name, file, inspection.found, level)
        if identity is Identity.SAME and (self._renew or self._answered_more(inspection)):
            identity = Identity.RENEWED
        state = self._state_for(identity, inspection, file)
        more: list[Words] = []
        if identity is Identity.RENEWED and inspection.record is not None:
            state, inspection, more = _hand_on(state, inspection, inspection.record)
        await claim(connection, options.metadata_db, inspection.fence, epoch, state, more)
        self._renew = False
        return identity, state, inspection

    def _answered_more(self, inspection: Inspection) -> bool:
        """Whether the server has lost own messages that clients have the answers to: their dots must not be reused."""
        committer, found = self._committer, inspection.found.state
        engine = committer.engine
        if engine is None or found is None:
            return False
        next_counter = engine.vector.get(engine.me, 0) + 1
        answered = min((dot.counter for dot in committer.unsure), default=next_counter) - 1
        recorded = inspection.record is not None
        return found.vector.get(engine.me, 0) + recorded < answered

    def _state_for(
        self, identity: Identity, inspection: Inspection, file: LocalFile | None
    ) -> StoredState:
        """The state to continue with. A new incarnation begins with everything that the old one had, and counter 0."""
        node = self._options.node
        found = inspection.found.state
        if identity is Identity.SAME:
            assert found is not None
            return found
        incarnation = fresh_incarnation(
            node.name,
            self._clock_us,
            # The file may know a later incarnation than a server that came back with less.
            max((known.incarnation for known in (found, file) if known is not None), default=None),
        )
        return StoredState(
            group=node.group,
            name=node.name,
            incarnation=incarnation,
            members=tuple(sorted((node.name, *node.named_peers))),
            counter=0,
            vector={} if found is None else found.vector,
            context=() if found is None else found.context,
            stable={} if found is None else found.stable,
            clock=0 if found is None else found.clock,
            order=0 if found is None else found.order,
            level=node.level,
            number=0 if found is None else found.number,
        )

    def keep_what_the_server_lost(self, before: Engine, engine: Engine) -> None:
        """The server came back with less than this process remembers: deliver those messages to it again.

        They keep their dots: the ended incarnation gave them, so no other message gets them. Messages of a commit
        without an answer are left out: their clients get an error, or the commands run again. Messages are kept until
        the server has them: the connection may break again before.
        """
        ended, kept = self._kept
        if before.me != engine.me:
            ended, kept = before.me, [*kept, *before.state().unstable]
        unsure = self._committer.unsure
        kept = [m for m in kept if m.dot not in unsure and not covers(engine.vector, m.dot)]
        for message in kept:
            engine.receive(ended, message)
        self._kept = ended, kept

    def rolled_back(self, error: RolledBackError) -> None:
        """A peer remembers more of this incarnation than our server has: this incarnation has ended."""
        self._renew = True
        self._begin_anew(str(error))


def _hand_on(
    state: StoredState, inspection: Inspection, record: ServerRecord
) -> tuple[StoredState, Inspection, list[Words]]:
    """Hand the message of a record on to the next incarnation, under the dot that the ended one had reserved for it:
    others may have it already. Returns the changed state and inspection, and further commands to write.
    """
    more: list[Words] = [("DEL", metadata.RECORD)]
    event, message, hidden = derived(record), message_of(record), dict(inspection.hidden)
    for effect in event.effects:
        if isinstance(effect, EndsData):
            more += [("DEL", hidden_key(t, effect.key)) for t in hidden.pop(effect.key, ())]
    unstable, stored = inspection.unstable, inspection.stored
    if message is not None:
        state = replace(
            state,
            vector={**state.vector, message.dot.origin: message.dot.counter},
            context=(message.dot,),
            order=state.order + 1,
        )
        more.append(("HSET", metadata.STORE, *metadata.entry(state.order, message)))
        unstable, stored = [*unstable, message], [*stored, message]
    inspection = replace(
        inspection,
        unstable=unstable,
        stored=stored,
        hidden=hidden,
        record=None,
        handed_on=record,
    )
    return state, inspection, more
