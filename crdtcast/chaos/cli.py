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
from crdtcast.chaos.course import Course, Outcome

TOO_SLOW = 2
"""The exit code where the machine was, so that nothing can be said."""


@click.command()
@click.option("--nodes", type=click.IntRange(3, 7), default=3, show_default=True)
@click.option("--minutes", type=click.FloatRange(0.1), default=2.0, show_default=True)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Decides everything that happens."
)
@click.option(
    "--faults",
    default=",".join(plans.KINDS),
    show_default=True,
    help="Which kinds may happen, by commas.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.1),
    default=20.0,
    show_default=True,
    help="Writes a second, each node.",
)
@click.option(
    "--network",
    type=click.Choice(("auto", "namespaces", "proxies")),
    default="auto",
    show_default=True,
    help="Whether each node is in a network namespace of its own, where the kernel loses packets and a black-hole "
    "route swallows them; else the proxies hold bytes back or swallow them. auto: if that is permitted.",
)
@click.option("--keep", is_flag=True, help="Keep journals and logs, and say where.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object on the last line, and nothing else on stdout.",
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
    """Start a group of real nodes with journals, write to all of them, and do to them what the world does: SIGKILL,
    pauses, cuts, one-way cuts, delays, losses, black holes, torn connections, full, failing and lost disks,
    restored and copied journals, wrong clocks, restarts of all at once and one by one, two dead at once, evictions,
    joins, joins that are killed, leaves. Then compare what was acknowledged with what is there.
    """
    kinds = [kind for kind in faults.split(",") if kind]
    if unknown := [kind for kind in kinds if kind not in plans.KINDS]:
        raise click.BadParameter(
            f"no such faults: {', '.join(unknown)}; there are {', '.join(plans.KINDS)}"
        )
    if sys.platform != "linux":
        raise click.UsageError(
            "it needs Linux, whose processes can be given a limit while they run"
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
            click.echo(f"journals and logs are in {kept}", err=True)
    how = {
        "network": "namespaces" if apart else "proxies",
        "full_disks": disks.TMPFS if small_disks else disks.LIMIT,
    }
    _report(outcome, as_json, seed=seed, **how, planned=len(plan.episodes))
    sys.exit(TOO_SLOW if outcome.too_slow else int(failed))


def _go_apart(*, required: bool) -> bool:
    """Enter a network namespace, if that is permitted here."""
    reason = spaces.why_not()
    if not reason:
        spaces.enter()
        return True
    if required:
        raise click.UsageError(f"no network namespaces: {reason}. Leave --network away, or be root")
    click.echo(
        f"no network namespaces ({reason}): losses and black holes are made by the proxies",
        err=True,
    )
    return False


def _have_small_disks(scratch: Path) -> bool:
    try:
        disks.enter(scratch)
    except OSError as error:
        click.echo(
            f"no file systems of our own ({error.strerror}): a full disk is a limit of the process",
            err=True,
        )
        return False
    return True


def _report(outcome: Outcome, as_json: bool, **told: object) -> None:
    found = outcome.found
    if outcome.too_slow:
        click.echo(
            f"machine too slow: this process waited for its turn {outcome.lateness.share:.0%} of the time, "
            f"once {outcome.lateness.worst:.1f} s; nothing but time is wrong. Try again with less beside it, "
            "or a lower --rate",
            err=True,
        )
    for line in [
        *outcome.wrong,
        *outcome.late,
        *found.lost[:10],
        *found.doubled[:10],
        *found.diverged[:10],
    ]:
        click.echo(f"wrong: {line}", err=True)
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
