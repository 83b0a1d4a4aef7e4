"""The room in which requests wait, bodies that are read into it, and when to come back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from client_core import BufferExhaustedError, Phase, RecordFailure, Written
from service.admission.admission_control import AdmissionControl
from service.admission.body import announced_bytes, read_body
from service.wire.errors import Problem, ProblemError
from service.wire.waiting import CallerGoneError
from tests.support.coroutine_tests import run
from tests.support.http_app import HttpApp
from tests.support.mock_clock import MockClock
from tests.support.traced_memory import least_peak_bytes

if TYPE_CHECKING:
    from service.admission.admission_control import RetryAfter
    from service.wire.asgi import Receive


def test_the_room_turns_away_what_does_not_fit() -> None:
    room = AdmissionControl(MockClock(), max_requests=2, max_bytes=100)
    room.enter(60)
    with pytest.raises(ProblemError, match="60 bytes are waiting"):
        room.enter(41)
    room.enter(40)
    with pytest.raises(ProblemError, match="2 requests are waiting"):
        room.enter(0)


def test_a_body_larger_than_the_room_fits_into_an_empty_one() -> None:
    room = AdmissionControl(MockClock(), max_requests=2, max_bytes=100)
    place = room.enter(500)
    place.leave()
    assert (room.requests, room.bytes) == (0, 0)


def test_a_place_grows_with_what_is_read() -> None:
    room = AdmissionControl(MockClock(), max_requests=9, max_bytes=100)
    place, other = room.enter(0), room.enter(50)
    place.grow_to(30)
    place.grow_to(20)
    assert room.bytes == 80
    with pytest.raises(ProblemError):
        place.grow_to(51)
    place.leave()
    other.leave()
    assert (room.requests, room.bytes) == (0, 0)


def test_bytes_that_were_handed_on_count_until_they_are_settled() -> None:
    for settles_first in (True, False):
        room = AdmissionControl(MockClock(), max_requests=9, max_bytes=100)
        place = room.enter(60)
        place.hand_on()
        if settles_first:
            place.settled()
            assert (room.requests, room.bytes) == (1, 0), settles_first
            place.leave()
        else:
            place.leave()
            assert (room.requests, room.bytes) == (0, 60), settles_first
            place.settled()
        assert (room.requests, room.bytes) == (0, 0), settles_first


def test_a_body_that_is_too_large_for_the_room_fits_alone_be_its_length_known_or_not() -> None:
    room = AdmissionControl(MockClock(), max_requests=9, max_bytes=100)
    room.enter(150).leave()
    with room.enter(0) as place:
        place.grow_to(60)
        place.grow_to(150)
        with pytest.raises(ProblemError):
            room.enter(1)
    with room.enter(60), room.enter(0) as place, pytest.raises(ProblemError):
        place.grow_to(50)
    assert room.bytes == 0


def retry_after(room: AdmissionControl, body_bytes: int) -> int:
    with pytest.raises(ProblemError) as refused:
        room.enter(body_bytes)
    return int(dict(refused.value.problem.headers)[b"retry-after"])


def test_retry_after_comes_from_how_fast_the_room_empties() -> None:
    clock = MockClock(now_ms=500)
    room = AdmissionControl(clock, max_requests=99, max_bytes=1_000)
    for _ in range(2):
        room.enter(100).leave()
    room.enter(1_000)
    for advance_ms, after_s in [(400, 3), (1_000, 3), (3_100, 30)]:
        clock.advance(advance_ms)
        assert retry_after(room, 600) == after_s


# -- bodies --------------------------------------------------------------------------------------------------


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


def test_pieces_are_put_together_and_counted() -> None:
    room = AdmissionControl(MockClock(), 10, 1_000)
    place = room.enter(0)
    body = run(read_body({}, coming(piece(b"ab", more=True), piece(b"c")), place, 1_000))
    assert (body, room.bytes) == (b"abc", 3)


def test_a_body_of_many_small_pieces_takes_little_more_than_its_bytes() -> None:
    total = 40_000
    pieces = [piece(b"%02d" % (n % 100), more=n < total - 1) for n in range(total)]

    def read_all() -> None:
        left = iter(pieces)

        async def receive() -> dict[str, Any]:
            message = next(left)
            return {
                **message,
                "body": bytes(bytearray(message["body"])),
            }  # each its own, as in reads

        place = AdmissionControl(MockClock(), 10, 10_000_000).enter(0)
        assert len(run(read_body({}, receive, place, 60_000))) == 2 * total

    most_bytes = 10 * total
    assert least_peak_bytes(read_all, most_bytes) < most_bytes


def test_a_caller_who_leaves_within_the_body_is_gone() -> None:
    gone = coming(piece(b"ab", more=True), {"type": "http.disconnect"})
    with pytest.raises(CallerGoneError):
        run(read_body({}, gone, AdmissionControl(MockClock(), 10, 1_000).enter(0), 1_000))


def test_a_body_that_does_not_come_in_time_is_408_and_ends_the_connection() -> None:
    slow = coming(piece(b"ab", more=True))
    with pytest.raises(ProblemError) as refused:
        run(read_body({}, slow, AdmissionControl(MockClock(), 10, 1_000).enter(100), 10))
    problem = refused.value.problem
    assert (problem.status, problem.retriable) == (408, True)
    assert problem.headers == ((b"connection", b"close"),)


def test_a_body_that_is_there_needs_no_time() -> None:
    place = AdmissionControl(MockClock(), 10, 1_000).enter(0)
    assert run(read_body({}, coming(piece(b"{}")), place, 0)) == b"{}"


def test_a_body_that_grows_beyond_the_room_is_429() -> None:
    room = AdmissionControl(MockClock(), 10, 5)
    room.enter(4)
    with pytest.raises(ProblemError) as refused:
        run(read_body({}, coming(piece(b"ab")), room.enter(0), 1_000))
    assert refused.value.problem.status == 429


def test_the_announced_length_is_that_of_the_head() -> None:
    for headers, expected in (([], 0), ([(b"content-length", b"17")], 17)):
        assert announced_bytes({"headers": headers}) == expected, headers


def test_a_body_that_memory_does_not_hold_is_503_and_says_what_to_do() -> None:
    async def receive() -> dict[str, Any]:
        raise MemoryError

    with pytest.raises(ProblemError) as refused:
        run(read_body({}, receive, AdmissionControl(MockClock(), 10, 1_000).enter(0), 1_000))
    problem = refused.value.problem
    assert (problem.status, problem.retriable) == (503, True)
    assert "send less" in problem.detail


# -- Retry-After ---------------------------------------------------------------------------------------------

FULL = Problem(503, "no memory", phase=Phase.BUFFER.value)
NO_METADATA = Problem(503, "no metadata", phase=Phase.METADATA.value)


def seconds(problem: Problem) -> int:
    return int(dict(problem.all_headers())[b"retry-after"])


@pytest.fixture
def web() -> HttpApp:
    return HttpApp()


def parts(web: HttpApp) -> RetryAfter:
    return web.app.sidecar.retry_after


def leave(web: HttpApp, body_bytes: int) -> None:
    """So many bytes leave the room now."""
    web.app.sidecar.room.enter(body_bytes).leave()


def test_memory_that_was_full_is_waited_for_as_long_as_the_request_takes_to_leave(web: HttpApp) -> None:
    web.producer.set_topics({"orders": 1})
    body = '{"value_format":"text","records":[{"value":"%s"}]}' % ("a" * 952)  # which makes 1,000 bytes
    assert len(body) == 1_000
    assert web.produce(body).status_code == 200
    reported = [seconds(parts(web).on(FULL, request_bytes)) for request_bytes in (1, 1_000, 4_500, 1_000_000)]
    assert reported == [1, 1, 5, 30]


def test_memory_from_which_nothing_leaves_is_waited_for_longest(web: HttpApp) -> None:
    assert seconds(parts(web).on(FULL, 1)) == 30


def test_metadata_is_waited_for_until_every_broker_was_tried_again() -> None:
    for backoff_ms, reported in (("1000", 1), ("7200", 8), ("3600000", 30)):
        web = HttpApp(kafka={"reconnect.backoff.max.ms": backoff_ms})
        assert seconds(parts(web).on(NO_METADATA)) == reported, backoff_ms


def test_a_sidecar_that_ends_is_waited_for_until_it_is_gone() -> None:
    web = HttpApp(drain_timeout_ms=20_000)
    room = web.app.sidecar.room
    leave(web, 1_000)
    web.app.sidecar.drain.begin()
    assert seconds(parts(web).on(NO_METADATA)) == 1
    with room.enter(5_500):
        assert seconds(parts(web).on(FULL)) == 6
    with room.enter(1_000_000):
        assert seconds(parts(web).on(FULL)) == 20


def test_what_is_no_503_or_says_it_already_is_left_as_it_is(web: HttpApp) -> None:
    for problem in (
        Problem(504, "unknown", phase=Phase.BUFFER.value),
        Problem(503, "later", headers=((b"retry-after", b"7"),)),
    ):
        assert parts(web).on(problem, 1_000_000) is problem


def test_it_reaches_who_produces_into_full_memory(web: HttpApp) -> None:
    web.producer.set_topics({"orders": 1})
    error = BufferExhaustedError("Failed to allocate 100 bytes within the configured max blocking time 0 ms.")
    web.producer.outcome_of = lambda index, record: RecordFailure(error, Phase.BUFFER, Written.NO, 0)
    refused = web.produce('{"records":[{"value":1}]}')
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")


def test_it_reaches_who_asks_a_sidecar_without_brokers() -> None:
    web = HttpApp(kafka={"reconnect.backoff.max.ms": "4000"})
    refused = web.get("/v1/cluster", ends=web.producer.time_out)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "4")


def test_it_reaches_who_is_refused_at_the_door_of_one_that_ends(web: HttpApp) -> None:
    web.producer.set_topics({"orders": 1})
    web.app.sidecar.drain.begin()
    refused = web.produce('{"records":[{"value":1}]}')
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
