"""Commands of the clients: one table, and one file a family that turns its writes into effects."""

from crdtcast.adapters.redis.commands import counters, keys, sets
from crdtcast.adapters.redis.commands.table import Table
from crdtcast.adapters.redis.effects import LEVELS, READS, Opcode, RedisType


def registered_table() -> Table:
    """The table with every write's `prepare` in it.

    A `prepare` gets the batch and the request, adds effects and an answer to the batch, and returns True; or it
    returns False, having changed nothing, when the server must be asked about the key first.
    """
    table = Table()
    for name, prepare, effect in (
        ("SADD", sets.sadd, (Opcode.ONE, RedisType.SET)),
        ("SREM", sets.srem, (Opcode.KILL_SLOTS, RedisType.SET)),
        ("INCR", counters.incr, (Opcode.INC, RedisType.STRING)),
        ("DECR", counters.decr, (Opcode.INC, RedisType.STRING)),
        ("INCRBY", counters.incrby, (Opcode.INC, RedisType.STRING)),
        ("DECRBY", counters.decrby, (Opcode.INC, RedisType.STRING)),
        ("DEL", keys.delete, (Opcode.KILL_KEY, None)),
        ("UNLINK", keys.delete, (Opcode.KILL_KEY, None)),
    ):
        level = LEVELS[effect]
        table.register(name, prepare, level, in_all_levels=level <= READS.lowest)
    return table
