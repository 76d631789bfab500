"""The part of a commit that the server decides: groups of commands, each run by one fixed script, and their results.

All are in the commit's MULTI, under one reserved dot. Between two scripts there may be clients' reads, and commands
that bring out a hidden value: both must see what the commands before them have done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from crdtcast.adapters.redis.clients.large_request import size_of
from crdtcast.adapters.redis.clients.watches import ZERO_IS_NOTHING
from crdtcast.adapters.redis.commands.write_command import (
    ENDS_KEY,
    ONE_KEY,
    WriteCommand,
    key_places,
)
from crdtcast.adapters.redis.commit.batch import MAX_BYTES, MAX_OPERATIONS
from crdtcast.adapters.redis.commit.plan import Expect, Plan
from crdtcast.adapters.redis.deadlines.index import GoneDeadline, drop_entries
from crdtcast.adapters.redis.recorded import exact_scores
from crdtcast.adapters.redis.recorded.derivation import effects_of
from crdtcast.adapters.redis.recorded.record import (
    MOST_BYTES,
    MOST_WORDS,
    NO_LOOK,
    SCORE_SCRIPT,
    SCORE_SCRIPT_SHA,
    SCRIPT,
    SCRIPT_SHA,
    AskedCommand,
    RecordEntry,
    ServerRecord,
)
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.databases import ELSEWHERE, db_of, name_of, names_in
from crdtcast.adapters.redis.store.effects import KillAll
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.named_args import db_of_args, sent_of

if TYPE_CHECKING:
    from crdtcast.adapters.redis.clients.client import Request
    from crdtcast.adapters.redis.server.connection import Replies

_MOST_IN_SCRIPT = 512
"""Commands of one script: a server does nothing else while it runs."""


class Segments:
    """The segments of one commit.

    record: its header.
    whole: whether they are one transaction, of which no command may wait.
    metadata_db: the database for the record.
    level: the format level in force.
    """

    def __init__(
        self,
        plan: Plan,
        keyspace: Keyspace,
        record: ServerRecord,
        *,
        whole: bool,
        metadata_db: int,
        level: int,
    ) -> None:
        self.record = record
        self.requests: list[Request] = []
        """The requests whose writes are in it, in order."""
        self._done: list[tuple[int, list[RecordEntry]]] = []
        """Recorded entries, with the place of their script in the plan."""
        self._plan = plan
        self._keyspace = keyspace
        self._whole = whole
        self._db = metadata_db
        self._asked: list[bytes] = []
        """All commands, encoded, by number."""
        self._first: dict[int, tuple[int, int]] = {}
        """By the id of a request: its first command, and the number of its commands."""
        self._begun = 0
        """Number of commands that are in a script already."""
        self._scripts: list[tuple[int, int, int]] = []
        """Place in the plan, first command, number of commands."""
        self._bytes = self._operations = 0
        self._reads_values = False
        self._knows_scores = level >= exact_scores.LEVEL
        self._has_scores = False
        """Whether the open script needs `SCORE_SCRIPT`."""
        self._sent: set[bytes] = set()
        """Scripts that an earlier one of this commit has made known to the server."""
        self._ended: set[bytes] = set()
        """Keys with hidden values that may be gone now: the next commit removes what they hid."""
        self._undated = 0
        """The first so many requests left no key that could have a deadline: a FLUSHALL followed."""
        self._flushed: dict[int, int] = {}
        """The same number by database, for FLUSHDB."""
        self.unsettled: set[bytes] = set()
        """Keys of `_ended` that a later command may have emptied."""
        self._unseen: list[bytes] = []
        """Keys that commands of the open script replace, and that nobody has looked at."""
        plan.metadata(Expect.INTEGER, b"DEL", metadata.RECORD)

    # Putting it together

    def takes(self, request: Request) -> bool:
        """Whether a request fits into the one message: the first one always does."""
        if not self.requests:
            return True
        args = request.args
        size = self._bytes + size_of(args)
        if size > MAX_BYTES or self._operations + len(args) > MAX_OPERATIONS:
            return False
        if not (self._reads_values or self._ended):  # nearly always
            return True
        may_stop = self._reads_values and not self._whole
        row = request.command.write
        is_apart = row is None or row.flushes or self._begun == len(self._asked)
        if may_stop and is_apart:
            return False  # a command that the script has no room for would run after this one
        keys = request.command.keys_of(args) if self._ended and not self._whole else ()
        return self._ended.isdisjoint(keys)

    def add(self, request: Request) -> None:
        """Let the server execute a request."""
        row = request.command.write
        assert row is not None
        if row.flushes:
            self._flush(request)
            return
        args, keyspace = request.args, self._keyspace
        if (
            request.command.asks_plainly
            and type(args) is list
            and len(args) <= MOST_WORDS
            and not keyspace.hidden
        ):
            self._add_plainly(request, row)
            return
        sent = sent_of(args)
        if keyspace.hidden and row.empties and keyspace.dates.in_use:
            self._keep_deadlines(request)
        if row.timed is not None:
            sent = self._timed(row, sent)
        if row.replaces and keyspace.dates.in_use:
            for key in request.command.keys_of(args):
                if key not in keyspace.types:
                    keyspace.dates.recall(key)
                    self._unseen.append(key)
        self.requests.append(request)
        self._bytes += size_of(sent)
        self._operations += len(sent)
        begin = len(self._asked)
        hidden = keyspace.hidden
        begins = () if not row.begins else self._may_begin(row, args)
        look = NO_LOOK if row.looks_at is None else row.looks_at(sent)
        self._reads_values |= bool(look.before)
        self._has_scores |= self._knows_scores and row.name in exact_scores.COMMANDS
        idle = row.idle if isinstance(row.idle, bool) else row.idle(sent)
        db = db_of_args(args)
        several = _pieces(row, args) if type(args) is not list else repeat(())
        for words, named in zip(_pieces(row, sent), several, strict=False):
            names = _names(row, named)
            asked = AskedCommand(len(self._asked), words, begins, idle, look, db, names)
            self._asked.append(asked.encode())
            begins = ()
        self._first[id(request)] = begin, len(self._asked) - begin
        if hidden:
            self._bring_out(request)
        if len(self._asked) - self._begun >= _MOST_IN_SCRIPT and not self._reads_values:
            self.end()

    def _add_plainly(self, request: Request, row: WriteCommand) -> None:
        """The same for a command in database 0 that goes as it is, without looks, while no key hides a value."""
        args = request.args
        self.requests.append(request)
        self._bytes += sum(map(len, args))
        self._operations += len(args)
        idle, number = row.idle, len(self._asked)
        idles = idle if type(idle) is bool else idle(args)
        self._asked.append(AskedCommand.plain(number, args, row.begins, idles))
        self._first[id(request)] = number, 1
        if number - self._begun >= _MOST_IN_SCRIPT - 1 and not self._reads_values:
            self.end()

    def _flush(self, request: Request) -> None:
        """Empty one database or all, and remove everything kept for their keys elsewhere, in a separate script:
        commands after it find both gone.
        """
        self.end()
        number, db = len(self._asked), db_of_args(request.args)
        if request.command.name == "FLUSHALL":
            count = self._keyspace.databases.count
            asked, flushed = AskedCommand(number, (b"FLUSHALL", b"%d" % count)), None
        else:  # the name of an empty key tells the database
            names = {1: name_of(db, b"")} if db else {}
            asked, flushed = AskedCommand(number, (b"FLUSHDB", b"ASYNC"), db=db, names=names), db
        self.requests.append(request)
        self._first[id(request)] = number, 1
        self._asked.append(asked.encode())
        self.end()
        self._plan.flushes.append((self._scripts[-1][0], flushed))
        self._keyspace.flushed(flushed, self._plan)
        for ended in (self._ended, self.unsettled):
            ended.difference_update(names_in(ended, flushed))
        if flushed is None:
            self._undated = len(self.requests)
        else:
            self._flushed[flushed] = len(self.requests)

    def _timed(self, row: WriteCommand, args: list[bytes]) -> list[bytes]:
        """The command with deadlines by the server's clock."""
        assert row.timed is not None
        dates = self._keyspace.dates
        dates.in_use = True
        timed = row.timed(args, dates.now - dates.offset_ms)
        return args if isinstance(timed, ReplyError) else list(timed)

    def dated(self) -> dict[bytes, GoneDeadline]:
        """Keys whose deadline only the server knows after this."""
        found: dict[bytes, GoneDeadline] = {}
        first = self._undated
        for at, request in enumerate(
            self.requests[first:] if self._keyspace.dates.in_use else (), first
        ):
            row = request.command.write
            assert row is not None
            gone = GoneDeadline.STAYS if row.empties else GoneDeadline.ENDS
            for key in request.command.keys_of(request.args):
                if self._flushed and at < self._flushed.get(db_of(key), 0):
                    continue
                if (
                    found.get(key) is not GoneDeadline.STAYS
                ):  # a key that another command ended is handled by the next commit
                    found[key] = gone
        return found

    def _may_begin(self, row: WriteCommand, args: Sequence[bytes]) -> tuple[int, ...]:
        """Places of keys for which only the server knows whether they have data. A hidden value is data."""
        hidden = self._keyspace.hidden
        if not hidden:
            return row.begins
        return tuple(place for place in row.begins if args[place] not in hidden)

    def _hiding_keys(self, request: Request) -> list[bytes]:
        """The keys of a request that hide something."""
        hidden = self._keyspace.hidden
        return [key for key in request.command.keys_of(request.args) if key in hidden]

    def _keep_deadlines(self, request: Request) -> None:
        """Let what a command may bring out keep the deadline."""
        keys = [key for key in self._hiding_keys(request) if key not in self._ended]
        if keys:
            self.end()
            for key in keys:
                self._plan.keep_deadline(key)

    def _bring_out(self, request: Request) -> None:
        """If a command may have emptied a key, bring out the value that it hides before the next command."""
        row = request.command.write
        assert row is not None
        keys = self._hiding_keys(request)
        if not keys:
            return
        self.end()
        if not ENDS_KEY.isdisjoint(row.sends):
            self._ended.update(keys)
        elif row.empties:
            self.unsettled.update(key for key in keys if key in self._ended)
            for key in keys:
                if key not in self._ended:
                    self._plan.settle(key)

    def end(self) -> None:
        """End the open script: commands added to the plan from here on run after all that was added."""
        asked = self._asked[self._begun :]
        if not asked:
            return
        self._plan.speak(2)
        if self._unseen:  # what the server has dropped stays there, since the command may not run
            dates = self._keyspace.dates
            words = drop_entries(self._unseen, self._db, dates.offset_ms, dropped=False)
            self._plan.script(*words)
            self._unseen = []
        script, sha = SCRIPT, SCRIPT_SHA
        if self._has_scores:
            script, sha = SCORE_SCRIPT, SCORE_SCRIPT_SHA
        call = (b"EVALSHA", sha) if sha in self._sent else (b"EVAL", script)
        self._sent.add(sha)
        self._has_scores = False
        most = MOST_BYTES - self._bytes
        words = b"%d" % self._db, self.record.header(), b"%d" % self._whole, b"%d" % max(most, 0)
        place = self._plan.script(*call, b"0", *words, *asked)
        self._scripts.append((place, self._begun, len(asked)))
        self._begun = len(self._asked)

    # The answer

    def answered(self, replies: Replies) -> tuple[list[Request], ServerRecord | None]:
        """Answer the executed requests. Returns those to execute again, and the record; None if nothing was written."""
        values: list[Any] = []
        entries: list[RecordEntry] = []
        missing: set[int] = set()
        for place, first, count in self._scripts:
            reply = replies[place]
            if isinstance(reply, Exception):
                values += [ReplyError(str(reply))] * count  # the script executed nothing
                continue
            wrote, *found = reply
            if b"" in found:
                missing |= {first + at for at, result in enumerate(found) if result == b""}
            if wrote:
                asked = self._asked[first : first + count]
                done = [RecordEntry.decode(a, r) for a, r in zip(asked, found, strict=True) if r]
                entries += done
                self._done.append((place, done))
                if len(done) == count:
                    values += [entry.reply for entry in done]
                    continue
            values += [result and RecordEntry.reply_of(result) for result in found]
        again = self._answer(values, missing)
        return again, self.record.with_entries(entries) if entries else None

    def written(self) -> Iterator[tuple[bytes, int]]:
        """Keys with changed values, and the place in the plan that changed them. Call it after `answered`."""
        for place, done in self._done:
            for entry in done:
                for key in _written(entry):
                    yield key, place

    def answered_by(self, record: ServerRecord | None) -> list[Request]:
        """Answer from the record found at the server, after its reply was lost. Returns the requests to execute again:
        a command that is not in the record has written nothing.
        """
        found = {} if record is None else {entry.number: entry.reply for entry in record.entries}
        everything = range(len(self._asked))
        return self._answer([found.get(k) for k in everything], everything - found.keys())

    def _answer(self, values: Sequence[Any], missing: set[int]) -> list[Request]:
        again: list[Request] = []
        for request in self.requests:
            first, count = self._first[id(request)]
            if missing and not missing.isdisjoint(range(first, first + count)):
                again.append(request)
            elif not request.answered:
                row = request.command.write
                is_shaped = count > 1 or (row is not None and row.shape is not None)
                value = values[first]
                if is_shaped:
                    value = _shaped(request, values[first : first + count])
                request.answer(value)
        return again


