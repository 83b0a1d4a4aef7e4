"""How long news took: how many in each span of time, those still waiting apart, and their share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.report import words
from pipeline.report.figures.canvas import PAINT, Drawing

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH: Final = 860
_HEIGHT: Final = 360
_MARKS_MS: Final = np.array([1, 10, 100, 1e3, 1e4, 6e4, 6e5, 3.6e6, 3.6e7, 2.592e8])


def spread(
    name: str,
    title: str,
    description: str,
    bounds: np.ndarray,
    reached: np.ndarray,
    censored: np.ndarray,
    quantiles: Sequence[tuple[str, float]],
) -> str:
    """An SVG: counts above, below the share that has it by then (Kaplan-Meier). `bounds` are in ms."""
    drawing = Drawing(name, _WIDTH, _HEIGHT)
    counts, shares = drawing.axes(2, [3, 2])
    used = np.flatnonzero(reached + censored)
    first, last = max(int(used[0]) - 1, 0), int(used[-1]) + 2
    # What took next to no time is drawn as wide as its neighbour.
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
            label="not seen until then, nor since",
        ),
    ]
    drawing.figure.legend(handles=legend, loc="outside upper left", ncols=2, fontsize=11.5, handlelength=1.2)
    return drawing.svg(title, description)


def share_reached(reached: np.ndarray, censored: np.ndarray) -> np.ndarray:
    """1 - S at the end of each bin: a censored one is at risk up to its own bin, and not after it."""
    total = reached + censored
    at_risk = total.sum() - np.concatenate([[0.0], np.cumsum(total)[:-1]])
    with np.errstate(divide="ignore", invalid="ignore"):
        stays = np.where(at_risk > 0, 1 - reached / at_risk, 1.0)
    return 1 - np.cumprod(stays)
