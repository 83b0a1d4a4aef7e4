"""No body within the limits blocks the event loop: the longest turn, and other requests meanwhile.

A turn is bounded by 50 units of work (tests/support/loop_turns.py), whatever the body. It is mostly below 10.
Other work of the machine may multiply that, so the best of many rounds counts; the first that is short enough
ends them.
"""

from __future__ import annotations

import asyncio
import base64
import gc
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import pytest

from client_core import KafkaProducer
from client_core.testing import FakeCluster
from service.base.settings import Settings
from service.process.app import App
from tests.speed.asgi_call import TRACEPARENT, Call
from tests.support.coroutine_tests import until
from tests.support.counted_work import no_collector
from tests.support.live_producer import QUICK
from tests.support.loop_turns import MeasuredLoop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

MOST_UNITS: Final = 50.0
_ROUNDS: Final = 20
_BYTES: Final = 16 * 1024 * 1024
_JSON: Final = "application/json"
_NATIVE: Final = "/v1/topics/orders/records"
_V2: Final = "application/vnd.kafka.json.v2+json"
_V3: Final = "/v3/clusters/{cluster}/topics/orders/records"
_BULK: Final = "/v1.0-alpha1/publish/bulk/pubsub/orders"
_EVENTS: Final = "application/cloudevents-batch+json"


