"""A replica whose keys can be copied: one server and its gateway, as far as a copy sees them."""

from collections import Counter
from random import Random

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Tag, Vector, covers, merge_into
from crdtcast.engine import Engine
from tests.adapters.redis.designs.copied.faults import CopyFault
from tests.adapters.redis.designs.copied.giver import Copy, Giving
from tests.adapters.redis.designs.copied.receiver import Receiving
from tests.adapters.redis.designs.recorded.commands import Command, Entry, derive, execute, has_data
from tests.adapters.redis.designs.recorded.effects import Asked, Letter, Values, decode, encode
from tests.adapters.redis.designs.recorded.log import Atom, Log


class Replica:
    """recorded: what the server has carried out and nothing has been derived of; the engine stands still meanwhile."""

    def __init__(self, engine: Engine, faults: frozenset[CopyFault], clock: int) -> None:
        self.engine, self.faults, self.clock = engine, faults, clock
        self.values: Values = {}
        self.log = Log()
        self.counts: Counter[str] = Counter()
        self.recorded: Letter | None = None
        self.giving: tuple[Giving, Replica] | None = None
        self.receiving: Receiving | None = None
        self.messages: list[Message] = []
        """The oracle's: all that was sent here."""
        self.came_with: set[Atom] = set()
        self.had: set[Atom] = set()
        """The oracle's: the atoms of the last copy, with what was beyond it; and those that were here."""

    def write(self, command: Command, random: Random, *, recorded: bool) -> bool:
        """A client's command; a key that waits for its copy takes none."""
        waits = self.receiving is not None and command.key in ("", self.receiving.key)
        if self.recorded is not None or waits:
            return False
        was_there = has_data(self.values, command.key)
        entry = Entry(0, command, execute(self.values, command, random), was_there)
        effects = derive(entry)
        if not effects:
            return False
        self.clock += 1
        self.recorded = Letter(self.clock, (Asked(0, effects),))
        self.engine.reserve()
        if not recorded:
            self.derive(is_run=False)
        return True

    def derive(self, *, is_run: bool = True) -> bool:
        """What is recorded becomes a message."""
        letter = self.recorded
        if letter is None:
            return False
        self.recorded = None
        tag = self.engine.use(encode(letter))
        self.messages.append(Message(tag.dot, tag.context, encode(letter)))
        self.log.apply(letter, tag, None)
        self._note(letter, tag, is_run=is_run)
        return True

    def deliver(self) -> bool:
        """The next remote message; what is recorded comes first."""
        if self.recorded is not None or not self.engine.has_deliverable():
            return False
        delivery = self.engine.poll()
        assert delivery is not None
        letter = decode(delivery.payload)
        self.clock = max(self.clock, letter.time)
        self.log.apply(letter, delivery.tag, self.values)
        self._note(letter, delivery.tag, is_run=False)
        return True

    def _note(self, letter: Letter, tag: Tag, *, is_run: bool) -> None:
        unmarked = is_run and CopyFault.RUN_NOT_MARKED in self.faults
        if self.giving is not None and not unmarked:
            self.giving[0].written(letter, self.values)
            self.counts["run while read" if is_run else "written while read"] += 1
        if self.receiving is not None:
            self.receiving.kept.append((letter, tag))

    def stabilise(self) -> bool:
        """Forget what is stable."""
        tags = self.engine.poll_stable()
        for tag in tags:
            self.log.stabilise(tag.dot)
            if self.receiving is not None:
                self.receiving.became_stable(tag)
                self.counts["stable while it waits"] += 1
        if self.recorded is None:
            self.log.drop_orphans(self.values)
        return bool(tags)

    # Copies

    def ask(self, key: str, giver: "Replica", junk: Values) -> bool:
        """The key was changed past the gateway, and is to be had from another replica."""
        if self.receiving is not None or giver.giving is not None or self.recorded is not None:
            return False
        if giver.receiving is not None or self.giving is not None:
            return False  # nobody gives what it waits for itself
        self._replace(key, junk)
        self.receiving = Receiving(key, self.faults)
        for message in self.engine.state().unstable:
            tag = self.engine.tag(message.dot)
            self.receiving.kept.append((decode(message.payload), tag))
        giver.giving = Giving(key, self.faults), self
        return True

    def give(self) -> bool:
        """Read the next page, or what was written meanwhile; the copy is on its way then."""
        if self.giving is None:
            return False
        giving, receiver = self.giving
        if giving.read_page(self.values):
            return True
        if self.recorded is not None and CopyFault.READ_UNDERIVED not in self.faults:
            return False
        engine = self.engine
        receiver.take(giving.finish(self.values, self.log, engine.vector, engine.stable))
        self.giving = None
        return True

    def take(self, copy: Copy) -> None:
        """The copy arrives."""
        assert self.receiving is not None
        self.receiving.copy = copy

    def install(self) -> bool:
        """Put the key right, if the copy may be used."""
        receiving = self.receiving
        if receiving is None or self.recorded is not None:
            return False
        if not receiving.may_install(self.engine.vector):
            return False
        self.receiving = None
        values, log = receiving.state()
        self.counts["beyond"] += receiving.is_ahead
        self._replace(receiving.key, values)
        assert receiving.copy is not None
        stable = dict(self.engine.stable)
        merge_into(stable, receiving.copy.stable)
        self.came_with = _unstable(log, receiving.key, stable)
        self.had = _unstable(self.log, receiving.key, stable)
        return True

    def _replace(self, key: str, values: Values) -> None:
        for slot in [slot for slot in self.values if slot[0] == key]:
            del self.values[slot]
        self.values.update(values)


def _unstable(log: Log, key: str, stable: Vector) -> set[Atom]:
    every = [atom for slot, atoms in log.atoms.items() if slot[0] == key for atom in atoms]
    return {atom for atom in every if not covers(stable, atom.dot)}
