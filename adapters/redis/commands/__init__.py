"""Commands of the clients: one table, and one file a family that turns its writes into effects."""

from crdtcast.adapters.redis.commands import counters, keys, sets
from crdtcast.adapters.redis.commands.table import Table


def registered_table() -> Table:
    """The table with every write's `prepare` in it.

    A `prepare` gets the batch and the request, adds effects and an answer to the batch, and returns True; or it
    returns False, having changed nothing, when the server must be asked about the key first.
    """
    table = Table()
    for name, prepare in {
        "SADD": sets.sadd,
        "SREM": sets.srem,
        "INCR": counters.incr,
        "DECR": counters.decr,
        "INCRBY": counters.incrby,
        "DECRBY": counters.decrby,
        "DEL": keys.delete,
        "UNLINK": keys.delete,
    }.items():
        table.register(name, prepare)
    return table
