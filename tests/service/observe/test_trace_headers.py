"""A request's traceparent in the headers of its records: on every path, and only with the setting."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from service.observe.request_trace import REQUEST_TRACE, CarriedTrace
from service.wire.trace_context import TraceContext
from tests.support.coroutine_tests import run
from tests.support.http_app import HttpApp
from tests.support.served import Served, on_each_loop

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
    web.producer.submitted.clear()
    return submitted


def test_every_form_of_posting_marks_its_records_behind_what_they_bring() -> None:
    without, with_trace = app(), app()
    for form in FORMS:
        plain, traced = record(without, form), record(with_trace, form, **TRACED)
        assert not {"traceparent", "tracestate"} & {name for name, _ in plain.headers}, form
        assert traced == plain._replace(headers=(*plain.headers, *MARKS)), form


def test_without_the_setting_records_are_as_they_were_posted() -> None:
    off, on = app(trace_headers=False), app()
    for form in FORMS:
        assert record(off, form, **TRACED) == record(on, form), form


def test_a_stream_of_unknown_length_marks_them_too() -> None:
    web = app()

    async def pieces() -> Any:
        yield V3_RECORD

    answer = web.post(V3, content=pieces(), headers={"content-type": JSON, **TRACED})
    assert answer.is_success
    assert web.producer.submitted[0][0].headers == MARKS


def test_without_a_tracestate_there_is_none() -> None:
    assert record(app(), "native JSON", traceparent=PARENT).headers == MARKS[:1]


def test_what_is_no_traceparent_marks_nothing() -> None:
    web = app()
    for parent in ("", "hello", PARENT.upper(), PARENT[:-1], f"{PARENT}-x", f"ff{PARENT[2:]}"):
        assert record(web, "native JSON", traceparent=parent, tracestate="a=b").headers == (), parent


def test_a_record_keeps_its_own_context_and_its_neighbours_get_the_requests() -> None:
    for own in ("traceparent", "tracestate"):
        web = app()
        header = {"key": own, "value": base64.b64encode(OWN.encode()).decode()}
        other = {"key": "h", "value": None}
        body = {
            "records": [{"value": 1, "headers": [header]}, {"value": 2, "headers": [other]}, {"value": 3}]
        }
        assert web.post(NATIVE, json=body, headers=TRACED).status_code == 200, own
        ((first, second, third),) = web.producer.submitted
        assert first.headers == ((own, OWN.encode()),), own
        assert second.headers == (("h", None), *MARKS), own
        assert third.headers == MARKS, own


def test_a_record_with_many_headers_gets_the_requests_context_too() -> None:
    web = app()
    headers = [{"key": f"h{n}", "value": None} for n in range(100)]
    assert web.post(NATIVE, json={"records": [{"value": 1, "headers": headers}]}, headers=TRACED).is_success
    ((one,),) = web.producer.submitted
    assert tuple(one.headers) == (*((f"h{n}", None) for n in range(100)), *MARKS)


def test_a_cloudevents_own_traceparent_is_its_extension_and_stays_one() -> None:
    """The extension says where the event was made; the HTTP header says who sends it now."""
    headers = dict(record(app(), "CloudEvents, binary", **TRACED, **{"ce-traceparent": OWN}).headers)
    assert (headers["ce_traceparent"], headers["traceparent"]) == (OWN.encode(), PARENT.encode())


def test_daprs_records_get_no_headers_that_dapr_would_not_write() -> None:
    for query in ("", "?metadata.rawPayload=true"):
        plain, traced = app(), app()
        path = f"/v1.0/publish/pubsub/orders{query}"
        assert plain.post(path, json={"n": 1}).status_code == 204, query
        assert traced.post(path, json={"n": 1}, headers=TRACED).status_code == 204, query
        ((one,),), ((other,),) = plain.producer.submitted, traced.producer.submitted
        assert one.headers == other.headers, query
        if not query:
            assert json.loads(other.value or b"")["traceparent"] == PARENT, query


def test_the_next_request_on_the_same_task_is_another() -> None:
    web = app()

    async def two() -> None:
        async with web.client() as client:
            for headers in (TRACED, {}):
                await client.post(NATIVE, json={"records": [{"value": 1}]}, headers=headers)
                assert REQUEST_TRACE.get() is None, "or the log lines after it had its trace id"

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
    """A produce request as its bytes on a connection."""
    lines = [f"{name}: {value}" for name, value in {"Host": "localhost", **headers}.items()]
    head = "\r\n".join([f"POST {NATIVE} HTTP/1.1", *lines, f"Content-Length: {len(body)}", "\r\n"])
    return head.encode() + body


@on_each_loop
async def test_of_pipelined_requests_each_has_its_own_trace_or_none() -> None:
    """The second is begun from within the first, and the fourth from within the third."""
    web = app()
    bodies = [b'{"records":[{"value":%d}]}' % number for number in range(4)]
    sent = [{"Content-Type": JSON, **TRACED}, {"Content-Type": JSON}] * 2
    async with Served(web.app) as served:
        caller = await served.call()
        caller.send(b"".join(posted(body, **headers) for body, headers in zip(bodies, sent, strict=True)))
        for _ in bodies:
            assert (await caller.answer())[0] == 200
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
