"""Small tables made on the driver: a row per log, group or pair. Always broadcast when joined."""

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType


def small_table(
    spark: SparkSession, rows: Sequence[dict[str, Any]], schema: StructType
) -> DataFrame:
    """A frame of `rows`, marked for broadcast.

    It uses a JSON literal: the other ways start Python or Arrow in the virtual machine, which costs seconds that a
    short audit does not have.
    """
    parsed = F.from_json(F.lit(json.dumps(rows)), ArrayType(schema))
    return F.broadcast(spark.range(1).coalesce(1).select(F.inline(parsed)))
