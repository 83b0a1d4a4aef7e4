"""Large bodies are understood in portions, and others have their turn between them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from service.errors import ProblemError
from service.produce.portions import PORTION, drawn, gathered
from service.produce.records_codec import parse_records
from service.strict_json import BodyError
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


def test_a_single_portion_is_what_it_is_and_many_are_one_list() -> None:
    portion = [1, 2]
    assert run(gathered([portion])) is portion
    assert run(gathered(iter([[1, 2], [3], [4]]))) == [1, 2, 3, 4]
    assert run(gathered([])) == []


def test_a_native_body_of_many_records_is_understood_in_portions() -> None:
    count = 4_500
    body = b'{"records":[' + b",".join(b'{"value":%d}' % n for n in range(count)) + b"]}"
    portions = list(parse_records("orders", body))
    assert [len(portion) for portion in portions] == [2_000, 2_000, 500]
    assert [record.value for portion in portions for record in portion] == [b"%d" % n for n in range(count)]


def test_a_fault_behind_sound_portions_is_told_with_its_place() -> None:
    body = b'{"records":[' + b'{"value":1},' * 4_000 + b'{"value":1,"partition":"x"}]}'
    portions = parse_records("orders", body)
    assert len(next(portions)) == len(next(portions)) == 2_000
    with pytest.raises(BodyError, match=r"^records\[4000\]\.partition: must be a whole number"):
        next(portions)
    twice = b'{"records":[' + b'{"value":1},' * 4_000 + b'{"value":1,"value":2}]}'
    with pytest.raises(BodyError, match=r"^records\[4000\]\.value: "):
        list(parse_records("orders", twice))


def test_records_that_memory_does_not_hold_are_503() -> None:
    def too_many() -> Iterator[list[int]]:
        yield [1]
        raise MemoryError

    with pytest.raises(ProblemError) as refused:
        run(gathered(too_many()))
    assert refused.value.problem.status == 503
