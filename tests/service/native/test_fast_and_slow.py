"""The prepared paths and FastAPI's routes answer alike, and as the OpenAPI document says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from service.native import schemas
from service.native.status_schemas import StatusAnswer
from service.wire.schemas import ProblemAnswer, ProduceAnswer
from tests.support.http_app import HttpApp
from tests.support.metadata_responses import node, partition, topic

if TYPE_CHECKING:
    import httpx
    from pydantic import BaseModel


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.nodes = [node(1, rack="a"), node(2), node(3)]
    partitions = [
        partition(0, leader=1, epoch=4, replicas=(1, 2), isr=(1,), offline=(2,)),
        partition(1, leader=None, epoch=None, error=5),
    ]
    app.producer.set_topics([topic("orders", partitions)])
    return app


def by_both_ways(web: HttpApp, method: str, path: str, **sent: Any) -> tuple[httpx.Response, httpx.Response]:
    return web.ask(method, path, **sent), web.ask(method, path, app=web.app.api, **sent)


def assert_alike(web: HttpApp, method: str, path: str, **sent: Any) -> httpx.Response:
    """The answer, which is the same by the prepared path and by FastAPI's."""
    fast, slow = by_both_ways(web, method, path, **sent)
    assert (fast.status_code, fast.content, fast.headers.raw) == (
        slow.status_code,
        slow.content,
        slow.headers.raw,
    ), (path, sent)
    return fast


LEADER = "/v1/topics/orders/leader"
LOOKUPS: dict[str, type[BaseModel]] = {
    "/v1/cluster": schemas.ClusterAnswer,
    "/v1/topics/orders": schemas.TopicAnswer,
    "/v1/topics/orders/partitions/0": schemas.Partition,
    "/v1/topics/orders/partitions/1": schemas.Partition,
    **{
        f"{LEADER}?{query}": schemas.LeaderAnswer
        for query in ("partition=0", "partition=1", "key=user-1", "key=", "key=a=b:c~d!*'(),/?@$")
    },
}


def test_a_look_up_is_the_same_by_both_ways(web: HttpApp) -> None:
    for path in LOOKUPS:
        etag = assert_alike(web, "GET", path).headers["etag"]
        assert_alike(web, "GET", path, headers={"If-None-Match": etag})
        twice = [("If-None-Match", '"x"'), ("If-None-Match", etag)]
        assert assert_alike(web, "GET", path, headers=twice).status_code == 304


def test_an_answer_is_what_the_document_says(web: HttpApp) -> None:
    web.producer.on_brokers = {"orders": 2, "__offsets": 1}
    others: dict[str, type[BaseModel]] = {
        "/v1/brokers/1": schemas.BrokerAnswer,
        "/v1/topics": schemas.TopicsAnswer,
        "/v1/status": StatusAnswer,
    }
    for path, model in {**LOOKUPS, **others}.items():
        answer = web.get(path).json()
        read = model.model_validate(answer, strict=True, extra="forbid")
        assert read.model_dump(exclude_unset=True) == answer, path


def test_a_produce_is_the_same_by_both_ways(web: HttpApp) -> None:
    one = b'{"records":[{"value":1}]}'
    for body, query in (
        (b'{"records":[{"value":1},{"value":2}]}', ""),
        (b'{"records":[{"value":1},{"value":1,"value":1}]}', ""),
        (b"{", ""),
        (one, "?timeout_ms=x"),
        (one, "?timeout_ms=5&max_block_ms=0"),
    ):
        sent = {"content": body, "headers": {"content-type": "application/json"}}
        assert_alike(web, "POST", f"/v1/topics/orders/records{query}", **sent)


ODD: list[tuple[str, dict[str, str]]] = [
    (f"{LEADER}?partition=0", {"Pilotfish-Key": "a"}),
    (f"{LEADER}?key=a", {"Pilotfish-Key": "a"}),
    *(
        (f"{LEADER}?{query}", {})
        for query in (
            *("key=a&key=b", "key=a&key_format=base64", "key=%61%2B+b", "key=a;b", "key=%ff"),
            *("partition=00", "partition=+1", "partition=1_0", "partition=1.0", "partition="),
        )
    ),
    *((f"/v1/topics/orders{rest}", {}) for rest in ("?key=a", "?", "/partitions/0?key=a")),
    *((f"/v1/topics/orders/partitions/{number}", {}) for number in ("1_0", "9")),
    ("/v1/topics/leader?key=a", {}),
    ("/v1/topics/orders", {"If-None-Match": "*"}),
    ("/v1/topics/orders", {"If-None-Match": '"x", W/"y"'}),
]


