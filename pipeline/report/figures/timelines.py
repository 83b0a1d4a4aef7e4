"""Draws figures over time, on an axis in UTC.

leaders     who led which partition when: a row per partition, a colour per broker
intervals   when a condition was true, a row each
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.patches import Patch

from pipeline.report.figures.canvas import PAINT, SERIES, Drawing, colours

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from matplotlib.axes import Axes

#: The share of the width that a number needs.
_ROOM_FOR_A_NUMBER: Final = 0.018


_MOST_MARKS: Final = 9
_DAY_S: Final = 86_400


_WIDTH: Final = 860
_ROW: Final = 22
_MARGIN: Final = 92
#: The least width of a bar, as a share of the whole.
_LEAST: Final = 0.003


def set_time_axis(axes: Axes, since: datetime, until: datetime) -> None:
    """Sets the time axis from `since` to `until`, with ticks at round times."""
    axes.set_xlim(since, until)  # type: ignore[arg-type]  # matplotlib converts times
    locator = AutoDateLocator(minticks=3, maxticks=_MOST_MARKS)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.grid(axis="x")


def number_of(at: datetime) -> float:
    """Returns a time as this axis counts it: days since 1970."""
    return at.timestamp() / _DAY_S


class Interval(NamedTuple):
    """The time in which a condition was true; `is_open`: it was still true at the end."""

    since: datetime
    until: datetime
    is_open: bool
    is_worse: bool


def interval_chart(
    name: str,
    title: str,
    description: str,
    rows: Sequence[str],
    intervals: Sequence[Interval],
    span: tuple[datetime, datetime],
    words: tuple[str, str],
) -> str:
    """Returns an SVG, one interval per row. `words`: the labels of the better and the worse intervals."""
    drawing = Drawing(name, _WIDTH, _MARGIN + _ROW * len(rows))
    (axes,) = drawing.axes()
    since, until = map(number_of, span)
    for row, interval in enumerate(intervals):
        start, end = number_of(interval.since), number_of(interval.until)
        axes.barh(
            row,
            max(end - start, _LEAST * (until - since)),
            left=start,
            height=0.7,
            color=PAINT["bad" if interval.is_worse else "warn"],
            linewidth=0,
        )
        if interval.is_open:
            axes.plot([until], [row], marker=">", color=PAINT["ink"], markersize=6, clip_on=False)
    set_time_axis(axes, *span)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), rows)
    legend = [
        Patch(color=PAINT[tone], label=label) for tone, label in zip(("warn", "bad"), words, strict=True)
    ]
    drawing.figure.legend(handles=legend, loc="outside upper left", ncols=2, fontsize=11.5, handlelength=1.2)
    return drawing.svg(title, description)


class Reign(NamedTuple):
    """The time in which a broker led a partition; -1 for no leader."""

    row: int
    leader: int
    since: datetime
    until: datetime


def leader_timeline(
    name: str,
    title: str,
    description: str,
    rows: Sequence[str],
    reigns: Sequence[Reign],
    span: tuple[datetime, datetime],
) -> str:
    """Returns an SVG with a row for each name, from top to bottom."""
    drawing = Drawing(name, _WIDTH, _MARGIN + _ROW * len(rows))
    (axes,) = drawing.axes()
    since, until = map(number_of, span)
    counts: dict[int, float] = {}
    for reign in reigns:
        if reign.leader >= 0:
            lasted = (reign.until - reign.since).total_seconds()
            counts[reign.leader] = counts.get(reign.leader, 0.0) + lasted
    # The brokers that led longest get the hues; the legend is sorted by number.
    led = sorted(sorted(counts, key=lambda leader: (-counts[leader], leader))[:SERIES])
    paints = colours(led)
    for reign in reigns:
        start, length = number_of(reign.since), number_of(reign.until) - number_of(reign.since)
        is_leaderless = reign.leader < 0
        axes.barh(
            reign.row,
            length,
            left=start,
            height=0.78,
            color=PAINT["bad"] if is_leaderless else paints.get(reign.leader, PAINT["other"]),
            edgecolor=PAINT["surface"],
            linewidth=0.8,
            hatch="////" if is_leaderless else None,
        )
        if not is_leaderless and length > _ROOM_FOR_A_NUMBER * (until - since):
            axes.text(
                start + length / 2,
                reign.row,
                str(reign.leader),
                ha="center",
                va="center_baseline",
                fontsize=11,
                color=PAINT["surface"],
            )
    set_time_axis(axes, *span)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), rows)
    legend = [Patch(color=paints[leader], label=f"broker {leader}") for leader in led]
    if len(counts) > len(led):
        legend.append(Patch(color=PAINT["other"], label="others"))
    if any(reign.leader < 0 for reign in reigns):
        legend.append(
            Patch(facecolor=PAINT["bad"], edgecolor=PAINT["surface"], hatch="////", label="no leader")
        )
    drawing.figure.legend(handles=legend, loc="outside upper left", ncols=9, fontsize=11.5, handlelength=1.2)
    return drawing.svg(title, description)
