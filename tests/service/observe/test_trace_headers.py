"""A request's traceparent in the headers of its records: in every way to post them, and in none unasked."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from service.observe.request_trace import REQUEST_TRACE, CarriedTrace
from service.wire.trace_context import TraceContext
from tests.support.coroutine_tests import run
from tests.support.http_app import HttpApp
from tests.support.served import LOOPS, Served, on_loop

if TYPE_CHECKING:
    from client_core import ProducerRecord

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = {"traceparent": PARENT, "tracestate": "vendor=1"}
MARKS = (("traceparent", PARENT.encode()), ("tracestate", b"vendor=1"))
OWN = "00-ffffffffffffffffffffffffffffffff-eeeeeeeeeeeeeeee-00"

NATIVE = "/v1/topics/orders/records"
V3 = "/v3/clusters/cluster/topics/orders/records"
JSON = "application/json"
EVENT = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t", "data": {"n": 1}}
BINARY_EVENT = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/a", "ce-type": "t"}
V3_RECORD = b'{"value":{"type":"STRING","data":"x"}}'

#: Path, media type, body, further headers.
FORMS: dict[str, tuple[str, str, bytes, dict[str, str]]] = {
    "native JSON": (NATIVE, JSON, b'{"records":[{"value":1}]}', {}),
    "native JSON, under a key": (NATIVE, JSON, b'{"records":[{"value":1}]}', {"idempotency-key": "k"}),
    "by FastAPI's route": ("/v1/topics/%6Frders/records", JSON, b'{"records":[{"value":1}]}', {}),
    "NDJSON": (NATIVE, "application/x-ndjson", b'{"value":1}\n', {}),
    "octet-stream": (NATIVE, "application/octet-stream", b"x", {}),
    "REST v2": ("/topics/orders", "application/vnd.kafka.json.v2+json", b'{"records":[{"value":1}]}', {}),
    "REST v3": (V3, JSON, V3_RECORD, {}),
    "REST v3, batch": (f"{V3}:batch", JSON, b'{"entries":[{"id":"1",%s]}' % V3_RECORD[1:], {}),
    "CloudEvents, binary": ("/cloudevents/orders", JSON, b"1", BINARY_EVENT),
    "CloudEvents, structured": (
        "/cloudevents/orders",
        "application/cloudevents+json",
        json.dumps(EVENT).encode(),
        {},
    ),
    "CloudEvents, batch": (
        "/cloudevents/orders",
        "application/cloudevents-batch+json",
        json.dumps([EVENT]).encode(),
        {},
    ),
}


def app(**settings: Any) -> HttpApp:
    web = HttpApp(**settings)
    web.producer.set_topics({"orders": 3})
    return web


def record(web: HttpApp, form: str, **headers: str) -> ProducerRecord:
    """The one record that a post in this form becomes."""
    path, media_type, body, more = FORMS[form]
    answer = web.post(path, content=body, headers={"content-type": media_type, **more, **headers})
    assert answer.is_success, answer.text
    ((submitted,),) = web.producer.submitted
    return submitted


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_posting_marks_its_records_behind_what_they_bring(form: str) -> None:
    plain, traced = record(app(), form), record(app(), form, **TRACED)
    assert not {"traceparent", "tracestate"} & {name for name, _ in plain.headers}
    assert traced == plain._replace(headers=(*plain.headers, *MARKS))


@pytest.mark.parametrize("form", FORMS)
def test_without_the_setting_records_are_as_they_were_posted(form: str) -> None:
    assert record(app(trace_headers=False), form, **TRACED) == record(app(), form)


def test_a_stream_of_unknown_length_marks_them_too() -> None:
    web = app()

    async def pieces() -> Any:
        yield V3_RECORD

    answer = web.post(V3, content=pieces(), headers={"content-type": JSON, **TRACED})
    assert answer.is_success
    assert web.producer.submitted[0][0].headers == MARKS


def test_without_a_tracestate_there_is_none() -> None:
    assert record(app(), "native JSON", traceparent=PARENT).headers == MARKS[:1]


@pytest.mark.parametrize(
    "parent", ["", "hello", PARENT.upper(), PARENT[:-1], f"{PARENT}-x", f"ff{PARENT[2:]}"]
)
def test_what_is_no_traceparent_marks_nothing(parent: str) -> None:
    assert record(app(), "native JSON", traceparent=parent, tracestate="a=b").headers == ()


@pytest.mark.parametrize("own", ["traceparent", "tracestate"])
def test_a_record_keeps_its_own_context_and_its_neighbours_get_the_requests(own: str) -> None:
    web = app()
    header = {"key": own, "value": base64.b64encode(OWN.encode()).decode()}
    other = {"key": "h", "value": None}
    body = {"records": [{"value": 1, "headers": [header]}, {"value": 2, "headers": [other]}, {"value": 3}]}
    assert web.post(NATIVE, json=body, headers=TRACED).status_code == 200
    ((first, second, third),) = web.producer.submitted
    assert first.headers == ((own, OWN.encode()),)
    assert second.headers == (("h", None), *MARKS)
    assert third.headers == MARKS


def test_a_cloudevents_own_traceparent_is_its_extension_and_stays_one() -> None:
    """The extension tells where the event was made, the header of HTTP who sends it now."""
    headers = dict(record(app(), "CloudEvents, binary", **TRACED, **{"ce-traceparent": OWN}).headers)
    assert (headers["ce_traceparent"], headers["traceparent"]) == (OWN.encode(), PARENT.encode())


@pytest.mark.parametrize("query", ["", "?metadata.rawPayload=true"])
def test_daprs_records_get_no_headers_that_dapr_would_not_write(query: str) -> None:
    plain, traced = app(), app()
    path = f"/v1.0/publish/pubsub/orders{query}"
    assert plain.post(path, json={"n": 1}).status_code == 204
    assert traced.post(path, json={"n": 1}, headers=TRACED).status_code == 204
    ((one,),), ((other,),) = plain.producer.submitted, traced.producer.submitted
    assert one.headers == other.headers
    if not query:
        assert json.loads(other.value or b"")["traceparent"] == PARENT


def test_the_next_request_on_the_same_task_is_another() -> None:
    web = app()

    async def two() -> None:
        async with web.client() as client:
            for headers in (TRACED, {}):
                await client.post(NATIVE, json={"records": [{"value": 1}]}, headers=headers)

    run(two())
    assert [records[0].headers for records in web.producer.submitted] == [MARKS, ()]


def test_an_answer_under_a_key_is_the_same_whatever_trace_the_retry_belongs_to() -> None:
    web = app()
    headers = {"idempotency-key": "k", "content-type": JSON}
    first = web.post(NATIVE, content=b'{"records":[{"value":1}]}', headers={**headers, **TRACED})
    again = web.post(NATIVE, content=b'{"records":[{"value":1}]}', headers={**headers, "traceparent": OWN})
    assert (first.status_code, again.status_code, again.content) == (200, 200, first.content)
    assert len(web.producer.submitted) == 1


def posted(body: bytes, **headers: str) -> bytes:
    """A produce as it stands on a connection."""
    lines = [f"{name}: {value}" for name, value in {"Host": "localhost", **headers}.items()]
    head = "\r\n".join([f"POST {NATIVE} HTTP/1.1", *lines, f"Content-Length: {len(body)}", "\r\n"])
    return head.encode() + body


@pytest.mark.parametrize("loop", LOOPS)
def test_of_pipelined_requests_each_has_its_own_trace_or_none(loop: str) -> None:
    """The second is begun from within the first, and the fourth from within the third."""
    web = app()
    bodies = [b'{"records":[{"value":%d}]}' % number for number in range(4)]

    async def scenario() -> None:
        async with Served(web.app) as served:
            caller = await served.call()
            with_trace = {"Content-Type": JSON, **TRACED}
            without = {"Content-Type": JSON}
            caller.send(
                b"".join(posted(body, **(without if n % 2 else with_trace)) for n, body in enumerate(bodies))
            )
            for _ in bodies:
                assert (await caller.answer())[0] == 200

    on_loop(loop, scenario())
    assert [records[0].headers for records in web.producer.submitted] == [MARKS, (), MARKS, ()]


async def test_a_server_that_begins_a_request_within_another_hands_on_no_trace() -> None:
    web = app()
    token = REQUEST_TRACE.set(CarriedTrace(TraceContext(PARENT.encode())))
    try:
        async with web.client() as client:
            sent = {"content-type": JSON}
            answer = await client.post(NATIVE, content=b'{"records":[{"value":1}]}', headers=sent)
            assert answer.status_code == 200
    finally:
        REQUEST_TRACE.reset(token)
    assert web.producer.submitted[0][0].headers == ()
