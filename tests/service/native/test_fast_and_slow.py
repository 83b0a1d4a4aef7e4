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
    from pydantic import BaseModel


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.nodes = [node(1, rack="a"), node(2), node(3)]
    app.producer.set_topics(
        [
            topic(
                "orders",
                [
                    partition(0, leader=1, epoch=4, replicas=(1, 2), isr=(1,), offline=(2,)),
                    partition(1, leader=None, epoch=None, error=5),
                ],
            )
        ]
    )
    return app


LOOKUPS = [
    ("/v1/cluster", schemas.ClusterAnswer),
    ("/v1/topics/orders", schemas.TopicAnswer),
    ("/v1/topics/orders/partitions/0", schemas.Partition),
    ("/v1/topics/orders/partitions/1", schemas.Partition),
    ("/v1/topics/orders/leader?partition=0", schemas.LeaderAnswer),
    ("/v1/topics/orders/leader?partition=1", schemas.LeaderAnswer),
    ("/v1/topics/orders/leader?key=user-1", schemas.LeaderAnswer),
    ("/v1/topics/orders/leader?key=", schemas.LeaderAnswer),
    ("/v1/topics/orders/leader?key=a=b:c~d!*'(),/?@$", schemas.LeaderAnswer),
]


@pytest.mark.parametrize(("path", "_model"), LOOKUPS)
def test_a_look_up_is_the_same_by_both_ways(web: HttpApp, path: str, _model: object) -> None:
    fast, slow = web.get(path), web.ask("GET", path, app=web.app.api)
    assert (fast.status_code, fast.content) == (slow.status_code, slow.content)
    assert fast.headers.raw == slow.headers.raw
    etag = {"If-None-Match": fast.headers["etag"]}
    fast, slow = web.get(path, headers=etag), web.ask("GET", path, app=web.app.api, headers=etag)
    assert (fast.status_code, fast.headers.raw) == (slow.status_code, slow.headers.raw)


@pytest.mark.parametrize(
    ("path", "model"),
    [
        *LOOKUPS,
        ("/v1/brokers/1", schemas.BrokerAnswer),
        ("/v1/topics", schemas.TopicsAnswer),
        ("/v1/status", StatusAnswer),
    ],
)
def test_an_answer_is_what_the_document_says(web: HttpApp, path: str, model: type[BaseModel]) -> None:
    web.producer.on_brokers = {"orders": 2, "__offsets": 1}
    answer = web.get(path).json()
    assert model.model_validate(answer, strict=True, extra="forbid").model_dump() == answer


@pytest.mark.parametrize(
    ("body", "query"),
    [
        (b'{"records":[{"value":1},{"value":2}]}', ""),
        (b'{"records":[{"value":1},{"value":1,"value":1}]}', ""),
        (b"{", ""),
        (b'{"records":[{"value":1}]}', "?timeout_ms=x"),
        (b'{"records":[{"value":1}]}', "?timeout_ms=5&max_block_ms=0"),
    ],
)
def test_a_produce_is_the_same_by_both_ways(web: HttpApp, body: bytes, query: str) -> None:
    sent: dict[str, Any] = {"content": body, "headers": {"content-type": "application/json"}}
    path = f"/v1/topics/orders/records{query}"
    fast, slow = web.post(path, **sent), web.ask("POST", path, app=web.app.api, **sent)
    assert (fast.status_code, fast.content) == (slow.status_code, slow.content)
    assert fast.headers.raw == slow.headers.raw


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v1/topics/orders/leader?partition=0", {"Pilotfish-Key": "a"}),
        ("/v1/topics/orders/leader?key=a", {"Pilotfish-Key": "a"}),
        ("/v1/topics/orders/leader?key=a&key=b", {}),
        ("/v1/topics/orders/leader?key=a&key_format=base64", {}),
        ("/v1/topics/orders/leader?key=%61%2B+b", {}),
        ("/v1/topics/orders/leader?key=a;b", {}),
        ("/v1/topics/orders?key=a", {}),
        ("/v1/topics/orders?", {}),
        ("/v1/topics/orders/partitions/0?key=a", {}),
        ("/v1/topics/leader?key=a", {}),
        ("/v1/topics/orders/leader?key=%ff", {}),
        ("/v1/topics/orders/leader?partition=00", {}),
        ("/v1/topics/orders/leader?partition=+1", {}),
        ("/v1/topics/orders/leader?partition=1_0", {}),
        ("/v1/topics/orders/leader?partition=1.0", {}),
        ("/v1/topics/orders/leader?partition=", {}),
        ("/v1/topics/orders/partitions/1_0", {}),
        ("/v1/topics/orders/partitions/9", {}),
        ("/v1/topics/orders", {"If-None-Match": "*"}),
        ("/v1/topics/orders", {"If-None-Match": '"x", W/"y"'}),
    ],
)
def test_what_is_odd_is_judged_alike_by_both_ways(web: HttpApp, path: str, headers: dict[str, str]) -> None:
    web.producer.on_brokers = {"leader": 1}
    fast = web.get(path, headers=headers)
    slow = web.ask("GET", path, app=web.app.api, headers=headers)
    assert (fast.status_code, fast.content, fast.headers.raw) == (
        slow.status_code,
        slow.content,
        slow.headers.raw,
    )


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
        ("POST", "/v1/leaders"),
        ("POST", "/v1/topics/{topic}/records"),
        ("POST", "/v1/metadata/refresh"),
        ("GET", "/v1/status"),
        ("GET", "/v1/watch"),
        ("POST", "/v1/spool/requeue"),
    }


def test_the_document_gives_problems_their_own_media_type(web: HttpApp) -> None:
    document = web.get("/openapi.json").json()
    answers = document["paths"]["/v1/topics/{topic}/records"]["post"]["responses"]
    assert list(answers["404"]["content"]) == ["application/problem+json"]
    assert list(answers["200"]["content"]) == ["application/json", "application/x-ndjson"]
    assert "#/$defs" not in json.dumps(document)
