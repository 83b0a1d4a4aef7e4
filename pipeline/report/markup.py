"""The few pieces of HTML that the report is made of. Text is escaped here, and only here.

`Markup` is text that is HTML already. Everything else is escaped. A Section is a heading, a sentence that
says how to read it, and its content. Plots and tables show the worst and say how many more there are: nothing
here grows with the fleet.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Final, NamedTuple

import pandas as pd

from pipeline.report import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pipeline.report.view import ClusterView


#: Cells no longer than that stay in one line.
_SHORT = 24


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


class Markup(str):
    """HTML."""

    __slots__ = ()


def text(said: object) -> Markup:
    """Text as HTML; what is HTML stays."""
    if isinstance(said, Markup):
        return said
    return Markup(html.escape(str(said)))


def together(parts: Iterable[Markup]) -> Markup:
    """One after the other."""
    return Markup("\n".join(parts))


def element(tag: str, *inside: Markup, **attributes: str) -> Markup:
    """<tag name="value">…</tag>; `class_` is class."""
    said = "".join(f' {name.rstrip("_").replace("_", "-")}="{text(v)}"' for name, v in attributes.items())
    return Markup(f"<{tag}{said}>{''.join(inside)}</{tag}>")


def paragraph(said: str, **attributes: str) -> Markup:
    return element("p", text(said), **attributes)


def code(said: str) -> Markup:
    return element("code", text(said))


def plot(svg: str, label: str) -> Markup:
    """A drawing of canvas.py, which scrolls sideways where it has no room."""
    return element("div", Markup(svg), class_="plot-room", role="region", tabindex="0", aria_label=label)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str | float]]) -> Markup:
    """A table whose first column names the row; numbers stand to the right."""
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
    """Shown when asked for, and on paper."""
    return Markup(f"<details><summary>{text(summary)}</summary>{inside}</details>")
