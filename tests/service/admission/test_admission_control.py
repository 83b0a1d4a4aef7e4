"""Permits of requests and their bytes, the reading of bodies, and Retry-After."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from client_core import BufferExhaustedError, Phase, RecordFailure, Written
from service.admission.admission_control import AdmissionControl
from service.admission.body import announced_bytes, read_body
from service.admission.drain import Drain
from service.wire.errors import Problem, ProblemError
from service.wire.reasons import SHUTTING_DOWN
from service.wire.waiting import CallerGoneError
from tests.support.coroutine_tests import run
from tests.support.http_app import NativeApp
from tests.support.mock_clock import MockClock
from tests.support.traced_memory import least_peak_bytes

if TYPE_CHECKING:
    from service.admission.admission_control import RetryAfter
    from service.wire.asgi import Receive


def test_a_request_that_does_not_fit_gets_no_permit() -> None:
    admission = AdmissionControl(MockClock(), max_requests=2, max_bytes=100)
    admission.acquire(60)
    with pytest.raises(ProblemError, match="60 bytes are waiting"):
        admission.acquire(41)
    admission.acquire(40)
    with pytest.raises(ProblemError, match="no more than 2 requests may wait"):
        admission.acquire(0)


def test_a_body_larger_than_the_limit_is_admitted_alone() -> None:
    admission = AdmissionControl(MockClock(), max_requests=2, max_bytes=100)
    permit = admission.acquire(500)
    permit.release()
    assert (admission.requests, admission.bytes) == (0, 0)


def test_a_permit_grows_with_what_is_read() -> None:
    admission = AdmissionControl(MockClock(), max_requests=9, max_bytes=100)
    permit, other = admission.acquire(0), admission.acquire(50)
    permit.grow_to(30)
    permit.grow_to(20)
    assert admission.bytes == 80
    with pytest.raises(ProblemError):
        permit.grow_to(51)
    permit.release()
    other.release()
    assert (admission.requests, admission.bytes) == (0, 0)


def test_bytes_that_were_handed_on_count_until_they_are_released() -> None:
    for settles_first in (True, False):
        admission = AdmissionControl(MockClock(), max_requests=9, max_bytes=100)
        permit = admission.acquire(60)
        permit.hand_on()
        if settles_first:
            permit.release_bytes()
            assert (admission.requests, admission.bytes) == (1, 0), settles_first
            permit.release()
        else:
            permit.release()
            assert (admission.requests, admission.bytes) == (0, 60), settles_first
            permit.release_bytes()
        assert (admission.requests, admission.bytes) == (0, 0), settles_first


def test_a_body_above_the_limit_is_admitted_alone_be_its_length_known_or_not() -> None:
    admission = AdmissionControl(MockClock(), max_requests=9, max_bytes=100)
    admission.acquire(150).release()
    with admission.acquire(0) as permit:
        permit.grow_to(60)
        permit.grow_to(150)
        with pytest.raises(ProblemError):
            admission.acquire(1)
    with admission.acquire(60), admission.acquire(0) as permit, pytest.raises(ProblemError):
        permit.grow_to(50)
    assert admission.bytes == 0


def retry_after(admission: AdmissionControl, body_bytes: int) -> int:
    with pytest.raises(ProblemError) as refused:
        admission.acquire(body_bytes)
    return int(dict(refused.value.problem.headers)[b"retry-after"])


def test_retry_after_comes_from_how_fast_bytes_are_released() -> None:
    for releases, reported in (
        (0, [(0, 30)]),
        (2, [(400, 3), (1_000, 3), (3_100, 30)]),
        (2, [(1_500, 30)]),
    ):
        clock = MockClock(now_ms=500)
        admission = AdmissionControl(clock, max_requests=99, max_bytes=20)
        for _ in range(releases):
            admission.acquire(2).release()
        admission.acquire(20)
        for advance_ms, after_s in reported:
            clock.advance(advance_ms)
            assert retry_after(admission, 12) == after_s, (releases, advance_ms)


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
    admission = AdmissionControl(MockClock(), 10, 1_000)
    permit = admission.acquire(0)
    body = run(read_body({}, coming(piece(b"ab", more=True), piece(b"c")), permit, 1_000))
    assert (body, admission.bytes) == (b"abc", 3)


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

        permit = AdmissionControl(MockClock(), 10, 10_000_000).acquire(0)
        assert len(run(read_body({}, receive, permit, 60_000))) == 2 * total

    most_bytes = 10 * total
    assert least_peak_bytes(read_all, most_bytes) < most_bytes


def test_a_caller_who_disconnects_within_the_body_is_gone() -> None:
    gone = coming(piece(b"ab", more=True), {"type": "http.disconnect"})
    with pytest.raises(CallerGoneError):
        run(read_body({}, gone, AdmissionControl(MockClock(), 10, 1_000).acquire(0), 1_000))


class LateLoop(asyncio.SelectorEventLoop):
    """A loop whose time a test sets forward."""

    late_s = 0.0

    def time(self) -> float:
        return super().time() + self.late_s


def test_a_body_that_does_not_come_in_time_is_408_and_ends_the_connection() -> None:
    def read(late_s: float) -> bytes:
        async def receive() -> dict[str, Any]:
            runner.get_loop().late_s = late_s  # type: ignore[attr-defined]  # as made here
            for _ in range(3):
                await asyncio.sleep(0)
            return piece(b"ab")

        permit = AdmissionControl(MockClock(), 10, 1_000).acquire(100)
        with asyncio.Runner(loop_factory=LateLoop) as runner:
            return runner.run(read_body({}, receive, permit, 600_000))

    assert read(400.0) == b"ab"
    with pytest.raises(ProblemError) as refused:
        read(601.0)
    problem = refused.value.problem
    assert (problem.status, problem.retriable) == (408, True)
    assert problem.headers == ((b"connection", b"close"),)


def test_a_body_that_is_incomplete_when_the_drain_begins_is_refused() -> None:
    drain = Drain()

    async def receive() -> dict[str, Any]:
        drain.begin()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    with pytest.raises(ProblemError) as refused:
        run(read_body({}, receive, AdmissionControl(MockClock(), 10, 1_000, drain=drain).acquire(0), 60_000))
    assert (refused.value.problem.status, refused.value.problem.said_reason) == (503, SHUTTING_DOWN)
    assert refused.value.problem.headers == ((b"connection", b"close"),)


def test_a_body_that_is_late_in_the_turn_in_which_the_drain_begins_does_not_hold_the_drain_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    drain, begun = Drain(), list[bool]()

    def begin() -> None:
        drain.begin()
        begun.append(True)

    async def receive() -> dict[str, Any]:
        asyncio.get_running_loop().call_soon(begin)  # behind the call that notes that the time is over
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    with pytest.raises(ProblemError) as refused:
        run(read_body({}, receive, AdmissionControl(MockClock(), 10, 1_000, drain=drain).acquire(0), 0))
    assert (refused.value.problem.status, begun) == (503, [True])
    assert not caplog.records


def test_one_listener_that_raises_as_the_drain_begins_keeps_it_from_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("nobody foresaw this")

    drain, called = Drain(), list[int]()
    for number in range(9):  # they are called in no order
        drain.listen(partial(called.append, number))
        drain.listen(partial(broken))
    drain.begin()
    assert sorted(called) == list(range(9))
    assert len(caplog.records) == 9


def test_a_body_that_is_there_needs_no_time() -> None:
    permit = AdmissionControl(MockClock(), 10, 1_000).acquire(0)
    assert run(read_body({}, coming(piece(b"{}")), permit, 0)) == b"{}"


def test_a_body_that_grows_beyond_the_limit_is_429() -> None:
    admission = AdmissionControl(MockClock(), 10, 5)
    admission.acquire(4)
    with pytest.raises(ProblemError) as refused:
        run(read_body({}, coming(piece(b"ab")), admission.acquire(0), 1_000))
    assert refused.value.problem.status == 429


def test_the_announced_length_is_that_of_the_head() -> None:
    for headers, expected in (([], 0), ([(b"content-length", b"17")], 17)):
        assert announced_bytes({"headers": headers}) == expected, headers


def test_a_body_that_memory_does_not_hold_is_503_and_says_what_to_do() -> None:
    async def receive() -> dict[str, Any]:
        raise MemoryError

    with pytest.raises(ProblemError) as refused:
        run(read_body({}, receive, AdmissionControl(MockClock(), 10, 1_000).acquire(0), 1_000))
    problem = refused.value.problem
    assert (problem.status, problem.retriable) == (503, True)
    assert "send less" in problem.detail


# -- Retry-After ---------------------------------------------------------------------------------------------

FULL = Problem(503, "no memory", phase=Phase.BUFFER.value)
NO_METADATA = Problem(503, "no metadata", phase=Phase.METADATA.value)


def seconds(problem: Problem) -> int:
    return int(dict(problem.all_headers())[b"retry-after"])


@pytest.fixture
def web() -> NativeApp:
    return NativeApp()


def parts(web: NativeApp) -> RetryAfter:
    return web.app.sidecar.retry_after


def leave(web: NativeApp, body_bytes: int) -> None:
    """So many bytes are released now."""
    web.app.sidecar.admission.acquire(body_bytes).release()


def test_memory_that_was_full_is_waited_for_as_long_as_the_request_takes_to_leave(web: NativeApp) -> None:
    web.producer.set_topics({"orders": 1})
    body = '{"value_format":"text","records":[{"value":"%s"}]}' % ("a" * 952)  # which makes 1,000 bytes
    assert len(body) == 1_000
    assert web.produce(body).status_code == 200
    reported = [seconds(parts(web).on(FULL, request_bytes)) for request_bytes in (1, 1_000, 4_500, 1_000_000)]
    assert reported == [1, 1, 5, 30]


def test_memory_from_which_nothing_leaves_is_waited_for_longest(web: NativeApp) -> None:
    assert seconds(parts(web).on(FULL, 1)) == 30


def test_metadata_is_waited_for_until_every_broker_was_tried_again() -> None:
    for backoff_ms, reported in (("1000", 1), ("7200", 8), ("3600000", 30)):
        web = NativeApp(kafka={"reconnect.backoff.max.ms": backoff_ms})
        assert seconds(parts(web).on(NO_METADATA)) == reported, backoff_ms


def test_a_sidecar_that_ends_is_waited_for_until_it_is_gone() -> None:
    web = NativeApp(drain_timeout_ms=20_000)
    admission = web.app.sidecar.admission
    leave(web, 1_000)
    web.app.sidecar.drain.begin()
    assert seconds(parts(web).on(NO_METADATA)) == 1
    with admission.acquire(5_500):
        assert seconds(parts(web).on(FULL)) == 6
    with admission.acquire(1_000_000):
        assert seconds(parts(web).on(FULL)) == 20


def test_what_is_no_503_or_says_it_already_is_left_as_it_is(web: NativeApp) -> None:
    for problem in (
        Problem(504, "unknown", phase=Phase.BUFFER.value),
        Problem(503, "later", headers=((b"retry-after", b"7"),)),
    ):
        assert parts(web).on(problem, 1_000_000) is problem


def test_it_reaches_who_produces_into_full_memory(web: NativeApp) -> None:
    web.producer.set_topics({"orders": 1})
    error = BufferExhaustedError("Failed to allocate 100 bytes within the configured max blocking time 0 ms.")
    web.producer.outcome_of = lambda index, record: RecordFailure(error, Phase.BUFFER, Written.NO, 0)
    refused = web.produce('{"records":[{"value":1}]}')
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")


def test_it_reaches_who_asks_a_sidecar_without_brokers() -> None:
    web = NativeApp(kafka={"reconnect.backoff.max.ms": "4000"})
    refused = web.get("/v1/cluster", ends=web.producer.time_out)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "4")


def test_it_reaches_who_is_refused_at_the_door_of_one_that_ends(web: NativeApp) -> None:
    web.producer.set_topics({"orders": 1})
    web.app.sidecar.drain.begin()
    refused = web.produce('{"records":[{"value":1}]}')
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
