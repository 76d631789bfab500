"""Figures from the tables: a page for each experiment, engines side by side, published values as crosses."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, StrMethodFormatter

from .cpu import CpuRow
from .engines import ENGINES
from .published import PUBLISHED
from .runs import Row

COLOURS = dict(zip(ENGINES, ("#d62728", "#1f77b4", "#9467bd", "#2ca02c", "#ff7f0e"), strict=True))


@dataclass(frozen=True, slots=True)
class Panel:
    """One metric of `Row`, with or without stability."""

    metric: str
    title: str
    stability: bool


PANELS = (
    Panel("dependencies", "dependencies a message", True),
    Panel("bytes_total", "bytes a delivery, with stability", True),
    Panel("memory_words_bytes", "metadata, words x 8 B, without", False),
    Panel("memory_words_bytes", "metadata, words x 8 B, with", True),
    Panel("memory_real_bytes", "metadata, real bytes, with", True),
    Panel("lag_ms", "stability lag, ms", True),
    Panel("delivery_us", "arrival to delivery, us, without", False),
    Panel("delivery_us", "arrival to delivery, us, with", True),
    Panel("stable_us", "arrival or tick to notice, us", True),
)
SLOW_PANELS = tuple(p for p in PANELS if p.metric.endswith("_us") or p.metric == "lag_ms")


def draw_all(rows: Sequence[Row], cpu: Sequence[CpuRow], out: Path) -> list[Path]:
    """Draw what there are rows for; the files made."""
    made = []
    for name in ("2", "3", "2-slow", "3-slow"):
        if chosen := [row for row in rows if row.experiment == name]:
            panels = SLOW_PANELS if "slow" in name else PANELS
            made.append(_experiment(name, chosen, panels, out))
    if chosen := [row for row in rows if row.experiment == "sweep"]:
        made.append(_sweep(chosen, out))
    if cpu:
        made.append(_cpu(cpu, out))
    return made


def _experiment(name: str, rows: Sequence[Row], panels: Sequence[Panel], out: Path) -> Path:
    if name.startswith("3"):
        columns = 3
        lines = -(-len(panels) // columns)
        figure, axes = _grid(lines, columns)
        for axis, panel in zip(axes.flat, panels, strict=False):
            _plot(axis, name, rows, panel, panel.title)
        for axis in list(axes.flat)[len(panels) :]:
            axis.axis("off")
    else:
        intervals = sorted({row.interval_ms for row in rows})
        figure, axes = _grid(len(panels), len(intervals))
        for line, panel in zip(axes, panels, strict=True):
            for axis, interval in zip(line, intervals, strict=True):
                chosen = [row for row in rows if row.interval_ms == interval]
                _plot(axis, name, chosen, panel, f"{panel.title}; every {interval:g} ms")
    return _save(figure, axes, out / f"experiment-{name}.png")


def _plot(axis: Any, name: str, rows: Sequence[Row], panel: Panel, title: str) -> None:
    for engine, kind in ENGINES.items():
        # Ours cannot do without stability: it stands beside the others as it is.
        stability = panel.stability or not kind.optional
        points = sorted(
            (row.members, getattr(row, panel.metric))
            for row in rows
            if row.engine == engine and row.stability == stability
        )
        if points:
            style = "-" if stability == panel.stability else ":"
            axis.plot(*zip(*points, strict=True), style, color=COLOURS[engine], marker=".", ms=4)
    for published in PUBLISHED:
        same = published.experiment == name or (name == "2" and published.experiment == "1")
        if (
            same
            and published.metric == panel.metric
            and (published.stability == panel.stability or panel.metric == "dependencies")
        ):
            axis.plot(
                published.members, published.value, "x", color=COLOURS[published.engine], ms=7
            )
    axis.set_title(title, fontsize=8)
    _log_axes(axis, 2)


def _sweep(rows: Sequence[Row], out: Path) -> Path:
    sizes = sorted({row.members for row in rows})
    metrics = (("lag_ms", "stability lag, ms"), ("bytes_total", "bytes a delivery"))
    figure, axes = _grid(len(metrics), len(sizes))
    for line, (metric, title) in zip(axes, metrics, strict=True):
        for axis, members in zip(line, sizes, strict=True):
            for engine in ENGINES:
                points = sorted(
                    (row.tick_ms, getattr(row, metric))
                    for row in rows
                    if row.engine == engine and row.members == members
                )
                if points:
                    axis.plot(*zip(*points, strict=True), color=COLOURS[engine], marker=".", ms=4)
            axis.set_title(f"{title}; {members} members, by tick in ms", fontsize=8)
            _log_axes(axis, 10)
    return _save(figure, axes, out / "sweep.png")


def _cpu(rows: Sequence[CpuRow], out: Path) -> Path:
    metrics = (
        ("cpu_us", "CPU a delivery, us"),
        ("packed_us", "the same with packing"),
        ("bytes_per_delivery", "bytes a delivery"),
    )
    ticks = sorted({row.our_tick_ms for row in rows})
    figure, axes = _grid(len(ticks), len(metrics))
    for line, tick in zip(axes, ticks, strict=True):
        for axis, (metric, title) in zip(line, metrics, strict=True):
            for engine in ENGINES:
                points = sorted(
                    (row.members, getattr(row, metric))
                    for row in rows
                    if row.engine == engine and row.our_tick_ms == tick
                )
                if points:
                    axis.plot(*zip(*points, strict=True), color=COLOURS[engine], marker=".", ms=4)
            axis.set_title(f"{title}; at our lag with a tick of {tick:g} ms", fontsize=8)
            _log_axes(axis, 2)
    return _save(figure, axes, out / "cpu.png")


def _log_axes(axis: Any, base: int) -> None:
    axis.set_xscale("log", base=base)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(EngFormatter(sep=""))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(labelsize=6)
    axis.grid(alpha=0.3)


def _grid(lines: int, columns: int) -> tuple[Any, Any]:
    return plt.subplots(
        lines, columns, figsize=(3.3 * columns, 2.2 * lines + 0.4), squeeze=False, layout="tight"
    )


def _save(figure: Any, axes: Any, path: Path) -> Path:
    for engine, kind in ENGINES.items():
        axes.flat[0].plot([], [], color=COLOURS[engine], marker=".", ms=4, label=kind.label)
    axes.flat[0].legend(fontsize=6)
    figure.savefig(path, dpi=72)
    plt.close(figure)
    return path