def test_unusual_requests_are_judged_alike_on_both_paths(web: HttpApp) -> None:
    web.producer.on_brokers = {"leader": 1}
    for path, headers in ODD:
        assert_alike(web, "GET", path, headers=headers)


def test_a_path_in_an_unusual_spelling_reaches_the_same_topic(web: HttpApp) -> None:
    assert web.get("/v1/topics/%6Frders").content == web.get("/v1/topics/orders").content
    assert web.produce(b'{"records":[{"value":1}]}', topic="%6Frders").json()["topic"] == "orders"


def test_produce_answers_are_what_the_document_says(web: HttpApp) -> None:
    answer = web.produce(b'{"records":[{"value":1}]}').json()
    assert ProduceAnswer.model_validate(answer, strict=True, extra="forbid").model_dump() == answer


def test_problems_are_what_the_document_says(web: HttpApp) -> None:
    answer = web.produce(b'{"records":[{"value":1,"x":1}]}').json()
    reported = ProblemAnswer.model_validate(answer, strict=True, extra="forbid")
    assert reported.model_dump(exclude_unset=True) == answer


def test_the_document_knows_every_call_of_the_api(web: HttpApp) -> None:
    document = web.get("/openapi.json").json()
    native = {path: methods for path, methods in document["paths"].items() if path.startswith("/v1/")}
    calls = {(method.upper(), path) for path, methods in native.items() for method in methods}
    assert calls == {
        ("GET", "/v1/cluster"),
        ("GET", "/v1/brokers/{broker_id}"),
        ("GET", "/v1/topics"),
        ("GET", "/v1/topics/{topic}"),
        ("GET", "/v1/topics/{topic}/partitions/{partition}"),
        ("GET", "/v1/topics/{topic}/leader"),
        ("GET", "/v1/topics/{topic}/partitions/{partition}/offsets"),
        ("POST", "/v1/records"),
        ("POST", "/v1/leaders"),
        ("POST", "/v1/topics/{topic}/records"),
        ("POST", "/v1/topics/{topic}/records/bytes"),
        ("POST", "/v1/topics/{topic}/records/stream"),
        ("POST", "/v1/topics/{topic}/records/spool"),
        ("POST", "/v1/metadata/refresh"),
        ("GET", "/v1/status"),
        ("GET", "/v1/watch"),
        ("GET", "/v1/watch/snapshot"),
        ("GET", "/v1/watch/changes"),
        ("POST", "/v1/spool/requeue"),
    }


#: Look-ups without a prepared answer, since it is made in slices from more than a snapshot: lists of all
#: topics, what a broker leads, and a topic with its configs.
NEVER_READY = {
    "/v1/brokers/{broker_id}",
    "/v1/topics",
    "/topics",
    "/topics/{topic}",
    "/v3/clusters/{cluster_id}/topics",
}
#: GETs that look up no metadata.
NO_LOOK_UPS = {
    *("/v1/status", "/v1/watch", "/v1/watch/snapshot", "/v1/watch/changes"),
    *("/v1.0/healthz", "/v1.0/healthz/outbound", "/v1.0/metadata"),
}


def test_every_look_up_of_every_api_has_a_prepared_answer(web: HttpApp) -> None:
    """A template in the table that is no route's would never be found, or answer what no route defines."""
    paths = web.get("/openapi.json").json()["paths"]
    look_ups = {path for path, methods in paths.items() if "get" in methods} - NO_LOOK_UPS
    # Offsets are the leader's own, and never kept.
    never = NEVER_READY | {path for path in look_ups if path.endswith("/offsets")}
    assert look_ups - never == web.app.sidecar.table.templates


def test_the_document_gives_problems_their_own_media_type(web: HttpApp) -> None:
    document = web.get("/openapi.json").json()
    answers = document["paths"]["/v1/topics/{topic}/records"]["post"]["responses"]
    assert list(answers["404"]["content"]) == ["application/problem+json"]
    assert list(answers["200"]["content"]) == ["application/json"]
    assert "#/$defs" not in json.dumps(document)
