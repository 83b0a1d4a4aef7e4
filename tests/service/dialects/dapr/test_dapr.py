"""Dapr's publish: written records, refusals in Dapr's words, and calls that SDKs make before they publish."""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from client_core import (
    Phase,
    ProducerClosedError,
    RecordFailure,
    RecordTooLargeError,
    TimeoutError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    Written,
)
from service.admission.caller import ALL_TOPICS, ANYONE, Caller, TopicRules, set_caller
from service.dialects.dapr.sidecar_info import Labels
from service.wire.errors import ProblemError
from tests.service.dialects.dapr.dapr_app import details, envelope, refusal, taken, web
from tests.support.fake_producer import with_status
from tests.support.http_app import HttpApp
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    import httpx

    from client_core import KafkaError, ProducerRecord
    from service.wire.asgi import Receive, Scope, Send

PUBLISH = "/v1.0/publish/pubsub/orders"
JSON = {"content-type": "application/json"}
PARENT = "00-2583c3e5f33c8db92a2ba0e3488a6a63-328e7491ec6678de-01"


def publish(
    app: HttpApp, body: bytes = b'{"status": "completed"}', query: str = "", /, **headers: str
) -> httpx.Response:
    return app.post(PUBLISH + query, headers={**JSON, **headers}, content=body)


def record_of(app: HttpApp, answer: httpx.Response) -> ProducerRecord:
    (record,) = taken(app, answer)
    return record


# -- written records -----------------------------------------------------------------------------------------


def test_a_body_is_wrapped_and_answered_204() -> None:
    app = web()
    for method in ("POST", "PUT"):
        record = record_of(app, app.ask(method, PUBLISH, headers=JSON, content=b'{"status": "completed"}'))
        event = envelope(record)
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
        assert (record.key, record.partition) == (None, None)


def test_without_a_content_type_dapr_takes_a_body_for_text() -> None:
    app = web()
    event = envelope(record_of(app, app.post(PUBLISH, content=b"hello")))
    assert (event["datacontenttype"], event["data"]) == ("text/plain", "hello")


def test_metadata_is_the_key_and_headers_of_the_record() -> None:
    app = web()
    query = "?metadata.correlationId=myCorrelationID&metadata.partitionKey=K%C3%BCnde+7"
    record = record_of(app, publish(app, b"1", query))
    assert record.key == "Künde 7".encode()
    assert record.headers == (
        ("correlationId", b"myCorrelationID"),
        ("partitionKey", "Künde 7".encode()),
        ("content-type", b"application/cloudevents+json; charset=UTF-8"),
    )


def test_a_content_type_that_the_caller_puts_into_metadata_is_the_only_one() -> None:
    app = web()
    record = record_of(app, publish(app, b"1", "?metadata.Content-Type=mine"))
    assert record.headers == (("Content-Type", b"mine"),)


def test_a_partition_can_be_named() -> None:
    app = web()
    assert record_of(app, publish(app, b"1", "?metadata.partitionNumber=2")).partition == 2


def test_a_raw_payload_is_the_value_byte_for_byte_and_null_is_a_tombstone() -> None:
    app = web()
    order, octets = b'{"order-number": "345"}', b"\x00\xff"
    for body, value in ((order, order), (octets, octets), (b"", b""), (b"null", None)):
        record = record_of(app, publish(app, body, "?metadata.rawPayload=true"))
        assert (record.value, record.headers) == (value, (("rawPayload", b"true"),))


def test_an_own_event_is_completed_and_not_wrapped() -> None:
    app = web()
    body = b'{"specversion": "1.0", "type": "t", "source": "s", "id": "i", "data": {"n": 1.10}}'
    own = {"content-type": "application/cloudevents+json; charset=utf-8"}
    record = record_of(app, publish(app, body, **own))
    assert (record.value or b"").startswith(b'{"data":{"n":1.10},"id":"i",')
    assert envelope(record)["topic"] == "orders"


