"""Reading a body: in pieces, in time, within limits, and from callers who leave."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from service.admission.admission_control import AdmissionControl, Place
from service.admission.body import announced_bytes, read_body
from service.wire.errors import ProblemError
from service.wire.waiting import CallerGoneError
from tests.support.coroutine_tests import run
from tests.support.mock_clock import MockClock

if TYPE_CHECKING:
    from service.wire.asgi import Receive


def coming(*messages: dict[str, Any]) -> Receive:
    """A caller who sends these, and then nothing for ever."""
    left = list(messages)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


def piece(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def place_in(room: AdmissionControl, announced: int = 0) -> Place:
    return room.enter(announced)


def test_pieces_are_put_together_and_counted() -> None:
    room = AdmissionControl(MockClock(), 10, 1_000)
    place = place_in(room)
    body = run(read_body({}, coming(piece(b"ab", more=True), piece(b"c")), place, 1_000))
    assert (body, room.bytes) == (b"abc", 3)


def test_a_body_of_many_small_pieces_takes_little_more_than_its_bytes() -> None:
    total = 40_000
    pieces = [piece(b"%02d" % (n % 100), more=n < total - 1) for n in range(total)]
    place = place_in(AdmissionControl(MockClock(), 10, 10_000_000))
    left = iter(pieces)

    async def receive() -> dict[str, Any]:
        message = next(left)
        return {**message, "body": bytes(bytearray(message["body"]))}  # each its own, as from a connection

    async def scenario() -> tuple[int, int]:
        tracemalloc.start()
        try:
            body = await read_body({}, receive, place, 60_000)
            return len(body), tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    body_bytes, peak_bytes = run(scenario())
    assert body_bytes == 2 * total
    assert peak_bytes < 5 * body_bytes


def test_a_caller_who_leaves_within_the_body_is_gone() -> None:
    gone = coming(piece(b"ab", more=True), {"type": "http.disconnect"})
    with pytest.raises(CallerGoneError):
        run(read_body({}, gone, place_in(AdmissionControl(MockClock(), 10, 1_000)), 1_000))


def test_a_body_that_does_not_come_in_time_is_408_and_ends_the_connection() -> None:
    slow = coming(piece(b"ab", more=True))
    with pytest.raises(ProblemError) as refused:
        run(read_body({}, slow, place_in(AdmissionControl(MockClock(), 10, 1_000), 100), 10))
    problem = refused.value.problem
    assert (problem.status, problem.retriable) == (408, True)
    assert problem.headers == ((b"connection", b"close"),)


def test_a_body_that_is_there_needs_no_time() -> None:
    place = place_in(AdmissionControl(MockClock(), 10, 1_000))
    assert run(read_body({}, coming(piece(b"{}")), place, 0)) == b"{}"


def test_a_body_that_grows_beyond_the_room_is_429() -> None:
    room = AdmissionControl(MockClock(), 10, 5)
    place_in(room, 4)
    with pytest.raises(ProblemError) as refused:
        run(read_body({}, coming(piece(b"ab")), place_in(room), 1_000))
    assert refused.value.problem.status == 429


def test_the_announced_length_is_that_of_the_head() -> None:
    for headers, expected in (([], 0), ([(b"content-length", b"17")], 17)):
        assert announced_bytes({"headers": headers}) == expected, headers


def test_a_body_that_memory_does_not_hold_is_503_and_says_what_to_do() -> None:
    async def receive() -> dict[str, Any]:
        raise MemoryError

    with pytest.raises(ProblemError) as refused:
        run(read_body({}, receive, place_in(AdmissionControl(MockClock(), 10, 1_000)), 1_000))
    problem = refused.value.problem
    assert (problem.status, problem.retriable) == (503, True)
    assert "send less" in problem.detail
