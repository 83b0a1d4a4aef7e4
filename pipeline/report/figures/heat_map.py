"""A table of numbers as colours, each cell with its number where there is room: never by colour alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from matplotlib.patches import Rectangle

from pipeline.report.figures.canvas import HEATS, PAINT, Drawing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ROW: Final = 26
_MARGIN: Final = 56
_WIDTH: Final = 860
#: Between the two ends of a logarithmic scale, at least.
_LEAST_RATIO: Final = 8
#: With more columns than that there is no room for numbers.
_MOST_WITH_NUMBERS: Final = 14


def heat_map(
    name: str,
    title: str,
    description: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    *,
    said: Callable[[float], str],
    of_rows: str,
    of_columns: str,
    logarithmic: bool = False,
) -> str:
    """An SVG; None is a cell without a number. `said` writes one."""
    drawing = Drawing(name, _WIDTH, _MARGIN + _ROW * len(rows))
    (axes,) = drawing.axes()
    numbers = [cell for row in cells for cell in row if cell is not None and cell > 0]
    steps = _steps(numbers, logarithmic=logarithmic)
    for y, row in enumerate(cells):
        for x, cell in enumerate(row):
            if cell is None:
                continue
            step = sum(cell > bound for bound in steps)
            axes.add_patch(
                Rectangle(
                    (x, y),
                    1,
                    1,
                    facecolor=PAINT[f"heat-{step}"],
                    edgecolor=PAINT["surface"],
                    linewidth=1.5,
                )
            )
            if len(columns) <= _MOST_WITH_NUMBERS:
                axes.text(
                    x + 0.5,
                    y + 0.5,
                    said(cell),
                    ha="center",
                    va="center_baseline",
                    fontsize=11,
                    color=PAINT[f"heat-ink-{step}"],
                )
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(rows), 0)
    axes.set_yticks([y + 0.5 for y in range(len(rows))], rows)
    every = max(math.ceil(len(columns) / _MOST_WITH_NUMBERS), 1)
    shown = range(0, len(columns), every)
    axes.set_xticks([x + 0.5 for x in shown], [columns[x] for x in shown])
    axes.tick_params(length=0)
    axes.spines["bottom"].set_visible(False)
    if len(columns) > _MOST_WITH_NUMBERS and numbers:
        of_columns += f"{', ' if of_columns else ''}strongest: {said(max(numbers))}"
    axes.set_xlabel(of_columns)
    axes.set_ylabel(of_rows)
    return drawing.svg(title, description)


def _steps(numbers: list[float], *, logarithmic: bool) -> list[float]:
    """The upper bounds of all steps but the last: nothing and equal parts of the most, or equal ratios."""
    if not numbers:
        return [0.0] * (HEATS - 1)
    most = max(numbers)
    if logarithmic:
        # What differs by little is not to look as if it differed by much.
        least, most = math.log(min(numbers)), math.log(max(most, _LEAST_RATIO * min(numbers)))
        return [math.exp(least + (most - least) * n / HEATS) for n in range(1, HEATS)]
    return [0.0, *(most * n / (HEATS - 1) for n in range(1, HEATS - 1))]
