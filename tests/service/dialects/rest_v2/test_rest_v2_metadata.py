"""Look-ups in REST Proxy v2 over HTTP: topics, partitions, brokers, and their cost."""

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

    import httpx

    from tests.support.fake_producer import FakeTicket


V2 = "application/vnd.kafka.v2+json"


def replica(broker: int, *, leader: bool = False, in_sync: bool = True) -> dict[str, Any]:
    return {"broker": broker, "leader": leader, "in_sync": in_sync}


#: Partition 0 is led by 2, with 3 out of sync; partition 1 has no leader.
_OF_0 = [replica(1), replica(2, leader=True), replica(3, in_sync=False)]
_OF_1 = [replica(2, in_sync=False), replica(3)]
ORDERS = [
    {"partition": 0, "leader": 2, "replicas": _OF_0},
    {"partition": 1, "leader": -1, "replicas": _OF_1},
]
CONFIGS = {"cleanup.policy": "compact", "retention.ms": "17", "secret": None}


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    described = [
        partition(0, leader=2, replicas=(1, 2, 3), isr=(1, 2)),
        partition(1, leader=None, error=5, replicas=(2, 3), isr=(3,)),
    ]
    app.producer.set_topics([topic("orders", described)])
    app.producer.configs = {"orders": CONFIGS}
    app.producer.on_brokers = {"orders": 2, "audit": 1, "__consumer_offsets": 50}
    return app


def code_of(answer: httpx.Response) -> tuple[int, int]:
    """Status and code of a refusal, whose shape is looked at."""
    assert answer.headers["content-type"] == V2
    assert set(answer.json()) == {"error_code", "message"}
    return answer.status_code, answer.json()["error_code"]


def refusal(web: HttpApp, path: str, **headers: str) -> tuple[int, int]:
    return code_of(web.get(path, headers=headers))


# -- answers -------------------------------------------------------------------------------------------------


def test_answers_have_confluents_shape_to_the_letter(web: HttpApp) -> None:
    shapes = {
        "/topics": ["audit", "orders"],
        "/topics/orders": {"name": "orders", "configs": CONFIGS, "partitions": ORDERS},
        "/topics/orders/partitions": ORDERS,
        "/topics/orders/partitions/0": ORDERS[0],
        "/topics/orders/partitions/1": ORDERS[1],
        "/brokers": {"brokers": [1, 2, 3]},
    }
    answers = {path: web.get(path) for path in shapes}
    assert {(answer.status_code, answer.headers["content-type"]) for answer in answers.values()} == {
        (200, V2)
    }
    assert {path: answer.json() for path, answer in answers.items()} == shapes


def test_a_partition_without_a_leader_is_answered_at_once(web: HttpApp) -> None:
    for path in ("/topics/orders", "/topics/orders/partitions", "/topics/orders/partitions/1"):
        assert '"leader":-1' in web.get(path).text
    assert [kind for kind, _ in web.producer.calls] == ["configs"]


#: One path of each kind.
PATHS = ("/topics", "/topics/orders", "/topics/orders/partitions/0", "/brokers")


def test_an_answer_says_how_fresh_it_is_and_can_be_asked_whether_it_holds(web: HttpApp) -> None:
    for path in PATHS:
        answer = web.get(path)
        assert answer.headers["pilotfish-metadata-version"] == web.version
        assert answer.headers["age"] == "0"
        assert re.fullmatch(r"2023-.*Z", answer.headers["pilotfish-metadata-refreshed-at"])
        again = web.get(path, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b""), path


def test_a_look_up_keeps_the_topic_from_being_forgotten(web: HttpApp) -> None:
    use = web.producer.cache.topics["orders"].use
    use.touched = False
    web.get("/topics/orders/partitions/0")
    assert use.touched


# -- missing resources ---------------------------------------------------------------------------------------


