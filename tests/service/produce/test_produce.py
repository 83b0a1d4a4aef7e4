"""Producing over HTTP: what is accepted, how long it waits, and how each outcome is reported."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from client_core import (
    Errors,
    NoBrokersError,
    Phase,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    RecordTooLargeError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    Written,
)
from client_core.errors import error_for
from service.produce.produce_endpoint import topic_of_path
from tests.support.coroutine_tests import run, until
from tests.support.http_app import NativeApp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


ONE = b'{"records":[{"value":1}]}'
THREE = b'{"records":[{"value":0},{"value":1},{"value":2}]}'
JSON = {"content-type": "application/json"}
#: Headers of which there may be one each.
ENTITY = ("content-type", "content-encoding")
PATH = "/v1/topics/orders/records"


@pytest.fixture
def web() -> NativeApp:
    app = NativeApp()
    app.producer.set_topics({"orders": 3})
    return app


def failure(
    error: Errors, *, phase: Phase = Phase.DELIVERY, written: Written = Written.UNKNOWN, waited_ms: int = 250
) -> RecordFailure:
    return RecordFailure(error_for(error.code), phase, written, waited_ms)


def fail_with(web: NativeApp, *failures: RecordFailure | None) -> None:
    """Record n ends as failures[n]; None is an acknowledgement."""

    def report(index: int, record: ProducerRecord) -> RecordMetadata | RecordFailure:
        return failures[index] or RecordMetadata(record.topic, 1, 100 + index, 17)

    web.producer.outcome_of = report


# -- acknowledged --------------------------------------------------------------------------------------------


def test_acknowledged_records_are_reported_in_order(web: NativeApp) -> None:
    answer = web.produce(THREE)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    results = [{"partition": 0, "offset": 100 + n, "timestamp": 1_700_000_000_000} for n in range(3)]
    assert answer.json() == {"topic": "orders", "results": results}


def test_an_offset_that_the_broker_did_not_say_is_null_and_without_acks_it_is_202() -> None:
    for acks, status in (("all", 200), ("0", 202)):
        web = NativeApp(kafka={"acks": acks})
        web.producer.set_topics({"orders": 1})
        web.producer.outcome_of = lambda _, record: RecordMetadata(record.topic, 2, None, 5)
        answer = web.produce(ONE)
        assert answer.status_code == status
        assert answer.json()["results"] == [{"partition": 2, "offset": None, "timestamp": 5}]


# -- some, none ----------------------------------------------------------------------------------------------


def test_a_partial_failure_is_207_with_an_error_in_its_place(web: NativeApp) -> None:
    fail_with(web, None, failure(Errors.MESSAGE_TOO_LARGE), None)
    answer = web.produce(THREE)
    assert answer.status_code == 207
    assert answer.headers["pilotfish-failed-records"] == "1"
    results = answer.json()["results"]
    assert results[0] == {"partition": 1, "offset": 100, "timestamp": 17}
    error = results[1]["error"]
    assert (error["kafka_error"], error["code"], error["retriable"]) == ("MESSAGE_TOO_LARGE", 10, False)
    assert (error["written"], error["phase"], error["waited_ms"]) == ("unknown", "delivery", 250)


_LARGE = failure(Errors.MESSAGE_TOO_LARGE, written=Written.NO)
_LATE = failure(Errors.REQUEST_TIMED_OUT, written=Written.NO)
#: How three records failed, and the status and what is said to be written of all.
ALL_FAILED = [
    ([failure(Errors.MESSAGE_TOO_LARGE)] * 3, (413, "unknown")),
    ([failure(Errors.REQUEST_TIMED_OUT)] * 3, (504, "unknown")),
    ([_LATE] * 3, (503, "no")),
    ([_LARGE, _LATE, failure(Errors.REQUEST_TIMED_OUT)], (504, "unknown")),
    (
        [_LARGE, failure(Errors.UNKNOWN_SERVER_ERROR), failure(Errors.TOPIC_AUTHORIZATION_FAILED)],
        (500, "unknown"),
    ),
    ([_LATE, failure(Errors.UNKNOWN_SERVER_ERROR), _LATE], (500, "unknown")),  # 503 would say: never sent
]


def test_nothing_acknowledged_is_never_a_success(web: NativeApp) -> None:
    for failures, said in ALL_FAILED:
        fail_with(web, *failures)
        answer = web.produce(THREE)
        outcomes = answer.json()
        assert (answer.status_code, outcomes["written"]) == said, failures
        assert outcomes["status"] == said[0]
        assert answer.headers["content-type"] == "application/problem+json"
        assert len(outcomes["results"]) == 3


def test_of_records_that_fail_at_one_deadline_each_reports_whether_it_may_be_written(web: NativeApp) -> None:
    error, written = error_for(Errors.REQUEST_TIMED_OUT.code), (Written.NO, Written.UNKNOWN, Written.NO)
    fail_with(web, *(RecordFailure(error, Phase.DELIVERY, one, 250) for one in written))
    answer = web.produce(THREE)
    outcomes = answer.json()
    assert (answer.status_code, outcomes["written"]) == (504, "unknown")
    assert [one["error"]["written"] for one in outcomes["results"]] == ["no", "unknown", "no"]


def test_waiting_in_vain_for_a_topic_is_404_with_phase_and_time(web: NativeApp) -> None:
    error = TimeoutError("Topic orders not present in metadata after 500 ms.")
    error.__cause__ = UnknownTopicOrPartitionError()
    fail_with(web, RecordFailure(error, Phase.METADATA, Written.NO, 500))
    answer = web.produce(ONE)
    outcomes = answer.json()
    assert (answer.status_code, outcomes["kafka_error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert (outcomes["written"], outcomes["phase"], outcomes["waited_ms"]) == ("no", "metadata", 500)
    assert outcomes["detail"] == f"{error.message} The brokers have no such topic or partition."


def test_waiting_in_vain_for_a_partition_that_the_topic_does_not_have_is_404(web: NativeApp) -> None:
    fail_with(web, RecordFailure(TimeoutError("Partition 9 of …"), Phase.METADATA, Written.NO, 500))
    answer = web.produce(b'{"records":[{"value":1,"partition":9}]}')
    assert (answer.status_code, answer.json()["kafka_error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


def test_no_broker_in_reach_is_503_and_says_when_to_come_back(web: NativeApp) -> None:
    fail_with(web, RecordFailure(NoBrokersError("none"), Phase.METADATA, Written.NO, 500))
    answer = web.produce(ONE)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_a_buffer_that_stays_full_is_503_with_its_phase(web: NativeApp) -> None:
    fail_with(web, failure(Errors.REQUEST_TIMED_OUT, phase=Phase.BUFFER, written=Written.NO))
    answer = web.produce(ONE)
    assert (answer.status_code, answer.json()["phase"]) == (503, "buffer")


# -- deadlines -----------------------------------------------------------------------------------------------


def test_a_request_has_one_deadline_for_all_of_its_records(web: NativeApp) -> None:
    now_ms = web.producer.clock.now_ms()
    waits = {
        "": (60_000, 120_000),
        "?max_block_ms=0": (0, 120_000),
        "?max_block_ms=500": (500, 120_000),
        "?timeout_ms=900": (900, 900),
        "?timeout_ms=900&max_block_ms=100": (100, 900),
    }
    for query, (block_ms, whole_ms) in waits.items():
        web.producer.calls.clear()
        web.produce(THREE, query=query)
        [(_, asked)] = web.producer.calls
        found = (asked["block_deadline_ms"] - now_ms, asked["deadline_ms"] - now_ms)
        assert found == (block_ms, whole_ms), query


def test_the_time_that_the_body_takes_is_part_of_a_requests_time(web: NativeApp) -> None:
    now_ms = web.producer.clock.now_ms()

    async def slow_body() -> AsyncIterator[bytes]:
        yield ONE[:10]
        web.producer.clock.advance(400)
        yield ONE[10:]

    assert web.post(f"{PATH}?timeout_ms=900", content=slow_body(), headers=JSON).status_code == 200
    [(_, asked)] = web.producer.calls
    assert (asked["block_deadline_ms"] - now_ms, asked["deadline_ms"] - now_ms) == (900, 900)


_BLOCK = "query.max_block_ms: must be a whole number from 0 to 3600000"
_WHOLE = "query.timeout_ms: must be a whole number from 0 to 120000 (delivery.timeout.ms)"
#: Queries, their status and what is said of them.
QUERIES = {
    **{
        f"timeout_ms={written}": (422, _WHOLE)
        for written in ("120001", "-1", "", "1.5", "%C2%B2", "0" * 20, "x")
    },
    **{f"max_block_ms={written}": (422, _BLOCK) for written in ("3600001", "1s")},
    "timeout=1": (422, "query.timeout: unknown parameter; known are max_block_ms, timeout_ms and delivery"),
    "x=1": (422, "query.x: unknown parameter; known are max_block_ms, timeout_ms and delivery"),
    "timeout_ms=1&timeout_ms=2": (400, "query.timeout_ms: is given twice"),
    "timeout_ms=1&timeout_ms=1": (400, "query.timeout_ms: is given twice"),
    "timeout_ms=%FF": (400, "query: invalid UTF-8"),
    "delivery=disk": (422, "query.delivery: must be direct or spool"),
}


def test_a_parameter_that_does_not_fit_is_named_with_what_would_before_anything_is_appended(
    web: NativeApp,
) -> None:
    answers = {query: web.produce(ONE, query=f"?{query}") for query in QUERIES}
    assert {q: (answer.status_code, answer.json()["detail"]) for q, answer in answers.items()} == QUERIES
    assert {query for query, answer in answers.items() if answer.json()["written"] != "no"} == set()
    assert web.producer.submitted == []


# -- refused -------------------------------------------------------------------------------------------------


def test_a_bad_record_keeps_the_good_ones_from_being_appended(web: NativeApp) -> None:
    answer = web.produce(b'{"records":[{"value":1},{"value":1,"partition":-1}]}')
    outcomes = answer.json()
    assert (answer.status_code, outcomes["place"], outcomes["written"]) == (422, "records[1].partition", "no")
    assert web.producer.submitted == []


def test_an_invalid_topic_is_refused_at_once(web: NativeApp) -> None:
    for name in ("a%20b", "%C3%A9", "x" * 250, "a,b"):
        answer = web.produce(ONE, topic=name)
        assert (answer.status_code, answer.json()["kafka_error"]) == (400, "INVALID_TOPIC_EXCEPTION"), name
    assert web.producer.submitted == []


def test_json_in_utf_8_is_taken_and_another_media_type_is_415(web: NativeApp) -> None:
    several: list[list[tuple[str, str]]] = [
        [],
        *([("content-type", "text/plain")], [("content-type", "application/x-www-form-urlencoded")]),
        *([("content-type", "application/json; charset=latin-1")], [("content-type", "application/jsonp")]),
        [*JSON.items(), ("content-encoding", "br")],
        *([*JSON.items(), ("content-encoding", "identity"), (name, "gzip")] for name in ENTITY),
    ]
    for headers in several:
        answer = web.post(PATH, content=ONE, headers=headers)
        assert (answer.status_code, answer.json()["written"]) == (415, "no"), headers
    assert web.producer.submitted == []
    answer = web.post(PATH, content=ONE, headers={"content-type": "text/plain"})
    forms = "application/json, application/x-ndjson, application/octet-stream"
    assert answer.json()["detail"] == f"Content-Type: must be one of {forms}"
    for media_type in (
        "application/json",
        'Application/JSON; charset="UTF-8"',
        "application/json;charset=utf-8 ;",
    ):
        answer = web.post(PATH, content=ONE, headers={"content-type": media_type})
        assert answer.status_code == 200, media_type


# -- how much ------------------------------------------------------------------------------------------------


async def in_pieces(body: bytes, pieces: int) -> AsyncIterator[bytes]:
    size = -(-len(body) // pieces)
    for start in range(0, len(body), size):
        yield body[start : start + size]


def test_a_body_in_pieces_is_put_together(web: NativeApp) -> None:
    answer = web.post(PATH, content=in_pieces(THREE, 7), headers=JSON)
    assert len(answer.json()["results"]) == 3


def test_a_body_too_large_is_refused_by_its_head_or_while_it_is_read() -> None:
    web = NativeApp(max_body_bytes=len(ONE) - 1)
    web.producer.set_topics({"orders": 1})
    said = web.produce(ONE)
    assert (said.status_code, said.headers["connection"]) == (413, "close")
    for path in (PATH, "/v1/topics/%6Frders/records", "/v1/leaders"):
        assert web.post(path, content=in_pieces(ONE, 5), headers=JSON).status_code == 413, path
    assert web.producer.submitted == []
    assert web.app.sidecar.admission.bytes == 0


async def test_too_many_bytes_waiting_is_429_and_nothing_is_written() -> None:
    web = NativeApp(max_waiting_bytes=len(ONE) * 2)
    web.producer.set_topics({"orders": 1})
    web.producer.holds_records = True
    async with web.client() as client:
        first = [asyncio.create_task(client.post(PATH, content=ONE, headers=JSON)) for _ in range(2)]
        await until(lambda: len(web.producer.waiting) == 2)
        refused = await client.post(PATH, content=ONE, headers=JSON)
        unsaid = await client.post(PATH, content=in_pieces(ONE, 3), headers=JSON)
        for ticket in list(web.producer.waiting):
            web.producer.acknowledge(ticket)
        accepted = await asyncio.gather(*first)
        web.producer.holds_records = False
        answers = [refused, unsaid, *accepted, await client.post(PATH, content=ONE, headers=JSON)]
    assert [answer.status_code for answer in answers] == [429, 429, 200, 200, 200]
    assert refused.json()["written"] == "no"
    assert int(refused.headers["retry-after"]) >= 1
    assert (web.app.sidecar.admission.requests, web.app.sidecar.admission.bytes) == (0, 0)


# -- callers who leave ---------------------------------------------------------------------------------------


def scope_of(path: str = PATH) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(ONE)),
        ],
    }


async def never_sent(_: object) -> None:
    raise AssertionError("nobody is there to be answered")


async def test_a_caller_who_leaves_frees_the_place_and_cancels_the_ticket(web: NativeApp) -> None:
    web.producer.holds_records = True
    gone = asyncio.Event()
    body_to_come = [{"type": "http.request", "body": ONE, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if body_to_come:
            return body_to_come.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    request = asyncio.ensure_future(web.app(scope_of(), receive, never_sent))
    await until(lambda: web.producer.waiting)
    ticket = web.producer.waiting[0]
    assert web.app.sidecar.admission.requests == 1
    gone.set()
    await request
    assert ticket.cancelled
    assert web.app.sidecar.admission.requests == 0
    assert web.app.sidecar.http.in_progress == 0
    # What was sent is still delivered, and its bytes are in the client until then.
    assert web.app.sidecar.admission.bytes == len(ONE)
    web.producer.deliver(ticket)
    assert web.app.sidecar.admission.bytes == 0


async def test_bytes_of_callers_who_left_count_against_the_limit_until_they_are_delivered() -> None:
    web = NativeApp(max_waiting_bytes=len(ONE))
    web.producer.set_topics({"orders": 1})
    web.producer.holds_records = True
    async with web.client() as client:
        asked = asyncio.create_task(client.post(PATH, content=ONE, headers=JSON))
        await until(lambda: web.producer.waiting)
        asked.cancel()
        await until(lambda: web.producer.undelivered)
        web.producer.holds_records = False
        statuses = [(await client.post(PATH, content=ONE, headers=JSON)).status_code]
        web.producer.deliver(web.producer.undelivered[0])
        assert [*statuses, (await client.post(PATH, content=ONE, headers=JSON)).status_code] == [429, 200]


def test_a_body_that_does_not_come_within_the_requests_time_is_408(web: NativeApp) -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError("never")

    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    run(web.app({**scope_of(), "query_string": b"timeout_ms=10"}, receive, send))
    assert (said[0]["status"], (b"connection", b"close") in said[0]["headers"]) == (408, True)
    assert b'"written":"no"' in said[1]["body"]
    assert (web.app.sidecar.admission.requests, web.app.sidecar.admission.bytes) == (0, 0)


def test_a_caller_who_leaves_within_the_body_leaves_nothing_behind(web: NativeApp) -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": ONE[:5], "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    run(web.app(scope_of(), receive, never_sent))
    assert web.producer.submitted == []
    assert (web.app.sidecar.admission.requests, web.app.sidecar.admission.bytes) == (0, 0)


async def test_a_cancelled_request_cancels_its_ticket(web: NativeApp) -> None:
    web.producer.holds_records = True
    async with web.client() as client:
        asked = asyncio.create_task(client.post(PATH, content=ONE, headers=JSON))
        await until(lambda: web.producer.waiting)
        ticket = web.producer.waiting[0]
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
    assert ticket.cancelled
    assert web.app.sidecar.admission.requests == 0


async def test_six_hundred_waiting_requests_do_not_hold_up_a_look_up(web: NativeApp) -> None:
    web.producer.holds_records = True
    async with web.client() as client:
        waiting = [asyncio.create_task(client.post(PATH, content=ONE, headers=JSON)) for _ in range(300)]
        waiting += [
            asyncio.create_task(client.get(f"/v1/topics/t{n % 50}?max_block_ms=60000")) for n in range(300)
        ]
        await until(lambda: len(web.producer.waiting) == 600)
        assert (await client.get("/v1/topics/orders")).status_code == 200
        assert (await client.get("/v1/status")).json()["waiting_requests"] == 600
        web.producer.set_topics({"orders": 3, **{f"t{n}": 1 for n in range(50)}})
        for ticket in list(web.producer.waiting):
            if ticket.kind == "records":
                web.producer.acknowledge(ticket)
            else:
                web.producer.say_unknown(ticket)
        assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * 600
    assert web.app.sidecar.admission.requests == 0


# -- which paths ---------------------------------------------------------------------------------------------


def test_only_plain_paths_take_the_fast_way() -> None:
    topics = {
        b"/v1/topics/orders/records": "orders",
        b"/v1/topics/records/records": "records",
        **dict.fromkeys((b"/v1/topics//records", b"/v1/topics/records", b"/v1/topics/a/b/records")),
        **dict.fromkeys((b"/v1/topics/%6Frders/records", b"/v1/topics/orders/records/")),
        **dict.fromkeys((b"/v1/topics/orders", b"")),
    }
    assert {path: topic_of_path(path) for path in topics} == topics


def test_a_topic_may_be_called_records(web: NativeApp) -> None:
    assert web.produce(ONE, topic="records").json()["topic"] == "records"


def test_results_are_json_to_the_last_digit(web: NativeApp) -> None:
    web.producer.outcome_of = lambda _, r: RecordMetadata(r.topic, 2**31 - 1, 2**63 - 1, 2**63 - 1)
    [result] = json.loads(web.produce(ONE).content)["results"]
    assert result == {"partition": 2**31 - 1, "offset": 2**63 - 1, "timestamp": 2**63 - 1}


# -- refusals by the client ----------------------------------------------------------------------------------


def test_the_record_that_is_too_large_is_named_and_nothing_is_written(web: NativeApp) -> None:
    error = RecordTooLargeError("The message is too large.")
    error.record_index = 2
    web.producer.refuses = error
    answer = web.produce(THREE)
    outcomes = answer.json()
    assert (answer.status_code, outcomes["kafka_error"]) == (413, "MESSAGE_TOO_LARGE")
    assert (outcomes["place"], outcomes["detail"]) == ("records[2]", "records[2]: The message is too large.")
    assert outcomes["written"] == "no"
    assert web.app.sidecar.admission.requests == 0


def test_a_client_that_is_closed_is_503_whatever_is_asked(web: NativeApp) -> None:
    web.producer.close(0)
    refused = web.produce(ONE)
    assert refused.status_code == 503
    # As the guards say of a request that comes later: nothing is written, and another process may be there.
    assert (refused.json()["written"], refused.json()["retriable"]) == ("no", True)
    for path in ("/v1/topics/unknown", "/v1/topics", "/v1/cluster?max_age_ms=0"):
        web.producer.clock.advance(1)
        answer = web.get(path)
        assert answer.status_code == 503, path
        assert path != "/v1/topics" or "shutting down" in answer.json()["detail"]
    assert web.get("/v1/topics/orders").status_code == 200


def test_only_where_it_is_allowed_may_a_produce_create_its_topic() -> None:
    for allowed in (False, True):
        web = NativeApp(auto_create_topics=allowed)
        web.producer.set_topics({})
        web.produce(ONE, topic="new")
        [(_, asked)] = web.producer.calls
        assert asked["create"] is allowed
