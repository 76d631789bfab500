"""How the commands that the gateway executes differ from a plain server's, mostly between regions. Only texts:
`command_reference.py` writes them to docs/redis-commands.md.
"""

_FAMILIES = (
    # strings
    (
        "SET",
        "as MSET; with conditions as SETNX; deadlines are absolute, by this region's server clock",
    ),
    (
        "MSET",
        (
            "the later of concurrent ones wins, by clock; an increment that it had not seen is added "
            "to it if it is a number"
        ),
    ),
    (
        "SETNX GETSET GETDEL MSETNX",
        (
            "other regions see a plain write if it succeeded here, nothing if it did not; two "
            "regions may both succeed: not a lock"
        ),
    ),
    (
        "APPEND SETRANGE",
        (
            "sent as the whole value: of two concurrent ones the later value wins; the value may "
            "have at most 8 MiB"
        ),
    ),
    (
        "INCR DECR INCRBY DECRBY",
        (
            "all increments count, exactly, also concurrent ones; the reply is this region's number, "
            "so two regions may get the same"
        ),
    ),
    (
        "INCRBYFLOAT HINCRBYFLOAT",
        (
            "exact decimals, combined with INCR into one number, where the server rounds to 64 "
            "binary digits and 17 places; refused: hexadecimal, inf and nan, more than 40 digits, "
            "exponents beyond 400; the same holds for the present value"
        ),
    ),
    # hashes
    (
        "HSET HMSET HDEL",
        (
            "each field separately: of concurrent values the later wins, by clock; a removal removes "
            "what its region had seen"
        ),
    ),
    ("HSETNX", "two regions may both succeed: not a lock; the later value wins"),
    ("HINCRBY", "all increments count, exactly; the reply is this region's number"),
    # sets
    (
        "SADD SREM",
        (
            "add wins: a removal removes what its region had seen; SADD of a present member counts "
            "as an add and beats a concurrent SREM"
        ),
    ),
    (
        "SPOP",
        (
            "removes the returned members; two regions at the same time may get the same member (at "
            "least once)"
        ),
    ),
    (
        "SMOVE",
        (
            "adds to one set and removes from the other: if concurrent, the member may be in both, "
            "never in neither"
        ),
    ),
    ("SDIFFSTORE SINTERSTORE SUNIONSTORE", "sends the result, by value, not the command"),
    # sorted sets
    (
        "ZADD",
        (
            "each member separately: of concurrent scores the later wins, by clock; the greatest if "
            "all were written with GT, the least if all with LT; with NX or XX two regions may both "
            "succeed; with INCR as ZINCRBY; -0 is stored as 0"
        ),
    ),
    (
        "ZINCRBY",
        (
            "all increments count, exactly, as the decimals with the fewest digits that give their "
            "doubles; the score is the double next to the sum"
        ),
    ),
    (
        "ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE",
        "remove the members that their region had seen, with the scores that it had seen",
    ),
    (
        "ZPOPMIN ZPOPMAX ZMPOP",
        (
            "remove the returned members; two regions at the same time may get the same member (at "
            "least once)"
        ),
    ),
    (
        "ZUNIONSTORE ZINTERSTORE ZDIFFSTORE ZRANGESTORE GEOSEARCHSTORE",
        "sends the result, by value, not the command",
    ),
    ("GEOADD", "as ZADD, with a score that tells the place"),
    (
        "GEORADIUS GEORADIUSBYMEMBER",
        "as GEORADIUS_RO and GEORADIUSBYMEMBER_RO; with STORE or STOREDIST as GEOSEARCHSTORE",
    ),
    # keys
    (
        "DEL UNLINK",
        (
            "remove what their region had seen, of every type under the key; more than 4,096 keys "
            "are removed in pieces of 4,096"
        ),
    ),
    (
        "FLUSHDB FLUSHALL",
        (
            "removes what this region had seen, of every key of the database, or of all databases "
            "but the gateway's own; the server frees the memory later, also with SYNC"
        ),
    ),
    (
        "RENAME RENAMENX COPY MOVE",
        "by value, as one message: strings, hashes, sorted sets and sets of up to 131,072 slots and 8 MiB",
    ),
    ("OBJECT TOUCH MEMORY DUMP", "answered by this region's server alone"),
    (
        "EXPIRE PEXPIRE EXPIREAT PEXPIREAT PERSIST",
        (
            "sent as a point in time, by the server's clock; of concurrent ones the furthest wins, "
            "no deadline beats all, the nearest wins if all were set with LT; an extension that the "
            "expiry had not seen keeps the contents; none is later than the year 3084"
        ),
    ),
    ("SETEX PSETEX", "as SET: the deadline is absolute, by this region's server clock"),
    ("GETEX", "as EXPIRE"),
    (
        "WAIT",
        (
            "counts the other regions that hold, durably, everything that this gateway had written when it came; a "
            "region needs a link with this one to tell (redis-sessions.md)"
        ),
    ),
    # transactions
    (
        "EXEC",
        (
            "one message that is never split: every region applies all of it at once; at most 16,384 "
            "commands and 8 MiB"
        ),
    ),
    (
        "WATCH",
        (
            "sees every write in this region's server, and those of other regions when they arrive; "
            "no lock across regions"
        ),
    ),
    # messages
    (
        "PUBLISH SPUBLISH SUBSCRIBE PSUBSCRIBE SSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE PUBSUB",
        "within this region only",
    ),
    # connection and server
    (
        "SELECT",
        "any database but the one with the gateway's metadata (`--metadata-db`)",
    ),
    ("AUTH HELLO", "one password for all clients: the gateway's"),
    (
        "CLIENT",
        "about this gateway's clients; `NO-EVICT` and `NO-TOUCH` are accepted and do nothing; `UNBLOCK` ends WAIT "
        "and CRDTCAST ATLEAST",
    ),
    (
        "INFO",
        (
            "clients, commands and uptime are the gateway's; memory, persistence and keyspace its "
            "server's"
        ),
    ),
    ("COMMAND", "shows what the gateway executes, not what it refuses; `DOCS` is empty"),
    ("CONFIG", "public settings only"),
    ("TIME LOLWUT DBSIZE RANDOMKEY", "answered by this region's server"),
    ("CLUSTERSCAN", "the server's error: it is not in cluster mode"),
)

DIFFERENCES = {name: text for names, text in _FAMILIES for name in names.split()}
"""By a command's name; a subcommand has that of its command."""
