"""Large bodies are understood in portions, between which other requests have their turn.

Understanding an event takes some ten microseconds, so that a body of a hundred thousand would hold up every
look-up for a second, and one of native records for a tenth of one. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar

from service.errors import out_of_memory

T = TypeVar("T")

#: Some milliseconds' worth of events.
PORTION: Final = 200


async def gathered(portions: Iterable[list[T]]) -> list[T]:
    """The items of all portions; what making them raises comes through. A single portion is what it is.

    Raises ProblemError where memory does not hold them.
    """
    taken: list[T] = []
    try:
        for portion in portions:
            if not taken:
                taken = portion
                continue
            await asyncio.sleep(0)
            taken += portion
    except MemoryError as e:
        raise out_of_memory() from e
    return taken


async def drawn(items: Iterable[T], portion: int = PORTION) -> list[T]:
    """All of the items, drawn one by one; what drawing raises comes through."""
    taken: list[T] = []
    for item in items:
        taken.append(item)
        if len(taken) % portion == 0:
            await asyncio.sleep(0)
    return taken
