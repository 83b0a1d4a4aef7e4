"""The report's pieces of HTML. Text is escaped only here.

`Markup` is text that is already HTML; everything else is escaped. A Section is a heading, an explanation of
how to read it, and its content. Plots and tables show the worst and say how many more there are, so their
size does not grow with the fleet.
"""

from __future__ import annotations

import html
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import pandas as pd

from pipeline.report import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pipeline.report.view import ClusterView


_HOUR_S: Final = 3_600
#: Cells up to this length are not wrapped.
_SHORT = 24


#: The maximum number of rows of a plot or a table.
MOST_ROWS: Final = 20
#: The maximum number of characters of a name beside a plot.
LONGEST_LABEL: Final = 26
_MOST_HOURS: Final = 36


class Section(NamedTuple):
    """A section. Findings refer to its `key`; its id is the key with the cluster's prefix."""

    key: str
    title: str
    how_to_read: str
    content: Markup


def rest(shown: int, of: int, noun: str) -> list[Markup]:
    return (
        [paragraph(f"And {words.counted(of - shown, f'more {noun}')}.", class_="rest")] if of > shown else []
    )


def nothing(said: str) -> Markup:
    """Returns a text in place of an empty plot."""
    return paragraph(said, class_="nothing")


def value_at(values: pd.Series, key: object) -> float | None:
    """Returns the value of a key; None if there is none."""
    value = values.get(key)
    return None if value is None or pd.isna(value) else float(value)


def hour_columns(view: ClusterView, hours: pd.Series) -> tuple[list[str], pd.Series]:
    """Returns the labels of time columns, and each row's column. A column is one hour or several."""
    first = view.since.floor("h")
    total = math.ceil((view.until - first).total_seconds() / _HOUR_S) or 1
    together_hours = -(-total // _MOST_HOURS)
    columns = ((hours - first).dt.total_seconds() // (_HOUR_S * together_hours)).astype(int)
    begin = first.to_pydatetime()
    starts = [begin + timedelta(hours=n) for n in range(0, total, together_hours)]
    is_one_day = starts[0].date() == starts[-1].date()
    return [at.strftime("%H:%M" if is_one_day else "%d %H:%M") for at in starts], columns.clip(
        0, len(starts) - 1
    )


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def text(said: object) -> Markup:
    """Escapes text as HTML; returns Markup unchanged."""
    if isinstance(said, Markup):
        return said
    return Markup(html.escape(str(said)))


def together(parts: Iterable[Markup]) -> Markup:
    """Joins the parts."""
    return Markup("\n".join(parts))


def element(tag: str, *inside: Markup, **attributes: str) -> Markup:
    """Returns <tag name="value">…</tag>; `class_` becomes class."""
    said = "".join(f' {name.rstrip("_").replace("_", "-")}="{text(v)}"' for name, v in attributes.items())
    return Markup(f"<{tag}{said}>{''.join(inside)}</{tag}>")


def paragraph(said: str, **attributes: str) -> Markup:
    return element("p", text(said), **attributes)


def code(said: str) -> Markup:
    return element("code", text(said))


def plot(svg: str, label: str) -> Markup:
    """Wraps a drawing of canvas.py, so that it scrolls sideways if there is no room."""
    return element("div", Markup(svg), class_="plot-room", role="region", tabindex="0", aria_label=label)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str | float]]) -> Markup:
    """Returns a table whose first column names the row; numbers are right-aligned."""
    rows = list(rows)
    is_number = [bool(rows) and not isinstance(cell, str) for cell in (rows[0] if rows else heads)]
    head = "".join(
        element("th", text(name), scope="col", **({"class_": "number"} if right else {}))
        for name, right in zip(heads, is_number, strict=True)
    )
    body = []
    for first, *rest in rows:
        cells = [element("th", text(first), scope="row")]
        cells += [_cell(cell) for cell in rest]
        body.append(f"<tr>{''.join(cells)}</tr>")
    drawn = Markup(
        f"<table><caption>{text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )
    return element("div", drawn, class_="table-room", role="region", tabindex="0", aria_label=caption)


def _cell(cell: str | float) -> Markup:
    if isinstance(cell, str):
        return element("td", text(cell), class_="short" if len(cell) <= _SHORT else "long")
    return element("td", text(f"{cell:,}"), class_="number")


def folded(summary: str, inside: Markup) -> Markup:
    """Returns content that is folded on screen and shown in print."""
    return Markup(f"<details><summary>{text(summary)}</summary>{inside}</details>")
