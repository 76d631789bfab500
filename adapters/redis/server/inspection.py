"""What a gateway reads from its server at every connection, before it writes: its version, settings and contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgpack

from crdtcast.adapters.redis.adoption.left_out import LeftOut
from crdtcast.adapters.redis.deadlines import index
from crdtcast.adapters.redis.deadlines.adopted import ADOPTING, AdoptedIndex
from crdtcast.adapters.redis.group.recovery import Durability, FoundState
from crdtcast.adapters.redis.recorded.record import ServerRecord
from crdtcast.adapters.redis.server.connection import ServerConnection, Words
from crdtcast.adapters.redis.server.monitor import parse_sections
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.databases import MOST_DATABASES, Databases, by_name
from crdtcast.adapters.redis.store.effects import RedisType, pairs_of
from crdtcast.adapters.redis.store.hiding import hidden_of
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.adapters.redis.store.slot_value import Worth
from crdtcast.adapters.redis.types.exact_values import Value, value_named
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import covers
from crdtcast.exceptions import ConfigurationError, ServerError

_OLDEST = (7, 0)
_WAITAOF_SINCE = (7, 2)
_FULL_AT = 0.95
"""Share of maxmemory above which writes are refused: the rest is for messages of other regions."""
_KEYS_AT_ONCE = 1000
_EXPIRING_FIELDS = ("subexpiry", "keys_with_volatile_items")
"""Fields of INFO about a database: hashes with fields that expire, by Redis and by Valkey."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The answers, all of one instant, since the server is quiet."""

    found: FoundState
    unstable: list[Message]
    stored: list[Message]
    """The unstable messages, and stable ones that are kept until the event log has recorded them, in the order of their
    delivery.
    """
    hidden: dict[bytes, set[RedisType]]
    """Keys with hidden values, and the types of these."""
    exact: Mapping[Value, dict[bytes, Worth]]
    """Exact values of slots whose native values are approximations."""
    unshown: list[bytes]
    """Those of these keys without a visible value: the hidden one is not visible yet, or the server dropped the key."""
    damaged: set[bytes]
    disputed: set[bytes]
    incomplete: set[bytes]
    """Large keys that are repaired in part; `store.metadata` explains all three sets."""
    record: ServerRecord | None
    """What the server has executed by itself, and of which no message is stored yet."""
    handed_on: ServerRecord | None = None
    """The record of an incarnation that has just ended: its message is among the unstable ones."""
    orphans: dict[bytes, bytes]
    """Keys without data, with their deadlines in the form of the index."""
    pinned: dict[bytes, bytes]
    """Keys whose native deadline is postponed, and their real deadlines."""
    has_deadlines: bool
    adopted: AdoptedIndex | None
    """How far the index of a database that was taken over is made; None: it is whole."""
    left_out: LeftOut
    """The keys that the group leaves out."""
    expiring: tuple[int, ...]
    """The clients' databases that have keys with deadlines."""
    has_expiring_fields: bool
    """Whether hashes have fields that expire."""
    beyond: tuple[int, ...]
    """Databases with keys that a gateway does not see: their numbers are too high."""
    time_ms: int
    """Time of the server's clock."""
    parked: bytes | None
    """Messages of earlier incarnations of this gateway that it may have to send again."""
    databases: Databases
    fence: int
    product: str
    """`redis` or `valkey`."""
    version: str
    redis_version: str
    commands: list[Any]


