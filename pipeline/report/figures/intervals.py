"""When something was so, as far as is known: solid where it certainly was, faint where it may have been."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from matplotlib.patches import Patch

from pipeline.report.figures.canvas import PAINT, Drawing
from pipeline.report.figures.time_axis import number_of, set_time_axis

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

_WIDTH: Final = 860
_ROW: Final = 22
_MARGIN: Final = 92
#: What lasted no longer than can be seen is drawn this wide, as a part of the whole.
_LEAST: Final = 0.003


class Interval(NamedTuple):
    """Began after `start_after` and by `start_by`, ended likewise. None: that bound is not known."""

    start_after: datetime | None
    start_by: datetime
    end_after: datetime
    end_by: datetime | None
    is_worse: bool


def interval_chart(
    name: str,
    title: str,
    description: str,
    rows: Sequence[str],
    intervals: Sequence[Interval],
    span: tuple[datetime, datetime],
    words: tuple[str, str, str],
) -> str:
    """An SVG with an interval a row, top down. `words`: what it certainly was, the worse of it, and maybe."""
    drawing = Drawing(name, _WIDTH, _MARGIN + _ROW * len(rows))
    (axes,) = drawing.axes()
    since, until = map(number_of, span)
    certain, worse, maybe = words
    for row, interval in enumerate(intervals):
        begins = since if interval.start_after is None else number_of(interval.start_after)
        ends = until if interval.end_by is None else number_of(interval.end_by)
        axes.barh(row, ends - begins, left=begins, height=0.3, color=PAINT["warn"], alpha=0.35, linewidth=0)
        start, end = number_of(interval.start_by), number_of(interval.end_after)
        axes.barh(
            row,
            max(end - start, _LEAST * (until - since)),
            left=start,
            height=0.7,
            color=PAINT["bad" if interval.is_worse else "warn"],
            linewidth=0,
        )
        if interval.end_by is None:
            axes.plot([until], [row], marker=">", color=PAINT["ink"], markersize=6, clip_on=False)
    set_time_axis(axes, *span)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), rows)
    legend = [
        Patch(color=PAINT["warn"], label=certain),
        Patch(color=PAINT["bad"], label=worse),
        Patch(facecolor=PAINT["warn"], alpha=0.35, label=maybe),
    ]
    drawing.figure.legend(handles=legend, loc="outside upper left", ncols=3, fontsize=11.5, handlelength=1.2)
    return drawing.svg(title, description)
