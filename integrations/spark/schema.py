"""Spark schemas of the event log and of the audit's results. No schema is ever inferred."""

from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

TORN = "torn"
"""Column with the text of a line that cannot be read; null otherwise."""


def columns(**types: DataType) -> StructType:
    """A schema of nullable columns."""
    return StructType([StructField(name, kind) for name, kind in types.items()])


DOT = columns(origin=StringType(), counter=LongType())

EVENT = columns(
    version=LongType(),
    group=StringType(),
    replica=StringType(),
    incarnation=StringType(),
    seq=LongType(),
    ts=LongType(),
    kind=StringType(),
    origin=StringType(),
    counter=LongType(),
    deps=ArrayType(DOT),
    vector=MapType(StringType(), LongType()),
    object=StringType(),
    op=StringType(),
    digest=StringType(),
    bytes_before=LongType(),
    bytes_after=LongType(),
    entries=LongType(),
    level=LongType(),
)

LINE = StructType([*EVENT.fields, StructField(TORN, StringType())])

FINDING = columns(
    check=StringType(),
    problem=StringType(),
    group=StringType(),
    replica=StringType(),
    incarnation=StringType(),
    seq=LongType(),
    origin=StringType(),
    counter=LongType(),
    other_origin=StringType(),
    other_counter=LongType(),
    object=StringType(),
    peers=ArrayType(StringType()),
    number=LongType(),
)
"""A finding: at `replica` (line `seq` of `incarnation`), about the dot `origin`, `counter`, and the other dot if there
is one; `peers` are further replicas that it involves, `number` is a count."""
