"""The report's plots as inline SVG. No global state: each plot has its own figure."""

import io
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from crdtcast.integrations.spark.series import Series

_COLOURS = ("#2563a8", "#c2571a", "#2e8b57", "#8a4fa3", "#b5963a", "#4a9fb5", "#b23a5e", "#6b7280")
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: smaller, and searchable
    "svg.hashsalt": "crdtcast",  # the same logs give the same file
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa3ad",
    "axes.labelcolor": "#4b5563",
    "axes.titlecolor": "#1f2933",
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.grid": True,
    "grid.color": "#e5e9ee",
    "xtick.color": "#6b7280",
    "ytick.color": "#6b7280",
    "legend.frameon": False,
    "legend.fontsize": 9,
}
# With more replicas lines are thin and grey, and a legend would fill the plot.
_MOST_NAMED = len(_COLOURS)


def lag(series: Sequence[Series]) -> str:
    """Time from delivery to stability: median, and the 99th percentile above it."""

    def draw(axes: Axes, one: Series, style: dict[str, Any]) -> None:
        times = [time for time, _, _ in one.lag]
        axes.plot(times, [median for _, median, _ in one.lag], **style)
        above = {**style, "label": None, "linestyle": ":"}
        axes.plot(times, [p99 for _, _, p99 in one.lag], **above)

    title = "Stability lag (line: median, dotted: 99th percentile)"
    return _panel(title, "seconds", series, draw)


def backlog(series: Sequence[Series]) -> str:
    """Messages delivered but not stable yet."""

    def draw(axes: Axes, one: Series, style: dict[str, Any]) -> None:
        axes.plot(*_columns(one.backlog), drawstyle="steps-post", **style)

    return _panel("Backlog: delivered, not yet stable", "messages", series, draw)


def metadata(series: Sequence[Series]) -> str:
    """Size of the replicas' metadata, from their GC lines."""

    def draw(axes: Axes, one: Series, style: dict[str, Any]) -> None:
        times, sizes = _columns(one.metadata)
        axes.plot(times, [size / 1024 for size in sizes], drawstyle="steps-post", **style)

    return _panel("Metadata after each collection", "KiB", series, draw)


def _columns(points: Sequence[tuple[float, int]]) -> tuple[list[float], list[int]]:
    return [time for time, _ in points], [value for _, value in points]


def _panel(
    title: str,
    unit: str,
    series: Sequence[Series],
    draw: Callable[[Axes, Series, dict[str, Any]], None],
) -> str:
    with rc_context(_STYLE):
        figure = Figure(figsize=(9.2, 2.6), layout="constrained")
        axes = figure.add_subplot()
        for place, one in enumerate(series):
            few = len(series) <= _MOST_NAMED
            draw(
                axes,
                one,
                {
                    "color": _COLOURS[place] if few else "#2563a8",
                    "alpha": 1.0 if few else 0.25,
                    "linewidth": 1.6 if few else 0.8,
                    "label": one.replica,
                },
            )
        axes.set_title(title)
        axes.set_ylabel(unit)
        axes.set_xlabel("seconds since the first event")
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, max((time for one in series for time, _ in one.backlog), default=1))
        if 1 < len(series) <= _MOST_NAMED:
            axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
