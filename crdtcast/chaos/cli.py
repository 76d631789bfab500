"""`crdtcast chaos`: a group of real processes under faults. Exit code 1 if anything is lost, doubled or different."""

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import trio

from crdtcast.chaos import disks, spaces
from crdtcast.chaos import plan as plans
from crdtcast.chaos.course import ChaosOutcome, Course

TOO_SLOW = 2
"""Exit code if the machine was too slow for a verdict."""


@click.command()
@click.option(
    "--nodes", type=click.IntRange(3, 7), default=3, show_default=True, help="Number of nodes."
)
@click.option(
    "--minutes",
    type=click.FloatRange(0.1),
    default=2.0,
    show_default=True,
    help="Duration of the faults.",
)
@click.option(
    "--seed",
    type=int,
    default=1,
    show_default=True,
    help="Seed that decides everything that happens.",
)
@click.option(
    "--faults",
    default=",".join(plans.KINDS),
    show_default=True,
    help="Comma-separated kinds of faults that may happen.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.1),
    default=20.0,
    show_default=True,
    help="Writes per second of each node.",
)
@click.option(
    "--network",
    type=click.Choice(("auto", "namespaces", "proxies")),
    default="auto",
    show_default=True,
    help=(
        "Give each node a network namespace, where the kernel drops packets and a black-hole "
        "route swallows them; otherwise proxies delay or drop bytes. auto: use namespaces if "
        "permitted."
    ),
)
@click.option("--keep", is_flag=True, help="Keep journals and logs, and print where they are.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object on the last line, and nothing else on stdout.",
)
def chaos(
    nodes: int,
    minutes: float,
    seed: int,
    faults: str,
    rate: float,
    network: str,
    keep: bool,
    as_json: bool,
) -> None:
    """Run real nodes with journals, write to all of them, and inject faults.

    The faults: SIGKILL, pauses, cuts, one-way cuts, delays, losses, black holes, torn connections, full, failing and
    lost disks, restored and copied journals, wrong clocks, restarts of all nodes at once and one by one, two dead nodes
    at once, evictions, joins, killed joins, leaves. At the end, compare the acknowledged writes with the data.
    """
    kinds = [kind for kind in faults.split(",") if kind]
    if unknown := [kind for kind in kinds if kind not in plans.KINDS]:
        raise click.BadParameter(
            f"unknown faults {', '.join(unknown)}: choose from {', '.join(plans.KINDS)}"
        )
    if sys.platform != "linux":
        raise click.UsageError(
            "this needs Linux, which can limit the resources of running processes"
        )
    apart = network != "proxies" and _go_apart(required=network == "namespaces")
    plan = plans.draw(seed, nodes, 60 * minutes, kinds)
    with _scratch(keep) as scratch:
        small_disks = plans.FULL in kinds and _have_small_disks(scratch)
        course = Course(
            plan,
            scratch,
            rate=rate,
            tell=lambda line: click.echo(line, err=True),
            apart=apart,
            small_disks=small_disks,
        )
        click.echo(
            f"seed {seed}: {nodes} nodes, {len(plan.episodes)} episodes in {minutes:g} minutes",
            err=True,
        )
        outcome = trio.run(course.run)
        failed = not outcome.ok
        if failed and not keep:
            kept = Path(tempfile.mkdtemp(prefix="crdtcast-chaos-failed-"))
            shutil.copytree(
                scratch, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
            )
            click.echo(f"kept journals and logs in {kept}", err=True)
    how = {
        "network": "namespaces" if apart else "proxies",
        "full_disks": disks.TMPFS if small_disks else disks.LIMIT,
    }
    _report(outcome, as_json, seed=seed, **how, planned=len(plan.episodes))
    sys.exit(TOO_SLOW if outcome.too_slow else int(failed))


def _go_apart(*, required: bool) -> bool:
    """Enter a network namespace, if that is permitted."""
    reason = spaces.why_not()
    if not reason:
        spaces.enter()
        return True
    if required:
        raise click.UsageError(f"no network namespaces: {reason}: omit --network, or run as root")
    click.echo(
        f"no network namespaces ({reason}): proxies make losses and black holes instead",
        err=True,
    )
    return False


def _have_small_disks(scratch: Path) -> bool:
    try:
        disks.enter(scratch)
    except OSError as error:
        click.echo(
            f"cannot mount test file systems ({error.strerror}): a full disk is simulated by a "
            "limit of the process",
            err=True,
        )
        return False
    return True


def _report(outcome: ChaosOutcome, as_json: bool, **told: object) -> None:
    found = outcome.found
    if outcome.too_slow:
        click.echo(
            f"machine too slow: this process waited for the CPU {outcome.lateness.share:.0%} of "
            f"the time, once {outcome.lateness.worst:.1f} s; only timing was wrong: try again on "
            "an idle machine, or with a lower --rate",
            err=True,
        )
    for line in [
        *outcome.wrong,
        *outcome.late,
        *found.lost[:10],
        *found.doubled[:10],
        *found.diverged[:10],
    ]:
        click.echo(f"error: {line}", err=True)
    figures = {
        "ok": outcome.ok,
        **told,
        "acknowledged": outcome.acknowledged,
        "uncertain": outcome.uncertain,
        "lost": len(found.lost),
        "doubled": len(found.doubled),
        "diverged": len(found.diverged),
        "metadata_left": outcome.metadata_left,
        "settled_seconds": round(outcome.settled, 1),
        "wrong": len(outcome.wrong) + len(outcome.late),
        "too_slow": outcome.too_slow,
        "late_share": round(outcome.lateness.share, 3),
        "late_worst": round(outcome.lateness.worst, 1),
        "starts": outcome.starts,
        "ended_full": outcome.refusals,
        "reissued": outcome.reissued,
        "events_checked": outcome.events,
        "episodes": dict(sorted(outcome.episodes.items())),
    }
    if as_json:
        click.echo(json.dumps(figures))
        return
    for name, figure in figures.items():
        click.echo(f"{name:>14}: {figure}")


@contextlib.contextmanager
def _scratch(keep: bool) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="crdtcast-chaos-"))
    try:
        yield path
    finally:
        if keep:
            click.echo(f"kept: {path}", err=True)
        else:
            shutil.rmtree(path, ignore_errors=True)
