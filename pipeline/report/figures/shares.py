"""What each broker has of the whole, against what would be fair: partitions led, and records taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from pipeline.report.figures.canvas import PAINT, Drawing

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH: Final = 860
_ROW: Final = 40
_MARGIN: Final = 92


def share_bars(
    name: str,
    title: str,
    description: str,
    rows: Sequence[str],
    leaders: Sequence[float],
    load: Sequence[float],
    fair: float,
) -> str:
    """An SVG with two bars a row, top down, all of them shares of one."""
    drawing = Drawing(name, _WIDTH, _MARGIN + _ROW * len(rows))
    (axes,) = drawing.axes()
    for offset, values, paint in ((-0.2, leaders, "series-0"), (0.2, load, "series-1")):
        places = [row + offset for row in range(len(rows))]
        axes.barh(places, values, height=0.36, color=PAINT[paint], linewidth=0)
        for place, value in zip(places, values, strict=True):
            axes.annotate(
                f"{100 * value:.0f} %",
                (value, place),
                xytext=(4, 0),
                textcoords="offset points",
                va="center_baseline",
                fontsize=11,
            )
    axes.axvline(fair, color=PAINT["ink"], linewidth=1.2, linestyle=(0, (3, 3)))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlim(0, max(*leaders, *load, fair) * 1.12)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
    axes.grid(axis="x")
    legend = [
        Patch(color=PAINT["series-0"], label="of the partitions led"),
        Patch(color=PAINT["series-1"], label="of the records taken"),
        Line2D([], [], color=PAINT["ink"], linewidth=1.2, linestyle=(0, (3, 3)), label="fair"),
    ]
    drawing.figure.legend(handles=legend, loc="outside upper left", ncols=3, fontsize=11.5, handlelength=1.6)
    return drawing.svg(title, description)
