"""A time axis in UTC, with as many marks as can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

if TYPE_CHECKING:
    from datetime import datetime

    from matplotlib.axes import Axes

_MOST_MARKS: Final = 9
_DAY_S: Final = 86_400


def set_time_axis(axes: Axes, since: datetime, until: datetime) -> None:
    """From `since` to `until`, marked at round times."""
    axes.set_xlim(since, until)  # type: ignore[arg-type]  # matplotlib converts times
    locator = AutoDateLocator(minticks=3, maxticks=_MOST_MARKS)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    axes.grid(axis="x")


def number_of(at: datetime) -> float:
    """A time as such an axis counts it: days since 1970."""
    return at.timestamp() / _DAY_S
