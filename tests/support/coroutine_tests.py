"""Tests that are coroutines: each runs on an event loop of its own (tests/conftest.py).

`run` is for a scenario within a test, `until` for a condition without a notification.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Awaitable

T = TypeVar("T")

#: In real time; a scenario that takes longer hangs.
PATIENCE_S = patient(30.0)


def run(scenario: Awaitable[T]) -> T:
    """Runs a scenario to its end, on a loop of its own."""

    async def bounded() -> T:
        return await asyncio.wait_for(scenario, PATIENCE_S)

    return asyncio.run(bounded())


async def until(condition: Any) -> None:
    """Lets the loop turn until the condition holds; wait_for in `run` bounds it."""
    while not condition():  # noqa: ASYNC110 - what is awaited is anybody's plain attribute
        await asyncio.sleep(0)
