"""The last failed requests in /v1/status: who, what, why and the trace; bounded, and each caller's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from client_core import Cause, Errors, Phase, ProducerRecord, RecordFailure, TimeoutError, Written
from service.admission.caller import ANYONE
from service.admission.failed_requests import MOST, FailedRequests
from service.native.status_schemas import StatusAnswer
from service.wire.errors import Problem
from tests.support.http_app import HttpApp
from tests.support.mock_clock import MockClock
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACED = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
ONE = b'{"records":[{"value":"secret"}]}'


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics({"orders": 3})
    return app


def failed(web: HttpApp, **headers: str) -> list[dict[str, Any]]:
    document = web.get("/v1/status", headers=headers).json()
    StatusAnswer.model_validate(document)
    found: list[dict[str, Any]] = document["failed_requests"]
    return found


def late(_: int, __: ProducerRecord) -> RecordFailure:
    error = TimeoutError("late").because_of(Cause(Errors.NOT_ENOUGH_REPLICAS, 2, 213, 29_870, "too few"))
    return RecordFailure(error, Phase.DELIVERY, Written.UNKNOWN, 30_000)


def test_a_failed_produce_is_listed_with_phase_cause_and_trace(web: HttpApp) -> None:
    assert failed(web) == []
    web.producer.outcome_of = late
    headers = {"content-type": "application/json", **TRACED}
    assert web.post("/v1/topics/orders/records", content=ONE, headers=headers).status_code == 504
    (one,) = failed(web)
    assert one["at"].endswith("Z")
    assert (one["caller"], one["method"], one["route"], one["topic"]) == (
        *("anyone", "POST", "/v1/topics/{topic}/records", "orders"),
    )
    assert (one["type"], one["status"], one["phase"]) == ("/problems/outcome-unknown", 504, "delivery")
    assert (one["cause"]["kafka_error"], one["cause"]["node"]) == ("NOT_ENOUGH_REPLICAS", 2)
    assert (one["trace_id"], one["written"], one["times"]) == (TRACE, "unknown", 1)
    assert "secret" not in web.get("/v1/status").text


def test_that_nothing_was_written_is_listed_of_what_dapr_has_no_word_for(web: HttpApp) -> None:
    sent = {"content-encoding": "br"}
    assert web.post("/v1.0/publish/pubsub/orders", content=ONE, headers=sent).status_code == 415
    assert [one["written"] for one in failed(web)] == ["no"]


def test_a_request_that_a_bug_ended_is_listed(web: HttpApp) -> None:
    web.producer.refuses = ZeroDivisionError("nobody foresaw this")
    event = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a", "ce-type": "b"}
    with pytest.raises(ZeroDivisionError):  # a server answers, and logs it
        web.post("/cloudevents/orders", content=b"1", headers=event)
    (one,) = failed(web)
    assert (one["status"], one["route"]) == (500, "/cloudevents/{topic}")


def test_every_kind_of_call_is_listed_and_what_succeeds_is_not(web: HttpApp) -> None:
    web.get("/v1/topics/orders/leader?partition=0")
    web.get("/v1/topics/orders/partitions/9")
    web.post("/topics/orders", content=b"{", headers={"content-type": "application/vnd.kafka.json.v2+json"})
    web.post("/v1/records", content=b"{", headers={"content-type": "application/json"})
    web.ask("GET", "/v1/topics/nope", ends=web.producer.say_unknown)
    assert [(one["method"], one["route"], one["topic"], one["type"]) for one in failed(web)] == [
        ("GET", "/v1/topics/{topic}", "nope", "/problems/unknown-topic"),
        ("POST", "/v1/records", None, "/problems/malformed-request"),
        ("POST", "/topics/{topic}", "orders", "/problems/malformed-request"),
        ("GET", "/v1/topics/{topic}/partitions/{partition}", "orders", "/problems/unknown-partition"),
    ]
    assert failed(web)[1]["place"] == "body"


_JSON = "application/json"
_EVENT = b'{"specversion":"1.0","id":"1","source":"/a","type":"t","data":"secret"}'
_BULK = b'[{"entryId":"1","event":"secret","contentType":"text/plain"}]'


@pytest.mark.parametrize(
    ("path", "media_type", "body", "status"),
    [
        ("/topics/orders", "application/vnd.kafka.json.v2+json", ONE, 504),
        ("/cloudevents/orders", "application/cloudevents+json", _EVENT, 504),
        ("/cloudevents/orders/batch", "application/cloudevents-batch+json", b"[%s]" % _EVENT, 504),
        ("/v1.0/publish/pubsub/orders", _JSON, b'"secret"', 500),
        ("/v1.0/publish/bulk/pubsub/orders", _JSON, _BULK, 500),
    ],
)
def test_a_produce_that_failed_in_any_dialect_is_listed(
    path: str, media_type: str, body: bytes, status: int
) -> None:
    web = HttpApp(dialects="rest-v2,cloudevents,dapr")
    web.producer.set_topics({"orders": 3})
    web.producer.outcome_of = late
    assert web.post(path, content=body, headers={"content-type": media_type}).status_code >= 500
    (one,) = failed(web)
    assert (one["topic"], one["status"], one["phase"]) == ("orders", status, "delivery")
    assert (one["written"], one["cause"]["kafka_error"]) == ("unknown", "NOT_ENOUGH_REPLICAS")
    assert one["route"].startswith("/" + path.split("/")[1])
    assert "secret" not in web.get("/v1/status").text


def test_a_stream_that_was_refused_is_listed(web: HttpApp) -> None:
    lines = {"content-type": "application/x-ndjson"}
    web.post("/v1/topics/orders/records?delivery=spool", content=b"{}", headers=lines)
    web.post("/v1/topics/orders/records/stream?delivery=spool", content=b"{}", headers=lines)
    assert [(one["route"], one["status"], one["place"]) for one in failed(web)] == [
        ("/v1/topics/{topic}/records/stream", 422, "query.delivery"),
        ("/v1/topics/{topic}/records", 422, "query.delivery"),
    ]


def test_equal_failures_are_counted_and_the_list_is_bounded(web: HttpApp) -> None:
    for _ in range(3):
        web.get("/v1/topics/orders/partitions/9")
    assert [one["times"] for one in failed(web)] == [3]
    for n in range(MOST + 5):
        web.get(f"/v1/topics/{'x' * 300}{n}")
        web.get(f"/v1/topics/bad,{n}/leader?partition=0")
    found = failed(web)
    assert len(found) == MOST
    assert max(len(one["topic"] or "") for one in found) <= 249
    assert max(len(one["detail"]) for one in found) <= 300


def test_long_texts_of_a_failure_are_cut_at_300_characters() -> None:
    failures = FailedRequests(MockClock())
    scope = {"type": "http", "method": "GET", "headers": [], "state": {}}
    failures.add(scope, "/v1/topics", None, Problem(400, "d" * 300 + "x", place="p" * 300 + "x"))
    (one,) = failures.seen_by(ANYONE)
    assert (one["detail"], one["place"]) == ("d" * 300, "p" * 300)


def test_a_caller_sees_its_own_failures_and_those_of_topics_that_it_may_read(tmp_path: Path) -> None:
    tokens = TokensFile(
        tmp_path, shop={"read": ["orders"]}, bank={"read": ["bank*"]}, ops={"read": ["*"], "produce": []}
    )
    web = HttpApp(tokens_file=tokens.setting)
    web.producer.set_topics({"orders": 3, "bank-1": 1})
    web.get("/v1/topics/bank-1/partitions/9", headers=tokens.of("bank"))
    web.get("/v1/topics?page_size=x", headers=tokens.of("bank"))
    web.get("/v1/topics/bank-1/partitions/0", headers=tokens.of("shop"))
    web.get("/v1/topics/orders")  # without a token: no caller's
    seen = {
        name: [one["caller"] for one in failed(web, **tokens.of(name))] for name in ("shop", "bank", "ops")
    }
    assert seen == {"shop": ["shop"], "bank": ["shop", "bank", "bank"], "ops": ["shop", "bank"]}