def refusal_of(request: Request, now: int) -> ReplyError | None:
    """Why the server cannot execute a command by itself, judging by its arguments. now: the server's TIME, in ms."""
    row, args = request.command.write, sent_of(request.args)
    if row is None:
        return None
    if row.refuses is not None and (refusal := row.refuses(args)) is not None:
        return refusal
    if len(args) > MOST_WORDS:
        if not row.divides:
            return ReplyError(
                f"ERR crdtcast: {row.name} has {len(args)} words; where the server decides the "
                f"effect, it may have at most {MOST_WORDS}: split it"
            )
        if (len(args) - _front(row)) % row.divides:
            return request.command.arity_error()
    if row.timed is not None and isinstance(timed := row.timed(args, now), ReplyError):
        return timed
    return None


def _names(row: WriteCommand, named: Sequence[bytes]) -> dict[int, bytes]:
    """Those of these words that are names and not the keys sent to the server, by place."""
    if not named:
        return {}
    places = key_places(row.keys, row.numbered, named)
    return {place: named[place] for place in places if row.crosses or named[place] >= ELSEWHERE}


def _front(row: WriteCommand) -> int:
    """Number of words that each piece of a command begins with: its name, and the key if it has only one."""
    return 2 if row.keys == ONE_KEY else 1


def _pieces(row: WriteCommand, args: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """The command, in pieces if it has more words than a script can call."""
    if len(args) <= MOST_WORDS:
        yield list(args)
        return
    front = list(args[: _front(row)])
    step = (MOST_WORDS - len(front)) // row.divides * row.divides
    for at in range(len(front), len(args), step):
        yield [*front, *args[at : at + step]]


def _shaped(request: Request, values: Sequence[Any]) -> Any:
    """One reply from the replies to all pieces."""
    row = request.command.write
    if len(values) == 1:
        value = values[0]
        if row is not None and row.shape is not None and not isinstance(value, ReplyError):
            return row.shape(sent_of(request.args), value)
        return value
    error = next((value for value in values if isinstance(value, ReplyError)), None)
    if error is not None:
        return error
    return sum(values) if isinstance(values[0], int) else values[0]


def _written(entry: RecordEntry) -> Iterator[bytes]:
    """Keys whose value a command has changed."""
    if entry.reply == 0 and entry.words[0].upper() in ZERO_IS_NOTHING:
        return
    for effect in effects_of(entry):
        if not isinstance(effect, KillAll):
            yield effect.key
