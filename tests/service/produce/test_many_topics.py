"""POST /v1/records: one request whose records name their topics."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from client_core import (
    Phase,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    RecordTooLargeError,
    Ticket,
    TimeoutError,
    TopicAuthorizationError,
    Written,
)
from service.produce.many_topics import MAX_TOPICS, Group, JoinedResult, grouped, submit_groups
from service.produce.once import STAYS
from tests.support.coroutine_tests import run, until
from tests.support.fake_producer import FakeProducer, FakeResult
from tests.support.http_app import NativeApp
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from client_core import Done, Result
    from service.admission.admission_control import Permit

JSON = {"content-type": "application/json"}
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def web() -> NativeApp:
    app = NativeApp()
    app.producer.set_topics({"orders": 3, "audit": 1})
    return app


def record(topic: str, value: object = 1, **more: object) -> dict[str, object]:
    return {"topic": topic, "value": value, **more}


def post(web: NativeApp, body: object, query: str = "", **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return web.post(f"/v1/records{query}", content=content, headers=given)


def post_records(web: NativeApp, *records: dict[str, object], **headers: str) -> httpx.Response:
    return post(web, {"records": records}, **headers)


def failure(written: Written = Written.NO, **_: Any) -> RecordFailure:
    return RecordFailure(TimeoutError("late"), Phase.DELIVERY, written, 100)


def test_each_record_goes_to_its_topic_and_results_are_in_order(web: NativeApp) -> None:
    answer = post_records(
        web, record("orders", key="a", partition=2), record("audit"), record("orders", partition=1)
    )
    assert answer.status_code == 200
    assert [(r["topic"], r["partition"], r["offset"]) for r in answer.json()["results"]] == [
        ("orders", 2, 100),
        ("audit", 0, 100),
        ("orders", 1, 101),
    ]
    assert [[(r.topic, r.key) for r in one] for one in web.producer.submitted] == [
        [("orders", b"a"), ("orders", None)],
        [("audit", None)],
    ]


def test_a_large_body_is_read_as_a_small_one(web: NativeApp) -> None:
    records = [record("orders" if n % 3 else "audit", "x" * 100, partition=0) for n in range(5_000)]
    answer = post(web, {"value_format": "text", "records": records})
    results = answer.json()["results"]
    assert [result["topic"] for result in results] == [one["topic"] for one in records]
    offsets = {topic: [r["offset"] for r in results if r["topic"] == topic] for topic in ("orders", "audit")}
    assert all(found == list(range(100, 100 + len(found))) for found in offsets.values())
    twice = post(
        web, json.dumps({"records": records}).encode().replace(b'"topic"', b'"topic":"audit","topic"', 1)
    )
    assert (twice.status_code, twice.json()["place"]) == (400, "records[0].topic")


def test_some_failed_is_207_and_all_failed_is_no_success(web: NativeApp) -> None:
    def outcome(index: int, of: ProducerRecord) -> RecordFailure | RecordMetadata:
        return failure() if of.topic == "audit" else FakeProducer.receipt(index, of)

    web.producer.outcome_of = outcome
    answer = post_records(web, record("audit"), record("orders"))
    assert (answer.status_code, answer.headers["pilotfish-failed-records"]) == (207, "1")
    failed, written = answer.json()["results"]
    assert (failed["topic"], failed["error"]["type"]) == ("audit", "/problems/not-delivered")
    assert (written["topic"], written["offset"]) == ("orders", 100)
    answer = post_records(web, record("audit"), record("audit"))
    assert answer.status_code == 503
    assert [one["topic"] for one in answer.json()["results"]] == ["audit", "audit"]


def test_the_request_ends_with_its_last_topic_and_its_bytes_with_it(web: NativeApp) -> None:
    web.producer.holds_records = True

    async def scenario() -> httpx.Response:
        async with web.client() as client:
            body = json.dumps({"records": [record("orders"), record("audit")]})
            asked = asyncio.ensure_future(client.post("/v1/records", content=body, headers=JSON))
            await until(lambda: len(web.producer.waiting) == 2)
            first, second = web.producer.waiting
            assert first.asked["deadline_ms"] == second.asked["deadline_ms"]
            web.producer.acknowledge(first)
            await asyncio.sleep(0)
            assert not asked.done()
            assert web.app.sidecar.admission.bytes == len(body)
            web.producer.acknowledge(second)
            return await asked

    assert run(scenario()).status_code == 200
    assert web.app.sidecar.admission.bytes == 0


def test_a_caller_that_leaves_cancels_what_every_topic_has(web: NativeApp) -> None:
    web.producer.holds_records = True

    async def scenario() -> None:
        async with web.client() as client:
            body = json.dumps({"records": [record("orders"), record("audit")]})
            asked = asyncio.ensure_future(client.post("/v1/records", content=body, headers=JSON))
            await until(lambda: len(web.producer.waiting) == 2)
            asked.cancel()
            await asyncio.wait([asked])

    run(scenario())
    assert web.producer.waiting == []


#: Each refused body with the status and the place.
REFUSED = {
    b'{"records":[]}': (422, "records"),
    b'{"records":[{"value":1}]}': (422, "records[0]"),
    b'{"records":[{"topic":"orders","value":1},{"topic":7,"value":1}]}': (422, "records[1].topic"),
    b'{"records":[{"topic":null,"value":1}]}': (422, "records[0].topic"),
    b'{"records":[{"topic":"or ders","value":1}]}': (400, "records[0].topic"),
    b'{"records":[{"topic":"..","value":1}]}': (400, "records[0].topic"),
    b'{"records":[{"topic":"","value":1}]}': (400, "records[0].topic"),
    b'{"records":[{"topic":"orders","topic":"audit","value":1}]}': (400, "records[0].topic"),
    b'{"records":[{"topic":"orders","value":1,"color":1}]}': (422, "records[0]"),
    b'{"topic":"orders","records":[{"topic":"orders","value":1}]}': (422, "body"),
    b'{"records":[{"topic":"orders","value":1}],"records":[{"topic":"orders","value":1}]}': (400, "records"),
    b'{"records":[{"topic":"orders","value":1,"partition":-1}]}': (422, "records[0].partition"),
    b'{"records":[{"topic":"\xff","value":1}]}': (400, "body"),
    b"[": (400, "body"),
    b"": (400, "body"),
    json.dumps({"records": [record(f"t{n}") for n in range(MAX_TOPICS + 1)]}).encode(): (
        413,
        f"records[{MAX_TOPICS}].topic",
    ),
}


@pytest.mark.parametrize("body", REFUSED)
def test_a_bad_body_is_refused_whole_and_says_where(web: NativeApp, body: bytes) -> None:
    answer = post(web, body)
    assert (answer.status_code, answer.json()["place"]) == REFUSED[body]
    assert answer.json()["written"] == "no"
    assert web.producer.submitted == []


def test_a_topic_that_is_no_string_is_said_to_be_none(web: NativeApp) -> None:
    for topic in (7, None):
        refused = post(web, {"records": [{"topic": topic, "value": 1}]})
        assert refused.json()["detail"] == "records[0].topic: must be a string", topic


def test_a_bad_head_is_refused_and_says_where(web: NativeApp) -> None:
    good = {"records": [record("orders")]}
    assert post(web, good, "?key=a").json()["place"] == "query.key"
    assert post(web, good, "?timeout_ms=1&timeout_ms=1").json()["place"] == "query.timeout_ms"
    assert post(web, good, "?timeout_ms=1.5").json()["place"] == "query.timeout_ms"
    assert post(web, good, content_type="application/x-ndjson").status_code == 415
    assert post(web, good, content_type="application/octet-stream").json()["place"] == "Content-Type"
    assert post(web, good, idempotency_key='"').json()["place"] == "Idempotency-Key"
    assert post(web, good, "?delivery=spool").json()["place"] == "query.delivery"
    wrong = web.ask("PUT", "/v1/records")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert web.producer.submitted == []


def test_a_record_that_is_too_large_is_named_by_its_index_in_the_request(web: NativeApp) -> None:
    def check(topic: str, records: object) -> None:
        if topic == "audit":
            error = RecordTooLargeError("too large")
            error.record_index = 1
            raise error

    web.producer.check = check  # type: ignore[method-assign]
    answer = post_records(web, record("audit"), record("orders"), record("audit"))
    assert (answer.status_code, answer.json()["place"]) == (413, "records[2]")
    assert web.producer.submitted == []


def test_a_topic_that_the_token_does_not_allow_refuses_the_whole_request(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, shop={"produce": ["orders"]})
    web = NativeApp(tokens_file=tokens.setting)
    web.producer.set_topics({"orders": 3, "audit": 1})
    for hidden in ("audit", "absent"):
        answer = post_records(web, record("orders"), record(hidden), **tokens.of("shop"))
        assert (answer.status_code, answer.json()["place"]) == (403, "records[1].topic")
        assert answer.json()["kafka_error"] == "TOPIC_AUTHORIZATION_FAILED"
    assert (web.producer.submitted, web.producer.calls) == ([], [])
    assert post_records(web, record("orders"), **tokens.of("shop")).status_code == 200
    assert post_records(web, record("orders")).status_code == 401


def test_too_many_unknown_topics_refuse_the_whole_request() -> None:
    web = NativeApp(unknown_topics_per_second=2)
    web.producer.set_topics({"orders": 3})
    for _ in range(2):  # those of a refused request are not asked for: they count again in the next second
        answer = post_records(web, record("orders"), *[record(f"missing-{n}") for n in range(3)])
        assert (answer.status_code, answer.json()["type"]) == (429, "/problems/too-many-unknown-topics")
        assert web.producer.submitted == []
        web.producer.clock.advance(1_000)
    web.producer.set_topics({f"known-{n}": 1 for n in range(3)})
    assert post_records(web, *[record(f"known-{n}") for n in range(3)]).status_code == 200


def test_a_repeated_request_gets_the_first_answer_and_is_written_once(web: NativeApp) -> None:
    first = post_records(web, record("orders"), record("audit"), idempotency_key="k")
    again = post_records(web, record("orders"), record("audit"), idempotency_key="k")
    assert (again.text, again.headers["pilotfish-replayed"]) == (first.text, "true")
    assert [result["topic"] for result in first.json()["results"]] == ["orders", "audit"]
    assert len(web.producer.submitted) == 2
    other = post_records(web, record("orders"), idempotency_key="k").json()
    assert other["type"] == "/problems/idempotency-key-reused"
    assert "another request to /v1/records:" in other["detail"]
    # The key of one topic's request is another one.
    assert web.post(
        "/v1/topics/orders/records",
        content=b'{"records":[{"value":1}]}',
        headers={**JSON, "idempotency-key": "k"},
    ).is_success


def test_a_request_whose_answer_can_not_be_remembered_with_its_topics_is_refused_before_it_is_sent() -> None:
    name = "t" * 249
    records = [record(name)] * 10
    web = NativeApp(idempotency_max_bytes=4_000)
    web.producer.set_topics({name: 3})
    refused = post_records(web, *records, idempotency_key="k")
    assert (refused.status_code, refused.json()["place"]) == (413, "Idempotency-Key")
    assert web.producer.submitted == []
    for _ in range(2):
        assert post_records(web, *records[:8], idempotency_key="k").status_code == 200
    assert len(web.producer.submitted) == 1


def test_an_unknown_outcome_of_one_topic_is_waited_for_under_the_key(web: NativeApp) -> None:
    web.producer.holds_records = True

    async def scenario() -> tuple[httpx.Response, httpx.Response]:
        async with web.client() as client:
            body = json.dumps({"records": [record("orders"), record("audit")]})
            headers = {**JSON, "idempotency-key": "k"}
            asked = asyncio.ensure_future(client.post("/v1/records", content=body, headers=headers))
            await until(lambda: len(web.producer.waiting) == 2)
            first, second = web.producer.waiting
            web.producer.acknowledge(first)
            second.done(FakeResult([failure(Written.UNKNOWN)]))
            early = await asked
            again = asyncio.ensure_future(client.post("/v1/records", content=body, headers=headers))
            await asyncio.sleep(0.01)
            assert not again.done()
            web.producer.waiting.remove(second)
            second.asked["settled"](FakeResult([FakeProducer.receipt(0, second.asked["records"][0])]))
            return early, await again

    early, again = run(scenario())
    assert (early.status_code, again.status_code) == (207, 200)
    assert early.json()["results"][1]["error"]["written"] == "unknown"
    assert len(web.producer.submitted) == 2


def test_kafkas_acl_refuses_one_topic_and_not_the_others(web: NativeApp) -> None:
    def outcome(index: int, of: ProducerRecord) -> RecordFailure | RecordMetadata:
        if of.topic == "orders":
            return FakeProducer.receipt(index, of)
        return RecordFailure(TopicAuthorizationError("no"), Phase.METADATA, Written.NO, 0)

    web.producer.outcome_of = outcome
    answer = post_records(web, record("orders"), record("audit"))
    assert answer.status_code == 207
    assert answer.json()["results"][1]["error"]["type"] == "/problems/topic-forbidden"


def test_a_topic_that_the_client_refuses_after_another_has_the_clients_own_reason(web: NativeApp) -> None:
    submit = web.producer.submit

    def refuses_audit(topic: str, records: Any, **more: Any) -> Any:
        if topic == "audit":
            raise TopicAuthorizationError("not allowed")
        return submit(topic, records, **more)

    web.producer.submit = refuses_audit  # type: ignore[method-assign]
    answer = post_records(web, record("orders"), record("audit"))
    assert answer.status_code == 207
    assert answer.json()["results"][1]["error"]["kafka_error"] == "TOPIC_AUTHORIZATION_FAILED"


def test_a_result_is_one_of_acknowledged_records_where_one_topic_has_some() -> None:
    groups = grouped([ProducerRecord("orders"), ProducerRecord("audit")])
    failed = RecordFailure(TimeoutError("late"), Phase.DELIVERY, Written.UNKNOWN, 0)
    written = RecordMetadata("audit", 0, 7, 1_000)
    for of_audit, expected in ((written, True), (failed, False)):
        results = (FakeResult([failed]), FakeResult([of_audit]))
        assert JoinedResult(list(zip(groups, results, strict=True))).any_acknowledged is expected


def test_a_client_that_closes_between_two_topics_fails_only_the_rest(web: NativeApp) -> None:
    submit = web.producer.submit

    def closing(topic: str, records: Any, **more: Any) -> Any:
        ticket = submit(topic, records, **more)
        web.producer.state = "closed"
        return ticket

    web.producer.submit = closing  # type: ignore[method-assign]
    answer = post_records(web, record("orders"), record("audit"))
    assert answer.status_code == 207
    assert answer.json()["results"][1]["error"]["type"] == "/problems/shutting-down"
    assert web.app.sidecar.admission.bytes == 0


def test_the_parts_hold_the_bytes_of_the_whole_request_which_the_last_releases() -> None:
    admission = NativeApp().app.sidecar.admission
    whole = admission.acquire(1_001)
    whole.hand_on()
    whole.release()
    shares: list[Permit] = []

    def submit_one(_: Group, share: Permit, *_ended: object) -> Ticket:
        shares.append(share)
        return STAYS

    groups = grouped([ProducerRecord(topic) for topic in ("orders", "audit", "orders", "bills")])
    submit_groups(groups, submit_one, whole, lambda _: None, None)
    assert [share.bytes for share in shares] == [335, 333, 333]
    for share in shares:
        assert admission.bytes == 1_001
        share.release_bytes()
    assert admission.bytes == 0


def test_a_part_that_raised_and_ends_later_all_the_same_has_ended_once() -> None:
    admission = NativeApp().app.sidecar.admission
    whole = admission.acquire(900)
    whole.hand_on()
    whole.release()
    parts: list[tuple[Permit, Done]] = []
    ends: list[Result] = []

    def submit_one(_: Group, share: Permit, done: Done, __: Done) -> Ticket:
        parts.append((share, done))
        if len(parts) == 2:
            raise MemoryError
        return STAYS

    groups = grouped([ProducerRecord(topic) for topic in ("orders", "audit", "bills")])
    submit_groups(groups, submit_one, whole, ends.append, None)
    (first, _), (raised, ended_later), (last, _) = parts
    raised.release_bytes()  # the client had kept some of its records
    first.release_bytes()
    assert admission.bytes == 900, "the last one's wait"
    last.release_bytes()
    assert admission.bytes == 0
    for _, done in parts:
        done(JoinedResult(()))
    ended_later(JoinedResult(()))
    assert len(ends) == 1


def test_the_trace_goes_with_the_records_of_every_topic() -> None:
    web = NativeApp(trace_headers=True)
    web.producer.set_topics({"orders": 3, "audit": 1})
    assert post_records(web, record("orders"), record("audit"), traceparent=TRACEPARENT).is_success
    assert [dict(r.headers) for one in web.producer.submitted for r in one] == [
        {"traceparent": TRACEPARENT.encode()}
    ] * 2
