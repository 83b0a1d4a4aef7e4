"""GET /v1/status: its parts, its agreement with the OpenAPI document, and what each caller may see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from client_core import Backlog, BatchCount, Cause, Errors, NodeStatus, Phase, TopicPartition, TopicWait
from client_core import events as e
from service.admission.caller import ANYONE, Caller, TopicRules
from service.native.status_schemas import StatusAnswer
from tests.support.fake_producer import with_status
from tests.support.http_app import NativeApp

READER = Caller("reader", TopicRules.of(["orders"]), TopicRules.of([]))


@pytest.fixture
def web() -> NativeApp:
    """Node 2 has requests that it leaves unanswered; topic nope is waited for."""
    app = NativeApp()
    app.producer.set_topics({"orders": 3})
    now_ms = app.producer.clock.now_ms()
    queued, sent = BatchCount(9, 900, 9, now_ms - 3_300), BatchCount(5, 300, 5, now_ms - 3_200)
    app.producer.waits = Backlog(
        queued={2: queued, None: BatchCount(1, 7, 1, now_ms - 4_000)},
        in_flight={2: sent},
        by_node={2: BatchCount(14, 1_200, 14, now_ms - 3_300), None: BatchCount(1, 7, 1, now_ms - 4_000)},
        leaderless=(TopicPartition("secret", 0),),
        topic_waits=(TopicWait("nope", Phase.METADATA, 3, now_ms - 2_100),),
    )
    node = NodeStatus(2, "kafka-2", 9092, "ready", 5, 3_200, 0, 0, None, None)
    with_status(app.producer, state="running", producer_id=7, nodes=(node,), waiting_for_metadata=3)
    return app


def status(web: NativeApp, caller: Caller = ANYONE) -> Any:
    return web.app.status.document(caller)


def test_the_answer_is_as_the_document_says(web: NativeApp) -> None:
    web.app.events.emit(e.LeadersChanged("orders", [(0, (1, 4), (2, 5))]))
    web.app.events.emit(e.BatchRetried("orders", 0, 1, Errors.NOT_ENOUGH_REPLICAS, 2))
    answer = web.get("/v1/status")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    StatusAnswer.model_validate(answer.json(), strict=True)
    assert set(answer.json()) == set(StatusAnswer.model_fields)


def test_an_idle_sidecar_is_not_slow() -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 3})
    with_status(web.producer, state="running", producer_id=7)
    answer = StatusAnswer.model_validate(web.get("/v1/status").json(), strict=True)
    assert answer.slow == []
    assert answer.waits == []
    assert (answer.watchers, answer.waiting_requests) == (0, 0)


def test_a_slow_produce_is_explained_by_node_and_phase(web: NativeApp) -> None:
    slow = [(finding["node"], finding["phase"]) for finding in status(web)["slow"]]
    assert slow == [(None, "queue"), (2, "delivery"), (None, "metadata")]
    assert status(web)["slow"][1]["detail"] == (
        "node 2 has 5 requests in flight, the oldest for 3.2 s; 1,200 records of 14 partitions wait for it"
    )


def test_from_when_on_something_is_slow_is_a_setting() -> None:
    web = NativeApp(slow_after_ms=60_000)
    web.producer.set_topics({"orders": 3})
    now_ms = web.producer.clock.now_ms()
    web.producer.waits = Backlog(queued={None: BatchCount(1, 7, 1, now_ms - 59_999)})
    with_status(web.producer, producer_id=7)
    assert status(web)["slow"] == []
    web.producer.clock.advance(1)
    assert len(status(web)["slow"]) == 1


def test_each_node_says_what_waits_for_it_and_how_fast_it_was(web: NativeApp) -> None:
    web.app.events.emit(e.RequestCompleted("Produce", 2, 40, 10, 10))
    web.app.events.emit(e.BatchRetried("orders", 0, 1, Errors.NOT_ENOUGH_REPLICAS, 2))
    web.producer.clock.advance(100)
    (node,) = status(web)["nodes"]
    no_cause = {"cause": None}
    assert node["waiting"] == {"batches": 9, "records": 900, "partitions": 9, "oldest_ms": 3_400} | no_cause
    assert (
        node["on_the_wire"] == {"batches": 5, "records": 300, "partitions": 5, "oldest_ms": 3_300} | no_cause
    )
    assert node["produce"] == {"count": 1, "p50_ms": 40, "p99_ms": 40, "max_ms": 40}
    assert node["last_failure"]["error"] == "NOT_ENOUGH_REPLICAS"
    assert node["last_failure"]["age_ms"] == 100


def test_the_cause_of_a_wait_is_shown_once_it_is_late_and_a_brokers_text_to_who_may_read_all(
    web: NativeApp,
) -> None:
    now_ms = web.producer.clock.now_ms()
    of_broker = Cause(Errors.POLICY_VIOLATION, 2, 3, 900, "secret is full")
    of_connection = Cause(Errors.NETWORK_EXCEPTION, 2, 3, 900, "Connection refused", "refused")

    def shown(cause: Cause, caller: Caller, age_ms: int) -> str | None:
        web.producer.waits = Backlog(queued={2: BatchCount(1, 1, 1, now_ms - age_ms, cause)})
        found = status(web, caller)["nodes"][0]["waiting"]["cause"]
        return None if found is None else found["detail"]

    assert shown(of_broker, ANYONE, 999) is None
    assert shown(of_broker, ANYONE, 1_000) == "secret is full"
    assert shown(of_broker, READER, 1_000) == Errors.POLICY_VIOLATION.message
    assert shown(of_connection, READER, 1_000) == "Connection refused"


def test_a_batch_that_lingers_is_not_slow_and_what_acks_wait_for_is_named() -> None:
    for kafka, suspect in (
        ({}, "a follower may be slow, or its disk"),
        ({"acks": "1"}, "its disk may be slow"),
    ):
        web = NativeApp(kafka={"linger.ms": "5000", **kafka})
        now_ms = web.producer.clock.now_ms()
        web.producer.waits = Backlog(queued={2: BatchCount(1, 1, 1, now_ms - 5_999)})
        busy = NodeStatus(2, "kafka-2", 9092, "ready", 1, 3_200, 0, 0, None, None)
        with_status(
            web.producer,
            state="running",
            producer_id=7,
            nodes=(replace(busy, in_flight_requests=0, oldest_in_flight_age_ms=None),),
        )
        web.app.events.emit(e.RequestCompleted("Metadata", 2, 4, 10, 10))
        assert status(web)["slow"] == []
        with_status(web.producer, nodes=(busy,))
        (finding,) = status(web)["slow"]
        assert finding["detail"].endswith(f"1 other request of the last minute were quick: {suspect}")


def test_each_phase_says_who_waits_and_how_long_it_took_lately(web: NativeApp) -> None:
    web.app.events.emit(e.WaitFinished("metadata", "success", 120))
    phases = status(web)["phases"]
    assert {name: (phase["waiting"], phase["oldest_ms"]) for name, phase in phases.items()} == {
        "metadata": (3, 2_100),
        "buffer": (0, None),
        "queue": (907, 4_000),
        "delivery": (300, 3_200),
    }
    assert phases["metadata"]["recent"]["max_ms"] == 120
    with_status(web.producer, waiting_for_buffer=4)
    assert status(web)["phases"]["buffer"]["waiting"] == 4


def test_produce_is_counted_in_requests_records_and_bytes(web: NativeApp) -> None:
    assert web.produce('{"records":[{"value":1},{"value":2}]}').status_code == 200
    web.app.events.emit(e.ProduceFinished("orders", 0, 1, 2, 80, 12, 0, Errors.NONE))
    web.producer.clock.advance(1_000)
    assert web.get("/v1/status").json()["produce"]["per_second"] is None
    produce = web.get("/v1/status?history=true").json()["produce"]
    assert (produce["requests"], produce["failed_requests"]) == (1, 0)
    assert (produce["records"], produce["failed_records"], produce["bytes"]) == (2, 0, 80)
    columns = produce["per_second"]
    assert {len(column) for column in columns.values()} == {60}
    assert [column[-1] for column in columns.values()] == [2, 0, 80, 12, 12]
    assert columns["mean_ms"][0] is None


def test_leader_changes_are_returned_the_latest_first(web: NativeApp) -> None:
    for partition in (0, 1):
        web.app.events.emit(e.LeadersChanged("orders", [(partition, (1, 4), (-1, 5))]))
    reported = status(web)["leader_changes"]
    assert [change["partition"] for change in reported] == [1, 0]
    assert reported[0] == {
        "at": "2023-11-14T22:13:20.000Z",
        "topic": "orders",
        "partition": 1,
        "old_leader": 1,
        "new_leader": None,
        "leader_epoch": 5,
    }


def test_a_caller_sees_no_name_of_a_topic_that_it_may_not_read(web: NativeApp) -> None:
    for topic in ("orders", "secret"):
        web.app.events.emit(e.LeadersChanged(topic, [(0, (1, 4), (2, 5))]))
        web.app.events.emit(e.BatchRetried(topic, 0, 1, Errors.NOT_ENOUGH_REPLICAS, 2))
    reported = web.app.status.body(READER).decode()
    assert "secret" not in reported
    assert "nope" not in reported
    assert [change["topic"] for change in status(web, READER)["leader_changes"]] == ["orders"]
    assert "secret-0" in web.app.status.body(ANYONE).decode()


def test_a_status_that_watchers_share_is_made_once_for_callers_of_the_same_rights(web: NativeApp) -> None:
    report = web.app.status
    first = report.shared_body(ANYONE)
    assert report.shared_body(ANYONE) is first
    assert report.shared_body(READER) != first
    web.producer.clock.advance(100)
    assert report.shared_body(ANYONE) != first
    assert len(report._shared) == 1, "what nobody asked for lately is still kept"


def test_more_topics_that_wait_than_are_listed_are_cut_to_those_with_most_requests(web: NativeApp) -> None:
    now_ms = web.producer.clock.now_ms()
    waits = tuple(TopicWait(f"t{n}", Phase.METADATA, n, now_ms) for n in range(1, 1_001))
    web.producer.waits = Backlog(topic_waits=waits)
    listed = status(web)["waits"]
    assert [wait["topic"] for wait in listed] == [f"t{n}" for n in range(1_000, 950, -1)]
