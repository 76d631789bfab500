"""Why a command is refused and what to use instead (house rule H9), by family. Only texts; `table.py` decides when."""

_WRITE = (
    "ERR crdtcast: command '{name}' is not replicated, so it would change this region only: {hint}"
)
_OTHER = "ERR crdtcast: command '{name}' is not replicated: {hint}"

_TODAY = (
    "use SET, INCRBY (strings), HSET, HINCRBY, HDEL (hashes), ZADD, ZINCRBY, ZREM (sorted sets), "
    "SADD, SREM (sets) or DEL instead"
)

# Families of commands that write data, each with what to use instead.
_WRITE_FAMILIES = (
    (
        "MSETEX",
        "use SETEX for each key, in MULTI, instead",
    ),
    (
        "DELIFEQ",
        "use GET, then DEL instead",
    ),
    (
        "SETBIT BITOP BITFIELD",
        "use SADD with the numbers of the bits that are set instead",
    ),
    (
        "HGETDEL",
        "use HGET, then HDEL instead",
    ),
    (
        "HGETEX HSETEX HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT HPERSIST",
        "use HGET, HSET and HDEL instead; fields cannot have deadlines",
    ),
    (
        "LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LREM LSET LTRIM LINSERT LMOVE LMPOP RPOPLPUSH",
        "use SADD and SREM with members that contain their order (a time, an id) instead",
    ),
    (
        "SORT",
        "use SORT_RO to read, and SADD to store instead",
    ),
    (
        "XADD XDEL XTRIM XSETID XACK XCLAIM XAUTOCLAIM XGROUP",
        "use SADD with an id in each member instead",
    ),
    (
        "PFADD PFMERGE PFCOUNT",
        "use SADD and SCARD instead",
    ),
    (
        "RESTORE",
        "use COPY, or SADD, HSET or SET, instead",
    ),
    (
        "SWAPDB",
        (
            "use COPY with DB, or MOVE, key by key instead: two regions that swap at once would lose "
            "both results"
        ),
    ),
    (
        "BLPOP BRPOP BLMOVE BLMPOP BRPOPLPUSH XREADGROUP",
        "use SRANDMEMBER and SREM in a loop with pauses instead",
    ),
    (
        "BZPOPMIN BZPOPMAX BZMPOP",
        "use ZPOPMIN, ZPOPMAX or ZMPOP in a loop with pauses instead",
    ),
)

# Families whose effect is not on keys
_OTHER_FAMILIES = (
    (
        "EVAL EVALSHA EVAL_RO EVALSHA_RO FCALL FCALL_RO SCRIPT FUNCTION",
        "a script's writes would stay in this region; send its commands one by one",
    ),
    (
        "XREAD",
        "it may block the connection that all clients share; use XRANGE instead",
    ),
    (
        "WAITAOF",
        (
            "how durable an answered write is depends on the servers' settings (CRDTCAST STATUS "
            "tells this region's); use WAIT to know how many other regions hold it"
        ),
    ),
    (
        "CLUSTER READONLY READWRITE ASKING",
        "the gateway is not a cluster node; run one gateway per primary and one group per shard",
    ),
    (
        "MIGRATE RESTORE-ASKING",
        "keys cannot move between servers without the group; write them in the other region",
    ),
    (
        "REPLICAOF SLAVEOF FAILOVER PSYNC SYNC REPLCONF",
        "the server's operator sets its role; change it at the server's own port",
    ),
    (
        "MONITOR",
        "it shows one server's traffic; use it at the server's own port",
    ),
    (
        "ACL",
        "users belong to one server; the gateway has one password, set at its start",
    ),
    (
        "CLIENT",
        (
            "the gateway supports CLIENT ID, INFO, LIST, GETNAME, SETNAME, SETINFO, NO-EVICT, "
            "NO-TOUCH, REPLY and UNBLOCK"
        ),
    ),
    (
        "CONFIG",
        "settings belong to one server; change them at the server's own port",
    ),
)

_ADMINISTRATION = "it concerns one server only; send it to the server's own port"

_TEXTS = {
    name: (template, hint)
    for template, families in ((_WRITE, _WRITE_FAMILIES), (_OTHER, _OTHER_FAMILIES))
    for names, hint in families
    for name in names.split()
}

KNOWN = frozenset(_TEXTS) - {"CLIENT", "CONFIG"}
"""Commands that are refused even before the server's own table is known."""


def refusal(name: str, *, writes: bool) -> str:
    """The error text for a refused command; `name` in capitals, a subcommand after a blank."""
    template, hint = text_of(name, writes=writes)
    return template.format(name=name, hint=hint)


def text_of(name: str, *, writes: bool) -> tuple[str, str]:
    """The template of the error text of a refused command; and what to use instead, or why it is refused."""
    return _TEXTS.get(name.partition(" ")[0]) or (
        (_WRITE, _TODAY) if writes else (_OTHER, _ADMINISTRATION)
    )
