"""Parked requests, and unknown topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client_core import Done, Result, UnknownTopicOrPartitionError
from service.admission.caller import ALL_TOPICS, Caller
from service.lookup.unknown_topics import MOST_NAMES, UnknownTopics
from service.wire.errors import ProblemError
from service.wire.waiting import CallerGoneError, wait_for_result
from tests.support.coroutine_tests import run, until
from tests.support.fake_producer import FakeResult


class Parked:
    """A ticket whose end the test chooses."""

    def __init__(self) -> None:
        self.done: Done | None = None
        self.cancelled = False

    def take(self, done: Done) -> Parked:
        self.done = done
        return self

    def cancel(self) -> None:
        self.cancelled = True

    def end(self, result: Result) -> None:
        assert self.done is not None
        self.done(result)


async def stays() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


async def leaves() -> dict[str, Any]:
    return {"type": "http.disconnect"}


async def test_the_result_is_what_the_ticket_ended_with() -> None:
    parked, result = Parked(), FakeResult()
    waiting = asyncio.create_task(wait_for_result(parked.take, stays))
    await until(lambda: parked.done)
    parked.end(result)
    assert await waiting is result
    assert not parked.cancelled


def test_a_ticket_that_ends_at_once_costs_no_wait() -> None:
    result = FakeResult()

    def take(done: Done) -> Parked:
        done(result)
        return Parked()

    assert run(wait_for_result(take, stays)) is result


async def test_a_caller_who_leaves_ends_the_wait_and_a_later_result_is_dropped() -> None:
    for _ in range(2):  # the first and the next
        parked = Parked()
        waiting = asyncio.create_task(wait_for_result(parked.take, leaves))
        await until(waiting.done)
        with pytest.raises(CallerGoneError):
            await waiting
        assert parked.cancelled
        parked.end(FakeResult())


def test_a_new_unknown_name_is_counted_once_while_it_is_asked_for() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=1)
    unknown.begin("a", 0)
    unknown.begin("a", 0)
    with pytest.raises(ProblemError):
        unknown.begin("b", 999)
    unknown.begin("b", 1_000)
    unknown.end("a", exists=False)
    unknown.end("a", exists=False)
    assert list(unknown._being_asked) == ["b"]
    with pytest.raises(ProblemError):
        unknown.begin("a", 1_001)


def test_a_name_that_turns_out_to_exist_does_not_count() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=1)
    for name in ("a", "b"):
        unknown.begin(name, 0)
        unknown.end(name, exists=True)
    unknown.begin("c", 999)
    unknown.begin("d", 1_000)
    unknown.end("c", exists=True)
    with pytest.raises(ProblemError):  # what was counted in the second before makes no room in this one
        unknown.begin("e", 1_000)


def test_topics_that_exist_count_neither_for_all_nor_for_their_caller() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=10)
    caller = Caller("shop", ALL_TOPICS, ALL_TOPICS)
    for number in range(100):
        unknown.begin(f"known-{number}", 0, caller)
        unknown.end(f"known-{number}", exists=True)
    for number in range(5):
        unknown.begin(f"made-up-{number}", 0, caller)
        unknown.end(f"made-up-{number}", exists=False)
    with pytest.raises(ProblemError, match="shop in this second: made-up-5 and 5 others"):
        unknown.begin("made-up-5", 0, caller)


def test_unknown_names_are_remembered_for_their_time_only() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=1)
    error = UnknownTopicOrPartitionError()
    unknown.remember("a", error, 0)
    assert unknown.remembered("a", 999) is error
    assert unknown.remembered("a", 1_000) is None


def test_the_memory_of_unknown_names_is_bounded_a_long_one_too() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=2)
    for second in range(50):
        unknown.remember(f"t{second}", UnknownTopicOrPartitionError(), second * 1_000)
    assert unknown.remembered_names <= 2
    unknown = UnknownTopics(memory_ms=3_600_000, names_per_second=200)
    for number in range(MOST_NAMES + 5):
        unknown.remember(f"t{number}", UnknownTopicOrPartitionError(), number)
    assert unknown.remembered_names == MOST_NAMES == 10_000
    assert unknown.remembered("t0", MOST_NAMES + 5) is None
    assert unknown.remembered(f"t{MOST_NAMES + 4}", MOST_NAMES + 5) is not None


def test_a_name_that_is_remembered_again_is_so_from_then_on() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=200)
    for name, now_ms in (("a", 0), ("b", 500), ("a", 900), ("c", 1_500)):
        unknown.remember(name, UnknownTopicOrPartitionError(), now_ms)
    assert unknown.remembered("a", 1_600) is not None
    assert unknown.remembered_names == 2


def test_no_memory_remembers_nothing() -> None:
    unknown = UnknownTopics(memory_ms=0, names_per_second=2)
    unknown.remember("a", UnknownTopicOrPartitionError(), 0)
    assert unknown.remembered("a", 0) is None
