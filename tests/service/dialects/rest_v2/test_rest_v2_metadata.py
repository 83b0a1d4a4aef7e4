"""Looking up in REST Proxy v2 over HTTP: topics, partitions, brokers, and what they cost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from client_core import (
    ListingResult,
    MetadataResult,
    NoBrokersError,
    TopicAuthorizationError,
    TopicConfigsResult,
)
from tests.support.http_app import HttpApp
from tests.support.metadata_responses import partition, topic
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_producer import FakeTicket


V2 = "application/vnd.kafka.v2+json"


def replica(broker: int, *, leader: bool = False, in_sync: bool = True) -> dict[str, Any]:
    return {"broker": broker, "leader": leader, "in_sync": in_sync}


#: Partition 0 is led by 2, with 3 out of sync; partition 1 has no leader.
ORDERS = [
    {
        "partition": 0,
        "leader": 2,
        "replicas": [replica(1), replica(2, leader=True), replica(3, in_sync=False)],
    },
    {
        "partition": 1,
        "leader": -1,
        "replicas": [replica(2, in_sync=False), replica(3)],
    },
]


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    described = [
        partition(0, leader=2, replicas=(1, 2, 3), isr=(1, 2)),
        partition(1, leader=None, error=5, replicas=(2, 3), isr=(3,)),
    ]
    app.producer.set_topics([topic("orders", described)])
    app.producer.configs = {"orders": {"cleanup.policy": "compact", "retention.ms": "17", "secret": None}}
    app.producer.on_brokers = {"orders": 2, "audit": 1, "__consumer_offsets": 50}
    return app


def refusal(web: HttpApp, path: str, **headers: str) -> tuple[int, int]:
    """Status and code of a refusal, whose shape is looked at."""
    answer = web.get(path, headers=headers)
    assert answer.headers["content-type"] == V2
    assert set(answer.json()) == {"error_code", "message"}
    return answer.status_code, answer.json()["error_code"]


# -- what is told --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "outcomes"),
    [
        ("/topics", ["audit", "orders"]),
        (
            "/topics/orders",
            {
                "name": "orders",
                "configs": {"cleanup.policy": "compact", "retention.ms": "17", "secret": None},
                "partitions": ORDERS,
            },
        ),
        ("/topics/orders/partitions", ORDERS),
        ("/topics/orders/partitions/0", ORDERS[0]),
        ("/topics/orders/partitions/1", ORDERS[1]),
        ("/brokers", {"brokers": [1, 2, 3]}),
    ],
)
def test_answers_have_confluents_shape_to_the_letter(web: HttpApp, path: str, outcomes: object) -> None:
    answer = web.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == V2
    assert answer.json() == outcomes


@pytest.mark.parametrize(
    "path", ["/topics/orders", "/topics/orders/partitions", "/topics/orders/partitions/1"]
)
def test_a_partition_without_a_leader_is_answered_at_once(web: HttpApp, path: str) -> None:
    assert '"leader":-1' in web.get(path).text
    assert [kind for kind, _ in web.producer.calls] in ([], ["configs"])


@pytest.mark.parametrize("path", ["/topics", "/topics/orders", "/topics/orders/partitions/0", "/brokers"])
def test_an_answer_says_how_fresh_it_is_and_can_be_asked_whether_it_holds(web: HttpApp, path: str) -> None:
    answer = web.get(path)
    assert answer.headers["pilotfish-metadata-version"] == web.version
    assert answer.headers["age"] == "0"
    assert re.fullmatch(r"2023-.*Z", answer.headers["pilotfish-metadata-refreshed-at"])
    again = web.get(path, headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_look_up_keeps_the_topic_from_being_forgotten(web: HttpApp) -> None:
    use = web.producer.cache.topics["orders"].use
    use.touched = False
    web.get("/topics/orders/partitions/0")
    assert use.touched


# -- what is not there ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/topics/absent", "/topics/absent/partitions", "/topics/absent/partitions/0"]
)
def test_a_topic_that_is_not_there_is_40403_and_is_not_created(web: HttpApp, path: str) -> None:
    answer = web.get(path, ends=web.producer.say_unknown)
    assert web.producer.calls[0][1]["create"] is False
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40403)
    assert answer.headers["content-type"] == V2


@pytest.mark.parametrize("number", ["2", "1000", "2147483648", "-1", "x", "1.0", "%20", "²"])
def test_a_partition_that_is_not_there_is_40402(web: HttpApp, number: str) -> None:
    assert refusal(web, f"/topics/orders/partitions/{number}") == (404, 40402)


@pytest.mark.parametrize(
    "path",
    [
        "/topics/",
        "/topics/orders/nothing",
        "/topics/orders/partitions/0/offsets",
        "/brokers/1",
        "/topics/orders/partitions/",
    ],
)
def test_a_path_that_nobody_serves_is_404_in_this_dialects_shape(web: HttpApp, path: str) -> None:
    assert refusal(web, path) == (404, 404)


@pytest.mark.parametrize("path", ["/topicsx", "/brokersx", "/consumers/g"])
def test_other_paths_are_none_of_this_dialect(web: HttpApp, path: str) -> None:
    assert web.get(path).headers["content-type"] == "application/problem+json"


def test_a_name_that_no_topic_can_have_is_a_bad_request(web: HttpApp) -> None:
    assert refusal(web, "/topics/a%20b") == (400, 40002)
    assert refusal(web, "/topics/a%2fb") == (400, 40002)
    assert web.producer.calls == []


@pytest.mark.parametrize("path", ["/topics", "/topics/orders", "/topics/orders/partitions/0", "/brokers"])
def test_what_the_caller_can_not_read_or_no_parameter_means_is_refused(web: HttpApp, path: str) -> None:
    assert refusal(web, path, accept="text/html") == (406, 406)
    assert refusal(web, f"{path}?x=1") == (422, 422)
    assert refusal(web, f"{path}?x=1&x=2") == (400, 40002)
    assert refusal(web, path, host="evil.example") == (421, 421)


def test_other_methods_are_405(web: HttpApp) -> None:
    for method in ("PUT", "DELETE", "PATCH"):
        answer = web.ask(method, "/topics/orders")
        assert (answer.status_code, answer.json()["error_code"]) == (405, 405)


# -- a topic that has grown ----------------------------------------------------------------------------------


def test_a_partition_is_missing_only_by_metadata_of_this_moment(web: HttpApp) -> None:
    def grow(ticket: FakeTicket) -> None:
        assert ticket.kind == "update"
        web.producer.set_topics({"orders": 3})
        web.producer.finish(ticket, MetadataResult(web.producer.cache))

    web.producer.clock.advance(1_001)
    answer = web.get("/topics/orders/partitions/2", ends=grow)
    assert (answer.status_code, answer.json()["partition"]) == (200, 2)
    assert refusal(web, "/topics/orders/partitions/3") == (404, 40402)


def test_brokers_that_are_away_leave_a_missing_partition_missing(web: HttpApp) -> None:
    web.producer.clock.advance(1_001)
    nothing = MetadataResult(web.producer.cache, error=NoBrokersError("none has answered"))
    answer = web.get("/topics/orders/partitions/2", ends=lambda ticket: web.producer.finish(ticket, nothing))
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40402)


def test_a_partition_that_is_there_asks_nobody(web: HttpApp) -> None:
    web.producer.clock.advance(1_001)
    assert web.get("/topics/orders/partitions/1").status_code == 200
    assert web.producer.waiting == []


# -- brokers that are away, or say no ------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/brokers", "/topics/orders", "/topics"])
def test_without_any_broker_it_is_503(path: str) -> None:
    web = HttpApp()
    error = NoBrokersError("none has answered")

    def fail(ticket: FakeTicket) -> None:
        nothing = MetadataResult(web.producer.cache, error=error)
        web.producer.finish(ticket, ListingResult(None, error=error) if ticket.kind == "listing" else nothing)

    answer = web.get(path, ends=fail)
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50302)


def test_a_refusal_by_kafka_is_403(web: HttpApp) -> None:
    errors = {"secret": TopicAuthorizationError("not allowed")}
    refused = MetadataResult(web.producer.cache, topic_errors=errors)
    answer = web.get("/topics/secret", ends=lambda ticket: web.producer.finish(ticket, refused))
    assert (answer.status_code, answer.json()["error_code"]) == (403, 40301)


def test_configs_that_may_not_be_seen_fail_nobodys_look_up(web: HttpApp) -> None:
    web.producer.configs = None
    refused = TopicConfigsResult(None, error=TopicAuthorizationError("no DescribeConfigs"))
    answer = web.get("/topics/orders", ends=lambda ticket: web.producer.finish(ticket, refused))
    assert answer.status_code == 200
    assert answer.json() == {"name": "orders", "configs": {}, "partitions": ORDERS}


def test_configs_are_asked_for_once_and_only_with_the_topic(web: HttpApp) -> None:
    for path in ("/topics/orders/partitions", "/topics/orders/partitions/0"):
        web.get(path)
    assert web.producer.calls == []
    for _ in range(3):
        web.get("/topics/orders")
    assert [kind for kind, _ in web.producer.calls] == ["configs"]


# -- callers -------------------------------------------------------------------------------------------------


def test_what_a_caller_may_not_read_is_403_and_left_out_of_the_list(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, shop={"read": ["orders"], "produce": ["audit"]})
    web = HttpApp(tokens_file=tokens.setting)
    web.producer.set_topics({"orders": 1, "audit": 1})
    web.producer.on_brokers = {"orders": 1, "audit": 1}
    shop = tokens.of("shop")
    assert web.get("/topics", headers=shop).json() == ["orders"]
    assert web.get("/topics/orders", headers=shop).status_code == 200
    assert web.get("/brokers", headers=shop).status_code == 200
    for path in ("audit", "audit/partitions", "audit/partitions/0", "audit/partitions/x", "absent"):
        assert refusal(web, f"/topics/{path}", **shop) == (403, 40301)
    assert refusal(web, "/topics") == (401, 40101)