def test_the_trace_context_of_the_request_is_in_the_envelope() -> None:
    app = web()
    event = envelope(record_of(app, publish(app, traceparent=PARENT, tracestate="a=b")))
    assert (event["traceid"], event["traceparent"], event["tracestate"]) == (PARENT, PARENT, "a=b")


def test_the_app_id_is_the_source() -> None:
    app = web(service_name="checkout")
    assert envelope(record_of(app, publish(app)))["source"] == "checkout"


def test_every_event_has_an_id_of_its_own() -> None:
    app = web()
    assert len({envelope(record_of(app, publish(app)))["id"] for _ in range(3)}) == 3


# -- where to ------------------------------------------------------------------------------------------------


#: Paths that lack a part, or that don't exist.
NO_PATHS = {
    **dict.fromkeys(("/v1.0/publish", "/v1.0/publish/", "/v1.0/publish//orders"), "ERR_PUBSUB_EMPTY"),
    **dict.fromkeys(("/v1.0/publish/pubsub", "/v1.0/publish/pubsub/"), "ERR_TOPIC_NAME_EMPTY"),
    "/v1.0/publish/bulk": "ERR_PUBSUB_EMPTY",
    "/v1.0/state/store": "ERR_API_UNIMPLEMENTED",
    "/v1.0/invoke/app/method/m": "ERR_API_UNIMPLEMENTED",
    "/v1.0-alpha1/publish/pubsub/orders": "ERR_API_UNIMPLEMENTED",
}


def test_a_path_that_lacks_a_part_is_404_and_says_which() -> None:
    app = web()
    for method in ("POST", "PUT"):
        answers = {path: app.ask(method, path, headers=JSON, content=b"1") for path in NO_PATHS}
        assert {path: refusal(app, answer, 404) for path, answer in answers.items()} == NO_PATHS


def test_other_methods_get_the_list_of_allowed_ones() -> None:
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


def test_a_topic_that_kafka_can_not_have_is_refused_by_name() -> None:
    app = web()
    for topic in ("A/B/C", "orders/", "a,b", "x" * 250):
        answer = app.post(f"/v1.0/publish/pubsub/{topic}", headers=JSON, content=b"1")
        assert refusal(app, answer, 400) == "ERR_PUBSUB_PUBLISH_MESSAGE"
        assert topic in answer.json()["message"]
        assert details(answer)["metadata"]["kafka_error"] == "INVALID_TOPIC_EXCEPTION"


def test_a_pubsubs_name_that_is_not_utf_8_and_an_encoded_slash_are_refused_in_daprs_shape() -> None:
    app = web()
    answer = app.post("/v1.0/publish/%FF/orders", headers=JSON, content=b"1")
    assert refusal(app, answer, 404) == "ERR_PUBSUB_NOT_FOUND"
    answer = app.post("/v1.0/publish/pubsub/%2F", headers=JSON, content=b"1")
    assert refusal(app, answer, 400) == "ERR_BAD_REQUEST"


# -- unusable requests ---------------------------------------------------------------------------------------


def test_metadata_that_can_not_be_used_is_400() -> None:
    app = web()
    for query in (
        *("metadata.rawPayload=100", "metadata.ttlInSeconds=-1", "metadata.partitionNumber=x"),
        *("metadata.valueSchemaType=Avro", "partitionKey=a"),
        *("metadata.partitionKey=a&metadata.__key=b", "metadata.partitionKey=a&metadata.partitionKey=b"),
    ):
        assert refusal(app, publish(app, b"1", f"?{query}"), 400) == "ERR_PUBSUB_REQUEST_METADATA", query
    refusal(app, publish(app, b"1", "?metadata.partitionKey=%FF"), 400)


