"""The audit as one self-contained page: verdict first, then findings, then plots."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape

from crdtcast.integrations.spark.logs import LoggedGroup
from crdtcast.integrations.spark.report import plots
from crdtcast.integrations.spark.result import Result
from crdtcast.integrations.spark.series import Lag, Series
from crdtcast.integrations.spark.verdict import STAGES

MOST_SHOWN = 200
"""Most findings listed; findings.json has all that reached the driver."""
MOST_GROUPS = 8
"""Most groups with plots; groups with findings come first."""

_QUESTIONS = {
    "log": "Are the logs whole?",
    "order": "Did every replica deliver each origin's messages in order, once, and all of them?",
    "causality": "Did the dependencies of a message come before it, and does it name all of them?",
    "stability": "When a message was reported stable, could a concurrent one still arrive?",
    "convergence": "Did the same operations give the same values?",
    "garbage": "Was all metadata removed that could be removed?",
}

_CSS = """
:root { color: #1f2933; background: #f5f7f9; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 62rem; margin: 0 auto; padding: 2rem 1.2rem 4rem; }
h1 { font-size: 1.3rem; margin: 0 0 1rem; font-weight: 600; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .6rem; }
section, .verdict { background: #fff; border: 1px solid #dde3e9; border-radius: 8px;
  padding: 1rem 1.2rem; margin: 0 0 1rem; }
.verdict { border-left: 8px solid #2e8b57; }
.verdict.bad { border-left-color: #b42318; }
.verdict strong { font-size: 1.45rem; display: block; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; color: #4b5563; font-size: .85rem; }
th, td { padding: .35rem .7rem .35rem 0; border-bottom: 1px solid #e9edf1; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.ok { color: #2e7d4f; } td.bad { color: #b42318; font-weight: 600; }
code { font: .85rem ui-monospace, monospace; word-break: break-all; }
.muted { color: #6b7280; } svg { width: 100%; height: auto; display: block; margin: .6rem 0; }
"""


def render(result: Result) -> str:
    """The page as HTML."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>crdtcast audit</title><style>{_CSS}</style></head><body>"
        "<h1>crdtcast audit</h1>"
        f"{_verdict(result)}{_checks(result)}{_findings(result)}{_notes(result)}"
        f"{_groups(result)}"
        f'<p class="muted">{result.lines:,} lines audited in {result.seconds:.0f} s. Times come '
        "from the replicas' own clocks; only plots, lags and what is owed at the end of a log "
        "depend on them.</p>"
        "</body></html>\n"
    )


def _verdict(result: Result) -> str:
    verdict = result.verdict
    replicas = sum(len({log.replica for log in g.logs.values()}) for g in result.groups.values())
    messages = sum(sum(group.surviving.values()) for group in result.groups.values())
    scope = (
        f"{_many(len(result.groups), 'group')}, {_many(replicas, 'replica')}, "
        f"{_many(messages, 'message')}, {_many(result.lines, 'event')}"
    )
    if verdict.clean:
        return f'<div class="verdict"><strong>Clean</strong>{scope}: nothing found.</div>'
    also = sum(verdict.suppressed.values())
    follows = f"; {_many(also, 'more row')} follow from these" if also else ""
    return (
        f'<div class="verdict bad"><strong>{_many(len(verdict.findings), "finding")}</strong>'
        f"{scope}{follows}.</div>"
    )


def _checks(result: Result) -> str:
    counts: defaultdict[str, int] = defaultdict(int)
    for finding in result.verdict.findings:
        counts[finding.check] += 1
    rows = []
    for stage in STAGES:
        found, hidden = counts[stage], result.verdict.suppressed.get(stage, 0)
        follows = f"{_many(hidden, 'row')} that follow" if hidden else ""
        if found:
            answer = (_many(found, "finding") + (f", {follows}" if hidden else ""), "bad")
        elif hidden or stage in result.not_judged:
            answer = (follows or f"not checked: {result.not_judged[stage]}", "muted")
        else:
            answer = ("fine", "ok")
        rows.append([stage, _QUESTIONS[stage], answer])
    return f"<section>{_table(['check', 'question', 'answer'], rows)}</section>"


def _findings(result: Result) -> str:
    findings = result.verdict.findings
    if not findings:
        return ""
    rows = [
        [f.group, f.check, f.replica, (f.dot, "code"), f.text, "" if f.seq is None else f.seq]
        for f in findings[:MOST_SHOWN]
    ]
    more = len(findings) - MOST_SHOWN
    rest = f'<p class="muted">and {more:,} more in findings.json</p>' if more > 0 else ""
    head = ["group", "check", "replica", "message", "what happened", "line"]
    return f"<h2>Findings, causes first</h2><section>{_table(head, rows)}{rest}</section>"


def _notes(result: Result) -> str:
    if not result.notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    return f"<h2>Notes</h2><section><ul>{items}</ul></section>"


def _groups(result: Result) -> str:
    series: defaultdict[str, list[Series]] = defaultdict(list)
    for one in result.series:
        series[one.group].append(one)
    lags = {(lag.group, lag.replica): lag for lag in result.lags}
    failed = {finding.group for finding in result.verdict.findings}
    groups = sorted(result.groups.values(), key=lambda group: group.name not in failed)
    parts = [_group(group, series[group.name], lags) for group in groups[:MOST_GROUPS]]
    if len(groups) > MOST_GROUPS:
        parts.append(f'<p class="muted">and {len(groups) - MOST_GROUPS} more groups</p>')
    return "".join(parts)


def _group(group: LoggedGroup, series: Sequence[Series], lags: dict[tuple[str, str], Lag]) -> str:
    rows = []
    for log in sorted(group.current, key=lambda log: log.replica):
        lives = sum(other.replica == log.replica for other in group.logs.values())
        delivered = sum(told.delivered for told in log.told.values())
        stable = sum(told.stable for told in log.told.values())
        lag = lags.get((group.name, log.replica))
        times = ["", "", ""] if lag is None else [_s(lag.median), _s(lag.p99), _s(lag.longest)]
        left = "" if log.bytes_after is None else f"{log.bytes_after:,}"
        rows.append(
            [log.replica, lives, f"{delivered:,}", f"{max(0, delivered - stable):,}", *times, left]
        )
    head = ["replica", "lives", "delivered", "not stable", "lag median", "99 %", "longest"]
    table = _table([*head, "metadata, bytes"], rows, numbers_from=1)
    drawn = plots.lag(series) + plots.backlog(series)
    if any(one.metadata for one in series):
        drawn += plots.metadata(series)
    return f"<h2>Group {escape(group.name)}</h2><section>{table}{drawn}</section>"


def _table(
    head: Iterable[str],
    rows: Iterable[Sequence[object | tuple[str, str]]],
    numbers_from: int | None = None,
) -> str:
    """A cell is a value, or a text with the name of its style."""

    def cell(place: int, value: object) -> str:
        if isinstance(value, tuple):
            text, style = value
            if style == "code":
                return f"<td><code>{escape(text)}</code></td>"
            return f'<td class="{style}">{escape(text)}</td>'
        is_number = numbers_from is not None and place >= numbers_from
        return f"<td{' class=n' if is_number else ''}>{escape(str(value))}</td>"

    def title(place: int, text: str) -> str:
        is_number = numbers_from is not None and place >= numbers_from
        return f"<th{' class=n' if is_number else ''}>{escape(text)}</th>"

    titles = "".join(title(place, text) for place, text in enumerate(head))
    body = "".join(
        f"<tr>{''.join(cell(place, value) for place, value in enumerate(row))}</tr>" for row in rows
    )
    return f"<table><tr>{titles}</tr>{body}</table>"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _s(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"
