"""POST …/records of REST Proxy v3 as a stream: answered while it is read, and ended in an orderly way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from client_core import Phase, RecordFailure, RecordMetadata, TimeoutError, Written
from tests.support.coroutine_tests import timed, until
from tests.support.http_app import HttpApp
from tests.support.stream_caller import StreamCaller

if TYPE_CHECKING:
    from collections.abc import Sequence

PATH = "/v3/clusters/cluster/topics/orders/records"
JSON = {"content-type": "application/json"}


def app(**settings: Any) -> HttpApp:
    made = HttpApp(**settings)
    made.producer.set_topics({"orders": 3})
    return made


@pytest.fixture
def http() -> HttpApp:
    return app()


def caller(http: HttpApp, path: str = PATH, content_type: str = "application/json") -> StreamCaller:
    chunked = {"content-type": content_type, "transfer-encoding": "chunked"}
    return StreamCaller(http.app, path, headers=chunked)


def value(n: int) -> bytes:
    return b'{"value":{"type":"JSON","data":%d}}' % n


def codes(reports: Sequence[dict[str, Any]]) -> list[int]:
    return [report["error_code"] for report in reports]


async def code_of(stream: StreamCaller, body: bytes) -> int:
    """The code of the report of what is sent now."""
    stream.send(body)
    return int((await stream.line())["error_code"])


async def refusal(stream: StreamCaller) -> tuple[int | None, int]:
    """The status and the code of a stream that is refused as a whole."""
    (refused,) = await stream.rest()
    return stream.status, refused["error_code"]


def nothing_is_left(http: HttpApp) -> bool:
    sidecar = http.app.sidecar
    return (sidecar.streams.open_now, sidecar.admission.requests, sidecar.admission.bytes) == (0, 0, 0)


async def one_shot(http: HttpApp, *pieces: bytes) -> list[dict[str, Any]]:
    """The objects of a stream that is sent in these pieces and ended."""
    async with caller(http) as stream:
        for piece in pieces:
            stream.send(piece)
        stream.end()
        return await stream.rest()


# -- both ways at once ---------------------------------------------------------------------------------------


async def test_each_record_is_answered_while_the_stream_stays_open(http: HttpApp) -> None:
    async with caller(http) as stream:
        for n in range(3):
            stream.send(value(n))
            report = await stream.line()
            assert (report["error_code"], report["value"]) == (200, {"type": "JSON", "size": 1})
            assert not stream.is_answered
        assert (stream.status, stream.headers["content-type"]) == (200, "application/json")
        assert "content-length" not in stream.headers
        stream.end()
        assert await stream.rest() == []
    assert len(http.producer.submitted) == 3
    assert nothing_is_left(http)


async def test_a_bad_record_is_answered_and_the_stream_goes_on(http: HttpApp) -> None:
    async with caller(http) as stream:
        for body, code in (
            (b'{"value":{"type":"BINARY","data":"x"}}', 400),
            (value(1), 200),
            (b'{"value":{"type":"AVRO","data":1}}', 415),
            (b"{bad}", 400),
            (b'{"partition_id":-1}', 40402),
            (b"words\n", 400),
            (value(2), 200),
        ):
            assert await code_of(stream, body) == code, body
        stream.end()
        assert await stream.rest() == []


async def test_answers_come_in_the_order_of_the_records_however_they_are_acknowledged(http: HttpApp) -> None:
    http.producer.holds_records = True
    async with caller(http) as stream:
        for n in range(3):
            stream.send(value(n))
            await until(lambda n=n: len(http.producer.waiting) == n + 1)
        first, second, third = http.producer.waiting
        http.producer.outcome_of = lambda _, record: RecordMetadata(
            record.topic, 0, int(record.value or b""), 0
        )
        http.producer.acknowledge(third)
        http.producer.acknowledge(second)
        await asyncio.sleep(0)
        assert stream.status == 200
        assert stream.chunks == []
        http.producer.acknowledge(first)
        assert [(await stream.line())["offset"] for _ in range(3)] == [0, 1, 2]


async def test_a_record_may_come_byte_by_byte(http: HttpApp) -> None:
    body = b' {"key":{"type":"STRING","data":"\xc3\xbc\\"}"}}\r\n' + value(1)
    reports = await one_shot(http, *(body[n : n + 1] for n in range(len(body))))
    assert codes(reports) == [200, 200]
    assert [record.key for (record,) in http.producer.submitted] == ['ü"}'.encode(), None]


async def test_a_charset_of_single_bytes_is_read_piece_by_piece(http: HttpApp) -> None:
    async with caller(http, content_type="application/json; charset=iso-8859-1") as stream:
        for piece in (b'{"value":{"type":"STRING","data":"', b"\xe4", b"\xfc", b'"}}'):
            stream.send(piece)
        assert (await stream.line())["value"]["size"] == 4
    assert http.producer.submitted[0][0].value == "äü".encode()


async def test_records_of_one_read_are_one_submit(http: HttpApp) -> None:
    reports = await one_shot(http, b"".join(map(value, range(50))))
    assert codes(reports) == [200] * 50
    assert [len(submitted) for submitted in http.producer.submitted] == [50]


def test_a_body_of_known_length_beyond_the_limit_of_bodies_is_a_stream() -> None:
    body = b"".join(map(value, range(20)))
    answer = app(max_body_bytes=100).post(PATH, content=body, headers=JSON)
    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
    assert answer.text.count('"error_code":200') == 20


# -- limits --------------------------------------------------------------------------------------------------


async def test_a_caller_that_does_not_read_is_not_read_from() -> None:
    http = app(stream_open_records=4)
    async with caller(http) as stream:
        stream.send(value(0))
        await stream.line()
        stream.stop_reading()
        for n in range(1, 20):
            stream.send(value(n))
        for _ in range(200):
            await asyncio.sleep(0)
        taken = len(http.producer.submitted)
        assert taken < 12
        stream.read_on()
        stream.end()
        assert len(await stream.rest()) == 19


async def test_unacknowledged_records_of_a_stream_are_bounded() -> None:
    http = app(stream_open_records=5)
    http.producer.holds_records = True
    async with caller(http) as stream:
        for n in range(20):
            stream.send(value(n))
        await until(lambda: len(http.producer.waiting) == 5)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(http.producer.submitted) == 5
        stream.end()
        while not stream.is_answered:
            for ticket in list(http.producer.waiting):
                http.producer.acknowledge(ticket)
            await asyncio.sleep(0)
        assert codes(await stream.rest()) == [200] * 20


async def test_where_admission_control_stays_full_records_are_429_and_the_stream_goes_on() -> None:
    http = app(kafka={"max.block.ms": "0"})
    async with caller(http) as stream:
        assert await code_of(stream, value(0)) == 200
        with http.app.sidecar.admission.acquire(http.settings.max_waiting_bytes):
            assert await code_of(stream, value(1)) == 429
        assert await code_of(stream, value(2)) == 200


async def test_records_of_one_read_wait_for_room_together_and_not_one_group_after_another() -> None:
    http = app(kafka={"max.block.ms": "500"})
    async with caller(http) as stream:
        with http.app.sidecar.admission.acquire(http.settings.max_waiting_bytes):
            stream.end(value(1) * 1_200)
            await until(lambda: stream.is_taken)
            http.producer.clock.advance(500)
            assert codes(await stream.rest()) == [429] * 1_200


async def test_a_long_record_that_finds_no_room_is_429_in_its_place_and_the_stream_goes_on() -> None:
    http = app(kafka={"max.block.ms": "0"})
    async with caller(http) as stream:
        with http.app.sidecar.admission.acquire(http.settings.max_waiting_bytes):
            assert await code_of(stream, b'{"value":{"type":"STRING","data":"' + b"x" * 70_000) == 429
        assert await code_of(stream, b'"}}' + value(1)) == 200
        stream.end()
        assert await stream.rest() == []
    assert nothing_is_left(http)


async def test_a_record_that_is_too_long_is_413_and_the_stream_goes_on() -> None:
    async with caller(app(stream_max_line_bytes=60)) as stream:
        assert await code_of(stream, b'{"value":{"type":"STRING","data":"' + b"x" * 60) == 413
        assert await code_of(stream, b'"}}' + value(1)) == 200


async def test_more_streams_than_may_be_open_are_429() -> None:
    http = app(max_streams=1)
    async with caller(http) as first:
        assert await code_of(first, value(0)) == 200
        async with caller(http) as second:
            second.end(value(1))
            assert await refusal(second) == (429, 429)
        async with http.client() as client:  # a body of known length is no stream
            assert (await client.post(PATH, content=value(2), headers=JSON)).status_code == 200
    assert http.app.sidecar.streams.open_now == 0


# -- ends ----------------------------------------------------------------------------------------------------


async def test_a_stream_of_nothing_is_42206(http: HttpApp) -> None:
    for pieces in ([], [b""], [b" ", b"\n", b""]):
        async with caller(http) as stream:
            for piece in pieces:
                stream.send(piece)
            stream.end()
            assert await refusal(stream) == (422, 42206), pieces
        assert nothing_is_left(http)


async def test_where_brackets_do_not_match_the_stream_says_so_and_ends(http: HttpApp) -> None:
    async with caller(http) as stream:
        stream.send(value(0) + b"]" + value(1))
        reports = await stream.rest()
        assert codes(reports) == [200, 400]
        assert reports[-1]["message"].endswith("the stream ends")
        assert stream.headers["connection"] == "close"
    assert len(http.producer.submitted) == 1


async def test_a_body_that_ends_within_a_record_says_so(http: HttpApp) -> None:
    assert codes(await one_shot(http, value(0), b'{"value":')) == [200, 400]


def test_a_stream_that_brings_nothing_for_too_long_ends_with_408() -> None:
    http = app(stream_idle_timeout_ms=30)

    async def begun() -> None:
        async with caller(http) as stream:
            stream.send(value(0))
            assert codes(await stream.rest()) == [200, 408]

    async def silent() -> None:
        async with caller(http) as stream:
            assert await refusal(stream) == (408, 408)

    assert timed(begun())[1] == timed(silent())[1] == 30
    assert http.app.sidecar.streams.open_now == 0


async def test_in_a_shutdown_what_was_accepted_is_reported_and_the_last_object_says_why(
    http: HttpApp,
) -> None:
    http.producer.holds_records = True
    async with caller(http) as stream:
        stream.send(value(0))
        await until(lambda: http.producer.waiting)
        http.app.sidecar.drain.begin()
        stream.send(value(1))
        await asyncio.sleep(0)
        http.producer.acknowledge(http.producer.waiting[0])
        assert codes(await stream.rest()) == [200, 503]
    assert len(http.producer.submitted) == 1


async def test_a_stream_that_has_not_begun_is_503_in_a_shutdown(http: HttpApp) -> None:
    async with caller(http) as stream:
        await until(lambda: http.app.sidecar.streams.open_now)
        http.app.sidecar.drain.begin()
        assert await refusal(stream) == (503, 503)


async def test_a_caller_that_leaves_frees_its_stream(http: HttpApp) -> None:
    http.producer.holds_records = True
    for begun in (b"", value(0), value(0) + b'{"value":'):
        async with caller(http) as stream:
            stream.send(begun)
            await until(lambda: http.app.sidecar.streams.open_now)
            stream.leave()
            await until(stream.request.done)
            assert http.app.sidecar.streams.open_now == 0, begun
        for ticket in list(http.producer.waiting):
            http.producer.acknowledge(ticket)
        assert http.app.sidecar.admission.requests == 0, begun


async def test_a_topic_that_is_not_known_fails_record_by_record_each_in_its_own_second(http: HttpApp) -> None:
    failure = RecordFailure(TimeoutError("Topic missing not present"), Phase.METADATA, Written.NO, 1000)
    http.producer.holds_records = True
    async with caller(http, PATH.replace("orders", "missing")) as stream:
        for n in range(3):
            stream.send(value(n))
        await until(lambda: len(http.producer.waiting) == 3)
        http.producer.outcome_of = lambda *_: failure
        for ticket in list(http.producer.waiting):
            asked = ticket.asked["block_deadline_ms"] - http.producer.clock.now_ms()
            assert asked == http.settings.unknown_topic_wait_ms
            http.producer.acknowledge(ticket)
        stream.end()
        assert len(await stream.rest()) == 3


async def test_the_partition_of_one_record_does_not_shorten_the_time_of_later_ones(http: HttpApp) -> None:
    async with caller(http) as stream:
        for body in (value(0), b'{"partition_id":9}', b'{"partition_id":1}', value(3)):
            stream.send(body)
            await stream.line()
    assert [
        asked["block_deadline_ms"] - http.producer.clock.now_ms()
        for kind, asked in http.producer.calls
        if kind == "records"
    ] == [60_000, 1_000, 60_000, 60_000]


async def test_a_record_that_has_to_wait_does_not_use_up_the_wait_for_its_topic() -> None:
    http = app(stream_open_records=1)
    http.producer.holds_records = True
    clock = http.producer.clock
    async with caller(http, PATH.replace("orders", "absent")) as stream:
        stream.send(value(0))
        await until(lambda: len(http.producer.submitted) == 1)
        stream.send(value(1))
        await asyncio.sleep(0)
        clock.advance(400)
        http.producer.acknowledge(http.producer.waiting[0])
        await until(lambda: len(http.producer.submitted) == 2)
        _, asked = http.producer.calls[-1]
        assert asked["block_deadline_ms"] == clock.now_ms() + 1_000
        http.producer.acknowledge(http.producer.waiting[0])
        stream.end()
        assert codes(await stream.rest()) == [200, 200]