def test_an_own_event_that_is_none_is_daprs_500() -> None:
    app = web()
    for body in (b"", b"[]", b"{", b"null", b'{"id":"1","id":"2"}'):
        answer = publish(app, body, **{"content-type": "application/cloudevents+json"})
        assert refusal(app, answer, 500) == "ERR_PUBSUB_CLOUD_EVENTS_SER", body
        assert answer.json()["message"].startswith("cannot create cloudevent: ")
        assert details(answer)["metadata"]["written"] == "no"


def test_an_encoded_body_and_an_odd_content_type_are_refused() -> None:
    app = web()
    refusal(app, publish(app, **{"content-encoding": "br"}), 415)
    answer = app.post(PUBLISH, headers={b"content-type": b"text/\xff"}, content=b"x")
    refusal(app, answer, 400)


# -- errors of Kafka -----------------------------------------------------------------------------------------


def fail_with(app: HttpApp, error: KafkaError, written: Written = Written.NO) -> None:
    failure = RecordFailure(error, Phase.DELIVERY, written, 30)
    app.producer.outcome_of = lambda index, record: failure


def test_a_failed_delivery_is_500_and_details_say_what_a_retry_would_do() -> None:
    app = web()
    cases: list[tuple[KafkaError, Written, str | None]] = [
        (UnknownTopicOrPartitionError("no such topic"), Written.NO, "UNKNOWN_TOPIC_OR_PARTITION"),
        (TimeoutError("too late"), Written.UNKNOWN, "REQUEST_TIMED_OUT"),
        (ProducerClosedError("closed"), Written.NO, None),
    ]
    for error, written, kafka_error in cases:
        fail_with(app, error, written)
        answer = publish(app)
        assert (answer.status_code, answer.json()["errorCode"]) == (500, "ERR_PUBSUB_PUBLISH_MESSAGE")
        expected = f"error when publishing to topic orders in pubsub pubsub: {error.message}"
        assert answer.json()["message"] == expected
        assert details(answer)["metadata"] == {
            "pubsub": "pubsub",
            "topic": "orders",
            **({} if kafka_error is None else {"kafka_error": kafka_error}),
            "retriable": "true",
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


def test_an_unknown_topic_or_partition_is_waited_for_as_dialects_do() -> None:
    app = web(unknown_topic_wait_ms=700)
    for path in ("/nowhere", "/orders?metadata.partitionNumber=3"):
        app.post(f"/v1.0/publish/pubsub{path}", headers=JSON, content=b"1")
        _, asked = app.producer.calls[-1]
        assert asked["block_deadline_ms"] == app.producer.clock.now_ms() + 700
    assert len(app.producer.calls) == 2


# -- the request's place -------------------------------------------------------------------------------------


def test_while_it_drains_nothing_is_accepted() -> None:
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


# -- tokens, which the SDKs bring in a header of their own ---------------------------------------------------


BULK = "/v1.0-alpha1/publish/bulk/pubsub/orders"


def publish_as(app: HttpApp, headers: Any, content: bytes = b"1", path: str = PUBLISH) -> httpx.Response:
    return app.post(path, headers=headers, content=content)


@pytest.fixture
def tokens(tmp_path: Path) -> TokensFile:
    return TokensFile(tmp_path, shop={"produce": ["orders"]}, reader={"read": ["*"]})


@pytest.fixture
def guarded(tokens: TokensFile) -> HttpApp:
    return web(tokens_file=tokens.setting)


def dapr(tokens: TokensFile, name: str) -> dict[str, str]:
    return {"dapr-api-token": tokens.token(name)}


def test_the_token_is_taken_from_daprs_header_or_from_the_usual_one(
    guarded: HttpApp, tokens: TokensFile
) -> None:
    for headers in (dapr(tokens, "shop"), tokens.of("shop")):
        assert len(taken(guarded, publish_as(guarded, headers))) == 1
        assert guarded.get("/v1.0/metadata", headers=headers).status_code == 200


def test_a_right_that_the_token_lacks_is_403_in_daprs_words(guarded: HttpApp, tokens: TokensFile) -> None:
    for name, path, body in (
        ("reader", PUBLISH, b"[]"),
        ("reader", BULK, b"[]"),
        ("shop", "/v1.0/publish/pubsub/payments", b"1"),
    ):
        answer = publish_as(guarded, dapr(tokens, name), body, path)
        assert refusal(guarded, answer, 403) == "ERR_PUBSUB_FORBIDDEN"


def test_without_a_token_or_with_a_wrong_one_it_is_401(guarded: HttpApp) -> None:
    for headers in ({}, {"dapr-api-token": "wrong"}, {"dapr-api-token": ""}):
        for method, path in [("POST", PUBLISH), ("POST", BULK), ("GET", "/v1.0/metadata")]:
            answer = guarded.ask(method, path, headers=headers)
            assert refusal(guarded, answer, 401) == "ERR_UNAUTHENTICATED"
            assert answer.headers["www-authenticate"].startswith("Bearer ")


def test_two_tokens_are_one_too_many(guarded: HttpApp, tokens: TokensFile) -> None:
    once = list(dapr(tokens, "shop").items())
    for headers in ([*once, *tokens.of("shop").items()], once * 2):
        refusal(guarded, publish_as(guarded, headers), 400)


def test_daprs_header_opens_nothing_but_daprs_paths(tokens: TokensFile) -> None:
    app = web(tokens_file=tokens.setting, dialects="dapr,cloudevents")
    for path in ("/v1/topics/orders/records", "/cloudevents/orders"):
        assert publish_as(app, dapr(tokens, "shop"), path=path).status_code == 401
    assert app.get("/v1/cluster", headers=dapr(tokens, "reader")).status_code == 401


def test_health_is_open_as_it_is_in_dapr(guarded: HttpApp) -> None:
    assert guarded.get("/v1.0/healthz").status_code == 204
    assert guarded.get("/v1.0/healthz/outbound").status_code == 204
    assert guarded.post("/v1.0/healthz").status_code == 401


def test_the_token_is_in_no_record(guarded: HttpApp, tokens: TokensFile) -> None:
    (record,) = taken(guarded, publish_as(guarded, dapr(tokens, "shop")))
    assert tokens.token("shop") not in str(record)
    assert envelope(record)["data"] == "1"


# -- calls of SDKs before they publish -----------------------------------------------------------------------


def test_metadata_is_what_the_javascript_sdk_declares_it_to_be() -> None:
    said = web().get("/v1.0/metadata").json()
    assert said["id"] == "pilotfish"
    for nothing in ("enabledFeatures", "actors", "subscriptions", "httpEndpoints"):
        assert said[nothing] == []
    assert said["extended"] == {"daprRuntimeVersion": said["runtimeVersion"]}
    assert said["components"] == [
        {"name": "pubsub", "type": "pubsub.kafka", "version": "v1", "capabilities": ["BULK_PUBSUB"]}
    ]


def test_metadata_names_the_pubsubs_that_can_be_published_to() -> None:
    app = web(dapr_pubsub_names="a,b", service_name="checkout")
    said = app.get("/v1.0/metadata").json()
    assert ([component["name"] for component in said["components"]], said["id"]) == (["a", "b"], "checkout")


def test_labels_are_kept_and_replaced() -> None:
    app = web()
    for value in ("blue", "grün ❤", ""):
        answer = app.ask("PUT", "/v1.0/metadata/color", content=value.encode())
        assert (answer.status_code, answer.content) == (204, b"")
        assert app.get("/v1.0/metadata").json()["extended"]["color"] == value


def test_no_label_hides_what_the_sidecar_itself_says() -> None:
    app = web()
    app.ask("PUT", "/v1.0/metadata/daprRuntimeVersion", content=b"99")
    said = app.get("/v1.0/metadata").json()
    assert said["extended"]["daprRuntimeVersion"] == said["runtimeVersion"] != "99"


def test_labels_are_bounded_by_bytes_and_room_comes_back() -> None:
    app = web(dapr_labels_max_bytes=10)
    assert app.ask("PUT", "/v1.0/metadata/a", content=b"123456789").status_code == 204
    for key, value in (("b", b""), ("a", b"1234567890")):
        answer = app.ask("PUT", f"/v1.0/metadata/{key}", content=value)
        assert refusal(app, answer, 413) == "ERR_BODY_READ"
    assert app.ask("PUT", "/v1.0/metadata/a", content=b"1").status_code == 204
    assert app.ask("PUT", "/v1.0/metadata/b", content=b"12345").status_code == 204
    assert app.get("/v1.0/metadata").json()["extended"].items() >= {"a": "1", "b": "12345"}.items()


def test_no_caller_fills_the_room_for_labels_and_all_of_them_stay_within_it() -> None:
    own = Labels(4)
    own.put(ANYONE, "ü", "ü")
    with pytest.raises(ProblemError):
        own.put(ANYONE, "b", "")
    assert own.of(ANYONE) == {"ü": "ü"}
    callers = [Caller(f"caller-{number}", ALL_TOPICS, ALL_TOPICS) for number in range(20)]
    labels = Labels(1_000)
    for one in callers:
        for number in range(1_000):
            with suppress(ProblemError):
                labels.put(one, f"{number}", "x" * 7)
    held = [sum(len(n) + len(v) for n, v in labels.of(one).items()) for one in callers]
    assert sum(held) <= 1_000
    assert held[0] <= 500
    assert held[1] > 200
    assert all(held[:5])
    labels.put(callers[0], "0", "y" * 7)  # what takes no more room is always taken
    assert labels.of(callers[0])["0"] == "y" * 7
    assert labels.of(callers[1])["0"] == "x" * 7


def test_a_label_that_is_not_utf_8_and_a_stray_parameter_are_refused() -> None:
    app = web()
    refusal(app, app.ask("PUT", "/v1.0/metadata/color", content=b"\xff"), 400)
    refusal(app, app.ask("PUT", "/v1.0/metadata/%FF", content=b"x"), 400)
    slash = app.ask("PUT", "/v1.0/metadata/a%2Fb", content=b"x")
    refusal(app, slash, 400)
    assert "topic" not in slash.json()["message"]
    refusal(app, app.ask("PUT", "/v1.0/metadata/color?x=1", content=b"x"), 422)
    refusal(app, app.get("/v1.0/metadata?x=1"), 422)
    assert list(app.get("/v1.0/metadata").json()["extended"]) == ["daprRuntimeVersion"]


def test_health_is_204_whether_or_not_a_broker_is_known() -> None:
    app = HttpApp(dialects="dapr", console=False)
    assert app.get("/v1.0/healthz").status_code == 204
    answer = app.get("/v1.0/healthz/outbound")
    assert refusal(app, answer, 500) == "ERR_OUTBOUND_HEALTH_NOT_READY"
    app.producer.set_topics({})
    answer = app.get("/v1.0/healthz/outbound")
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_sidecar_that_ends_and_a_client_that_has_failed_are_not_healthy() -> None:
    ends, failed = web(), web()
    ends.app.sidecar.drain.begun = True
    assert refusal(ends, ends.get("/v1.0/healthz"), 500) == "ERR_HEALTH_NOT_READY"
    assert refusal(ends, ends.get("/v1.0/healthz/outbound"), 500) == "ERR_OUTBOUND_HEALTH_NOT_READY"
    with_status(failed.producer, state="failed")
    assert refusal(failed, failed.get("/v1.0/healthz"), 500) == "ERR_HEALTH_NOT_READY"


def test_health_can_be_asked_of_one_app() -> None:
    app = web(service_name="checkout")
    assert app.get("/v1.0/healthz?appid=checkout").status_code == 204
    assert refusal(app, app.get("/v1.0/healthz?appid=other"), 500) == "ERR_HEALTH_APPID_NOT_MATCH"
