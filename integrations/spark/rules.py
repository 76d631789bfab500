"""A rule: a condition on the rows of one frame, and the finding for a row that meets it.

All rules of a frame are evaluated in one pass over it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crdtcast.integrations.spark.schema import FINDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A row has this `problem` for this `check` if it meets `where`. The other columns fill those of the finding; by
    default it is about the row's own message."""

    check: str
    problem: str
    where: Column
    seq: Column | None = None
    origin: Column | None = None
    counter: Column | None = None
    other_origin: Column | None = None
    other_counter: Column | None = None
    object: Column | None = None
    peers: Column | None = None
    number: Column | None = None


def dot(struct: str) -> dict[str, Column]:
    """The finding is about the message in this struct column."""
    return {"origin": F.col(f"{struct}.origin"), "counter": F.col(f"{struct}.counter")}


def apply(frame: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """The findings of all `rules` on the rows of `frame`."""
    of_the_row = {"group", "replica", "incarnation"}
    default = {"seq", "origin", "counter"} & set(frame.columns)

    def finding(rule: Rule) -> Column:
        columns: list[Column] = []
        for column in FINDING.fields:
            name = column.name
            if name in ("check", "problem"):
                value = F.lit(getattr(rule, name))
            elif name in of_the_row:
                value = F.col(name)
            else:
                given: Column | None = getattr(rule, name)
                value = F.lit(None) if given is None else given
                if given is None and name in default:
                    value = F.col(name)
            columns.append(value.cast(column.dataType).alias(name))
        return F.when(rule.where, F.struct(*columns))

    found = F.filter(F.array(*map(finding, rules)), lambda f: f.isNotNull())
    return frame.select(F.explode(found).alias("found")).select("found.*")
