"""Draws amounts: heat maps, bars of shares, and the distribution of delays.

heat_map     a table of numbers as colours, each cell with its number if there is room
share_bars   each broker's share of leaders and bytes, beside an equal share
spread       how long changes took to reach sidecars: counts per time bin, censored ones separate
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.report import words
from pipeline.report.figures.canvas import HEATS, PAINT, Drawing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HEIGHT: Final = 360
_MARKS_MS: Final = np.array([1, 10, 100, 1e3, 1e4, 6e4, 6e5, 3.6e6, 3.6e7, 2.592e8])


_CELL_HEIGHT: Final = 26
_MAP_MARGIN: Final = 56
_WIDTH: Final = 860
#: The least ratio between the two ends of a logarithmic scale.
_LEAST_RATIO: Final = 8
#: With more columns there is no room for numbers.
_MOST_WITH_NUMBERS: Final = 14

_BAR_HEIGHT: Final = 40
_BARS_MARGIN: Final = 92


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
    """Returns an SVG. A cell of None stays empty. `said` formats a number."""
    drawing = Drawing(name, _WIDTH, _MAP_MARGIN + _CELL_HEIGHT * len(rows))
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
    """Returns the upper bound of each step but the last.

    Linear: 0, then equal parts of the maximum. Logarithmic: equal ratios.
    """
    if not numbers:
        return [0.0] * (HEATS - 1)
    most = max(numbers)
    if logarithmic:
        # Small differences must not look large.
        least, most = math.log(min(numbers)), math.log(max(most, _LEAST_RATIO * min(numbers)))
        return [math.exp(least + (most - least) * n / HEATS) for n in range(1, HEATS)]
    return [0.0, *(most * n / (HEATS - 1) for n in range(1, HEATS - 1))]


def share_bars(
    name: str,
    title: str,
    description: str,
    rows: Sequence[str],
    leaders: Sequence[float],
    load: Sequence[float],
    fair: float,
) -> str:
    """Returns an SVG with two bars per row, from top to bottom; all are shares of 1."""
    drawing = Drawing(name, _WIDTH, _BARS_MARGIN + _BAR_HEIGHT * len(rows))
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
        Patch(color=PAINT["series-1"], label="of the bytes taken"),
        Line2D([], [], color=PAINT["ink"], linewidth=1.2, linestyle=(0, (3, 3)), label="fair"),
    ]
    drawing.figure.legend(handles=legend, loc="outside upper left", ncols=3, fontsize=11.5, handlelength=1.6)
    return drawing.svg(title, description)


def spread(
    name: str,
    title: str,
    description: str,
    bounds: np.ndarray,
    reached: np.ndarray,
    censored: np.ndarray,
    quantiles: Sequence[tuple[str, float]],
) -> str:
    """Returns an SVG: the counts, and under them the share reached (Kaplan-Meier). `bounds` are in ms."""
    drawing = Drawing(name, _WIDTH, _HEIGHT)
    counts, shares = drawing.axes(2, [3, 2])
    used = np.flatnonzero(reached + censored)
    first, last = max(int(used[0]) - 1, 0), int(used[-1]) + 2
    # A bin from 0 has no width on a logarithmic axis: it is drawn as wide as its neighbour.
    left = np.maximum(bounds[first:last], bounds[1] ** 2 / bounds[2])
    right = np.append(bounds, bounds[-1] * 2)[first + 1 : last + 1]
    widths = right - left
    counts.bar(left, reached[first:last], widths, align="edge", color=PAINT["series-0"], linewidth=0)
    counts.bar(
        left,
        censored[first:last],
        widths,
        bottom=reached[first:last],
        align="edge",
        color=PAINT["bad"],
        edgecolor=PAINT["surface"],
        linewidth=0,
        hatch="////",
    )
    counts.set_ylabel("sights of an epoch")
    counts.grid(axis="y")
    counts.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    counts.yaxis.set_major_formatter(FuncFormatter(lambda number, _: words.compact(number)))
    shares.step(
        right, share_reached(reached, censored)[first:last], where="post", color=PAINT["accent"], linewidth=2
    )
    shares.set_ylim(0, 1.04)
    shares.set_yticks([0, 0.5, 0.95], ["0", "50 %", "95 %"])
    shares.set_ylabel("know it")
    shares.grid(axis="y")
    for label, at_ms in quantiles:
        shares.axvline(at_ms, color=PAINT["ink-soft"], linewidth=1, linestyle=(0, (3, 3)))
        shares.annotate(
            label,
            (at_ms, 0.06),
            xytext=(4, 0),
            textcoords="offset points",
            fontsize=11.5,
            color=PAINT["ink"],
        )
    shares.set_xscale("log")
    shares.set_xlim(left[0], right[-1])
    marks = _MARKS_MS[(left[0] <= _MARKS_MS) & (right[-1] >= _MARKS_MS)]
    shares.set_xticks(marks, [words.duration(mark) for mark in marks])
    shares.minorticks_off()
    shares.set_xlabel("after the first sidecar of the fleet")
    legend = [
        Patch(color=PAINT["series-0"], label="seen"),
        Patch(
            facecolor=PAINT["bad"],
            edgecolor=PAINT["surface"],
            hatch="////",
            label="not seen by the sidecar's last event",
        ),
    ]
    drawing.figure.legend(handles=legend, loc="outside upper left", ncols=2, fontsize=11.5, handlelength=1.2)
    return drawing.svg(title, description)


def share_reached(reached: np.ndarray, censored: np.ndarray) -> np.ndarray:
    """Returns 1 - S at the end of each bin; a censored wait is at risk up to its own bin only."""
    total = reached + censored
    at_risk = total.sum() - np.concatenate([[0.0], np.cumsum(total)[:-1]])
    with np.errstate(divide="ignore", invalid="ignore"):
        stays = np.where(at_risk > 0, 1 - reached / at_risk, 1.0)
    return 1 - np.cumprod(stays)
