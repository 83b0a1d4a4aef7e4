"""Rules for every way to produce, native or of a dialect; each has its own shape of a refusal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from client_core import BufferExhaustedError, Phase, RecordFailure, Written
from tests.support.coroutine_tests import until
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import httpx

JSON: Final = {"content-type": "application/json"}
V2: Final = {"content-type": "application/vnd.kafka.json.v2+json"}
OCTETS: Final = {"content-type": "application/octet-stream"}
EVENT: Final = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a", "ce-type": "t"}
RECORD: Final = b'{"records":[{"value":1}]}'
SHORT_MS: Final = 700


class Way(NamedTuple):
    """A path on which records are posted, and the codes by which it says what is wrong."""

    dialect: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    taken: int
    member: str = "status"
    room_is_full: object = 429
    too_large: object = 413
    #: How long it waits for a topic that nobody knows.
    wait_ms: int = SHORT_MS

    async def post(
        self, client: httpx.AsyncClient, topic: str = "orders", body: Any = None
    ) -> httpx.Response:
        return await client.post(
            self.path.format(topic=topic), content=body or self.body, headers=dict(self.headers)
        )

    def code(self, answer: httpx.Response) -> tuple[int, object]:
        return answer.status_code, answer.json()[self.member]


_DAPR: Final = ("errorCode", "ERR_TOO_MANY_REQUESTS", "ERR_BODY_READ")
_V3: Final = "/v3/clusters/cluster/topics/{topic}/records"
WAYS: Final = (
    Way("", "/v1/topics/{topic}/records", JSON, RECORD, 200, wait_ms=60_000),
    Way("", "/v1/topics/{topic}/records?key=k", OCTETS, b"octets", 200, wait_ms=60_000),
    Way("rest-v2", "/topics/{topic}", V2, RECORD, 200, "error_code", 42901),
    Way("rest-v2", "/topics/{topic}/partitions/0", V2, RECORD, 200, "error_code", 42901),
    Way("rest-v3", _V3, JSON, b"{}", 200, "error_code"),
    Way("rest-v3", f"{_V3}:batch", JSON, b'{"entries":[{"id":"1"}]}', 207, "error_code"),
    Way("cloudevents", "/cloudevents/{topic}", EVENT, b"data", 202),
    Way("dapr", "/v1.0/publish/pubsub/{topic}", JSON, b'"data"', 204, *_DAPR),
    Way(
        *("dapr", "/v1.0/publish/bulk/pubsub/{topic}", JSON),
        *(b'[{"entryId":"1","event":"x","contentType":"text/plain"}]', 204),
        *_DAPR,
    ),
)


def _name(way: Way) -> str:
    return way.path


_each_way: Final = pytest.mark.parametrize("way", WAYS, ids=_name)


def app(**settings: Any) -> HttpApp:
    web = HttpApp(**{"dialects": "rest-v2,rest-v3,cloudevents,dapr", **settings})
    web.producer.set_topics({"orders": 3})
    return web


@_each_way
async def test_a_full_admission_control_answers_429_and_serves_what_it_admitted(way: Way) -> None:
    web = app(max_waiting_requests=1)
    web.producer.holds_records = True
    async with web.client() as client:
        asked = asyncio.ensure_future(way.post(client))
        await until(lambda: web.producer.waiting)
        refused = await way.post(client)
        web.producer.acknowledge(web.producer.waiting[0])
        first = await asked
    assert way.code(refused) == (429, way.room_is_full)
    assert int(refused.headers["retry-after"]) >= 1
    assert first.status_code == way.taken


#: The others answer record by record.
_AS_A_WHOLE: Final = [way for way in WAYS if not way.path.startswith(_V3)]


@pytest.mark.parametrize("way", _AS_A_WHOLE, ids=_name)
async def test_records_that_nothing_was_sent_of_may_be_sent_again_at_a_named_time(way: Way) -> None:
    web = app()
    full = RecordFailure(BufferExhaustedError("buffer.memory is full"), Phase.BUFFER, Written.NO, 30)
    web.producer.outcome_of = lambda *_: full
    async with web.client() as client:
        refused = await way.post(client)
    assert refused.status_code == (500 if way.dialect == "dapr" else 503)
    assert int(refused.headers["retry-after"]) == 30


@pytest.mark.parametrize("way", [way for way in WAYS if way.path != _V3], ids=_name)  # there it is a stream
async def test_the_wait_of_records_counts_from_the_requests_head(way: Way) -> None:
    web = app()
    clock = web.producer.clock
    began_ms = clock.now_ms()

    async def slowly() -> AsyncIterator[bytes]:
        yield way.body[:1]
        clock.advance(400)
        yield way.body[1:]

    async with web.client() as client:
        assert (await way.post(client, body=slowly())).status_code == way.taken
    ((_, asked),) = web.producer.calls
    assert (asked["since_ms"], asked["deadline_ms"]) == (began_ms, began_ms + 120_000)


@pytest.mark.parametrize("way", [way for way in WAYS if way.dialect], ids=_name)
async def test_the_wait_for_a_missing_topic_counts_from_the_end_of_the_body(way: Way) -> None:
    web = app(unknown_topic_wait_ms=SHORT_MS)
    clock = web.producer.clock

    async def slowly() -> AsyncIterator[bytes]:
        yield way.body[:1]
        clock.advance(400)
        yield way.body[1:]

    async with web.client() as client:
        await way.post(client, "absent", slowly())
    ((_, asked),) = [call for call in web.producer.calls if call[0] == "records"]
    assert asked["block_deadline_ms"] == clock.now_ms() + SHORT_MS


@_each_way
async def test_a_caller_who_leaves_frees_its_place_and_its_bytes_count_until_they_are_delivered(
    way: Way,
) -> None:
    web = app()
    web.producer.holds_records = True
    admission = web.app.sidecar.admission
    async with web.client() as client:
        asked = asyncio.ensure_future(way.post(client))
        await until(lambda: web.producer.waiting)
        assert admission.requests == 1
        asked.cancel()
        await asyncio.wait([asked])
    assert (admission.requests, web.app.sidecar.http.in_progress) == (0, 0)
    assert admission.bytes >= len(way.body)
    web.producer.deliver(web.producer.undelivered[0])
    assert admission.bytes == 0


@pytest.mark.parametrize("way", [way for way in WAYS if way.path != _V3], ids=_name)  # there it is a stream
async def test_a_body_that_is_too_large_is_413_by_its_head_and_as_it_comes(way: Way) -> None:
    web = app(max_body_bytes=len(way.body) - 1)

    async def in_pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(way.body), 3):
            yield way.body[at : at + 3]

    async with web.client() as client:
        answers = [await way.post(client), await way.post(client, body=in_pieces())]
    assert [way.code(answer) for answer in answers] == [(413, way.too_large)] * 2
    assert web.producer.submitted == []
    assert (web.app.sidecar.admission.requests, web.app.sidecar.admission.bytes) == (0, 0)


async def test_an_unknown_topic_is_waited_for_and_not_created() -> None:
    web = app(unknown_topic_wait_ms=SHORT_MS)
    now_ms = web.producer.clock.now_ms()
    async with web.client() as client:
        for way in WAYS:
            web.producer.calls.clear()
            statuses = [(await way.post(client, topic)).status_code for topic in ("nowhere", "orders")]
            assert statuses == [way.taken] * 2, "the fake acknowledges whatever it gets"
            asked = [arguments for kind, arguments in web.producer.calls if kind == "records"]
            assert [one["block_deadline_ms"] - now_ms for one in asked] == [way.wait_ms, 60_000], way.path
            assert {one["create"] for one in asked} == {False}


@pytest.mark.parametrize("way", [way for way in WAYS if way.dialect != "rest-v3"], ids=_name)
async def test_made_up_topics_are_limited(way: Way) -> None:
    async with app(unknown_topics_per_second=1).client() as client:
        taken, refused = [await way.post(client, topic) for topic in ("made", "up")]
    assert taken.status_code == way.taken
    assert way.code(refused) == (429, way.room_is_full)


async def test_of_a_dialect_that_is_switched_off_there_is_nothing() -> None:
    for dialects in ("rest-v2", "rest-v3"):
        async with app(dialects=dialects).client() as client:
            for way in WAYS:
                if way.dialect not in ("", dialects):
                    answer = await way.post(client)
                    found = (answer.status_code, answer.headers["content-type"])
                    assert found == (404, "application/problem+json"), way.path
