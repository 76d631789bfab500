"""How the commands that the gateway carries out differ from a plain server's, between regions above all. Words only:
they stand in docs/redis-commands.md, which `ops/command_reference.py` makes.
"""

_FAMILIES = (
    # strings
    (
        "SET",
        "as MSET; with conditions as SETNX; a deadline is absolute, by this region's server",
    ),
    (
        "MSET",
        "of concurrent ones the later holds, by clock; an increment that it had not seen counts on top of it if it is "
        "a number",
    ),
    (
        "SETNX GETSET GETDEL MSETNX",
        "what was carried out is a plain write everywhere else, what was not sends nothing; two regions may both "
        "succeed: no lock",
    ),
    (
        "APPEND SETRANGE",
        "sent as the whole value: of two concurrent ones the later value holds; the value may be 8 MiB",
    ),
    (
        "INCR DECR INCRBY DECRBY",
        "all increments count, exactly, also those that had not seen each other; the reply is this region's number, so "
        "two regions may get the same",
    ),
    (
        "INCRBYFLOAT HINCRBYFLOAT",
        "exact decimals, one number with INCR, where the server rounds to 64 binary digits and 17 places; refused: "
        "hexadecimal, inf and nan, more than 40 digits, exponents beyond 400, also as what is counted on",
    ),
    # hashes
    (
        "HSET HMSET HDEL",
        "each field by itself: of concurrent values the later holds, by clock; a removal removes what its region had "
        "seen",
    ),
    ("HSETNX", "two regions may both succeed: no lock; then the later value holds"),
    ("HINCRBY", "all increments count, exactly; the reply is this region's number"),
    # sets
    (
        "SADD SREM",
        "add wins: a removal removes what its region had seen; SADD of a present member is intent, too, and beats a "
        "concurrent SREM",
    ),
    (
        "SPOP",
        "removes what came out; two regions at the same time may get the same member (at least once)",
    ),
    ("SMOVE", "adds there and removes here: concurrently twice, never none"),
    ("SDIFFSTORE SINTERSTORE SUNIONSTORE", "the result is sent, by value, not the command"),
    # keys
    (
        "DEL UNLINK",
        "remove what their region had seen, of every type under the key; more than 4,096 keys at once are removed in "
        "pieces of so many",
    ),
    (
        "FLUSHDB FLUSHALL",
        "removes what this region had seen, of every key of the database, or of all but the gateway's own; the server "
        "frees the memory later, with SYNC, too",
    ),
    (
        "RENAME RENAMENX COPY MOVE",
        "by value, as one message: strings, hashes and sets of up to 131,072 slots and 8 MiB",
    ),
    ("OBJECT TOUCH MEMORY DUMP", "of this region's server alone"),
    (
        "EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST",
        "sent as a point in time, by the server's clock; of concurrent ones the furthest holds, none at all above all "
        "others, the nearest if all were set with LT; an extension that the expiry had not seen keeps the contents; "
        "none is later than the year 3084",
    ),
    ("SETEX PSETEX", "as SET: the deadline is absolute, by this region's server"),
    ("GETEX", "as EXPIRE"),
    # transactions
    (
        "EXEC",
        "one message that is never divided: every region applies all of it at one instant; at most 16,384 commands and "
        "8 MiB",
    ),
    (
        "WATCH",
        "sees every write in this region's server, those of other regions when they arrive; no lock across regions",
    ),
    # messages
    (
        "PUBLISH SPUBLISH SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE PUBSUB",
        "within this region",
    ),
    # connection and server
    (
        "SELECT",
        "any database but that of the gateway's metadata (`--metadata-db`)",
    ),
    ("AUTH HELLO", "one password for all, that of the gateway"),
    ("CLIENT", "of this gateway's clients; `NO-EVICT` and `NO-TOUCH` are accepted and do nothing"),
    (
        "INFO",
        "clients, commands and uptime are the gateway's; memory, persistence and keyspace its server's",
    ),
    ("COMMAND", "shows what the gateway carries out, not what it refuses; `DOCS` is empty"),
    ("CONFIG", "public settings only"),
    ("TIME LOLWUT DBSIZE RANDOMKEY", "of this region's server"),
    ("CLUSTERSCAN", "the server's error: it is not in cluster mode"),
)

DIFFERENCES = {name: text for names, text in _FAMILIES for name in names.split()}
"""By a command's name, or that of the command that a subcommand belongs to."""
