"""The few pieces of HTML that the report is made of. What is given as text is escaped here, and only here.

`Markup` is text that is HTML already. Everything else is escaped, whatever it looks like.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


#: Cells no longer than that stay in one line.
_SHORT = 24


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