def test_a_topic_that_is_not_there_is_40403_and_is_not_created() -> None:
    for rest in ("", "/partitions", "/partitions/0"):
        web = HttpApp()  # of which none remembers that the topic is unknown
        web.producer.set_topics({"orders": 1})
        answer = web.get(f"/topics/absent{rest}", ends=web.producer.say_unknown)
        assert web.producer.calls[0][1]["create"] is False
        assert code_of(answer) == (404, 40403)


def test_a_partition_that_is_not_there_is_40402(web: HttpApp) -> None:
    for number in ("2", "1000", "2147483648", "-1", "x", "1.0", "%20", "²"):
        assert refusal(web, f"/topics/orders/partitions/{number}") == (404, 40402), number


def test_an_unknown_path_is_404_in_this_dialects_shape_unless_it_belongs_to_another(
    web: HttpApp,
) -> None:
    for path in (
        *("/topics/", "/topics/orders/nothing", "/topics/orders/partitions/0/nothing", "/brokers/1"),
        "/topics/orders/partitions/",
    ):
        assert refusal(web, path) == (404, 404), path
    for path in ("/topicsx", "/brokersx", "/consumers/g"):
        assert web.get(path).headers["content-type"] == "application/problem+json", path
    for path in ("/topics/a%20b", "/topics/a%2fb"):  # which no topic can be called
        assert refusal(web, path) == (400, 40002), path
    assert web.producer.calls == []


def test_what_the_caller_can_not_read_or_no_parameter_means_is_refused(web: HttpApp) -> None:
    for path in PATHS:
        assert refusal(web, path, accept="text/html") == (406, 406), path
        assert refusal(web, f"{path}?x=1") == (422, 422), path
        assert refusal(web, f"{path}?x=1&x=2") == (400, 40002), path
        assert refusal(web, path, host="evil.example") == (421, 421), path
    for method in ("PUT", "DELETE", "PATCH"):
        assert code_of(web.ask(method, "/topics/orders")) == (405, 405), method


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
    assert code_of(answer) == (404, 40402)


def test_a_sidecar_that_is_full_does_not_say_that_a_partition_is_missing() -> None:
    web = HttpApp(max_waiting_requests=1)
    web.producer.set_topics({"orders": 2})
    web.producer.clock.advance(1_001)
    with web.app.sidecar.admission.acquire(0):
        assert web.get("/topics/orders/partitions/2").status_code == 429


def test_a_partition_that_is_there_asks_nobody(web: HttpApp) -> None:
    web.producer.clock.advance(1_001)
    assert web.get("/topics/orders/partitions/1").status_code == 200
    assert web.producer.waiting == []


# -- brokers that are away, or say no ------------------------------------------------------------------------


def test_without_any_broker_it_is_503() -> None:
    web = HttpApp()
    error = NoBrokersError("none has answered")

    def fail(ticket: FakeTicket) -> None:
        nothing = MetadataResult(web.producer.cache, error=error)
        no_list = ListingResult(None, error=error, waited_ms=0)
        web.producer.finish(ticket, no_list if ticket.kind == "listing" else nothing)

    for path in ("/brokers", "/topics/orders", "/topics"):
        assert code_of(web.get(path, ends=fail)) == (503, 50302), path


def test_a_refusal_by_kafka_is_403(web: HttpApp) -> None:
    errors = {"secret": TopicAuthorizationError("not allowed")}
    refused = MetadataResult(web.producer.cache, topic_errors=errors)
    answer = web.get("/topics/secret", ends=lambda ticket: web.producer.finish(ticket, refused))
    assert code_of(answer) == (403, 40301)


def test_configs_are_not_fetched_again_as_soon_as_a_list_would_be(web: HttpApp) -> None:
    for pause_ms in (0, 3_000):
        web.producer.clock.advance(pause_ms)
        assert web.get("/topics/orders").json()["configs"] == CONFIGS
    assert [kind for kind, _ in web.producer.calls].count("configs") == 1


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
