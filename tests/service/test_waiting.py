"""Parked requests and the room they wait in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client_core import Done, Result, UnknownTopicOrPartitionError
from service.errors import ProblemError
from service.unknown_topics import UnknownTopics
from service.waiting import CallerGoneError, WaitingRoom, wait_for_result
from tests.support.fake_producer import FakeResult
from tests.support.http_app import run, until


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


def test_the_result_is_what_the_ticket_ended_with() -> None:
    parked, result = Parked(), FakeResult()

    async def scenario() -> Result:
        waiting = asyncio.create_task(wait_for_result(parked.take, stays))
        await until(lambda: parked.done)
        parked.end(result)
        return await waiting

    assert run(scenario()) is result
    assert not parked.cancelled


def test_a_ticket_that_ends_at_once_costs_no_wait() -> None:
    result = FakeResult()

    def take(done: Done) -> Parked:
        done(result)
        return Parked()

    assert run(wait_for_result(take, stays)) is result


def test_a_caller_who_leaves_ends_the_wait() -> None:
    parked = Parked()
    with pytest.raises(CallerGoneError):
        run(wait_for_result(parked.take, leaves))
    assert parked.cancelled


def test_a_result_after_the_caller_left_is_nobodys() -> None:
    parked = Parked()

    async def scenario() -> None:
        with pytest.raises(CallerGoneError):
            await wait_for_result(parked.take, leaves)
        parked.end(FakeResult())

    run(scenario())


def test_the_room_turns_away_what_does_not_fit() -> None:
    room = WaitingRoom(max_requests=2, max_bytes=100)
    room.enter(60, 0)
    with pytest.raises(ProblemError, match="60 bytes are waiting"):
        room.enter(41, 0)
    room.enter(40, 0)
    with pytest.raises(ProblemError, match="2 requests are waiting"):
        room.enter(0, 0)


def test_a_body_larger_than_the_room_fits_into_an_empty_one() -> None:
    room = WaitingRoom(max_requests=2, max_bytes=100)
    place = room.enter(500, 0)
    place.leave(0)
    assert (room.requests, room.bytes) == (0, 0)


def test_a_place_grows_with_what_is_read() -> None:
    room = WaitingRoom(max_requests=9, max_bytes=100)
    place, other = room.enter(0, 0), room.enter(50, 0)
    place.grow_to(30, 0)
    place.grow_to(20, 0)
    assert room.bytes == 80
    with pytest.raises(ProblemError):
        place.grow_to(51, 0)
    place.leave(0)
    other.leave(0)
    assert (room.requests, room.bytes) == (0, 0)


@pytest.mark.parametrize("settles_first", [True, False])
def test_bytes_that_were_handed_on_count_until_they_are_settled(settles_first: bool) -> None:
    room = WaitingRoom(max_requests=9, max_bytes=100)
    place = room.enter(60, 0)
    place.hand_on()
    if settles_first:
        place.settled(0)
        assert (room.requests, room.bytes) == (1, 0)
        place.leave(0)
    else:
        place.leave(0)
        assert (room.requests, room.bytes) == (0, 60)
        place.settled(0)
    assert (room.requests, room.bytes) == (0, 0)


def retry_after(room: WaitingRoom, body_bytes: int, now_ms: int) -> int:
    with pytest.raises(ProblemError) as refused:
        room.enter(body_bytes, now_ms)
    return int(dict(refused.value.problem.headers)[b"retry-after"])


def test_retry_after_comes_from_how_fast_the_room_empties() -> None:
    room = WaitingRoom(max_requests=99, max_bytes=1_000)
    for _ in range(2):
        room.enter(100, 0).leave(500)
    room.enter(1_000, 500)
    assert retry_after(room, 600, 900) == 3
    assert retry_after(room, 600, 1_900) == 3
    assert retry_after(room, 600, 5_000) == 30


def test_a_new_unknown_name_is_counted_once_while_it_is_asked_for() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=1)
    unknown.begin("a", 0)
    unknown.begin("a", 0)
    with pytest.raises(ProblemError):
        unknown.begin("b", 999)
    unknown.begin("b", 1_000)
    unknown.end("a")
    unknown.end("a")
    with pytest.raises(ProblemError):
        unknown.begin("a", 1_001)


def test_unknown_names_are_remembered_for_their_time_only() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=1)
    error = UnknownTopicOrPartitionError()
    unknown.remember("a", error, 0)
    assert unknown.remembered("a", 999) is error
    assert unknown.remembered("a", 1_000) is None


def test_the_memory_of_unknown_names_is_bounded() -> None:
    unknown = UnknownTopics(memory_ms=1_000, names_per_second=2)
    for second in range(50):
        unknown.remember(f"t{second}", UnknownTopicOrPartitionError(), second * 1_000)
    assert unknown.remembered_names <= 2


def test_no_memory_remembers_nothing() -> None:
    unknown = UnknownTopics(memory_ms=0, names_per_second=2)
    unknown.remember("a", UnknownTopicOrPartitionError(), 0)
    assert unknown.remembered("a", 0) is None