def _list(items: list[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def _numbered(item: bytes, count: int) -> list[bytes]:
    return [item % number for number in range(count)]


def _records(items: list[bytes], more: bytes = b"") -> bytes:
    return b'{"records":' + _list(items) + more + b"}"


def _with_headers(count: int, name: bytes = b"key", value: bytes = b"1") -> list[bytes]:
    """As many records, each of which has 9,990 headers."""
    headers = _list([b'{"%s":"a","value":""}' % name] * 9_990)
    return [b'{"value":' + value + b',"headers":' + headers + b"}"] * count


def _metadata() -> bytes:
    return b'"metadata":{' + b",".join(_numbered(b'"%d":"0"', 900)) + b"}"


def _base64() -> bytes:
    return base64.b64encode(bytes(range(256)) * (_BYTES // 256 * 3 // 4 - 1))


def _deep() -> bytes:
    return b",".join([b"[" * 120 + b"]" * 120] * 4_200)


def _zeros() -> bytes:
    return b"[" + b"0," * ((_BYTES - 200) // 2) + b"0]"


_ONE: Final = b'{"value":1}'
_ENTRY: Final = b'{"entryId":"%d","event":{"n":1},"contentType":"application/json"}'
_EVENT: Final = b'{"specversion":"1.0","id":"%d","source":"/a","type":"t","data":1}'
_LOOK_UP: Final = b'{"topic":"orders","key":"' + b"k" * 900 + b'"}'

#: A path, a content type with the names of more headers of the request, a body, and the status of the answer.
BODIES: Final[dict[str, tuple[str, str, Callable[[], bytes], int]]] = {
    "records with 9,990 headers each": (_NATIVE, _JSON, lambda: _records(_with_headers(66)), 200),
    "records with headers, v2": ("/topics/orders", _V2, lambda: _records(_with_headers(20)), 200),
    "records with headers, v3": (
        _V3,
        _JSON,
        lambda: b"".join(_with_headers(20, b"name", b'{"type":"JSON","data":1}')),
        200,
    ),
    "records with headers, v3 batch": (
        _V3 + ":batch",
        _JSON,
        lambda: (
            b'{"entries":'
            + _list(
                [
                    entry.replace(b'"value":1', b'"id":"%d"' % number, 1)
                    for number, entry in enumerate(_with_headers(10, b"name"))
                ]
            )
            + b"}"
        ),
        207,
    ),
    "lines with headers": (
        _NATIVE,
        "application/x-ndjson",
        lambda: b"\n".join([*_with_headers(20), b""]),
        200,
    ),
    "90,000 entries of Dapr": (_BULK, _JSON, lambda: _list(_numbered(_ENTRY, 90_000)), 204),
    "entries of Dapr with metadata": (
        _BULK,
        _JSON,
        lambda: _list(
            _numbered(b'{"entryId":"%d","event":"1","contentType":"text/plain",' + _metadata() + b"}", 100)
        ),
        204,
    ),
    "90,000 events": ("/cloudevents/orders", _EVENTS, lambda: _list(_numbered(_EVENT, 90_000)), 202),
    "99,999 keys": (_NATIVE, _JSON, lambda: _records(_numbered(b'{"value":1,"key":"%d"}', 99_999)), 200),
    "99,999 keys, v2": (
        "/topics/orders",
        _V2,
        lambda: _records(_numbered(b'{"value":1,"key":%d}', 99_999)),
        200,
    ),
    "80,000 records under an Idempotency-Key": (
        _NATIVE,
        _JSON + ";idempotency-key",
        lambda: _records([_ONE] * 80_000),
        200,
    ),
    "99,000 records of a trace": (_NATIVE, _JSON + ";traceparent", lambda: _records([_ONE] * 99_000), 200),
    "80,000 records of a trace under an Idempotency-Key": (
        _NATIVE,
        _JSON + ";traceparent;idempotency-key",
        lambda: _records([_ONE] * 80_000),
        200,
    ),
    "records that all fail": (
        _NATIVE + "?max_block_ms=1",
        _JSON,
        lambda: _records([b'{"value":1,"partition":99}'] * 50_000),
        404,
    ),
    "long keys": (_NATIVE, _JSON, lambda: _records([b'{"value":1,"key":"%s"}' % (b"k" * 15_000)] * 300), 200),
    "look-ups of long keys": (
        "/v1/leaders",
        _JSON,
        lambda: b'{"lookups":' + _list([_LOOK_UP] * 1_000) + b"}",
        200,
    ),
    "brackets": (_NATIVE, _JSON, lambda: b"[" * _BYTES, 400),
    "brackets, v2": ("/topics/orders", _V2, lambda: b"[" * _BYTES, 400),
    "brackets, v3 batch": (_V3 + ":batch", _JSON, lambda: b"[" * _BYTES, 400),
    "brackets, Dapr": (_BULK, _JSON, lambda: b"[" * _BYTES, 400),
    "brackets, an event": ("/cloudevents/orders", "application/cloudevents+json", lambda: b"[" * _BYTES, 413),
    "base64": (
        _NATIVE,
        _JSON,
        lambda: _records([b'{"value":"' + _base64() + b'"}'], b',"value_format":"base64"'),
        413,
    ),
    "base64, v2": (
        "/topics/orders",
        "application/vnd.kafka.binary.v2+json",
        lambda: _records([b'{"value":"' + _base64() + b'"}']),
        413,
    ),
    "base64, Dapr": (
        _BULK,
        _JSON,
        lambda: b'[{"entryId":"1","event":"' + _base64() + b'","contentType":"application/octet-stream"}]',
        413,
    ),
    "bytes, Dapr": ("/v1.0/publish/pubsub/orders", "application/octet-stream", lambda: bytes(_BYTES), 413),
    "a name twice behind deep arrays": (
        _NATIVE,
        _JSON,
        lambda: _records([b'{"value":[' + _deep() + b'],"key":"a","key":"b"}']),
        400,
    ),
    "a name twice behind deep arrays, look-ups": (
        "/v1/leaders",
        _JSON,
        lambda: b'{"lookups":[' + _deep() + b'],"lookups":[]}',
        400,
    ),
    "a value of zeros": (_NATIVE, _JSON, lambda: _records([b'{"value":' + _zeros() + b"}"]), 413),
    "zeros for events": ("/cloudevents/orders", _EVENTS, _zeros, 413),
    "a record that is none behind 80,000": (
        _NATIVE,
        _JSON,
        lambda: _records([*[_ONE] * 80_000, b'{"value":1,"value":1}']),
        400,
    ),
}


class _Sidecar:
    """An app over a real client, and its event loop."""

    def __init__(self, cluster: FakeCluster, loop: MeasuredLoop) -> None:
        self.loop = loop
        # Bodies are understood for as long as a slow machine needs: no deadline of theirs may end the test.
        unhurried = {**QUICK, "delivery.timeout.ms": 600_000, "max.block.ms": 600_000}
        kafka = {name: str(value).lower() for name, value in unhurried.items()}
        settings = Settings(kafka={**kafka, "bootstrap.servers": cluster.bootstrap_servers})
        self.app = App(settings)
        assert isinstance(self.app.sidecar.producer, KafkaProducer)
        self._cluster_id = cluster.cluster_id
        self._keys = 0
        self.answer = b""
        """The body of the latest answer, or its beginning."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.app.api.router.lifespan_context(self.app.api):
            self.app.sidecar.producer.configure_topics(["orders"])
            await until(lambda: "orders" in self.app.sidecar.producer.cache.topics)
            yield

    async def post(self, path: str, content_type: str, body: bytes) -> int:
        """The status; the body comes as a connection brings it."""
        path = path.replace("{cluster}", self._cluster_id)
        media_type, *names = content_type.split(";")
        self._keys += 1
        more = {"idempotency-key": (b"idempotency-key", b"%d" % self._keys), "traceparent": TRACEPARENT}
        headers = [more[name] for name in names]
        call = Call(self.app, path, (b"content-type", media_type.encode()), *headers, body=body)
        await call.ask()
        self.answer = call.answer
        return call.status

    async def look_up(self) -> None:
        """One that is answered at once, from memory."""
        assert await Call(self.app, "/v1/topics/orders/leader?partition=0").ask() == 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as running:
        running.create_topic("orders", partitions=8)
        yield running


def check_turns(cluster: FakeCluster, round_: Callable[[_Sidecar], Coroutine[object, object, float]]) -> None:
    """Repeats rounds, each of which returns its longest turn, until one has none that is too long."""

    async def rounds(sidecar: _Sidecar) -> float:
        best = float("inf")
        async with sidecar.running():
            for _ in range(_ROUNDS):
                best = min(best, await round_(sidecar))
                if best < MOST_UNITS:
                    break
        return best

    loop = MeasuredLoop()
    with no_collector(), asyncio.Runner(loop_factory=lambda: loop) as runner:
        units = runner.run(rounds(_Sidecar(cluster, loop)))
    assert units < MOST_UNITS, f"a turn of {units:.0f} units"


@pytest.mark.parametrize("name", BODIES)
def test_no_body_holds_the_event_loop(name: str, cluster: FakeCluster) -> None:
    path, content_type, make, status = BODIES[name]
    body = make()

    async def round_(sidecar: _Sidecar) -> float:
        gc.collect(1)  # all that the rounds before have left, as the collector rests
        await asyncio.sleep(0)
        sidecar.loop.forget()
        assert await sidecar.post(path, content_type, body) == status, sidecar.answer
        await asyncio.sleep(0)  # what the request has held is let go of
        await asyncio.sleep(0)
        return sidecar.loop.longest_turn

    check_turns(cluster, round_)


def test_others_are_served_while_large_bodies_are_understood(cluster: FakeCluster) -> None:
    """Look-ups at each turn, and a body of a moment before those of a second, though it came last."""
    path, content_type, *_ = BODIES["records with 9,990 headers each"]
    body = _records(_with_headers(33))
    small = _records([b'{"value":1,"key":"a","headers":[]}'] * 4_000)

    async def scenario(sidecar: _Sidecar) -> float:
        """The longest turn until the first is answered."""
        answered: list[str] = []

        async def post(name: str, body: bytes) -> None:
            assert await sidecar.post(path, content_type, body) == 200, sidecar.answer
            answered.append(name)

        large = [asyncio.create_task(post("large", body)) for _ in range(3)]
        await until(lambda: sidecar.app.sidecar.admission.bytes >= 3 * len(body))
        gc.collect(1)
        await asyncio.sleep(0)  # that turn was the collector's
        sidecar.loop.forget()
        for _ in range(20):  # until all of them are on their threads
            await asyncio.sleep(0)
        last = asyncio.create_task(post("small", small))
        look_ups = 0
        while not answered:
            await sidecar.look_up()
            look_ups += 1
            await asyncio.sleep(0)
        units = sidecar.loop.longest_turn
        await asyncio.gather(*large, last)
        assert answered == ["small", "large", "large", "large"]
        assert look_ups > 10
        return units

    check_turns(cluster, scenario)
