"""`crdtcast vectors FILE`: a line per vector, totals, and an exit code: 0 all passed, 1 some failed, 2 unusable."""

import json
from collections import Counter
from collections.abc import Sequence

import click

from crdtcast.exceptions import UnusableInputError
from crdtcast.testing.vectors.format import Vector, load
from crdtcast.testing.vectors.run import VectorOutcome, VectorResult, run_vector


class _Unusable(click.ClickException):
    exit_code = 2


@click.command()
@click.argument("file", type=click.Path())
@click.option(
    "--only", "ids", multiple=True, metavar="ID", help="Run only this vector (repeatable)."
)
@click.option(
    "--type", "types", multiple=True, metavar="T", help="Run only this type (repeatable)."
)
@click.option(
    "--level",
    "levels",
    multiple=True,
    metavar="L",
    help=(
        "Run only this level (repeatable): must, should or choice; a vector without a level is a "
        "must."
    ),
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print totals as a JSON object on the last line."
)
def vectors(
    file: str,
    ids: tuple[str, ...],
    types: tuple[str, ...],
    levels: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check the data types against FILE: expected values for operations in every causal order.

    A vector passes if every causal delivery order gives its value, with and without causal
    stability, if its log has the stated size, and if each invalid operation is refused.
    Exit code 1 if any failed, 2 if FILE is unusable.
    """
    try:
        loaded = load(file)
    except UnusableInputError as error:
        raise _Unusable(str(error)) from error
    unknown = sorted(set(ids) - {vector.id for vector in loaded})
    if unknown:
        raise _Unusable(f"{file} has no vector {', '.join(unknown)}")
    chosen = [vector for vector in loaded if _chosen(vector, ids, types, levels)]
    if not chosen:
        click.echo("no vector matches the options", err=True)
    totals: Counter[VectorOutcome] = Counter()
    for vector in chosen:
        result = run_vector(vector)
        totals[result.outcome] += 1
        click.echo(line(result))
    counted = {outcome.name.lower(): totals[outcome] for outcome in VectorOutcome}
    if as_json:
        click.echo(json.dumps(counted))
    else:
        click.echo(
            f"{counted['passed']} passed, {counted['failed']} failed, "
            f"{counted['unsupported']} not supported yet"
        )
    if totals[VectorOutcome.FAILED]:
        raise SystemExit(1)


def line(result: VectorResult) -> str:
    """One line: outcome, id, type, and the difference or the number of orders."""
    vector = result.vector
    if result.outcome is VectorOutcome.PASSED:
        orders = f"{result.orders} order{'' if result.orders == 1 else 's'}"
        detail = f"{orders}, capped" if result.capped else orders
    else:
        detail = result.detail
    return f"{result.outcome.value:<17} {vector.id:<8} {vector.type:<13} {detail}"


def _chosen(
    vector: Vector, ids: Sequence[str], types: Sequence[str], levels: Sequence[str]
) -> bool:
    return (
        (not ids or vector.id in ids)
        and (not types or vector.type in types)
        and (not levels or vector.level in levels)
    )
