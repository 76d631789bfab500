"""Answers of a node as text for people."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

Answer = dict[str, Any]

_DIGEST = re.compile("[0-9a-f]{16,}")

_SIZES = {"bytes", "grown"}

DISPUTED = (
    "DISPUTED: this side and another one have evicted each other, at least one of them by force: "
    "decide which side goes on, and run `crdtcast surrender` at the nodes of the other one"
)

SPLIT = (
    "SPLIT: a voter's disk was set back, and members follow two different changes of one epoch "
    "(WARNING and ERROR lines of the log name them). Members cannot change; data goes on: decide "
    "which side goes on, and run `crdtcast surrender` at the nodes of the other one; they join "
    "again"
)
_SIDES = {"disputed": DISPUTED, "split": SPLIT}


def seconds(value: float | None) -> str:
    """A duration in its one or two largest units."""
    if value is None:
        return "-"
    if value < 10:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def size(value: float) -> str:
    """A size in bytes, in the unit that suits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Aligned columns."""
    cells = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def status(found: Answer) -> str:
    """What `crdtcast status` prints."""
    ready = "ready" if found["ready"] else f"not ready: {found['waits_for']}"
    lines = [
        f"{found['node']} in group {found['group']}: {found['standing']}, {ready}",
        f"incarnation {found['incarnation']}, listens on {found['address']}",
        f"members {', '.join(member['name'] for member in found['members'])}",
        *view(found["view"]),
        f"sent {found['sent']:,}, delivered {found['delivered']:,}, pending {found['pending']:,}, "
        f"unstable {found['unstable']:,}: {size(found['store_bytes'])} in memory, "
        f"{size(found['spilled_bytes'])} on disk{_of_most(found)}",
        f"stability lag {seconds(found['stability_lag'])}, repairs {found['repair']['repeated']:,}, "
        f"clock drift refused {found['clock_drift_refused']:,}",
    ]
    if found.get("format") is not None:
        lines.append(format_level(found))
    if found.get("comparison") is not None:
        lines.append(comparison(found["comparison"]))
    if (adoption := found.get("adoption")) is not None:
        lines.append(
            f"TAKES OVER its server's data: {adoption['passed']:,} of about {adoption['keys']:,} keys; "
            "the first join waits"
        )
    if "objects" in found:
        lines.append(f"objects {found['objects']:,}")
    if found["journal"] is None:
        lines.append("journal none: in memory only")
    else:
        said = found["journal"].items()
        lines.append(
            "journal " + ", ".join(f"{k} {size(v) if k in _SIZES else v}" for k, v in said)
        )
    if found["standing"] in _SIDES:
        lines.append(_SIDES[found["standing"]])
    for suspect in found["suspects"]:
        lines.append(
            f"SUSPECT {suspect['name']}: silent for {seconds(suspect['silence'])}, "
            f"level {suspect['level']:.0f}"
        )
    for holder in found["held_back_by"]:
        lines.append(f"HOLDS BACK {holder['name']}: since {seconds(holder['since'])}")
    for who in found["waiting"]:
        lines.append(
            f"WAITS {who['name']}: {who['messages']:,} messages, {size(who['bytes'])}, wait for "
            "missing ones"
        )
    for who in found["blamed"]:
        lines.append(f"REFUSED {who['name']}: {who['times']:,} times, last: {who['text']}")
    lines += ["", links(found["links"])]
    if found["refused"]:
        refused = ", ".join(f"{reason} {n}" for reason, n in sorted(found["refused"].items()))
        lines.append(f"refused connections: {refused}")
    return "\n".join(lines)


def comparison(found: Answer) -> str:
    """The result of a gateway's comparison of its keys with other members'."""
    if found["since"] is None:
        line = "keys compared: the first round is not complete yet"
    else:
        line = f"keys compared: {found['keys']:,} in the last round, {seconds(found['since'])} ago"
    if found["left_out"]:
        line += f", {found['left_out']:,} left out"
    if found["found"] or found["put_right"]:
        line += (
            f"; changed directly in the server {found['found']:,}, repaired {found['put_right']:,}"
        )
    if found["differing"]:
        line += f"; {found['differing']:,} DIFFER"
    if found["disputed"]:
        line += f"; {found['disputed']:,} DISPUTED: `crdtcast repair KEY --from NAME`"
    if found["not_replicated"]:
        line += f"; not replicated: {_by_type(found['not_replicated'])}"
    return line


def _by_type(kinds: dict[str, int]) -> str:
    return ", ".join(f"{kind} {number:,}" for kind, number in sorted(kinds.items()))


def format_level(found: Answer) -> str:
    """The format level of the group, and the members to upgrade for a higher one."""
    level, agreed = found["format"]["level"], found["format"]["agreed"]
    reads = {m["name"]: m["reads"][1] for m in found["members"] if m["reads"] is not None}
    line = f"format level {level}"
    if agreed > level:
        return f"{line}; {agreed} comes into force when all members have agreed to it"
    highest = max(reads.values(), default=level)
    if highest <= level:
        return line
    lacking = sorted(name for name, reads_to in reads.items() if reads_to < highest)
    if lacking:
        return f"{line}; some members read {highest}: upgrade {', '.join(lacking)} to use it"
    return f"{line}; all members read {highest}: `crdtcast raise`"


def _of_most(found: Answer) -> str:
    if not found["unstable"] or found["most_bytes"] is None:
        return ""
    return f", {100 * found['held_bytes'] // max(1, found['most_bytes'])} % of the most"


def links(found: dict[str, Answer]) -> str:
    """One line a link."""
    head = ("link", "state", "since", "sent", "received", "waiting", "reconnects", "trouble")
    return table(
        head,
        (
            (
                name,
                link["state"],
                seconds(link["since"]),
                size(link["bytes_sent"]),
                size(link["bytes_received"]),
                size(link["queued_bytes"]),
                link["reconnects"],
                link["error"] or "",
            )
            for name, link in found.items()
        ),
    )


def members(found: Answer) -> str:
    """What `crdtcast members` prints."""

    def remarks(member: Answer) -> str:
        said = []
        if member["witness"]:
            said.append("witness")
        if member["unheard"]:
            said.append("admitted, nothing received yet")
        elif not member["established"]:
            said.append("not yet known to all")
        if not member["votes"]:
            said.append("learner: no vote yet")
        if member["evicting"]:
            said.append("being evicted")
        if member["suspect"]:
            said.append(f"suspect, silent for {seconds(member['suspect']['silence'])}")
        if member["holds_back_since"] is not None:
            said.append(f"holds stability back since {seconds(member['holds_back_since'])}")
        return ", ".join(said)

    rows = ((m["name"], m["incarnation"] or "-", remarks(m)) for m in found["members"])
    lines = view(found["view"])
    if found["standing"] in _SIDES:
        lines.append(_SIDES[found["standing"]])
    return "\n".join([*lines, "", table(("member", "incarnation", ""), rows)])


def view(found: Answer | None) -> list[str]:
    """The view, the open change, and what this node has requested."""
    if found is None:
        return []
    line = f"view {found['epoch']:,} ({found['name']}): voters {', '.join(found['voters'])}"
    if found["learners"]:
        line += f"; learners {', '.join(found['learners'])}"
    lines = [line]
    if (change := found["change"]) is not None:
        waits = ", ".join(change["waits_for"]) or "no member"
        lines.append(
            f"OPEN: {change['by']} asks to {change['text']}, since {seconds(change['since'])}; "
            f"waits for {waits}"
        )
    if (wanted := found["wanted"]) is not None:
        what = []
        if gently := sorted(set(wanted["evict"]) - set(wanted["forced"])):
            what.append(f"evict {', '.join(gently)}")
        if wanted["forced"]:
            what.append(f"evict {', '.join(wanted['forced'])} by force")
        if wanted["leave"]:
            what.append("leave")
        if wanted["level"] is not None:
            what.append(f"raise the format level to {wanted['level']}")
        waits = ", ".join(wanted["waits_for"]) or "the decision"
        lines.append(
            f"REQUESTED by this node: {', '.join(what)}, since {seconds(wanted['since'])}; waits "
            f"for {waits}"
        )
    return lines


def departure(found: Answer) -> str:
    """What `crdtcast leave` prints."""
    if found["confirmed"]:
        return f"left: {found['left']} is no longer a member; the node stops"
    waits = ", ".join(found["waits_for"]) or "a majority"
    return (
        f"left, not confirmed: the group has decided that {found['left']} is no longer a member; "
        f"{waits} will learn it from the others. The node stops and keeps its journal"
    )


def withdrawn(found: Answer) -> str:
    """What `crdtcast evict --withdraw` prints."""
    said = f"withdrawn: {', '.join(found['withdrawn']) or 'nothing'}"
    return f"{said}; still requested: {', '.join(found['wanted'])}" if found["wanted"] else said


def verification(found: Answer) -> str:
    """What `crdtcast verify` prints."""
    if found["silent"]:
        return (
            f"NOT COMPARED: {', '.join(found['silent'])} did not answer: try again when they are "
            "back (`crdtcast members` shows silent members)"
        )
    lines = [
        (
            f"compared {found['compared']:,} of {found['objects']:,} objects at "
            f"{', '.join(found['members'])}; skipped {found['changing']:,} that were being written to"
        )
    ]
    if found["unknown"]:
        lines.append(
            f"skipped {found['unknown']:,} that some member does not understand: upgrade it"
        )
    for name, digests in found["different"].items():
        at = ", ".join(f"{member} {_short(digest)}" for member, digest in digests.items())
        lines.append(f"DIFFERENT {name}: {at}")
    foreign = _not_replicated(found)
    lines += foreign
    equal = "equal (replicated keys only)" if foreign else "equal"
    differing = len(found["different"])
    unequal = "1 object DIFFERS" if differing == 1 else f"{differing:,} objects DIFFER"
    lines.append(equal if found["equal"] else unequal)
    return "\n".join(lines)


def _not_replicated(found: Answer) -> list[str]:
    """A line for each member whose server has keys that were written past its gateway and are not replicated."""
    return [
        f"NOT REPLICATED, present at {name} only: {_by_type(kinds)}"
        for name, kinds in found.get("not_replicated", {}).items()
        if kinds
    ]


def _short(digest: str) -> str:
    """The beginning of a digest; other text as it is."""
    return digest[:12] if _DIGEST.fullmatch(digest) else digest or "nothing"


def _keys(number: int) -> str:
    return "1 key" if number == 1 else f"{number:,} keys"


def repaired(found: Answer) -> str:
    """What `crdtcast repair` prints."""
    lines = [f"{_keys(found['keys'])} compared"]
    lines += [f"{_keys(number)} {what}" for what, number in sorted(found["found"].items())]
    lines += _not_replicated(found)
    if found["left"]:
        lines.append(
            f"NOT repaired: {', '.join(found['left'])}: run `crdtcast repair KEY --from NAME`"
        )
    return "\n".join(lines)


def objects(found: list[Answer]) -> str:
    """What `crdtcast object list` prints."""
    rows = (
        (o["name"], o["type"], "" if o["visible"] else "hidden by another type", o["unstable"])
        for o in found
    )
    return table(("object", "type", "", "unstable"), rows)
