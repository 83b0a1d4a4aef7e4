"""Offsets of a partition over HTTP, natively and in REST Proxy v2."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from client_core import Cause, Errors, MetadataResult, OffsetsResult, TimeoutError, TopicAuthorizationError
from client_core.errors import UnknownTopicOrPartitionError
from tests.support.coroutine_tests import run, until
from tests.support.http_app import HttpApp
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from client_core import KafkaError

NATIVE = "/v1/topics/orders/partitions/2/offsets"
V2 = "/topics/orders/partitions/2/offsets"


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics({"orders": 3})
    app.producer.offsets = {("orders", 2): (3, 17)}
    return app


def asked(web: HttpApp) -> list[dict[str, object]]:
    return [how for kind, how in web.producer.calls if kind == "offsets"]


def refused(web: HttpApp, path: str, error: KafkaError) -> httpx.Response:
    """The answer if the leader refuses, or does not answer."""
    web.producer.offsets = None
    result = OffsetsResult(None, None, error=error, waited_ms=0)
    return web.ask("GET", path, ends=lambda t: web.producer.finish(t, result))


def test_both_apis_have_the_same_answer_which_is_not_kept(web: HttpApp) -> None:
    for path, media_type in ((NATIVE, "application/json"), (V2, "application/vnd.kafka.v2+json")):
        answer = web.get(path)
        assert (answer.status_code, answer.json()) == (200, {"beginning_offset": 3, "end_offset": 17})
        assert answer.headers["content-type"] == media_type
        assert answer.headers["cache-control"] == "no-store"
        assert "etag" not in answer.headers
    assert len(asked(web)) == 2


def test_a_waiting_request_counts_and_has_no_bytes(web: HttpApp) -> None:
    web.producer.offsets = None
    admission, counted = web.app.sidecar.admission, []

    def ends(ticket: Any) -> None:
        counted.append((admission.requests, admission.bytes))
        web.producer.finish(ticket, OffsetsResult(3, 17, waited_ms=0))

    assert web.ask("GET", NATIVE, ends=ends).status_code == 200
    assert (counted, admission.requests) == ([(1, 0)], 0)


def test_one_deadline_is_for_the_look_up_and_the_leader(web: HttpApp) -> None:
    now_ms = web.producer.clock.now_ms()
    web.get(f"{NATIVE}?max_block_ms=700")
    web.get(NATIVE)
    assert [how["deadline_ms"] for how in asked(web)] == [now_ms + 700, now_ms + 5_000]
    web.producer.offsets = {("new", 0): (0, 1)}

    def appears(ticket: Any) -> None:
        web.producer.clock.advance(300)
        web.producer.set_topics({"new": 1})
        web.producer.finish(ticket, MetadataResult(web.producer.cache, waited_ms=300))

    path = "/v1/topics/new/partitions/0/offsets?max_block_ms=700"
    assert web.ask("GET", path, ends=appears).json() == {"beginning_offset": 0, "end_offset": 1}
    assert asked(web)[-1]["deadline_ms"] == now_ms + 700


def test_what_is_missing_is_said_and_no_leader_is_asked(web: HttpApp) -> None:
    missing = web.get("/v1/topics/orders/partitions/3/offsets")
    assert (missing.status_code, missing.json()["type"]) == (404, "/problems/unknown-partition")
    missing = web.get("/topics/orders/partitions/3/offsets")
    assert (missing.status_code, missing.json()["error_code"]) == (404, 40402)
    assert web.get("/topics/orders/partitions/x/offsets").json()["error_code"] == 40402

    def unknown(path: str) -> httpx.Response:
        return web.ask("GET", path, ends=web.producer.say_unknown)

    assert unknown("/v1/topics/nope/partitions/0/offsets").json()["type"] == "/problems/unknown-topic"
    assert unknown("/topics/nope-2/partitions/0/offsets").json()["error_code"] == 40403
    assert asked(web) == []


def test_a_time_out_has_its_cause_and_what_a_leader_says_is_the_reason(web: HttpApp) -> None:
    late = TimeoutError("late").because_of(Cause(Errors.NOT_LEADER_OR_FOLLOWER, 2, 4, 900, "moved"))
    answer = refused(web, NATIVE, late)
    assert (answer.status_code, answer.json()["phase"]) == (503, "metadata")
    assert answer.json()["cause"]["kafka_error"] == "NOT_LEADER_OR_FOLLOWER"
    assert answer.json()["type"] == "/problems/no-metadata"
    answer = refused(web, V2, late)
    assert (answer.status_code, answer.json()["error_code"]) == (503, 50302)
    assert "NOT_LEADER_OR_FOLLOWER from node 2" in answer.json()["message"]
    gone = TimeoutError("late")
    gone.__cause__ = UnknownTopicOrPartitionError("gone")
    assert refused(web, NATIVE, gone).json()["type"] == "/problems/unknown-topic"
    assert refused(web, V2, gone).json()["error_code"] == 40403
    denied = refused(web, NATIVE, TopicAuthorizationError("no"))
    assert (denied.status_code, denied.json()["type"]) == (403, "/problems/topic-forbidden")


def test_a_caller_that_leaves_asks_no_further(web: HttpApp) -> None:
    web.producer.offsets = None

    async def scenario() -> None:
        async with web.client() as client:
            waits = asyncio.ensure_future(client.get(NATIVE))
            await until(lambda: bool(web.producer.waiting))
            waits.cancel()
            await asyncio.wait([waits])

    run(scenario())
    assert web.producer.waiting == []


def test_bad_parameters_say_where(web: HttpApp) -> None:
    places = {
        f"{NATIVE}?max_block_ms=x": "query.max_block_ms",
        f"{NATIVE}?max_block_ms=1&max_block_ms=1": "query.max_block_ms",
        f"{NATIVE}?max_block_ms=3600001": "query.max_block_ms",
        f"{NATIVE}?timestamp=-1": "query.timestamp",
        "/v1/topics/orders/partitions/-1/offsets": "path.partition",
        "/v1/topics/orders/partitions/2147483648/offsets": "path.partition",
    }
    for path, place in places.items():
        answer = web.get(path)
        assert (answer.status_code in (400, 422), answer.json()["place"]) == (True, place), path
    assert web.get(f"{V2}?timestamp=1").status_code == 422
    for path in (NATIVE, V2):
        answer = web.ask("POST", path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert asked(web) == []


def test_another_callers_topic_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    tokens = TokensFile(tmp_path, shop={"read": ["orders"]})
    web = HttpApp(tokens_file=tokens.setting)
    web.producer.set_topics({"orders": 3, "secret": 1})
    for topic in ("secret", "absent"):
        for path in (f"/v1/topics/{topic}/partitions/0/offsets", f"/topics/{topic}/partitions/0/offsets"):
            assert web.get(path, headers=tokens.of("shop")).status_code == 403
    assert web.producer.calls == []
    assert web.get(NATIVE, headers=tokens.of("shop")).status_code == 200
