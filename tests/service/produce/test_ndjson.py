"""A stream of records over HTTP: a line in, a line out, in both directions at once."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_core import Errors, Phase, ProducerRecord, RecordFailure, RecordMetadata, Written
from client_core.errors import error_for
from service.admission.caller import Caller, TopicRules, set_caller
from service.produce.ndjson import LineSplitter, is_ndjson_stream
from service.produce.records_codec import LineCodec
from service.wire.payload import Format
from service.wire.strict_json import BodyError
from tests.support.coroutine_tests import run, timed, until
from tests.support.http_app import NativeApp
from tests.support.served import Served, limits, on_loop
from tests.support.stream_caller import NDJSON, StreamCaller
from tests.support.traced_memory import least_peak_bytes

if TYPE_CHECKING:
    import httpx

    from service.wire.asgi import Receive, Scope, Send

PATH = "/v1/topics/orders/records"


def app(**settings: Any) -> NativeApp:
    web = NativeApp(**settings)
    web.producer.set_topics({"orders": 3})
    return web


@pytest.fixture
def web() -> NativeApp:
    return app()


def scope_of_post() -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", NDJSON.encode())],
    }


def post(web: NativeApp, body: bytes, query: str = "", path: str = PATH, **headers: str) -> httpx.Response:
    given = {"content-type": NDJSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return web.post(path + query, content=body, headers=given)


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == (NDJSON, "no-store")
    return [json.loads(line) for line in answer.content.splitlines()]


def summary(records: int, failed: int = 0, ended: str = "complete") -> dict[str, Any]:
    acknowledged = records - failed
    outcomes = {"records": records, "acknowledged": acknowledged, "failed": failed, "ended": ended}
    return {"summary": outcomes}


def receipt(index: int, offset: int, timestamp: int = 1_700_000_000_000) -> dict[str, Any]:
    return {"index": index, "partition": 0, "offset": offset, "timestamp": timestamp}


def submitted(web: NativeApp) -> list[ProducerRecord]:
    return [record for records in web.producer.submitted for record in records]


# -- lines in, lines out -------------------------------------------------------------------------------------


def test_each_line_is_a_record_and_is_answered_with_a_line(web: NativeApp) -> None:
    body = (
        b'{"key":"customer-7","value":{"total": 12.50}}\n'
        b'{"value":null,"partition":2,"timestamp":17,"headers":[{"key":"h","value":"AA=="}]}\n'
    )
    answer = post(web, body)
    assert answer.status_code == 200
    assert lines(answer) == [
        receipt(0, 100),
        {"index": 1, "partition": 2, "offset": 101, "timestamp": 17},
        summary(2),
    ]
    assert submitted(web) == [
        ProducerRecord("orders", b'{"total":12.50}', b"customer-7"),
        ProducerRecord("orders", None, None, 2, 17, (("h", b"\0"),)),
    ]


def test_lines_of_one_read_are_submitted_together_or_in_chunks_so_that_others_have_their_turn(
    web: NativeApp,
) -> None:
    for count, chunks in ((500, [500]), (1_200, [500, 500, 200])):
        web.producer.submitted.clear()
        assert lines(post(web, b'{"value":1}\n' * count))[-1] == summary(count)
        assert [len(records) for records in web.producer.submitted] == chunks


def test_blank_lines_say_nothing_and_lines_end_with_lf_or_crlf_or_not(web: NativeApp) -> None:
    for body, count in (
        (b"", 0),
        (b"\n \n\t\r\n\n", 0),
        (b'{"value":1}', 1),
        (b'\n\n{"value":1}\r\n\r\n \t{"value":2} \r\n{"value":3}\r', 3),
    ):
        *receipts, end = lines(post(web, body))
        assert [one["index"] for one in receipts] == list(range(count)), body
        assert end == summary(count), body


def test_formats_and_times_are_in_the_query(web: NativeApp) -> None:
    query = "?key_format=base64&value_format=text&max_block_ms=10&timeout_ms=500"
    answer = post(web, b'{"key":"AAE=","value":"x"}\n', query)
    assert answer.status_code == 200
    assert submitted(web) == [ProducerRecord("orders", b"x", b"\0\1")]
    asked, now_ms = web.producer.calls[0][1], web.producer.clock.now_ms()
    assert (asked["block_deadline_ms"] - now_ms, asked["deadline_ms"] - now_ms) == (10, 500)


def test_an_offset_that_the_broker_did_not_say_is_null_and_without_acks_it_is_202() -> None:
    web = NativeApp(kafka={"acks": "0"})
    web.producer.set_topics({"orders": 1})
    web.producer.outcome_of = lambda _, record: RecordMetadata(record.topic, 2, None, 5)
    answer = post(web, b'{"value":1}')
    assert answer.status_code == 202
    assert lines(answer)[0] == {"index": 0, "partition": 2, "offset": None, "timestamp": 5}


def test_a_path_in_an_unusual_spelling_is_served_alike(web: NativeApp) -> None:
    answer = post(web, b'{"value":1}\nx', path="/v1/topics/%6Frders/records")
    assert (answer.status_code, lines(answer)[-1]) == (200, summary(2, failed=1))
    refused = post(web, b"", path="/v1/topics/%6Frders/records", idempotency_key="a")
    assert (refused.status_code, refused.json()["written"]) == (400, "no")


# -- failures ------------------------------------------------------------------------------------------------


#: Lines that are no records, and what is said of each behind the place of its record.
NO_RECORDS = {
    b"nope": ": not JSON: Expecting value: line 1 column 1 (char 0)",
    b'{"value":1} {"value":2}': ": not JSON: Extra data: line 1 column 13 (char 12)",
    b"[]": ": Expected `object`, got `array`",
    b"{}": ": Object missing required field `value`",
    b'{"value":1,"valeu":2}': ": Object contains unknown field `valeu`",
    b'{"value":1,"value":2}': ".value: duplicate field",
    b'{"value":1,"v\\u0061lue":2}': ".value: duplicate field",
    b'{"value":"\xff"}': ": invalid UTF-8 at byte 10",
    b'{"value":1,"partition":-1}': ".partition: must be a whole number from 0 to 2147483647",
    b'{"value":1,"key":7}': ".key: must be a string or null in text format",
    b'{"value":1,"headers":[{"key":"h","value":"*"}]}': ".headers[0].value: bad base64",
    b'{"value":1,"headers":[{"key":"h"}]}': ".headers[0]: Object missing required field",
    b'{"value":' + b"[" * 200 + b"]" * 200 + b"}": ".value: nested deeper than 128 levels",
    b'{"value":1}],"records":[{"value":2}': ": not JSON",
    b"\xef\xbb\xbf" + b'{"value":1}': ": not JSON",
}


def test_a_line_that_is_no_record_fails_with_its_number_and_the_stream_goes_on(web: NativeApp) -> None:
    no_record = {"kafka_error": None, "code": None, "retriable": False, "written": "no"}
    reasons = ("/problems/malformed-request", "/problems/invalid-value")
    for line, message in NO_RECORDS.items():
        web.producer.submitted.clear()
        first, bad, last, end = lines(post(web, b'{"value":0}\n' + line + b'\n{"value":2}\n'))
        assert (first, last, end) == (receipt(0, 100), receipt(2, 101), summary(3, failed=1)), line
        assert bad["index"] == 1
        assert bad["error"].pop("message").startswith("records[1]" + message), line
        assert bad["error"].pop("place").startswith("records[1]"), line
        assert bad["error"].pop("type") in reasons, line
        assert bad["error"] == no_record, line
        assert [record.value for record in submitted(web)] == [b"0", b"2"], line
    web.producer.submitted.clear()
    only_together = lines(post(web, b'{"value":1\n"key":"a"}\n{"value":1},{"value":2}'))
    assert [one.get("index") for one in only_together if "error" in one] == [0, 1, 2]
    assert submitted(web) == []


def test_a_record_that_the_broker_refuses_is_an_error_like_any_other(web: NativeApp) -> None:
    failure = RecordFailure(error_for(Errors.INVALID_TIMESTAMP.code), Phase.DELIVERY, Written.NO, 5)
    web.producer.outcome_of = lambda n, record: failure if n == 1 else web.producer.receipt(n, record)
    outcomes = lines(post(web, b'{"value":0}\n' * 3))
    assert [one.get("index") for one in outcomes] == [0, 1, 2, None]
    error = outcomes[1]["error"]
    assert (error["kafka_error"], error["written"]) == ("INVALID_TIMESTAMP", "no")
    assert outcomes[3] == summary(3, failed=1)


async def answer_to(web: NativeApp, *pieces: bytes) -> list[dict[str, Any]]:
    """The lines of a stream that is sent in these pieces, and ended."""
    async with StreamCaller(web.app, PATH) as caller:
        for piece in pieces:
            caller.send(piece)
        caller.end()
        return await caller.rest()


async def test_a_line_that_is_too_long_fails_and_the_stream_goes_on() -> None:
    web = app(stream_max_line_bytes=50)
    body = b'{"value":0}\n{"value":"' + b"x" * 500 + b'"}\n{"value":2}\n'
    message = "records[1]: the line is longer than 50 bytes"
    for pieces in (1, 7, 100):
        size = -(-len(body) // pieces)
        cut_so = [body[start : start + size] for start in range(0, len(body), size)]
        first, bad, last, end = await answer_to(web, *cut_so)
        assert (first["index"], last["index"], end) == (0, 2, summary(3, failed=1)), pieces
        assert (bad["error"]["message"], bad["error"]["type"]) == (message, "/problems/too-large"), pieces
    async with StreamCaller(web.app, PATH) as caller:
        caller.send(b"x" * 51)
        assert (await caller.line())["index"] == 0, "it is reported before its end"


def test_a_heavy_line_is_parsed_on_a_thread(web: NativeApp) -> None:
    for size, is_heavy in ((10, False), (300_000, True)):
        assert lines(post(web, b'{"value":"%s"}' % (b"x" * size)))[0] == receipt(0, 100)
        assert bool(web.app.sidecar.body_threads._threads._threads) is is_heavy, size


def test_a_line_may_have_as_many_bytes_as_the_limit_however_it_comes_in() -> None:
    lines = [b"12345", b"12345", b"12345", b"123456", b"12345"]
    body = b"\n".join(lines) + b"\n"
    for size in range(1, len(body) + 1):
        splitter = LineSplitter(5)
        taken: list[bytes | None] = []
        for at in range(0, len(body), size):
            taken += splitter.feed(body[at : at + size])
        assert taken == [line if len(line) <= 5 else None for line in lines], size


async def test_a_stream_may_be_larger_than_a_body_may() -> None:
    web = app(max_body_bytes=100)
    async with web.client() as client:
        answer = await client.post(PATH, content=b'{"value":1}\n' * 50, headers={"content-type": NDJSON})
    assert lines(answer)[-1] == summary(50)
    assert (await answer_to(web, *[b'{"value":1}\n'] * 50))[-1] == summary(50)


def test_nothing_else_may_be_larger_for_calling_itself_a_stream() -> None:
    web = app(max_body_bytes=10)
    for method, path, content_type in (
        ("POST", PATH, "application/json"),
        ("POST", "/v1/leaders", NDJSON),
        ("POST", "/v1/topics/orders/x/records", NDJSON),
        ("PUT", PATH, NDJSON),
        ("POST", "/v1/topics/records", NDJSON),
    ):
        answer = web.ask(method, path, content=b"x" * 11, headers={"content-type": content_type})
        assert answer.status_code == 413, (method, path)
        scope = {"method": method, "path": path, "headers": [(b"content-type", content_type.encode())]}
        assert not is_ndjson_stream(scope), (method, path)


async def test_a_short_line_that_has_begun_takes_nothing_from_admission_control(web: NativeApp) -> None:
    async with StreamCaller(web.app, PATH) as caller:
        caller.send(b'{"value":0}\n{"val')
        assert (await caller.line())["index"] == 0
        assert web.app.sidecar.admission.bytes == 0


# -- refused by its head -------------------------------------------------------------------------------------


#: What follows the path, headers, and the status and the place of a refusal.
BAD_HEADS: list[tuple[str, dict[str, str], tuple[int, str | None]]] = [
    ("?timeout_ms=x", {}, (422, "query.timeout_ms")),
    ("?timeout_ms=1&timeout_ms=1", {}, (400, "query.timeout_ms")),
    ("?value_format=xml", {}, (422, "query.value_format")),
    ("?key=a", {}, (422, "query.key")),
    ("?key_format=%ff", {}, (400, "query")),
    ("", {"content_type": "application/x-ndjson; charset=latin-1"}, (415, "Content-Type")),
    ("", {"content_encoding": "gzip"}, (415, "Content-Encoding")),
    ("", {"idempotency_key": "a"}, (400, "Idempotency-Key")),
    ("", {"pilotfish_key": "a"}, (422, "Pilotfish-Key")),
    ("", {"pilotfish_headers": "YQ=="}, (422, "Pilotfish-Headers")),
]


def test_a_fault_of_the_head_is_refused_as_a_problem(web: NativeApp) -> None:
    for number, (query, headers, said) in enumerate(BAD_HEADS, start=1):
        answer = post(web, b'{"value":1}', query, **headers)
        outcomes = answer.json()
        assert (answer.status_code, outcomes.get("place")) == said, (query, headers)
        assert outcomes["written"] == "no"
        assert answer.headers["content-type"] == "application/problem+json"
        assert web.app.sidecar.http.produced("error").count == number
    assert web.producer.submitted == []


def test_the_media_type_may_be_written_in_any_way(web: NativeApp) -> None:
    for media_type in (
        "Application/X-NDJSON",
        'application/x-ndjson; charset="UTF-8"',
        "application/x-ndjson; ;",
    ):
        assert post(web, b'{"value":1}', content_type=media_type).status_code == 200, media_type


def test_a_topic_that_is_none_or_not_allowed_is_refused(web: NativeApp) -> None:
    assert post(web, b"", path="/v1/topics/a,b/records").status_code == 400
    mine = TopicRules.of(["mine"])

    async def as_ana(scope: Scope, receive: Receive, send: Send) -> None:
        set_caller(scope, Caller("ana", mine, mine))
        await web.app(scope, receive, send)

    answer = web.ask("POST", PATH, app=as_ana, content=b"", headers={"content-type": NDJSON})
    assert (answer.status_code, answer.json()["kafka_error"]) == (403, "TOPIC_AUTHORIZATION_FAILED")


def test_too_many_streams_are_429() -> None:
    web = app(max_streams=0)
    answer = post(web, b'{"value":1}')
    assert (answer.status_code, "retry-after" in answer.headers) == (429, True)


# -- both ways at once ---------------------------------------------------------------------------------------


async def test_a_record_is_acknowledged_while_the_body_is_still_coming(web: NativeApp) -> None:
    async with StreamCaller(web.app, PATH) as caller:
        for number in range(3):
            caller.send(b'{"value":%d}\n' % number)
            assert (await caller.line())["index"] == number
        caller.end()
        assert await caller.rest() == [summary(3)]
    assert web.app.sidecar.admission.requests == 0


async def test_known_results_are_written_at_once(web: NativeApp) -> None:
    async with StreamCaller(web.app, PATH) as caller:
        caller.end(b'{"value":1}\n' * 100)
        await caller.rest()
        outcomes, last, nothing = caller.chunks
    assert (outcomes.count(b"\n"), json.loads(last), nothing) == (100, summary(100), b"")


async def test_a_caller_who_does_not_read_is_not_read_from_either() -> None:
    web = app(stream_open_records=10)
    async with StreamCaller(web.app, PATH) as caller:
        await until(lambda: caller.status)
        caller.stop_reading()
        for _ in range(100):
            caller.send(b'{"value":1}\n')
        for _ in range(1_000):
            await asyncio.sleep(0)
        taken = len(web.producer.submitted)
        caller.read_on()
        caller.end()
        assert (await caller.rest())[-1] == summary(100)
        assert taken <= 20, "those that are open, and those that are just being written"


def test_a_caller_who_takes_nothing_of_its_answer_is_cut_off() -> None:
    web = app(stall_timeout_ms=20)

    async def scenario() -> None:
        async with StreamCaller(web.app, PATH) as caller:
            await until(lambda: caller.status)
            caller.stop_reading()
            caller.send(b'{"value":1}\n')
            await asyncio.shield(caller.request)
            assert caller.chunks == []

    _, waited_ms = timed(scenario())
    assert waited_ms == 20
    assert (web.app.sidecar.streams.open_now, web.app.sidecar.admission.requests) == (0, 0)


def test_a_stream_that_brings_nothing_for_long_ends_and_says_so() -> None:
    web = app(stream_idle_timeout_ms=20)

    async def scenario(acknowledged_after_s: float) -> None:
        web.producer.holds_records = True
        async with StreamCaller(web.app, PATH) as caller:
            caller.send(b'{"value":1}\n{"val')
            await until(lambda: web.producer.waiting)
            await asyncio.sleep(acknowledged_after_s)
            web.producer.acknowledge(web.producer.waiting[0])
            assert await caller.rest() == [receipt(0, 100), summary(1, ended="idle")]

    assert timed(scenario(0))[1] == 20
    assert timed(scenario(0.05))[1] == 50, "it has been idle for long when the record is acknowledged"


async def test_a_shutdown_ends_a_stream_with_its_last_line(web: NativeApp) -> None:
    web.producer.holds_records = True
    async with StreamCaller(web.app, PATH) as caller:
        caller.send(b'{"value":1}\n')
        await until(lambda: web.producer.waiting)
        web.app.sidecar.drain.begin()
        caller.send(b'{"value":2}\n')
        web.producer.acknowledge(web.producer.waiting[0])
        assert await caller.rest() == [receipt(0, 100), summary(1, ended="shutdown")]
    assert len(web.producer.submitted) == 1


async def test_of_a_caller_who_leaves_submitted_records_are_delivered_and_nothing_more(
    web: NativeApp,
) -> None:
    web.producer.holds_records = True
    sidecar, line = web.app.sidecar, b'{"value":1}\n'
    for after_the_end in (False, True):
        async with StreamCaller(web.app, PATH) as caller:
            if after_the_end:
                caller.end(line)
            else:
                caller.send(line + b'{"value":2}')
            await until(lambda: web.producer.waiting)
            caller.leave()
            await asyncio.shield(caller.request)
            assert caller.chunks == []
        [ticket] = web.producer.waiting
        assert not ticket.cancelled
        assert (sidecar.admission.requests, sidecar.admission.bytes) == (0, len(line) - 1)
        web.producer.acknowledge(ticket)
        assert (sidecar.admission.bytes, sidecar.streams.open_now, sidecar.http.in_progress) == (0, 0, 0)


async def test_a_long_line_that_finds_no_room_fails_and_the_stream_goes_on() -> None:
    web = app(max_waiting_bytes=1_000)
    async with StreamCaller(web.app, PATH, "timeout_ms=0") as caller:
        with web.app.sidecar.admission.acquire(950):
            caller.send(b'{"value":0}\n{"value":"' + b"x" * 70_000)
            first, bad = await caller.line(), await caller.line()
        caller.send(b'"}\n{"value":2}\n')
        caller.end()
        last, end = await caller.rest()
    assert (first["index"], last["index"], end) == (0, 2, summary(3, failed=1))
    assert (bad["index"], bad["error"]["retriable"]) == (1, True)
    assert web.app.sidecar.admission.bytes == 0


async def test_lines_of_one_read_wait_for_room_together_and_not_one_group_after_another() -> None:
    """Seed 41246 of the simulation: the last line of a body has no LF, and began to wait after the others."""
    for body in (b'{"value":1}\n' * 1_200, b'{"value":1}\n{"value":2}'):
        web = app(max_waiting_bytes=1_000)
        async with StreamCaller(web.app, PATH, "max_block_ms=500") as caller:
            with web.app.sidecar.admission.acquire(999):
                caller.end(body)
                await until(lambda caller=caller: caller.is_taken)
                web.producer.clock.advance(500)
                *receipts, end = await caller.rest()
        assert {one["error"]["type"] for one in receipts} == {"/problems/overloaded"}
        assert end == summary(len(receipts), failed=len(receipts))


# -- over a socket -------------------------------------------------------------------------------------------

HEAD = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n" % PATH.encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_over_a_socket_each_line_is_answered_before_the_next_is_sent(web: NativeApp, loop: str) -> None:
    async def scenario() -> bytes:
        async with Served(web.app, limits=limits()) as served:
            caller = await served.call()
            caller.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            head = await caller.reader.readuntil(b"\r\n\r\n")
            assert b"200 OK" in head
            assert b"connection: close" in head
            for number in range(5):
                caller.send(chunk(b'{"value":%d}\n' % number))
                size = int(await caller.reader.readline(), 16)
                assert json.loads(await caller.reader.readexactly(size))["index"] == number
                await caller.reader.readline()
            caller.send(b"0\r\n\r\n")
            return await caller.until_closed()

    said = on_loop(loop, scenario())
    assert json.loads(said.split(b"\r\n")[1]) == summary(5)
    assert said.endswith(b"0\r\n\r\n")


def test_over_a_socket_a_stream_whose_length_is_said_leaves_the_connection_to_the_next(
    web: NativeApp,
) -> None:
    body = b'{"value":1}\n'

    async def scenario() -> bytes:
        async with Served(web.app, limits=limits()) as served:
            caller = await served.call()
            caller.send((HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body) * 2)
            return b"".join([await caller.reader.readuntil(b"0\r\n\r\n") for _ in range(2)])

    assert on_loop("asyncio", scenario()).count(b"summary") == 2


def test_over_a_socket_a_caller_that_waits_for_100_continue_gets_it(web: NativeApp) -> None:
    async def scenario() -> bytes:
        async with Served(web.app, limits=limits()) as served:
            caller = await served.call()
            caller.send(HEAD + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
            asked = await caller.reader.readuntil(b"\r\n\r\n")
            caller.send(chunk(b'{"value":1}\n') + b"0\r\n\r\n")
            assert b"summary" in await caller.until_closed()
            return asked

    assert on_loop("asyncio", scenario()).startswith(b"HTTP/1.1 100 Continue")


# -- the pieces ----------------------------------------------------------------------------------------------

LINES = st.one_of(
    st.binary(max_size=12).map(lambda text: text.replace(b"\n", b"")),
    st.sampled_from(
        [b'{"value":1}', b'{"value":"abc","key":"k"}\r', b"", b" \r", b'{"value":1,"value":1}', b"x" * 30]
    ),
)


def cut(body: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(bounds)]


def test_a_line_of_the_greatest_length_is_taken_after_any_other() -> None:
    splitter = LineSplitter(max_line_bytes=10)
    fed = [(b"12345", []), (b"67890\n", [b"1234567890"]), (b"12345", []), (b"678901", [None]), (b"2\n", [])]
    for _ in range(3):
        for piece, lines in fed:
            assert splitter.feed(piece) == lines
            assert splitter.held_bytes == (5 if piece == b"12345" else 0)
    splitter.feed(b"12345")
    splitter.pass_over()
    assert (splitter.held_bytes, splitter.feed(b"678\n12345"), splitter.held_bytes) == (0, [], 5)
    assert splitter.end() == [b"12345"]
    assert splitter.held_bytes == 0


def records_in(body: bytes, places: list[int]) -> list[ProducerRecord | str]:
    """The outcomes of a body that comes in such pieces."""
    splitter = LineSplitter(max_line_bytes=28)
    codec = LineCodec("orders", Format.TEXT, Format.JSON)
    outcomes: list[ProducerRecord | str] = []
    for found in [*map(splitter.feed, cut(body, places)), splitter.end()]:
        whole = [line for line in found if line is not None]
        parsed = iter(codec.parse(whole, 0))
        outcomes += ["too long" if line is None else _answer(next(parsed)) for line in found]
        assert splitter.held_bytes <= 28
    return outcomes


def _answer(one: ProducerRecord | BodyError) -> ProducerRecord | str:
    # Without the place: the test passes 0 to the codec as the number of every line.
    return f"{one.status} {one.message}" if isinstance(one, BodyError) else one


@given(st.lists(LINES, max_size=8), st.lists(st.integers(0, 200), max_size=6), st.booleans())
def test_lines_are_the_same_however_the_body_was_cut(
    parts: list[bytes], places: list[int], last_has_an_end: bool
) -> None:
    body = b"\n".join(parts) + (b"\n" if last_has_an_end else b"")
    outcomes = records_in(body, places)
    assert outcomes == records_in(body, [])
    assert len(outcomes) == sum(bool(part.strip(b" \t\r")) for part in body.split(b"\n"))


def test_answers_are_the_same_however_the_body_was_cut() -> None:
    web = app(stream_max_line_bytes=28)
    web.producer.outcome_of = lambda _, record: RecordMetadata(record.topic, 0, None, 5)

    @settings(max_examples=40)
    @given(st.lists(LINES, max_size=8), st.lists(st.integers(0, 200), max_size=6))
    def is_the_same(parts: list[bytes], places: list[int]) -> None:
        body = b"\n".join(parts)
        assert run(answer_to(web, *cut(body, places))) == run(answer_to(web, body))

    is_the_same()


# -- answers that never begin --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["the connection fails", "the task is cancelled"])
def test_a_stream_whose_head_can_not_be_sent_is_let_go(web: NativeApp, how: str) -> None:
    async def scenario() -> None:
        sending = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets it")

        async def send(_: object) -> None:
            sending.set()
            if how == "the connection fails":
                raise OSError("the connection is lost")
            await asyncio.Event().wait()

        request = asyncio.ensure_future(web.app(scope_of_post(), receive, send))
        await sending.wait()
        request.cancel()
        with pytest.raises((asyncio.CancelledError, OSError)):
            await request

    run(scenario())
    sidecar = web.app.sidecar
    assert (sidecar.streams.open_now, sidecar.admission.requests) == (0, 0)


def test_a_line_of_many_small_parts_takes_little_more_than_its_bytes() -> None:
    count = 20_000

    def feed_all() -> None:
        lines = LineSplitter(1_000_000)
        for number in range(count):
            assert lines.feed(b"%02d" % (number % 100)) == []
        assert lines.held_bytes == 2 * count

    most_bytes = 10 * count
    assert least_peak_bytes(feed_all, most_bytes) < most_bytes
