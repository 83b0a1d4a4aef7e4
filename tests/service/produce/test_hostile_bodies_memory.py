"""No body takes many times its length in memory while it is read, and it is freed when it is answered."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import pytest

from service.wire.strict_json import SEARCHED_BYTES
from tests.fuzz.http_bodies import PATHS
from tests.support.http_app import HttpApp
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

#: More than those have that are looked through for a fault's place, which may take thirty times their length.
_BODY_BYTES: Final = SEARCHED_BYTES + 100_000
#: Of the bodies that come first, once.
_FIRST_BYTES: Final = 10_000
#: The body, its compacted copy, one of an array that is taken to pieces; and what is bounded by a number of
#: its own, such as the thousand records that may be read here, and ten thousand headers.
_TIMES: Final = 8


def _array(item: bytes, size_bytes: int) -> bytes:
    return b"[" + b",".join([item] * (size_bytes // (len(item) + 1))) + b"]"


def _members(size_bytes: int) -> bytes:
    return b"{" + b",".join(b'"%x":0' % n for n in range(size_bytes // 9)) + b"}"


@cache
def _bodies(size_bytes: int) -> dict[str, bytes]:
    array, text, members = partial(_array, size_bytes=size_bytes), b"a" * size_bytes, _members(size_bytes)
    return {
        "nulls": array(b"null"),
        "zeros": array(b"0"),
        "empty objects": array(b"{}"),
        "members": members,
        "an entry of members": b"[" + members + b"]",
        "empty records": b'{"records":' + array(b"{}") + b"}",
        "empty entries": b'{"entries":' + array(b"{}") + b"}",
        "zeros for entries": b'{"entries":' + array(b"0") + b"}",
        "headers": b'{"records":[{"value":1,"headers":' + array(b'{"key":"a","value":""}') + b"}]}",
        "headers of v3": b'{"value":{"type":"JSON","data":1},"headers":' + array(b'{"name":"a"}') + b"}",
        "brackets": b"[" * size_bytes,
        "a text": b'{"records":[{"value":"' + text + b'"}]}',
        "no UTF-8": b'{"records":[{"value":"' + b"\xff" * size_bytes + b'"}]}',
        "a name twice": b'{"records":[{"value":"' + text + b'","value":1}]}',
        "a name twice around an event": b'{"data":"' + text + b'","data":1}',
        "a value of objects": b'{"records":[{"value":' + array(b"{}") + b"}]}",
        "look-ups": b'{"lookups":' + array(b"{}") + b"}",
    }


#: A splitter that only looks at brackets, and at no names, treats these like "empty records".
_SAME_TO_A_SPLITTER: Final = {"empty entries", "look-ups", "a value of objects"}


def _status_of(web: HttpApp, path: str, body: bytes, content_type: str) -> int:
    """The answer, without a deadline: tracing memory takes seconds of CPU."""

    async def asked() -> int:
        async with web.client() as client:
            answer = await client.post(path, content=body, headers={"content-type": content_type})
            return answer.status_code

    return asyncio.run(asked())


def _holds_less_than(limit_bytes: float) -> bool:
    return tracemalloc.get_traced_memory()[0] < limit_bytes


@pytest.fixture
def _no_collector() -> Iterator[None]:
    """Objects in a cycle live until the collector runs, seconds later: nothing may rely on it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize(("path", "content_type"), PATHS, ids=lambda part: part)
def test_no_body_takes_many_times_its_length_or_stays(path: str, content_type: str) -> None:
    web = HttpApp(max_records_per_request=1_000)
    web.producer.set_topics({"orders": 3})
    cluster_id = web.get("/v1/cluster").json()["cluster_id"]
    path = path.replace("/clusters/cluster/", f"/clusters/{cluster_id}/")
    left_out = _SAME_TO_A_SPLITTER if path.endswith("/records") and "/v3/" in path else set()
    bodies = {name: body for name, body in _bodies(_BODY_BYTES).items() if name not in left_out}
    for body in (b'{"a":1}', *_bodies(_FIRST_BYTES).values()):
        _status_of(web, path, body, content_type)  # what is made once is made
    gc.collect()
    for name, body in bodies.items():
        tracemalloc.start()
        try:
            status = _status_of(web, path, body, content_type)
            for kept in (web.producer.submitted, web.producer.calls):
                kept.clear()  # what was taken: the fake's own memory of it
            # A thread that has read it lets go of it a moment after its result is there.
            wait_until(partial(_holds_less_than, len(body) / 2), what=f"{name} is let go of", every_s=0.01)
            left, taken = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Dapr's own status of data that it can't put into an event.
        is_daprs = path.startswith("/v1.0/") and name == "brackets"
        assert status < 500 or is_daprs, name
        assert taken < _TIMES * len(body), f"{name}: {taken:,} bytes for {len(body):,}, {status}"
        assert left < len(body) / 2, f"{name}: {left:,} bytes are left of {len(body):,}, {status}"