async def inspect(server: ServerConnection, metadata_db: int) -> Inspection:
    """Read everything. Raises ServerError if the server fails, ConfigurationError if it is unusable as it is."""
    questions: dict[str, Words] = {
        "info": ("INFO",),
        "config": ("CONFIG", "GET", "*append*"),
        "commands": ("COMMAND",),
        "selected": ("SELECT", metadata_db),
        "size": ("DBSIZE",),
        "state": ("GET", metadata.STATE),
        "store": ("HGETALL", metadata.STORE),
        "fence": ("GET", metadata.FENCE),
        "damaged": ("SMEMBERS", metadata.DAMAGED),
        "disputed": ("SMEMBERS", metadata.DISPUTED),
        "incomplete": ("SMEMBERS", metadata.INCOMPLETE),
        "joining": ("SMEMBERS", metadata.JOINING),
        "parked": ("GET", metadata.PARKED),
        "record": ("LRANGE", metadata.RECORD, 0, -1),
        "orphans": ("HGETALL", index.ORPHANS),
        "pinned": ("HGETALL", index.PINNED),
        "due": ("ZCARD", index.DUE),
        "adopting": ("HGETALL", ADOPTING),
        "left-out": ("SMEMBERS", metadata.LEFT_OUT),
        "time": ("TIME",),
    }
    replies = await server.call(list(questions.values()))
    told: dict[str, Any] = dict(zip(questions, replies, strict=True))
    if isinstance(told["selected"], Exception):
        raise ConfigurationError(
            f"the server has no database {metadata_db} for the metadata ({told['selected']}): choose "
            "one with --metadata-db"
        )
    for question, reply in told.items():
        if isinstance(reply, Exception) and str(reply).startswith("WRONGTYPE"):
            _, key, *_ = questions[question]
            assert isinstance(key, bytes)
            raise _damaged(key, reply)
        if isinstance(reply, Exception) and question != "config":  # some hosts forbid CONFIG
            raise ServerError(f"the server at {server.address} sent an unexpected answer: {reply}")
    info = dict(
        chain.from_iterable(fields.items() for fields in parse_sections(told["info"]).values())
    )
    refuse_unusable(info)
    hidden = hidden_of(await _named(server, metadata.HIDDEN_PREFIX))
    exact = await _exact_values(server)
    databases = await _databases(server, metadata_db)
    unshown = await _unshown(server, list(hidden))
    keyspace = parse_sections(told["info"]).get("keyspace", {})
    version = _version(info.get("redis_version", "0"))
    state = None if told["state"] is None else StoredState.decode(told["state"])
    stored = _decoded(dict(zip(told["store"][::2], told["store"][1::2], strict=True)))
    stable = {} if state is None else state.stable
    unstable = [message for message in stored if not covers(stable, message.dot)]
    by_database = {db: _told(keyspace.get(f"db{db}", "")) for db in databases.clients}
    expiring = tuple(db for db, told in by_database.items() if told.get("expires"))
    run_id = info.get("run_id", "")
    try:
        adopted = AdoptedIndex.read(told["adopting"], run_id, expiring)
    except ValueError as error:
        raise _damaged(ADOPTING, error) from error
    joining = frozenset(i.decode() for i in told["joining"] if i) if told["joining"] else None
    return Inspection(
        found=FoundState(
            run_id=run_id,
            role=info.get("role", "master"),
            durability=durability(info, told["config"], version),
            never_syncs=_settings(told["config"]).get(b"appendfsync") == b"no",
            state=state,
            keys=sum(told.get("keys", 0) for told in by_database.values()),
            address=str(server.address),
            metadata_keys=told["size"]
            - (told["fence"] is not None),  # a first start may have ended after this key
            unsettled=len(unstable) + sum(len(told[name.decode()]) for name in metadata.REFUSED),
            joining=joining,
        ),
        unstable=unstable,
        stored=stored,
        hidden=hidden,
        exact=exact,
        unshown=unshown,
        damaged=set(told["damaged"]),
        disputed=set(told["disputed"]),
        incomplete=set(told["incomplete"]),
        record=ServerRecord.decode(told["record"]),
        orphans=_deadlines(index.ORPHANS, told["orphans"], marks=1),
        pinned=_deadlines(index.PINNED, told["pinned"]),
        has_deadlines=bool(told["due"] or told["orphans"] or adopted),
        adopted=adopted,
        left_out=LeftOut(told["left-out"]),
        expiring=expiring,
        has_expiring_fields=any(
            told.get(name) for told in by_database.values() for name in _EXPIRING_FIELDS
        ),
        beyond=tuple(
            number
            for number in (int(db[2:]) for db in keyspace if db[2:].isdigit())
            if number >= MOST_DATABASES
        ),
        time_ms=int(told["time"][0]) * 1000 + int(told["time"][1]) // 1000,
        parked=told["parked"],
        databases=databases,
        fence=_number(told["fence"]),
        product=info.get("server_name", "redis"),
        version=info.get("valkey_version", info.get("redis_version", "")),
        redis_version=info.get("redis_version", ""),
        commands=told["commands"],
    )


def _decoded(rows: dict[bytes, bytes]) -> list[Message]:
    try:
        return metadata.decode_store(rows)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _damaged(metadata.STORE, error) from error


def _number(fence: bytes | None) -> int:
    try:
        return int(fence or 0)
    except ValueError as error:
        raise _damaged(metadata.FENCE, error) from error


def _deadlines(name: bytes, rows: list[bytes], marks: int = 0) -> dict[bytes, bytes]:
    """Deadlines of keys. marks: number of characters after each that say which member set it."""
    found = dict(zip(rows[::2], rows[1::2], strict=True))
    try:
        for at in found.values():
            index.check_deadline(at[: len(at) - marks])
    except ValueError as error:
        raise _damaged(name, error) from error
    return found


