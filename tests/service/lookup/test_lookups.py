"""Metadata over HTTP: answers, freshness, unknown topics, and how long anything waits."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from client_core import (
    MetadataResult,
    NoBrokersError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    partition_for_key,
)
from client_core.errors import LeaderNotAvailableError, TopicAuthorizationError
from service.admission.caller import ANYONE, Caller, TopicRules
from service.lookup.fast_lookups import FastLookups, ParkedLookups
from service.native.leaders import MAX_BODY_BYTES, LeaderLookup, parse_lookups
from service.native.schemas import MAX_LOOKUPS
from service.observe.http_metrics import Observed
from service.wire.asgi import Peer, respond_with
from service.wire.strict_json import BodyError
from tests.support.coroutine_tests import run, until
from tests.support.fake_producer import FakeProducer
from tests.support.http_app import NativeApp
from tests.support.simulated_sidecar import SimulatedSidecar
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from client_core import KafkaError
    from client_core.metadata.metadata_cache import MetadataCache
    from service.observe.http_metrics import HttpMetrics
    from service.wire.asgi import HeaderPairs, Receive, Scope, Send
    from tests.support.fake_producer import FakeTicket


@pytest.fixture
def web() -> NativeApp:
    app = NativeApp()
    app.producer.set_topics({"orders": 3})
    return app


# -- known metadata ------------------------------------------------------------------------------------------


def test_the_cluster_has_no_controller(web: NativeApp) -> None:
    answer = web.get("/v1/cluster").json()
    assert set(answer) == {"cluster_id", "brokers"}
    assert answer["brokers"][0] == {"id": 1, "host": "localhost", "port": 9093, "rack": None}


def test_a_missing_topic_is_404_and_a_name_that_kafka_would_not_take_400_at_once(web: NativeApp) -> None:
    assert web.get("/v1/brokers/9").status_code == 404
    answer = web.get("/v1/topics/orders/partitions/3")
    assert (answer.status_code, answer.json()["kafka_error"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    for name in ("a%20b", "%C3%A9", "x" * 250):
        answer = web.get(f"/v1/topics/{name}/partitions/0")
        assert (answer.status_code, answer.json()["kafka_error"]) == (400, "INVALID_TOPIC_EXCEPTION")
    web.get("/v1/topics/./partitions/0")  # httpx, like every client, takes dots out of a path
    assert web.producer.calls == []


def test_a_broker_lists_what_it_leads(web: NativeApp) -> None:
    web.producer.set_topics({"orders": 4, "audit": 1})
    leads = web.get("/v1/brokers/1").json()["leads"]
    assert leads == [{"topic": "audit", "partitions": [0]}, {"topic": "orders", "partitions": [0, 3]}]


def test_a_key_has_the_partition_of_javas_hash(web: NativeApp) -> None:
    cases: dict[bytes, dict[str, Any]] = {
        b"user-1": {"params": {"key": "user-1"}},
        b"": {"params": {"key": ""}},
        "é".encode(): {"params": {"key": "é"}},
        b"a b": {"params": {"key": "a b"}},
        # Compacted, as it would be on the wire.
        b'{"a":1.0}': {"params": {"key": '{"a": 1.0}', "key_format": "json"}},
        b"\x00\xff": {"params": {"key": "AP8=", "key_format": "base64"}},
        # In a header it stays out of the path.
        "ü".encode(): {"headers": {"Pilotfish-Key": "ü".encode()}},
    }
    asked = {key: web.get("/v1/topics/orders/leader", **given).json() for key, given in cases.items()}
    assert {key: answer["partition"] for key, answer in asked.items()} == {
        key: partition_for_key(key, 3) for key in cases
    }


def test_a_look_up_that_names_no_one_partition_is_refused(web: NativeApp) -> None:
    queries = {
        "": 422,
        "?partition=1&key=a": 422,
        "?key=YQ&key_format=base64": 422,
        "?key=null&key_format=json": 422,
        "?key={&key_format=json": 422,
        "?key=a&key_format=avro": 422,
        "?partition=-1": 422,
        "?partition=x": 422,
        "?partition=1&partiton=2": 422,
    }
    path = "/v1/topics/orders/leader"
    assert {query: web.get(f"{path}{query}").status_code for query in queries} == queries
    assert web.get(f"{path}?key=a", headers={"Pilotfish-Key": "b"}).status_code == 422
    assert web.get(path, headers={"Pilotfish-Key": b"\xff"}).status_code == 400
    twice = [("pilotfish-key", "a"), ("pilotfish-key", "b")]
    answer = web.get(path, headers=twice)
    assert (answer.status_code, answer.json()["place"]) == (400, "Pilotfish-Key")
    answer = web.get(f"{path}?key=a&key_format=base64")
    assert (answer.status_code, answer.json()["place"]) == (422, "query.key")


# -- freshness -----------------------------------------------------------------------------------------------


def test_every_answer_says_how_fresh_it_is(web: NativeApp) -> None:
    web.producer.on_brokers = {"orders": 3}
    web.get("/v1/topics")
    web.producer.clock.advance(17_000)
    for path in (
        "/v1/cluster",
        "/v1/brokers/1",
        "/v1/topics/orders",
        "/v1/topics/orders/partitions/0",
        "/v1/topics/orders/leader?partition=0",
        "/v1/topics/orders/leader?key=a",
    ):
        answer = web.get(path)
        assert answer.headers["age"] == "17", path
        assert answer.headers["pilotfish-metadata-version"] == web.version
        assert answer.headers["pilotfish-metadata-refreshed-at"] == "2023-11-14T22:13:20.000Z"
        assert answer.headers["etag"]


def test_a_matching_etag_gets_304_with_its_age(web: NativeApp) -> None:
    web.producer.on_brokers = {"orders": 3}
    topic, lists = "/v1/topics/orders", ("/v1/cluster", "/v1/brokers/1", "/v1/topics")
    for path in (topic, f"{topic}/leader?key=a", *lists):
        etag = web.get(path).headers["etag"]
        answer = web.get(path, headers={"If-None-Match": f'"other", W/{etag}'})
        assert (answer.status_code, answer.content) == (304, b""), path
        assert (answer.headers["age"], answer.headers["etag"]) == ("0", etag), path


def test_an_etag_outlives_refreshes_of_other_topics(web: NativeApp) -> None:
    etag = web.get("/v1/topics/orders").headers["etag"]
    for topics, status in (({"orders": 3, "new": 1}, 304), ({"orders": 4}, 200)):
        web.producer.set_topics(topics)
        assert web.get("/v1/topics/orders", headers={"If-None-Match": etag}).status_code == status


def refreshed(web: NativeApp, wait_ms: int, **asked: int | None) -> Callable[[FakeTicket], None]:
    """A refresh that was asked for so, and comes."""

    def refresh(ticket: FakeTicket) -> None:
        assert {name: ticket.asked[name] for name in asked} == asked
        assert ticket.asked["deadline_ms"] == web.producer.clock.now_ms() + wait_ms
        web.producer.set_topics({"orders": 3, "audit": 1})
        web.producer.finish(ticket, MetadataResult(web.producer.cache))

    return refresh


def test_max_age_waits_for_a_refresh_where_the_answer_is_older(web: NativeApp) -> None:
    web.producer.clock.advance(10_000)
    query = f"max_age_ms=5000&max_block_ms=700&min_version={web.version}"
    refresh = refreshed(web, max_age_ms=5_000, min_version=None, wait_ms=700)
    answer = web.get(f"/v1/topics/orders?{query}", ends=refresh)
    assert (answer.status_code, answer.headers["age"]) == (200, "0")


def test_min_version_waits_for_that_update_by_kafkas_own_limit(web: NativeApp) -> None:
    version = f"{web.app.sidecar.boot}-2"
    refresh = refreshed(web, max_age_ms=None, min_version=2, wait_ms=60_000)
    answer = web.get(f"/v1/topics/orders?max_age_ms=9&min_version={version}", ends=refresh)
    assert answer.headers["pilotfish-metadata-version"] == version


def test_both_demands_are_made_of_one_update_where_neither_is_met(web: NativeApp) -> None:
    version = f"{web.app.sidecar.boot}-2"
    web.producer.clock.advance(10_000)
    refresh = refreshed(web, max_age_ms=9, min_version=2, wait_ms=60_000)
    answer = web.get(f"/v1/topics/orders?max_age_ms=9&min_version={version}", ends=refresh)
    assert (answer.headers["age"], answer.headers["pilotfish-metadata-version"]) == ("0", version)


def test_max_age_is_that_of_the_oldest_of_several_topics(web: NativeApp) -> None:
    web.producer.set_topics({"orders": 3, "audit": 1})
    web.producer.clock.advance(10_000)
    web.producer.set_topics({"audit": 1}, partial=True)
    wanted = {"lookups": [{"topic": name, "partition": 0} for name in ("audit", "orders")]}
    refresh = refreshed(web, max_age_ms=5_000, wait_ms=60_000)
    assert web.post("/v1/leaders?max_age_ms=5000", json=wanted, ends=refresh).status_code == 200
    assert len(web.producer.calls) == 1


def test_max_age_is_answered_at_once_where_the_answer_is_younger(web: NativeApp) -> None:
    web.producer.clock.advance(4_000)
    assert web.get("/v1/topics/orders?max_age_ms=5000").status_code == 200
    web.producer.clock.advance(4_000)
    web.producer.set_topics({"orders": 3}, partial=True)  # the topic's answer, and not the cluster's
    assert web.get("/v1/topics/orders?max_age_ms=5000").status_code == 200
    assert web.producer.calls == []


def test_metadata_that_is_new_enough_is_answered_at_once_and_a_version_of_another_boot_is_412(
    web: NativeApp,
) -> None:
    web.producer.set_topics({"orders": 3})
    boot, number = web.version.split("-")
    for path in ("/v1/topics/orders", "/v1/cluster"):
        for behind in (0, 1):
            answer = web.get(f"{path}?min_version={boot}-{int(number) - behind}")
            assert (answer.status_code, answer.headers["pilotfish-metadata-version"]) == (200, web.version)
    web.producer.clock.advance(5_000)
    for path in ("/v1/topics/orders", "/v1/cluster"):
        assert web.get(f"{path}?max_age_ms=5000").status_code == 200  # just as old as it may be
    assert web.get("/v1/topics/orders?min_version=other-1").status_code == 412
    assert web.producer.calls == []


def test_a_request_has_one_deadline_for_all_that_it_waits_for(web: NativeApp) -> None:
    """First for the topic, then for a younger answer: together no longer than max_block_ms."""

    async def scenario() -> httpx.Response:
        async with web.client() as client:
            path = "/v1/topics/late?max_block_ms=1000&max_age_ms=0"
            asked = asyncio.create_task(client.get(path))
            await until(lambda: web.producer.waiting)
            (first,) = web.producer.waiting
            web.producer.clock.advance(700)
            web.producer.set_topics({"orders": 3, "late": 1})
            web.producer.clock.advance(1)
            web.producer.finish(first, MetadataResult(web.producer.cache))
            await until(lambda: web.producer.waiting)
            (second,) = web.producer.waiting
            assert second.asked["deadline_ms"] == first.asked["deadline_ms"]
            web.producer.time_out(second, waited_ms=299)
            return await asked

    answer = run(scenario())
    assert (answer.status_code, answer.json()["waited_ms"]) == (503, 1_000)


def test_the_rounds_in_which_many_unknown_topics_are_asked_for_have_one_deadline() -> None:
    web = NativeApp(unknown_topics_per_second=1)

    async def scenario() -> None:
        async with web.client() as client:
            names = {"lookups": [{"topic": name, "partition": 0} for name in ("a", "b")]}
            asked = asyncio.create_task(client.post("/v1/leaders?max_block_ms=1000", json=names))
            for round_of in ("a", "b"):
                await until(lambda: web.producer.waiting)
                (ticket,) = web.producer.waiting
                assert (ticket.asked["names"], ticket.asked["deadline_ms"]) == ([round_of], deadline_ms)
                web.producer.clock.advance(300)
                web.producer.set_topics({round_of: 1}, partial=True)
                web.producer.finish(ticket, MetadataResult(web.producer.cache))
            assert (await asked).status_code == 200

    deadline_ms = web.producer.clock.now_ms() + 1_000
    run(scenario())


def test_no_input_becomes_something_else(web: NativeApp) -> None:
    places = {
        "/v1/topics/orders/leader?key=%ff": "query",
        "/v1/topics?prefix=%ff": "query",
        "/v1/topics/orders/leader?partition=1_0": "query.partition",
        "/v1/topics/orders/leader?partition=1.0": "query.partition",
        "/v1/topics/orders/leader?partition=%201": "query.partition",
        "/v1/topics/orders/partitions/1_0": "path.partition",
        "/v1/brokers/1_0": "path.broker_id",
        "/v1/topics/orders?max_block_ms=1_0": "query.max_block_ms",
        "/v1/topics/orders?min_version=x": "query.min_version",
        "/v1/status?x=1": "query.x",
    }
    answers = {path: web.get(path) for path in places}
    assert {path: answer.json()["place"] for path, answer in answers.items()} == places
    assert {answer.status_code for answer in answers.values()} <= {400, 422}
    assert web.get("/v1/topics/orders?min_version=7").status_code == 422


def test_a_wait_is_reported_as_the_caller_has_waited(web: NativeApp) -> None:
    """The client begins its own count a moment later."""

    def late(ticket: FakeTicket) -> None:
        web.producer.clock.advance(700)
        web.producer.time_out(ticket, waited_ms=699)

    web.producer.clock.advance(10_000)
    answer = web.get("/v1/cluster?max_age_ms=1&max_block_ms=700", ends=late)
    assert (answer.status_code, answer.json()["waited_ms"]) == (503, 700)


def test_a_refresh_that_does_not_come_is_503_with_its_phase(web: NativeApp) -> None:
    web.producer.clock.advance(10_000)
    answer = web.get("/v1/cluster?max_age_ms=1", ends=web.producer.time_out)
    assert answer.status_code == 503
    assert (answer.json()["phase"], answer.json()["waited_ms"]) == ("metadata", 500)
    assert answer.headers["retry-after"]


def test_metadata_is_served_while_brokers_are_away_and_its_age_says_so(web: NativeApp) -> None:
    web.producer.clock.advance(3_600_000)
    answer = web.get("/v1/topics/orders")
    assert (answer.status_code, answer.headers["age"]) == (200, "3600")


def test_a_look_up_without_a_prepared_answer_marks_its_topic_as_used(web: NativeApp) -> None:
    web.producer.offsets = {("orders", 0): (1, 2)}
    use = web.producer.cache.topics["orders"].use
    use.touched = False
    assert web.get("/v1/topics/orders/partitions/0/offsets").status_code == 200
    assert use.touched


def test_a_known_topic_is_served_though_all_waiting_requests_are_taken() -> None:
    web = NativeApp(max_waiting_requests=1)
    web.producer.set_topics({"orders": 3})
    with web.app.sidecar.admission.acquire(0):
        assert web.get("/v1/topics/%6Frders").status_code == 200
        assert web.get("/v1/topics/unknown").status_code == 429


# -- unknown topics ------------------------------------------------------------------------------------------


def test_an_unknown_topic_is_404_when_the_brokers_have_settled_it(web: NativeApp) -> None:
    answer = web.get("/v1/topics/unknown", ends=web.producer.say_unknown)
    reported = answer.json()
    error = (reported["kafka_error"], reported["code"], reported["retriable"])
    assert (answer.status_code, error) == (404, ("UNKNOWN_TOPIC_OR_PARTITION", 3, True))
    assert (reported["phase"], reported["waited_ms"]) == ("metadata", 120)
    asked = web.producer.calls[0][1]
    assert (asked["create"], asked["settle"]) == (False, True)
    assert asked["deadline_ms"] == web.producer.clock.now_ms() + web.settings.internal.lookup_wait_ms


def test_with_max_block_a_look_up_waits_for_the_topic_to_appear(web: NativeApp) -> None:
    def appear(ticket: FakeTicket) -> None:
        assert (ticket.asked["create"], ticket.asked["settle"]) == (False, False)
        assert ticket.asked["deadline_ms"] == web.producer.clock.now_ms() + 900
        web.producer.set_topics({"orders": 3, "late": 2})
        web.producer.finish(ticket, MetadataResult(web.producer.cache))

    answer = web.get("/v1/topics/late?max_block_ms=900", ends=appear)
    assert len(answer.json()["partitions"]) == 2


def test_with_max_block_a_topic_that_does_not_appear_is_404_in_the_end(web: NativeApp) -> None:
    def give_up(ticket: FakeTicket) -> None:
        web.producer.time_out(ticket, UnknownTopicOrPartitionError(), waited_ms=900)

    answer = web.get("/v1/topics/late?max_block_ms=900", ends=give_up)
    assert (answer.status_code, answer.json()["waited_ms"]) == (404, 900)


def test_a_topic_found_by_a_look_up_is_answered_and_one_that_the_brokers_refuse_says_so(
    web: NativeApp,
) -> None:
    def refuse(ticket: FakeTicket) -> None:
        if isinstance(error, NoBrokersError):
            result = MetadataResult(web.producer.cache, error=error, waited_ms=5)
        else:
            result = MetadataResult(web.producer.cache, topic_errors={"secret": error})
        web.producer.finish(ticket, result)

    error: KafkaError
    for error, status in (
        (TopicAuthorizationError(), 403),
        (LeaderNotAvailableError(), 503),
        (TimeoutError("late"), 503),
        (NoBrokersError("none"), 503),
    ):
        assert web.get("/v1/topics/secret", ends=refuse).status_code == status, error
    nothing = MetadataResult(web.producer.cache)
    silent = web.get("/v1/topics/secret", ends=lambda ticket: web.producer.finish(ticket, nothing))
    assert (silent.status_code, "secret not present" in silent.json()["detail"]) == (503, True)
    web.producer.on_brokers = {"found": 2}
    assert len(web.get("/v1/topics/found").json()["partitions"]) == 2


def test_a_missing_topic_is_remembered_for_a_second_unless_it_appears_or_is_waited_for(
    web: NativeApp,
) -> None:
    web.get("/v1/topics/unknown", ends=web.producer.say_unknown)
    again = web.get("/v1/topics/unknown")
    assert (again.status_code, again.json()["waited_ms"]) == (404, 0)
    assert "no longer exists" not in again.json()["detail"]  # it never did
    assert len(web.producer.calls) == 1
    web.get("/v1/topics/unknown?max_block_ms=100", ends=web.producer.say_unknown)
    assert len(web.producer.calls) == 2
    web.producer.clock.advance(1_000)
    web.get("/v1/topics/unknown", ends=web.producer.say_unknown)
    assert len(web.producer.calls) == 3
    web.producer.set_topics({"orders": 3, "unknown": 1})
    assert web.get("/v1/topics/unknown").status_code == 200


def test_made_up_names_are_limited_per_second() -> None:
    web = NativeApp(unknown_topics_per_second=2)
    web.producer.set_topics({})

    for name in ("a", "b"):
        assert web.get(f"/v1/topics/{name}", ends=web.producer.say_unknown).status_code == 404
    refused = web.get("/v1/topics/c")
    assert (refused.status_code, len(web.producer.calls)) == (429, 2)
    assert refused.headers["retry-after"] == "1"
    web.producer.clock.advance(1_000)
    assert web.get("/v1/topics/c", ends=web.producer.say_unknown).status_code == 404


def test_a_topic_that_was_made_again_smaller_and_grows_has_its_new_partition() -> None:
    sidecar = SimulatedSidecar()

    async def partitions() -> int:
        await sidecar.sleep(int(sidecar.producer.config.metadata_max_age_ms))
        answer = await sidecar.get("/v1/topics/orders")
        return len(answer.json()["partitions"])

    async def scenario() -> None:
        sidecar.controller.create_topic("orders", partitions=2, replication_factor=3)
        sidecar.controller.move_leader("orders", 1, 3, epoch=7)
        assert await partitions() == 2
        sidecar.controller.delete_topic("orders")
        sidecar.controller.create_topic("orders", partitions=1, replication_factor=3)
        assert await partitions() == 1
        sidecar.controller.add_partitions("orders", 2)
        assert await partitions() == 2

    run(scenario())
    sidecar.close()


def test_hundreds_of_topics_that_exist_can_be_looked_up_at_once_after_a_start() -> None:
    """More than the limit of unknown ones, which is for names that no topic has."""
    sidecar = SimulatedSidecar()

    async def errors(topics: list[str]) -> Counter[str]:
        wanted = [{"topic": topic, "partition": 0} for topic in topics]
        answer = await sidecar.ask("POST", "/v1/leaders", json={"lookups": wanted})
        return Counter(each["error"]["type"] for each in answer.json()["results"] if "error" in each)

    async def scenario() -> None:
        real = [f"t{n}" for n in range(600)]
        for topic in real:
            sidecar.controller.create_topic(topic, partitions=1, replication_factor=3)
        await sidecar.sleep(1_000)
        assert not await errors(real[:500])
        made_up = await errors([*(f"made-up-{n}" for n in range(250)), real[500]])
        assert made_up == {"/problems/unknown-topic": 200, "/problems/too-many-unknown-topics": 51}
        await sidecar.sleep(1_000)
        one_by_one = [await sidecar.get(f"/v1/topics/{topic}") for topic in real[300:]]
        assert {answer.status_code for answer in one_by_one} == {200}

    run(scenario())
    sidecar.close()


def test_before_the_first_answer_the_cluster_waits_and_then_is_503() -> None:
    web = NativeApp()
    answer = web.get("/v1/cluster", ends=web.producer.time_out)
    assert (answer.status_code, answer.json()["phase"]) == (503, "metadata")


def test_before_the_first_answer_an_unknown_topic_has_no_age() -> None:
    web = NativeApp()

    async def scenario() -> httpx.Response:
        async with web.client() as client:
            asked = asyncio.create_task(client.get("/v1/topics/unknown?max_age_ms=3600000"))
            for _ in ("the topic", "a younger answer"):
                await until(lambda: web.producer.waiting or asked.done())
                assert web.app.sidecar.admission.bytes == 0
                web.producer.time_out(web.producer.waiting[0])
            return await asked

    assert run(scenario()).status_code == 503


def test_of_several_topics_those_that_may_be_read_are_asked_for(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, shop={"read": ["orders"]})
    web = NativeApp(tokens_file=tokens.setting)
    web.producer.on_brokers = {"orders": 3, "audit": 1}
    lookups = [{"topic": name, "partition": 0} for name in ("audit", "orders")]
    answer = web.post("/v1/leaders", json={"lookups": lookups}, headers=tokens.of("shop")).json()
    assert [result.get("error", {}).get("kafka_error") for result in answer["results"]] == [
        "TOPIC_AUTHORIZATION_FAILED",
        None,
    ]


def test_leaders_are_answered_in_order_with_an_error_per_item(web: NativeApp) -> None:
    lookups = [
        {"topic": "orders", "partition": 2},
        {"topic": "unknown", "partition": 0},
        {"topic": "orders", "key": "user-1"},
        {"topic": "orders", "partition": 3},
        {"topic": "not valid", "partition": 0},
    ]
    answer = web.post("/v1/leaders", json={"lookups": lookups}, ends=web.producer.say_unknown)
    assert web.producer.calls[0][1]["names"] == ["unknown"]
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert results[0]["leader"]["id"] == 3
    assert results[1]["error"]["kafka_error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert results[2]["partition"] == partition_for_key(b"user-1", 3)
    assert results[3]["error"]["message"] == "topic orders has no partition 3; it has 3 partitions"
    assert results[4]["error"]["kafka_error"] == "INVALID_TOPIC_EXCEPTION"
    assert answer.headers["pilotfish-metadata-version"] == web.version


def test_leaders_are_refused_whole_where_the_body_is_wrong(web: NativeApp) -> None:
    answer = web.post("/v1/leaders", json={"lookups": [{"topic": "orders"}]})
    assert (answer.status_code, answer.json()["place"]) == (422, "lookups[0]")
    answer = web.post("/v1/leaders", content=b"a=b", headers={"content-type": "text/plain"})
    assert answer.status_code == 415


def test_a_refresh_answers_with_the_version_it_brought(web: NativeApp) -> None:
    def refresh(ticket: FakeTicket) -> None:
        assert ticket.asked["deadline_ms"] == web.producer.clock.now_ms() + 300
        assert (ticket.asked["min_version"], ticket.asked["max_age_ms"]) == (None, None)
        web.producer.clock.advance(40)
        web.producer.set_topics({"orders": 3})
        web.producer.finish(ticket, MetadataResult(web.producer.cache))

    answer = web.post("/v1/metadata/refresh?max_block_ms=300", ends=refresh)
    assert answer.json() == {"version": web.version, "waited_ms": 40}


def test_the_status_counts_waiting_calls(web: NativeApp) -> None:
    async def scenario() -> httpx.Response:
        async with web.client() as client:
            asked = asyncio.create_task(client.get("/v1/topics/unknown?max_block_ms=100"))
            await until(lambda: web.producer.waiting)
            status = await client.get("/v1/status")
            assert web.app.sidecar.admission.bytes == 0
            web.producer.say_unknown(web.producer.waiting[0])
            await asked
            return status

    reported = run(scenario()).json()
    assert (reported["waiting_requests"], reported["draining"], reported["state"]) == (1, False, "starting")
    assert reported["metadata"]["topics"] == 1
    assert web.get("/v1/status").json()["waiting_requests"] == 0


# -- failures ------------------------------------------------------------------------------------------------


def test_an_unknown_path_is_a_problem_document(web: NativeApp) -> None:
    for path, status in {
        "/nowhere": 404,
        "/v1/topics/orders/": 404,
        "/v1/topics/orders?max_block_ms=-1": 422,
        "/v1/topics/orders?max_block_ms=3600001": 422,
        "/v1/topics/orders?maxblockms=1": 422,
        "/v1/topics/orders?max_age_ms=1&max_age_ms=9": 400,
        "/v1/brokers/x": 422,
        "/v1/metadata/refresh": 405,
    }.items():
        answer = web.get(path)
        assert (answer.status_code, answer.json()["status"]) == (status, status), path
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_bug_is_a_500_that_says_nothing_of_its_inside(
    web: NativeApp, caplog: pytest.LogCaptureFixture
) -> None:
    web.producer.status = lambda: 1 // 0  # type: ignore[method-assign,assignment,return-value]

    async def scenario() -> httpx.Response:
        transport = httpx.ASGITransport(app=web.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/v1/status")

    answer = run(scenario())
    assert answer.status_code == 500
    assert "division" not in answer.text
    assert "division" in caplog.text


def test_a_partition_and_a_key_are_looked_up() -> None:
    plain = b'{"topic":"a","partition":3},{"topic":"b","key":"k"}'
    compacted = b'{"topic":"b","key":{"a": 1.0},"key_format":"json"}'
    assert parse_lookups(b'{"lookups":[%b,%b]}' % (plain, compacted)) == [
        LeaderLookup("a", 3, None),
        LeaderLookup("b", None, b"k"),
        LeaderLookup("b", None, b'{"a":1.0}'),
    ]


def test_what_can_not_be_meant_is_refused_with_its_place() -> None:
    of_one = {
        b'"partition":0},{"topic":"a"': (422, "lookups[1]"),
        b'"partition":0,"key":"k"': (422, "lookups[0]"),
        b'"partition":-1': (422, "lookups[0].partition"),
        b'"partition":2147483648': (422, "lookups[0].partition"),
        b'"partition":1,"key_format":"x"': (422, "lookups[0].key_format"),
        b'"partition":"1"': (422, "lookups[0].partition"),
        b'"key":null': (422, "lookups[0].key"),
        b'"key":1': (422, "lookups[0].key"),
        b'"key":"k","key_format":"avro"': (422, "lookups[0].key_format"),
        b'"topic":"b","partition":0': (400, "lookups[0].topic"),
    }
    cases = {b'{"lookups":[{"topic":"a",%b}]}' % body: refused for body, refused in of_one.items()} | {
        b"{}": (422, ""),
        b'{"lookups":[]}': (422, "lookups"),
        b'{"lookups":[{"topic":"a","partition":0}],"x":1}': (422, ""),
        b" " * (MAX_BODY_BYTES + 1): (413, ""),
        b'{"lookups":[{"topic":"\xff","partition":0}]}': (400, ""),
    }
    for body, expected in cases.items():
        with pytest.raises(BodyError) as refused:
            parse_lookups(body)
        assert (refused.value.status, refused.value.place) == expected, body[:80]


def test_too_many_in_one_request_are_refused() -> None:
    most = json.dumps({"lookups": [{"topic": "a", "partition": 0}] * MAX_LOOKUPS}).encode()
    assert len(parse_lookups(most)) == 1_000
    body = json.dumps({"lookups": [{"topic": "a", "partition": 0}] * (MAX_LOOKUPS + 1)}).encode()
    with pytest.raises(BodyError, match="must have 1 to 1000 look-ups"):
        parse_lookups(body)


PLAIN = [
    "/v1/topics/orders",
    "/v1/topics/orders?max_block_ms=700",
    "/v1/topics/orders/partitions/1",
    "/v1/topics/orders/partitions/1?max_block_ms=700",
    "/v1/topics/orders/leader?partition=1",
    "/v1/topics/orders/leader?key=a-b_c.1&max_block_ms=700",
]


def within(path: str) -> str:
    """The same look-up in a spelling that only FastAPI reads: one letter of the name is encoded."""
    return path.replace("orders", "%6Frders")


def asked(web: NativeApp, path: str, end: str) -> tuple[httpx.Response, dict[str, object]]:
    """The answer to a look-up that waits until the topic appears, is missing, or the time is over."""

    async def scenario() -> tuple[httpx.Response, dict[str, object]]:
        async with web.client() as client:
            waiting = asyncio.create_task(client.get(path))
            await until(lambda: web.producer.waiting)
            (ticket,) = web.producer.waiting
            if end == "appears":
                web.producer.set_topics({"orders": 3})
                web.producer.finish(ticket, MetadataResult(web.producer.cache))
            elif end == "missing":
                web.producer.say_unknown(ticket)
            else:
                web.producer.time_out(ticket)
            return await waiting, ticket.asked

    return run(scenario())


def test_both_ways_ask_the_same_and_answer_the_same() -> None:
    for path in PLAIN:
        for end in ("appears", "missing", "late"):
            kafka = {"reconnect.backoff.max.ms": "9000"}
            here, asked_here = asked(NativeApp(kafka=kafka), path, end)
            there, asked_there = asked(NativeApp(kafka=kafka), within(path), end)
            assert asked_here == asked_there, (path, end)
            assert (here.status_code, here.json()) == (there.status_code, there.json()), (path, end)
            assert here.headers.keys() == there.headers.keys(), (path, end)
            assert here.headers["content-type"] == there.headers["content-type"], (path, end)
            retry_after = here.headers.get("retry-after")
            assert retry_after == there.headers.get("retry-after") == ("9" if end == "late" else None)


async def nobody(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("a look-up that is plain enough went on to the routes")


def test_a_look_up_in_vain_never_gets_to_the_routes() -> None:
    web = NativeApp()
    sidecar = web.app.sidecar
    parked = ParkedLookups(
        nobody, sidecar.lookups, lambda _: False, sidecar.http, sidecar.failed, sidecar.retry_after
    )

    def end(ticket: FakeTicket) -> None:
        assert sidecar.http.in_progress == 1
        web.producer.say_unknown(ticket)

    began = perf_counter()
    for path in PLAIN:
        web.producer.clock.advance(1_000)  # beyond what is remembered as missing
        assert web.get(path, app=parked, ends=end).status_code == 404, path
        assert sidecar.http.in_progress == 0, path
    assert {(method, status) for method, _, status in counted(sidecar.http)} == {("GET", "404")}
    assert 0 < seconds_of(sidecar.http) < perf_counter() - began


def test_the_duration_of_a_look_up_that_waited_includes_its_wait() -> None:
    web = NativeApp()
    sidecar, waited_s = web.app.sidecar, 0.0

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        await respond_with(send, 204, b"text/plain", b"", [])

    parked = ParkedLookups(
        Observed(route, sidecar.http),
        sidecar.lookups,
        lambda _: False,
        sidecar.http,
        sidecar.failed,
        sidecar.retry_after,
    )

    def end(ticket: FakeTicket) -> None:
        nonlocal waited_s
        began = perf_counter()
        while waited_s < 0.1:
            waited_s = perf_counter() - began
        web.producer.set_topics({"orders": 3})
        web.producer.finish(ticket, MetadataResult(web.producer.cache))

    assert web.get("/v1/topics/orders", app=parked, ends=end).status_code == 204
    assert seconds_of(sidecar.http) >= waited_s


def test_a_look_up_is_ready_if_its_topic_is_known_and_not_too_old() -> None:
    web = NativeApp()
    lookups, clock = web.app.sidecar.lookups, web.producer.clock
    web.producer.set_topics({"orders": 3})
    assert [lookups.is_ready(topic) for topic in ("orders", "nowhere")] == [True, False]
    clock.advance(60_000)
    assert not lookups.is_ready("orders")


def counted(http: HttpMetrics) -> dict[tuple[str, ...], float]:
    return {labels: counter.value for labels, counter in http._requests.items() if counter.value}


def seconds_of(http: HttpMetrics) -> float:
    return sum(histogram.sum for _, histogram in http._seconds.items())


def test_a_prepared_answer_is_sent_at_once_to_who_may_read_it_unless_it_must_be_packed() -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 3, "audit": 1, "wide": 200})
    sidecar, sent = web.app.sidecar, list[int]()
    fast = FastLookups(nobody, sidecar.table, sidecar.http)
    shop = Caller("shop", TopicRules.of(["orders"]), TopicRules())
    packed = [(b"accept-encoding", b"gzip")]

    def write(status: int, _head: bytes, _body: bytes) -> bool:
        sent.append(status)
        return is_written

    is_written, began = True, perf_counter()
    headers: HeaderPairs
    for caller, target, headers, is_sent in (
        (ANYONE, b"/v1/topics/audit", [], True),
        (shop, b"/v1/topics/orders", [], True),
        (shop, b"/v1/topics/orders/leader?partition=0", packed, True),
        (shop, b"/v1/cluster", [], True),
        (shop, b"/v1/topics/audit", [], False),
        (ANYONE, b"/v1/topics/wide", [], True),
        (ANYONE, b"/v1/topics/wide", packed, False),
    ):
        sent.clear()
        assert fast.answer(target, headers, Peer("http", None, is_unix=False), caller, write) == is_sent, (
            target
        )
        assert sent == [200] * is_sent, target
    etag = web.get("/v1/cluster", app=fast).headers["etag"]
    assert web.get("/v1/cluster", headers={"if-none-match": etag}, app=fast).status_code == 304
    assert counted(sidecar.http) == {
        ("GET", "/v1/topics/{topic}", "200"): 3,
        ("GET", "/v1/topics/{topic}/leader", "200"): 1,
        ("GET", "/v1/cluster", "200"): 2,
        ("GET", "/v1/cluster", "304"): 1,
    }
    before = seconds_of(sidecar.http)
    assert 0 < before < perf_counter() - began
    with pytest.raises(AssertionError, match="went on to the routes"):
        web.ask("HEAD", "/v1/cluster", app=fast)
    is_written = False
    assert not fast.answer(b"/v1/cluster", [], Peer("http", None, is_unix=False), ANYONE, write)
    assert seconds_of(sidecar.http) == before


def test_a_request_that_is_not_plain_is_passed_on_as_it_came() -> None:
    web = NativeApp()
    passed_on = []

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        passed_on.append(scope["raw_path"])
        await respond_with(send, 204, b"text/plain", b"", [])

    sidecar = web.app.sidecar
    parked = ParkedLookups(
        route, sidecar.lookups, lambda _: False, sidecar.http, sidecar.failed, sidecar.retry_after
    )
    topic = "/v1/topics/orders"
    for number, path in enumerate(
        (
            f"{topic}?max_age_ms=5",
            f"{topic}?max_block_ms=3600001",
            f"{topic}?max_block_ms=",
            f"{topic}/leader",
            f"{topic}/leader?partition=1&key=a",
            f"{topic}/leader?key=%61",
            f"{topic}/partitions/01x",
            f"{topic}/else",
        ),
        1,
    ):
        assert web.ask("GET", path, app=parked).status_code == 204, path
        assert len(passed_on) == number, path
    for key in ("a", ""):
        path = f"{topic}/leader?partition=1"
        assert web.ask("GET", path, headers={"pilotfish-key": key}, app=parked).status_code == 204, key
    assert not web.producer.calls


def test_a_caller_who_may_read_parts_of_paths_reads_no_other_topic(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, odd={"read": ["leader", "partitions*", "l*"]})
    web = NativeApp(tokens_file=tokens.setting)
    web.producer.set_topics({"orders": 3, "leader": 1})
    headers = tokens.of("odd")
    assert web.get("/v1/topics/leader", headers=headers).status_code == 200
    for path in (
        "/v1/topics/orders",
        "/v1/topics/orders/leader?partition=0",
        "/v1/topics/orders/partitions/1",
    ):
        assert web.get(path, headers=headers).status_code == 403, path


def test_a_topic_that_went_during_its_look_up_is_said_to_be_gone_though_it_is_back(web: NativeApp) -> None:
    assert web.app.sidecar.lookups.missing("orders", None).message == "topic orders no longer exists"
    assert "has no partition 9" in web.app.sidecar.lookups.missing("orders", 9).message


class GoingTopic(FakeProducer):
    """The I/O thread replaces the snapshot between two reads: after `reads` more it knows no topic."""

    reads = -1

    @property
    def cache(self) -> MetadataCache:
        self.reads -= 1
        if self.reads == 0:
            self.set_topics({})
        return self._snapshot

    @cache.setter
    def cache(self, snapshot: MetadataCache) -> None:
        self._snapshot = snapshot

    def request_topics(self, names: Iterable[str], **asked: Any) -> FakeTicket:
        ticket = super().request_topics(names, **asked)
        if ticket in self.waiting:
            self.say_unknown(ticket)
        return ticket


@pytest.mark.parametrize("path", ["/v1/topics/orders", "/v1/topics/orders/partitions/0/offsets"])
def test_a_topic_that_goes_at_any_moment_of_its_look_up_is_answered_as_gone(path: str) -> None:
    statuses = []
    for reads in range(1, 12):
        web = NativeApp(producer=(producer := GoingTopic(offsets={("orders", 0): (3, 17)})))
        producer.set_topics({"orders": 3})
        producer.reads = reads
        statuses.append(web.get(f"{path}").status_code)
    assert set(statuses) == {404, 200}


# -- one deadline --------------------------------------------------------------------------------------------


async def test_a_topic_that_proves_to_be_gone_is_waited_for_until_the_deadline_of_its_request() -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 3})
    web.producer.holds_refreshes = True
    web.producer.clock.advance(17_000)
    began_ms = web.producer.clock.now_ms()
    async with web.client() as client:
        asked = asyncio.create_task(client.get("/v1/topics/orders?max_block_ms=2000"))
        await until(lambda: web.producer.waiting)
        web.producer.clock.advance(200)
        web.producer.set_topics({})
        web.producer.finish(web.producer.waiting[0], MetadataResult(web.producer.cache))
        await until(lambda: web.producer.waiting)
        assert web.producer.waiting[0].asked["deadline_ms"] == began_ms + 2_000
        web.producer.say_unknown(web.producer.waiting[0])
        assert (await asked).status_code == 404


async def test_old_topics_are_not_refreshed_first_when_the_time_went_by_with_an_unknown_one() -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 3})
    web.producer.holds_refreshes = True
    web.producer.clock.advance(17_000)
    body = {"lookups": [{"topic": name, "partition": 0} for name in ("absent", "orders")]}
    async with web.client() as client:
        asked = asyncio.create_task(client.post("/v1/leaders?max_block_ms=3600000", json=body))
        await until(lambda: web.producer.waiting)
        web.producer.clock.advance(3_600_000)
        web.producer.time_out(web.producer.waiting[0])
        absent, orders = (await asked).json()["results"]
    assert absent["error"]["kafka_error"] == "REQUEST_TIMED_OUT"
    assert orders["leader"]["id"] == 1
