"""The core of an open request: when records are submitted and reported, and what holds them back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from client_core import (
    Errors,
    Phase,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    Written,
)
from client_core.errors import error_for
from service.admission.admission_control import RECORD_BYTES
from service.admission.caller import ANYONE, Caller, TopicRules
from service.produce.producing import Times
from service.produce.record_stream import (
    COMPLETE,
    OUTCOME_BYTES,
    SHUTDOWN,
    RecordStream,
    StreamEndedError,
    converse,
)
from service.wire.errors import Problem, ProblemError
from service.wire.waiting import CallerGoneError
from tests.support.coroutine_tests import until
from tests.support.http_app import NativeApp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from service.produce.producing import RecordOutcome

BAD = Problem(422, "records[1].value: must be a string", written="no")


def record(value: int, partition: int | None = None) -> ProducerRecord:
    return ProducerRecord("orders", b"%d" % value, partition=partition)


def app(**settings: Any) -> NativeApp:
    web = NativeApp(**settings)
    web.producer.set_topics({"orders": 3})
    return web


def open_stream(web: NativeApp, caller: Caller = ANYONE, times: Times | None = None) -> RecordStream:
    sidecar = web.app.sidecar
    return sidecar.streams.open("orders", caller, lambda: times or sidecar.producing.times)


async def all_outcomes(stream: RecordStream) -> list[tuple[int, RecordOutcome]]:
    return [outcomes async for some in stream for outcomes in some]


async def outcomes_of(
    web: NativeApp, *puts: Sequence[ProducerRecord | Problem]
) -> list[tuple[int, RecordOutcome]]:
    """All outcomes of a stream into which these were put, and which was then finished."""
    with open_stream(web) as stream:
        for items in puts:
            await stream.put(items, len(items))
        stream.finish()
        return await all_outcomes(stream)


def statuses(outcomes: Sequence[tuple[int, RecordOutcome]]) -> list[int]:
    """Those of what failed; 0 for what is acknowledged."""
    return [one.status if isinstance(one, Problem) else 0 for _, one in outcomes]


@asynccontextmanager
async def task_of(work: Any) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def offsets(outcomes: Sequence[tuple[int, RecordOutcome]]) -> list[tuple[int, int | None]]:
    return [(index, one.offset if isinstance(one, RecordMetadata) else None) for index, one in outcomes]


# -- in order ------------------------------------------------------------------------------------------------


async def test_records_that_are_put_together_are_submitted_together() -> None:
    web = app()
    outcomes = await outcomes_of(web, [record(0), record(1), record(2)], [record(3)])
    assert [len(records) for records in web.producer.submitted] == [3, 1]
    assert offsets(outcomes) == [(0, 100), (1, 101), (2, 102), (3, 100)]


async def test_an_item_that_is_no_record_keeps_its_place_and_is_not_submitted() -> None:
    web = app()
    outcomes = await outcomes_of(web, [record(0), BAD, record(2)], [BAD])
    assert [[r.value for r in records] for records in web.producer.submitted] == [[b"0", b"2"]]
    assert [outcomes[1], outcomes[3]] == [(1, BAD), (3, BAD)]
    assert offsets(outcomes) == [(0, 100), (1, None), (2, 101), (3, None)]


async def test_outcomes_are_reported_in_order_though_later_ones_are_known_first() -> None:
    web = app()
    web.producer.holds_records = True
    with open_stream(web) as stream:
        for number in range(3):
            await stream.put([record(number)], 1)
        first, second, third = web.producer.waiting
        async with task_of(anext(stream)) as reporting:
            web.producer.acknowledge(third)
            web.producer.acknowledge(second)
            await asyncio.sleep(0)
            assert not reporting.done()
            web.producer.acknowledge(first)
            assert [index for index, _ in await reporting] == [0, 1, 2]


async def test_a_failure_is_reported_and_the_stream_goes_on() -> None:
    web = app()
    failure = RecordFailure(error_for(Errors.MESSAGE_TOO_LARGE.code), Phase.DELIVERY, Written.NO, 5)
    web.producer.outcome_of = lambda index, one: failure if index == 0 else web.producer.receipt(index, one)
    outcomes = await outcomes_of(web, [record(0), record(1)], [record(2)])
    assert [isinstance(one, Problem) for _, one in outcomes] == [True, False, True]


async def test_a_record_that_is_too_large_fails_alone() -> None:
    web = app()
    web.producer.too_large = frozenset({b"2", b"3"})
    with open_stream(web) as stream:
        await stream.put([BAD], 1)
        await stream.put([record(0), BAD, record(2), record(3), record(4)], 5)
        stream.finish()
        outcomes = await all_outcomes(stream)
    assert statuses(outcomes) == [422, 0, 422, 413, 413, 0]
    for index in (3, 4):  # the stream's index, not that among the records of a submit
        problem = outcomes[index][1]
        assert isinstance(problem, Problem)
        assert problem.place == f"records[{index}]"
        assert problem.detail == f"records[{index}]: The message is 2000000 bytes"
    assert [[r.value for r in records] for records in web.producer.submitted] == [[b"0", b"4"]]
    assert (web.app.sidecar.admission.bytes, web.app.sidecar.admission.requests) == (0, 0)


async def test_where_the_client_refuses_everything_all_of_it_fails() -> None:
    web = app()
    web.producer.state = "closed"
    assert statuses(await outcomes_of(web, [record(0), record(1)])) == [503, 503]
    assert web.app.sidecar.admission.bytes == 0


async def test_the_topic_may_be_unknown_and_is_counted_as_such_until_the_outcome() -> None:
    web = NativeApp(unknown_topics_per_second=1)
    web.producer.set_topics({})
    web.producer.holds_records = True
    streams = web.app.sidecar.streams
    times = web.app.sidecar.producing.times
    with (
        streams.open("a", ANYONE, lambda: times) as one,
        streams.open("b", ANYONE, lambda: times) as other,
    ):
        await one.put([record(0)], 1)
        await other.put([record(0)], 1)
        [(_, refused)] = await anext(other)
        assert isinstance(refused, Problem)
        web.producer.acknowledge(web.producer.waiting[0])
        await anext(one)
        web.producer.clock.advance(1_000)
        await other.put([record(1)], 1)
        assert [refused.status, len(web.producer.waiting)] == [429, 1]


# -- deadlines -----------------------------------------------------------------------------------------------


async def test_deadlines_count_from_when_a_record_was_put() -> None:
    web = app()
    clock = web.producer.clock
    started_ms = clock.now_ms()
    with open_stream(web, times=Times(max_block_ms=100, timeout_ms=900)) as stream:
        for number, passed_ms in enumerate((50_000, 7)):
            clock.advance(passed_ms)
            await stream.put([record(number)], 1)
    deadlines = [(asked["block_deadline_ms"], asked["deadline_ms"]) for _, asked in web.producer.calls]
    expected = [(ms + 100, ms + 900) for ms in (started_ms + 50_000, started_ms + 50_007)]
    assert deadlines == expected


async def test_deadlines_of_a_record_that_has_to_wait_count_from_when_it_was_read() -> None:
    web = app(stream_open_records=1)
    clock = web.producer.clock
    web.producer.holds_records = True
    read_ms = clock.now_ms()
    with open_stream(web, times=Times(max_block_ms=100, timeout_ms=900)) as stream:
        await stream.put([record(0)], 1)
        for put in (stream.put([record(1)], 1), stream.put([record(2)], 1, read_ms)):
            async with task_of(put) as putting:
                await asyncio.sleep(0)
                clock.advance(40)
                web.producer.acknowledge(web.producer.waiting[0])
                await anext(stream)
                await putting
    deadlines = {(asked["block_deadline_ms"], asked["deadline_ms"]) for _, asked in web.producer.calls}
    assert (len(web.producer.calls), deadlines) == (3, {(read_ms + 100, read_ms + 900)})


# -- how much is open ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "records", "body_bytes"),
    [({"stream_open_records": 4}, 3, 1), ({"stream_open_bytes": 40}, 1, 30)],
)
async def test_put_waits_while_too_much_is_open(
    settings: dict[str, int], records: int, body_bytes: int
) -> None:
    web = app(**settings)
    web.producer.holds_records = True
    some = [record(n) for n in range(records)]
    with open_stream(web) as stream:
        await stream.put(some, body_bytes)
        async with task_of(stream.put(some, body_bytes)) as putting:
            await asyncio.sleep(0)
            assert not putting.done()
            web.producer.acknowledge(web.producer.waiting[0])
            await anext(stream)
            await putting
        assert len(web.producer.submitted) == 2


async def test_acknowledged_records_that_were_not_read_count_as_open() -> None:
    web = app(stream_open_records=2)
    with open_stream(web) as stream:
        await stream.put([record(0), record(1)], 2)
        async with task_of(stream.put([record(2)], 1)) as putting:
            await asyncio.sleep(0)
            assert len(web.producer.submitted) == 1
            await anext(stream)
            await putting
    assert len(web.producer.submitted) == 2


async def test_outcomes_that_were_not_read_count_in_admission_control() -> None:
    web = app()
    admission = web.app.sidecar.admission
    with open_stream(web) as stream:
        for _ in range(3):
            await stream.put([record(n) for n in range(100)], 1)
        assert admission.bytes == 300 * OUTCOME_BYTES
        await anext(stream)
        assert admission.bytes == 0
        await stream.put([record(0)], 1)
        assert admission.bytes == OUTCOME_BYTES
    assert (admission.bytes, admission.requests) == (0, 0)


async def test_all_open_records_of_a_stream_count_however_few_are_put_at_once() -> None:
    web = app()
    web.producer.holds_records = True
    with open_stream(web) as stream:
        for _ in range(3):
            await stream.put([record(n) for n in range(100)], 1)
        assert web.app.sidecar.admission.bytes == 1 + 200 * RECORD_BYTES


async def test_unread_outcomes_of_a_stream_make_another_wait_until_its_caller_has_left() -> None:
    web = app(max_waiting_bytes=10 * OUTCOME_BYTES)
    with open_stream(web) as other:
        with open_stream(web) as stream:
            await stream.put([record(n) for n in range(20)], 1)
            async with task_of(other.put([record(0)], 1)) as putting:
                await asyncio.sleep(0)
                assert not putting.done()
        await other.put([record(1)], 1)
        other.finish()
        assert statuses(await all_outcomes(other))[-1] == 0


async def test_an_item_larger_than_the_limit_fits_alone() -> None:
    web = app(stream_open_records=1, stream_open_bytes=1, max_waiting_bytes=1)
    with open_stream(web) as stream:
        await stream.put([record(0), record(1)], 100)
        stream.finish()
        assert len(await all_outcomes(stream)) == 2


async def test_put_waits_for_admission_while_others_hold_all_permits() -> None:
    web = app(max_waiting_bytes=100)
    web.producer.holds_records = True
    admission = web.app.sidecar.admission
    with open_stream(web) as stream:
        with admission.acquire(90):
            async with task_of(stream.put([record(0)], 50)) as putting:
                await asyncio.sleep(0.03)
                assert not putting.done()
                assert web.producer.submitted == []
        await stream.put([record(1)], 50)
        assert admission.bytes == 50


async def test_admission_control_that_stays_full_is_reported_as_429_and_the_stream_goes_on() -> None:
    web = app(max_waiting_bytes=100)
    admission = web.app.sidecar.admission
    with open_stream(web, times=Times(max_block_ms=500, timeout_ms=500)) as stream:
        with admission.acquire(90):
            async with task_of(stream.put([record(0), BAD], 50)) as putting:
                await asyncio.sleep(0)
                web.producer.clock.advance(501)
                await putting
        await stream.put([record(2)], 50)
        stream.finish()
        assert statuses(await all_outcomes(stream)) == [429, 422, 0]
    assert admission.bytes == 0


async def test_a_caller_whose_token_allows_one_request_may_have_one_stream() -> None:
    web = app()
    everything = TopicRules(prefixes=("",))
    caller = Caller("ana", everything, everything, max_waiting_requests=1)
    with open_stream(web, caller) as stream:
        with pytest.raises(ProblemError, match="ana"):
            open_stream(web, caller)
        await stream.put([record(0)], 1)
        stream.finish()
        assert len(await all_outcomes(stream)) == 1
    assert web.app.sidecar.streams.open_now == 0


async def test_there_are_at_most_so_many_streams() -> None:
    web = app(max_streams=1)
    with open_stream(web), pytest.raises(ProblemError, match="max_streams") as refused:
        open_stream(web)
    with open_stream(web):
        assert refused.value.problem.status == 429


async def test_a_caller_whose_streams_have_ended_leaves_nothing_behind() -> None:
    web = app()
    with open_stream(web), open_stream(web):
        assert web.app.sidecar.streams.open_by == {ANYONE.name: 2}
    assert web.app.sidecar.streams.open_by == {}


async def test_the_received_part_of_a_long_item_counts_in_admission_control() -> None:
    web = app(max_waiting_bytes=100)
    admission = web.app.sidecar.admission
    seen: list[object] = []
    with open_stream(web, times=Times(0, 0)) as stream, admission.acquire(20):
        for held_bytes in (30, 70, 10, 90, 0):
            problem = await stream.hold(held_bytes)
            seen.append((problem and problem.status, admission.bytes - 20))
    assert seen == [(None, 30), (None, 70), (None, 10), (429, 10), (None, 0)]
    assert (admission.bytes, admission.requests) == (0, 0)


# -- how it ends ---------------------------------------------------------------------------------------------


async def test_a_stream_that_has_ended_takes_nothing_on() -> None:
    web = app()
    with open_stream(web) as stream:
        stream.finish("because")
        stream.finish()
        with pytest.raises(StreamEndedError, match="because"):
            await stream.put([record(0)], 1)
        with pytest.raises(StreamEndedError):
            await stream.hold(10)
        assert await all_outcomes(stream) == []
    assert web.producer.submitted == []


@pytest.mark.parametrize("settings", [{"stream_open_records": 1}, {"max_waiting_bytes": 10}])
async def test_a_put_that_waits_when_the_stream_ends_has_put_nothing(settings: dict[str, int]) -> None:
    web = app(**settings)
    web.producer.holds_records = True
    with open_stream(web) as stream:
        await stream.put([record(0)], 10)
        async with task_of(stream.put([record(1)], 10)) as putting:
            await asyncio.sleep(0)
            stream.finish(SHUTDOWN)
            with pytest.raises(StreamEndedError):
                await putting
        web.producer.acknowledge(web.producer.waiting[0])
        assert len(await all_outcomes(stream)) == 1
    assert (len(web.producer.submitted), web.app.sidecar.admission.bytes) == (1, 0)


async def test_submitted_records_are_delivered_though_no_caller_listens_any_more() -> None:
    web = app()
    web.producer.holds_records = True
    admission = web.app.sidecar.admission
    with open_stream(web) as stream:
        await stream.put([record(0)], 40)
    [ticket] = web.producer.waiting
    assert not ticket.cancelled
    assert (admission.requests, admission.bytes) == (0, 40)
    web.producer.acknowledge(ticket)
    assert admission.bytes == 0


async def test_each_put_counts_as_a_produce_request_in_the_metrics() -> None:
    web = app()
    await outcomes_of(web, [record(0)], [record(1), BAD], [BAD])
    counts = {o: web.app.sidecar.http.produced(o).count for o in ("success", "partial", "error")}
    assert counts == {"success": 1, "partial": 1, "error": 1}


# -- a conversation ------------------------------------------------------------------------------------------


class Line:
    """What a caller sends, and the answers that it gets."""

    def __init__(self, web: NativeApp) -> None:
        self.drain = web.app.sidecar.drain
        self.queue: asyncio.Queue[int | None] = asyncio.Queue()
        self.outcomes: list[int] = []
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def hold(self, stream: RecordStream) -> None:
        async def read() -> None:
            while (number := await self.queue.get()) is not None:
                await stream.put([record(number)], 1)

        async def report(outcomes: Sequence[tuple[int, RecordOutcome]]) -> None:
            self.outcomes += [index for index, _ in outcomes]

        with stream:
            await converse(stream, self.drain, self.receive, read, report)


async def test_a_conversation_reports_while_it_reads_and_ends_after_the_last_result() -> None:
    web = app()
    line, stream = Line(web), open_stream(web)
    async with task_of(line.hold(stream)) as conversation:
        for number in range(3):
            line.queue.put_nowait(number)
            await until(lambda: number in line.outcomes)  # noqa: B023 - it is awaited at once
        line.queue.put_nowait(None)
        await conversation
    assert line.outcomes == [0, 1, 2]
    assert stream.ended == COMPLETE


async def test_a_shutdown_ends_a_conversation_after_the_last_accepted_record_is_reported() -> None:
    web = app()
    web.producer.holds_records = True
    line, stream = Line(web), open_stream(web)
    async with task_of(line.hold(stream)) as conversation:
        line.queue.put_nowait(0)
        await until(lambda: web.producer.waiting)
        line.drain.begin()
        line.queue.put_nowait(1)
        await asyncio.sleep(0)
        assert not conversation.done()
        web.producer.acknowledge(web.producer.waiting[0])
        await conversation
    assert line.outcomes == [0]
    assert stream.ended == SHUTDOWN
    assert len(web.producer.submitted) == 1


async def test_a_caller_who_leaves_before_the_last_result_ends_the_conversation() -> None:
    web = app()
    web.producer.holds_records = True
    line, stream = Line(web), open_stream(web)
    async with task_of(line.hold(stream)) as conversation:
        line.queue.put_nowait(0)
        line.queue.put_nowait(None)
        await until(lambda: web.producer.waiting)
        line.gone.set()
        with pytest.raises(CallerGoneError):
            await conversation
    line.drain.begin()  # which it does not listen to any more
    assert web.app.sidecar.streams.open_now == 0


@pytest.mark.parametrize("who", ["read", "report"])
async def test_an_exception_of_reading_or_reporting_ends_the_conversation(who: str) -> None:
    web = app()

    async def read() -> None:
        if who == "read":
            raise ValueError("read")
        await stream.put([record(0)], 1)
        await asyncio.Event().wait()

    async def report(_: object) -> None:
        raise ValueError("report")

    stream = open_stream(web)
    with stream, pytest.raises(ValueError, match=who):
        await converse(stream, web.app.sidecar.drain, Line(web).receive, read, report)
    assert web.app.sidecar.admission.requests == 0