def _damaged(key: bytes, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"the key {key.decode(errors='backslashreplace')!r} of the metadata database is damaged ({error}), so another "
        "program wrote to it: restore the server's append-only file or snapshot"
    )


async def _databases(server: ServerConnection, metadata_db: int) -> Databases:
    """The databases that SELECT finds: not every host lets clients read its settings. Ends on database 0."""
    tried: list[Words] = [("SELECT", db) for db in range(1, MOST_DATABASES)]
    replies = await server.call([*tried, ("SELECT", 0)])
    return Databases(1 + sum(reply == b"OK" for reply in replies[:-1]), metadata_db)


def _told(field: str) -> dict[str, int]:
    """What INFO has about a database: `keys=3,expires=0,…`."""
    parts = dict(part.partition("=")[::2] for part in field.split(","))
    return {name: int(number) for name, number in parts.items() if number.isdigit()}


async def _named(server: ServerConnection, prefix: bytes) -> set[bytes]:
    """Keys of the metadata database whose names begin with this."""
    found: set[bytes] = set()
    cursor: bytes = b"0"
    while True:
        ((cursor, names),) = await server.call(
            [("SCAN", cursor, "MATCH", prefix + b"*", "COUNT", _KEYS_AT_ONCE)]
        )
        found.update(names)
        if cursor == b"0":
            return found


async def _exact_values(server: ServerConnection) -> dict[Value, dict[bytes, Worth]]:
    names = sorted(await _named(server, metadata.EXACT_PREFIX))
    found: dict[Value, dict[bytes, Worth]] = {}
    for start in range(0, len(names), _KEYS_AT_ONCE):
        some = names[start : start + _KEYS_AT_ONCE]
        for name, reply in zip(
            some, await server.call([("HGETALL", name) for name in some]), strict=True
        ):
            try:
                found[value_named(name)] = pairs_of(reply)
            except (ValueError, TypeError, KeyError) as error:
                raise _damaged(name, error) from error
    return found


async def _unshown(server: ServerConnection, keys: Sequence[bytes]) -> list[bytes]:
    """Those of the keys that do not exist. The connection is on database 0."""
    read, found = by_name(server.call), []
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        some = keys[start : start + _KEYS_AT_ONCE]
        there = await read([[b"EXISTS", key] for key in some])
        found += [key for key, number in zip(some, there, strict=True) if number == 0]
    return found


def refuse_unusable(info: dict[str, str]) -> None:
    """Raises ConfigurationError, with the remedy, if a gateway must not use this server."""
    if _version(info.get("redis_version", "0")) < _OLDEST:
        raise ConfigurationError(
            f"unsupported server version {info.get('redis_version')}: use Redis 7.0 or later, or "
            "Valkey"
        )
    if info.get("redis_mode") == "cluster" or info.get("cluster_enabled") == "1":
        raise ConfigurationError(
            "the server runs in cluster mode: use servers without cluster mode, one gateway per "
            "primary and one group per shard"
        )
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory", "0") != "0" and policy != "noeviction":
        raise ConfigurationError(
            f"maxmemory-policy is {policy}, which would drop keys in one region only: set "
            "`maxmemory-policy noeviction`"
        )


def no_room(info: dict[str, str]) -> str | None:
    """Why writes that need memory must be refused now; None if there is room. info: of INFO memory."""
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    policy = info.get("maxmemory_policy", "noeviction")
    if not limit:
        return None
    if policy != "noeviction":
        return (
            f"crdtcast: maxmemory-policy is now {policy}, which drops keys in one region only: "
            "set it back to noeviction"
        )
    if used > limit * _FULL_AT:
        return (
            f"crdtcast: the server uses {used} of {limit} bytes (maxmemory): remove data or raise "
            "the limit"
        )
    return None


def durability(info: dict[str, str], config: object, version: tuple[int, ...]) -> Durability:
    """The durability that the server's settings promise."""
    settings = _settings(config)
    appends = info.get("aof_enabled", "0") == "1" or settings.get(b"appendonly") == b"yes"
    if not appends:
        return Durability.VOLATILE
    if (
        settings.get(b"appendfsync") == b"always"
        and settings.get(b"no-appendfsync-on-rewrite") != b"yes"
    ):
        return Durability.ALWAYS
    if version >= _WAITAOF_SINCE:
        return Durability.EVERYSEC
    return Durability.VOLATILE


def _settings(config: object) -> dict[bytes, bytes]:
    """The reply to CONFIG GET; nothing if a host forbids that."""
    return dict(zip(config[::2], config[1::2], strict=True)) if isinstance(config, list) else {}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
