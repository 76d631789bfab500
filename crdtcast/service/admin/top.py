"""`crdtcast top`: the status of a node, shown repeatedly, with rates."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import click
import trio
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from crdtcast.service.admin.client import operator
from crdtcast.service.admin.views import comparison, seconds, size


async def watch(
    place: str, secrets: Sequence[bytes], every: float, rounds: int | None, as_json: bool
) -> None:
    """Show it until interrupted, until the node stops, or `rounds` times."""
    console = Console()
    async with operator(place, secrets) as node:
        before: dict[str, Any] | None = None
        asked, looks = 0.0, 0
        # A file or a pipe gets one screen after the other; a terminal gets one that changes.
        still = as_json or not console.is_terminal
        with nullcontext() if still else Live(console=console, auto_refresh=False) as live:
            while rounds is None or looks < rounds:
                if looks:
                    await trio.sleep(every)
                found = await node.ask("status")
                elapsed, asked = trio.current_time() - asked, trio.current_time()
                looks += 1
                if as_json:
                    click.echo(json.dumps(found))
                elif live is None:
                    console.print(view(found, before, elapsed))
                else:
                    live.update(view(found, before, elapsed), refresh=True)
                before = found


def view(found: dict[str, Any], before: dict[str, Any] | None, elapsed: float) -> Group:
    """One screen. before: the status `elapsed` seconds ago, for rates."""

    def rate(key: str) -> str:
        if before is None or before["incarnation"] != found["incarnation"]:
            return "-"
        return f"{(found[key] - before[key]) / elapsed:,.0f}/s"

    state = "ready" if found["ready"] else f"not ready: {found['waits_for']}"
    level = f", format level {found['format']['level']}" if found["format"] else ""
    title = f"{found['node']}  group {found['group']}  {found['standing']}, {state}{level}"
    head = [Text(title, "bold")]
    if found["comparison"] is not None:
        head.append(Text(comparison(found["comparison"])))
    counts = Table(box=None, pad_edge=False)
    for title in ("sent", "delivered", "pending", "unstable", "lag", "store", "repairs"):
        counts.add_column(title, justify="right")
    counts.add_row(
        rate("sent"),
        rate("delivered"),
        f"{found['pending']:,}",
        f"{found['unstable']:,}",
        seconds(found["stability_lag"]),
        size(found["store_bytes"]),
        f"{found['repair']['repeated']:,}",
    )
    suspects = {suspect["name"]: suspect for suspect in found["suspects"]}
    holders = {holder["name"]: holder for holder in found["held_back_by"]}
    peers = Table(box=None, pad_edge=False)
    for title in ("member", "link", "since", "sent", "received", "waiting", ""):
        peers.add_column(title)
    for member in found["members"]:
        name = member["name"]
        link = found["links"].get(name)
        remarks = []
        if name == found["node"]:
            remarks.append("this node")
        if name in suspects:
            remarks.append(f"silent for {seconds(suspects[name]['silence'])}")
        if name in holders:
            remarks.append(f"holds back since {seconds(holders[name]['since'])}")
        if link is not None and link["error"]:
            remarks.append(link["error"])
        peers.add_row(
            name,
            "-" if link is None else link["state"],
            "-" if link is None else seconds(link["since"]),
            "-" if link is None else size(link["bytes_sent"]),
            "-" if link is None else size(link["bytes_received"]),
            "-" if link is None else size(link["queued_bytes"]),
            ", ".join(remarks),
            style="red" if name in suspects or name in holders else "",
        )
    return Group(*head, counts, Text(""), peers)
