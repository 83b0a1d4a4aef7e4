"""A part of the report: a heading, a sentence on how to read it, and what is to be seen; and what all have.

Plots and tables show the worst and say how many more there are: nothing here grows with the fleet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pandas as pd

from pipeline.report import words
from pipeline.report.markup import paragraph

if TYPE_CHECKING:
    from pipeline.report.markup import Markup
    from pipeline.report.view import ClusterView

#: Rows of a plot or a table.
MOST_ROWS: Final = 20
#: Letters of a name beside a plot.
LONGEST_LABEL: Final = 26
_MOST_HOURS: Final = 36


class Section(NamedTuple):
    """`key` is what findings name it by; it becomes an id, with the cluster's own in front."""

    key: str
    title: str
    how_to_read: str
    content: Markup


def rest(shown: int, of: int, noun: str) -> list[Markup]:
    return (
        [paragraph(f"And {words.counted(of - shown, f'more {noun}')}.", class_="rest")] if of > shown else []
    )


def nothing(said: str) -> Markup:
    """What stands where a plot would have nothing to show."""
    return paragraph(said, class_="nothing")


def value_at(values: pd.Series, key: object) -> float | None:
    """The value of a key, None where there is none."""
    value = values.get(key)
    return None if value is None or pd.isna(value) else float(value)


def hour_columns(view: ClusterView, hours: pd.Series) -> tuple[list[str], pd.Series]:
    """Names of the columns of time, and each row's column: hours, several together if there are many."""
    first = view.since.floor("h")
    total = -int((first - view.until) // pd.Timedelta(hours=1)) or 1
    together_hours = -(-total // _MOST_HOURS)
    columns = (((hours - first) / pd.Timedelta(hours=1)) // together_hours).astype(int)
    starts = [first + pd.Timedelta(hours=n) for n in range(0, total, together_hours)]
    is_one_day = starts[0].date() == starts[-1].date()
    return [at.strftime("%H:%M" if is_one_day else "%d %H:%M") for at in starts], columns.clip(
        0, len(starts) - 1
    )
