"""Large bodies are understood in portions, and others have their turn between them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from service.dialects.portions import PORTION, drawn
from tests.support.http_app import run

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_all_items_come_in_order() -> None:
    assert run(drawn(iter(range(2 * PORTION + 1)))) == list(range(2 * PORTION + 1))
    assert run(drawn([])) == []


def test_others_have_their_turn_between_portions() -> None:
    async def scenario() -> int:
        turns = 0

        async def another() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(another())
        await drawn(range(100), portion=10)
        task.cancel()
        return turns

    assert run(scenario()) >= 9


def test_what_drawing_raises_comes_through() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the second is none")

    with pytest.raises(ValueError, match="the second is none"):
        run(drawn(items()))
