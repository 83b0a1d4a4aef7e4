"""Who led which partition when: a row each, a colour for each broker, its number where there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from matplotlib.patches import Patch

from pipeline.report.figures.canvas import PAINT, SERIES, Drawing, colours
from pipeline.report.figures.time_axis import number_of, set_time_axis

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_WIDTH: Final = 860
_ROW: Final = 22
_MARGIN: Final = 92
#: A number needs so much of the width.
_ROOM_FOR_A_NUMBER: Final = 0.018


class Reign(NamedTuple):
    """A leader of a partition, -1 for none, from one time to another."""

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
    """An SVG with a row for each name, top down."""
    drawing = Drawing(name, _WIDTH, _MARGIN + _ROW * len(rows))
    (axes,) = drawing.axes()
    since, until = map(number_of, span)
    counts: dict[int, float] = {}
    for reign in reigns:
        if reign.leader >= 0:
            lasted = (reign.until - reign.since).total_seconds()
            counts[reign.leader] = counts.get(reign.leader, 0.0) + lasted
    # The hues go to those who led longest; in the legend all stand by their numbers.
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
