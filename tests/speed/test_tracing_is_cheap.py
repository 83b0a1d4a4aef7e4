"""What traces cost a produce that has none, and one that has: counted in calls of Python functions.

The trace of a request is looked for in one place, and off or not there it costs as good as nothing. Bounds
are what was measured, and a little: where one is broken, something is done once more per request or record.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core import ProducerRecord
from service.observe.request_trace import marked
from service.wire.trace_context import TraceContext
from tests.speed.counted_calls import calls_of
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from collections import Counter

    from service.wire.asgi import Message

PARENT: Final = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
RECORDS: Final = 1_000


def calls_of_produce(*headers: tuple[bytes, bytes], records: int = 1, **settings: Any) -> Counter[Any]:
    """The Python functions that a produce enters, each with its file, by a request that is not the first."""
    web = HttpApp(**settings)
    web.producer.set_topics({"orders": 3})
    body = json.dumps({"records": [{"value": n} for n in range(records)]}).encode()
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/topics/orders/records",
        "raw_path": b"/v1/topics/orders/records",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            *headers,
        ],
    }
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def ask() -> None:
        await web.app(dict(scope), receive, send)

    with asyncio.Runner() as runner:
        runner.run(ask())
        loop = runner.get_loop()
        calls = calls_of(lambda: loop.run_until_complete(ask()))
    assert statuses == [200, 200]
    return calls.python


def entered(calls: Counter[Any], *files: str) -> int:
    return sum(count for (file, _), count in calls.items() if file in files)


@pytest.mark.parametrize(
    ("settings", "most"), [({"trace_headers": False}, 0), ({"trace_headers": True}, 2)], ids=["off", "on"]
)
def test_a_produce_without_a_trace_enters_next_to_nothing_for_it(settings: dict[str, Any], most: int) -> None:
    """On, two: the look for a header, among those that were sorted by name in any case."""
    calls = calls_of_produce(**settings)
    assert entered(calls, "request_trace", "trace_context") <= most


def test_without_a_trace_the_headers_cost_a_produce_no_more_than_a_look() -> None:
    off, on = (calls_of_produce(trace_headers=setting) for setting in (False, True))
    assert on.total() - off.total() <= 3


def test_a_thousand_records_are_marked_with_as_many_calls_as_one() -> None:
    traced = (b"traceparent", PARENT)
    few, many = (calls_of_produce(traced, records=records) for records in (1, RECORDS))
    files = ("request_trace", "trace_context")
    assert entered(many, *files) == entered(few, *files) <= 16


def test_records_that_bring_headers_cost_some_calls_each() -> None:
    """Their names are looked at, and the record is made anew."""
    records = [ProducerRecord("orders", b"x", headers=(("h", b"1"),))] * RECORDS
    calls = calls_of(lambda: marked(records, TraceContext(PARENT)))
    assert calls.python.total() <= 7 * RECORDS
