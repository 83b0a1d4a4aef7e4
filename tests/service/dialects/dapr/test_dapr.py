"""Dapr's publish: what is written, and what is refused in Dapr's words."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from client_core import (
    Phase,
    RecordFailure,
    RecordTooLargeError,
    TimeoutError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    Written,
)
from service.admission.caller import Caller, TopicRules, set_caller
from tests.service.dialects.dapr.dapr_app import details, envelope, only_records, refusal, web

if TYPE_CHECKING:
    import httpx

    from client_core import KafkaError, ProducerRecord
    from service.wire.asgi import Receive, Scope, Send
    from tests.support.http_app import HttpApp

PUBLISH = "/v1.0/publish/pubsub/orders"
JSON = {"content-type": "application/json"}
PARENT = "00-2583c3e5f33c8db92a2ba0e3488a6a63-328e7491ec6678de-01"


def publish(
    app: HttpApp, body: bytes = b'{"status": "completed"}', query: str = "", /, **headers: str
) -> httpx.Response:
    return app.post(PUBLISH + query, headers={**JSON, **headers}, content=body)


def record_of(app: HttpApp) -> ProducerRecord:
    (record,) = only_records(app)
    return record


# -- what is written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_body_is_wrapped_and_answered_204(method: str) -> None:
    app = web()
    answer = app.ask(method, PUBLISH, headers=JSON, content=b'{"status": "completed"}')
    assert (answer.status_code, answer.content) == (204, b"")
    event = envelope(record_of(app))
    assert uuid.UUID(event.pop("id")).version == 4
    assert event == {
        "specversion": "1.0",
        "source": "pilotfish",
        "type": "com.dapr.event.sent",
        "time": "2023-11-14T22:13:20Z",
        "topic": "orders",
        "pubsubname": "pubsub",
        "datacontenttype": "application/json",
        "data": {"status": "completed"},
    }
    assert (record_of(app).key, record_of(app).partition) == (None, None)


def test_without_a_content_type_dapr_takes_a_body_for_text() -> None:
    app = web()
    assert app.post(PUBLISH, content=b"hello").status_code == 204
    assert envelope(record_of(app))["datacontenttype"] == "text/plain"
    assert envelope(record_of(app))["data"] == "hello"


def test_metadata_is_the_key_and_headers_of_the_record() -> None:
    app = web()
    query = "?metadata.correlationId=myCorrelationID&metadata.partitionKey=K%C3%BCnde+7"
    assert publish(app, b"1", query).status_code == 204
    record = record_of(app)
    assert record.key == "Künde 7".encode()
    assert record.headers == (
        ("correlationId", b"myCorrelationID"),
        ("partitionKey", "Künde 7".encode()),
        ("content-type", b"application/cloudevents+json; charset=UTF-8"),
    )


def test_a_content_type_that_the_caller_puts_into_metadata_is_the_only_one() -> None:
    app = web()
    assert publish(app, b"1", "?metadata.Content-Type=mine").status_code == 204
    assert record_of(app).headers == (("Content-Type", b"mine"),)


def test_a_partition_can_be_named() -> None:
    app = web()
    assert publish(app, b"1", "?metadata.partitionNumber=2").status_code == 204
    assert record_of(app).partition == 2


@pytest.mark.parametrize(
    ("body", "value"), [(b'{"order-number": "345"}',) * 2, (b"\x00\xff",) * 2, (b"", b""), (b"null", None)]
)
def test_a_raw_payload_is_the_value_byte_for_byte_and_null_is_a_tombstone(
    body: bytes, value: bytes | None
) -> None:
    app = web()
    assert publish(app, body, "?metadata.rawPayload=true").status_code == 204
    assert record_of(app).value == value
    assert record_of(app).headers == (("rawPayload", b"true"),)


def test_an_own_event_is_completed_and_not_wrapped() -> None:
    app = web()
    body = b'{"specversion": "1.0", "type": "t", "source": "s", "id": "i", "data": {"n": 1.10}}'
    answer = publish(app, body, **{"content-type": "application/cloudevents+json; charset=utf-8"})
    assert answer.status_code == 204
    assert (record_of(app).value or b"").startswith(b'{"data":{"n":1.10},"id":"i",')
    assert envelope(record_of(app))["topic"] == "orders"


def test_the_trace_context_of_the_request_is_in_the_envelope() -> None:
    app = web()
    assert publish(app, traceparent=PARENT, tracestate="a=b").status_code == 204
    event = envelope(record_of(app))
    assert (event["traceid"], event["traceparent"], event["tracestate"]) == (PARENT, PARENT, "a=b")


def test_the_app_id_is_the_source() -> None:
    app = web(dapr_app_id="checkout")
    assert publish(app).status_code == 204
    assert envelope(record_of(app))["source"] == "checkout"


def test_every_event_has_an_id_of_its_own() -> None:
    app = web()
    for _ in range(3):
        publish(app)
    assert len({envelope(record)["id"] for (record,) in app.producer.submitted}) == 3


# -- where to ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/v1.0/publish", "ERR_PUBSUB_EMPTY"),
        ("/v1.0/publish/", "ERR_PUBSUB_EMPTY"),
        ("/v1.0/publish//orders", "ERR_PUBSUB_EMPTY"),
        ("/v1.0/publish/pubsub", "ERR_TOPIC_NAME_EMPTY"),
        ("/v1.0/publish/pubsub/", "ERR_TOPIC_NAME_EMPTY"),
        ("/v1.0/publish/bulk", "ERR_PUBSUB_EMPTY"),
        ("/v1.0/state/store", "ERR_API_UNIMPLEMENTED"),
        ("/v1.0/invoke/app/method/m", "ERR_API_UNIMPLEMENTED"),
        ("/v1.0-alpha1/publish/pubsub/orders", "ERR_API_UNIMPLEMENTED"),
    ],
)
def test_a_path_that_lacks_a_part_is_404_and_says_which(path: str, code: str) -> None:
    for method in ("POST", "PUT"):
        app = web()
        assert refusal(app, app.ask(method, path, headers=JSON, content=b"1"), 404) == code


def test_other_methods_are_told_the_right_ones() -> None:
    app = web()
    answer = app.get(PUBLISH)
    assert refusal(app, answer, 405) == "ERR_METHOD_NOT_ALLOWED"
    assert {method.strip() for method in answer.headers["allow"].split(",")} == {"POST", "PUT"}


def test_pubsub_names_can_be_set() -> None:
    app = web(dapr_pubsub_names="kafka,order-pub-sub")
    answer = publish(app)
    assert refusal(app, answer, 404) == "ERR_PUBSUB_NOT_FOUND"
    assert "kafka, order-pub-sub" in answer.json()["message"]
    assert details(answer)["reason"] == "DAPR_PUBSUB_NOT_FOUND"
    assert app.post("/v1.0/publish/order-pub-sub/orders", headers=JSON, content=b"1").status_code == 204


@pytest.mark.parametrize("topic", ["A/B/C", "orders/", "a,b", "x" * 250])
def test_a_topic_that_kafka_can_not_have_is_refused_by_name(topic: str) -> None:
    app = web()
    answer = app.post(f"/v1.0/publish/pubsub/{topic}", headers=JSON, content=b"1")
    assert refusal(app, answer, 400) == "ERR_PUBSUB_PUBLISH_MESSAGE"
    assert topic in answer.json()["message"]
    assert details(answer)["metadata"]["kafka_error"] == "INVALID_TOPIC_EXCEPTION"


def test_a_pubsubs_name_that_is_not_utf_8_is_refused() -> None:
    app = web()
    answer = app.post("/v1.0/publish/%FF/orders", headers=JSON, content=b"1")
    assert refusal(app, answer, 404) == "ERR_PUBSUB_NOT_FOUND"


def test_an_encoded_slash_is_refused_at_the_door_in_daprs_shape() -> None:
    app = web()
    answer = app.post("/v1.0/publish/pubsub/%2F", headers=JSON, content=b"1")
    assert refusal(app, answer, 400) == "ERR_BAD_REQUEST"


# -- what can't be used --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "?metadata.rawPayload=100",
        "?metadata.ttlInSeconds=-1",
        "?metadata.partitionNumber=x",
        "?metadata.valueSchemaType=Avro",
        "?metadata.partitionKey=a&metadata.__key=b",
        "?metadata.partitionKey=a&metadata.partitionKey=b",
        "?partitionKey=a",
    ],
)
def test_metadata_that_can_not_be_used_is_400(query: str) -> None:
    app = web()
    assert refusal(app, publish(app, b"1", query), 400) == "ERR_PUBSUB_REQUEST_METADATA"


def test_a_query_that_is_not_utf_8_is_refused() -> None:
    app = web()
    refusal(app, publish(app, b"1", "?metadata.partitionKey=%FF"), 400)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b'{"id":"1","id":"2"}'])
def test_an_own_event_that_is_none_is_daprs_500(body: bytes) -> None:
    app = web()
    answer = publish(app, body, **{"content-type": "application/cloudevents+json"})
    assert refusal(app, answer, 500) == "ERR_PUBSUB_CLOUD_EVENTS_SER"
    assert answer.json()["message"].startswith("cannot create cloudevent: ")
    assert details(answer)["metadata"]["written"] == "no"


def test_an_encoded_body_and_an_odd_content_type_are_refused() -> None:
    app = web()
    refusal(app, publish(app, **{"content-encoding": "gzip"}), 415)
    answer = app.post(PUBLISH, headers={b"content-type": b"text/\xff"}, content=b"x")
    refusal(app, answer, 400)


# -- what Kafka says -----------------------------------------------------------------------------------------


def fail_with(app: HttpApp, error: KafkaError, written: Written = Written.NO) -> None:
    failure = RecordFailure(error, Phase.DELIVERY, written, 30)
    app.producer.outcome_of = lambda index, record: failure


@pytest.mark.parametrize(
    ("error", "written", "kafka_error", "retriable"),
    [
        (UnknownTopicOrPartitionError("no such topic"), Written.NO, "UNKNOWN_TOPIC_OR_PARTITION", "true"),
        (TimeoutError("too late"), Written.UNKNOWN, "REQUEST_TIMED_OUT", "true"),
    ],
)
def test_what_was_not_delivered_is_500_and_details_tell_what_a_retry_would_do(
    error: KafkaError, written: Written, kafka_error: str, retriable: str
) -> None:
    app = web()
    fail_with(app, error, written)
    answer = publish(app)
    assert (answer.status_code, answer.json()["errorCode"]) == (500, "ERR_PUBSUB_PUBLISH_MESSAGE")
    expected = f"error when publishing to topic orders in pubsub pubsub: {error.message}"
    assert answer.json()["message"] == expected
    assert details(answer)["metadata"] == {
        "pubsub": "pubsub",
        "topic": "orders",
        "kafka_error": kafka_error,
        "retriable": retriable,
        "written": written.value,
    }


def test_kafkas_acl_is_403() -> None:
    app = web()
    fail_with(app, TopicAuthorizationError("not yours"))
    answer = publish(app)
    assert (answer.status_code, answer.json()["errorCode"]) == (403, "ERR_PUBSUB_FORBIDDEN")
    assert answer.json()["message"] == "topic orders is not allowed for app id pilotfish"


def test_a_record_that_never_fits_keeps_its_413() -> None:
    app = web()
    app.producer.refuses = RecordTooLargeError("The message is too large.")
    assert refusal(app, publish(app), 413) == "ERR_PUBSUB_PUBLISH_MESSAGE"


def test_a_topic_that_is_not_the_callers_is_403_without_being_asked_for() -> None:
    app = web()
    nobody = Caller("nobody", TopicRules.of(["*"]), TopicRules.of(["audit-*"]))

    async def as_nobody(scope: Scope, receive: Receive, send: Send) -> None:
        set_caller(scope, nobody)
        await app.app.api(scope, receive, send)

    for path in (PUBLISH, "/v1.0/publish/pubsub/nowhere", "/v1.0/publish/bulk/pubsub/orders"):
        answer = app.ask("POST", path, app=as_nobody, headers=JSON, content=b"[]")
        assert refusal(app, answer, 403) == "ERR_PUBSUB_FORBIDDEN"
    assert app.producer.calls == []


@pytest.mark.parametrize(("path", "partition"), [("/nowhere", None), ("/orders", 3)])
def test_an_unknown_topic_or_partition_is_waited_for_as_dialects_do(path: str, partition: int | None) -> None:
    app = web(unknown_topic_wait_ms=700)
    query = "" if partition is None else f"?metadata.partitionNumber={partition}"
    app.post(f"/v1.0/publish/pubsub{path}{query}", headers=JSON, content=b"1")
    ((_, asked),) = app.producer.calls
    assert asked["block_deadline_ms"] == app.producer.clock.now_ms() + 700


# -- the request's place -------------------------------------------------------------------------------------


def test_while_it_drains_nothing_is_taken_on() -> None:
    app = web()
    app.app.sidecar.drain.begun = True
    assert refusal(app, publish(app), 503) == "ERR_HEALTH_NOT_READY"


def test_each_request_is_counted_once_by_its_outcome() -> None:
    app = web()
    publish(app)
    publish(app, b"1", "?metadata.rawPayload=100")
    fail_with(app, TimeoutError("too late"))
    publish(app)
    metrics = app.app.sidecar.http
    counts: dict[str, Any] = {o: metrics.produced(o).count for o in ("success", "partial", "error")}
    assert counts == {"success": 1, "partial": 0, "error": 2}
