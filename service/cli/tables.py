"""Tables for terminals: a head, rows, columns as wide as they need. Plain text, so that it pipes well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.base.logs import harmless

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def render(head: Sequence[str], rows: Iterable[Sequence[object]], *, with_head: bool = True) -> str:
    """The table as lines; numbers to the right, a dash for what is not known."""
    values = [list(row) for row in rows]
    cells = [[text(value) for value in row] for row in values]
    widths = [max([len(head[i]), *(len(row[i]) for row in cells)]) for i in range(len(head))]
    right = [_is_numeric([row[i] for row in values]) for i in range(len(head))]
    lines = [list(head), *cells] if with_head else cells
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _is_numeric(column: Sequence[object]) -> bool:
    known = [value for value in column if value is not None]
    return bool(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    )


def text(value: object) -> str:
    """One cell. Brokers choose some of the words, and a terminal does what it is told: see `harmless`."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(text(item) for item in value) or "-"
    return harmless(str(value))
