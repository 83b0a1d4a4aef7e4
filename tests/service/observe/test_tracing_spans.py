"""Spans of requests and of the records that they bring, as the conventions have them."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any, Final

import httpx
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from client_core import (
    Phase,
    ProduceResult,
    RecordFailure,
    RecordTooLargeError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    Wait,
    Written,
)
from client_core.producer.results.batch_outcome import BatchOutcome
from client_core.producer.results.results import BatchSpan, FailedSpan
from client_core.record.record_content import TimestampRuns
from service.base.settings import Settings
from service.observe.tracing.otlp import make_span_traces
from service.process.app import App
from service.wire.asgi import ANSWER, answer_at_once
from tests.support.coroutine_tests import run, until
from tests.support.fake_producer import FakeProducer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from client_core import ProducerRecord, RecordMetadata
    from service.base.producer_protocol import Producer
    from service.wire.asgi import Receive, Scope, Send

TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = f"00-{TRACE_ID}-b7ad6b7169203331-01"
UNSAMPLED: Final = f"00-{TRACE_ID}-b7ad6b7169203331-00"
PATH: Final = "/v1/topics/orders/records"


class Traced:
    """An app whose spans are kept, over a fake producer or over another."""

    def __init__(self, producer: Producer | None = None, **settings: Any) -> None:
        self.fake = FakeProducer()
        self.fake.set_topics({"orders": 3})
        values = {"kafka": {"bootstrap.servers": "localhost:9092"}, "tracing": "otlp", **settings}
        self.settings = Settings.model_validate(values)
        self.kept = InMemorySpanExporter()
        self.traces = make_span_traces(self.settings, self.kept, {})
        self.app = App(self.settings, producer or self.fake, traces=self.traces)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://localhost")

    def ask(self, method: str, path: str, **sent: Any) -> httpx.Response:
        async def once() -> httpx.Response:
            async with self.client() as client:
                return await client.request(method, path, **sent)

        return run(once())

    def post(self, *records: Mapping[str, object], **headers: str) -> httpx.Response:
        body = {"records": list(records) or [{"value": 1}]}
        return self.ask("POST", PATH, json=body, headers=headers)

    def spans(self) -> dict[str, ReadableSpan]:
        """The spans by their names; those of one name must be asked for by `all_spans`."""
        spans = self.all_spans()
        by_name = {span.name: span for span in spans}
        assert len(by_name) == len(spans), [span.name for span in spans]
        return by_name

    def all_spans(self) -> list[ReadableSpan]:
        assert self.traces.spans.force_flush(5_000)
        return list(self.kept.get_finished_spans())


def said(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def test_a_produce_is_a_span_of_the_server_and_one_of_its_records_in_the_callers_trace() -> None:
    web = Traced()
    assert web.post({"value": 1, "partition": 2}, traceparent=PARENT, tracestate="v=1").status_code == 200
    spans = web.spans()
    server, send = spans["POST /v1/topics/{topic}/records"], spans["send orders"]
    assert (server.kind, send.kind) == (SpanKind.SERVER, SpanKind.PRODUCER)
    assert server.parent is not None
    assert send.parent is not None
    assert f"{server.parent.span_id:016x}" == "b7ad6b7169203331"
    assert send.parent.span_id == ids(server)[1]
    assert {f"{ids(span)[0]:032x}" for span in (server, send)} == {TRACE_ID}
    assert said(server) == {
        "http.request.method": "POST",
        "http.route": "/v1/topics/{topic}/records",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "url.path": PATH,
        "network.protocol.version": "1.1",
        "server.address": "localhost",
        "user_agent.original": f"python-httpx/{httpx.__version__}",
    }
    assert said(send) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "2",
        "messaging.client.id": "producer-1",
        "messaging.message.body.size": 1,
    }
    assert {span.status.status_code for span in (server, send)} == {StatusCode.UNSET}


def test_records_bear_the_context_of_the_span_that_sent_them() -> None:
    web = Traced()
    web.post({"value": 1}, {"value": 2}, traceparent=PARENT, tracestate="v=1")
    trace_id, span_id = ids(web.spans()["send orders"])
    marks = (("traceparent", f"00-{trace_id:032x}-{span_id:016x}-01".encode()), ("tracestate", b"v=1"))
    ((one, other),) = web.fake.submitted
    assert one.headers == other.headers == marks


def test_a_request_without_a_context_begins_a_trace() -> None:
    web = Traced()
    web.post()
    spans = web.spans()
    server, send = spans["POST /v1/topics/{topic}/records"], spans["send orders"]
    assert server.parent is None
    assert ids(server)[0] == ids(send)[0]
    assert web.fake.submitted[0][0].headers[0][0] == "traceparent"


def test_without_the_setting_for_headers_there_are_spans_and_no_headers() -> None:
    web = Traced(trace_headers=False)
    web.post(traceparent=PARENT)
    assert len(web.spans()) == 2
    assert web.fake.submitted[0][0].headers == ()


def test_a_request_that_the_caller_did_not_sample_has_no_span_and_is_passed_on_as_such() -> None:
    web = Traced()
    web.post(traceparent=UNSAMPLED)
    assert web.all_spans() == []
    ((name, value),) = web.fake.submitted[0][0].headers
    assert (name, (value or b"")[:36], (value or b"")[-3:]) == (
        "traceparent",
        UNSAMPLED[:36].encode(),
        b"-00",
    )


def test_several_records_have_a_count_and_no_partition_that_is_not_all_of_theirs() -> None:
    web = Traced()
    web.post({"value": 1, "partition": 0}, {"value": 2, "partition": 1}, {"value": None, "partition": 1})
    attributes = said(web.spans()["send orders"])
    assert attributes["messaging.batch.message_count"] == 3
    assert not {"messaging.destination.partition.id", "messaging.kafka.message.tombstone"} & set(attributes)


def test_a_tombstone_is_marked_as_one() -> None:
    web = Traced()
    web.post({"value": None, "key": "secret"})
    attributes = said(web.spans()["send orders"])
    assert attributes["messaging.kafka.message.tombstone"] is True
    assert "secret" not in str(attributes)


def test_records_that_name_their_own_context_keep_it_and_are_linked() -> None:
    web = Traced()
    own = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    header = {"key": "traceparent", "value": base64.b64encode(own.encode()).decode()}
    web.post({"value": 1, "headers": [header]}, {"value": 2, "headers": [header]}, traceparent=PARENT)
    (link,) = web.spans()["send orders"].links
    assert (link.context.trace_id, link.context.span_id) == (int("1" * 32, 16), int("2" * 16, 16))
    ((one, _),) = web.fake.submitted
    assert one.headers == (("traceparent", own.encode()),)


def test_a_span_links_to_some_of_very_many_contexts() -> None:
    web = Traced()
    contexts = [f"00-{'1' * 32}-{number:016x}-01".encode() for number in range(1, 41)]
    headers = [{"key": "traceparent", "value": base64.b64encode(one).decode()} for one in contexts]
    web.post(*({"value": 1, "headers": [header]} for header in headers))
    links = web.spans()["send orders"].links
    assert [link.context.span_id for link in links] == list(range(1, 33))


# -- failures ------------------------------------------------------------------------------------------------


def failing(*failed: int) -> Any:
    def outcome(index: int, record: ProducerRecord) -> object:
        if index not in failed:
            return FakeProducer.receipt(index, record)
        error = TimeoutError("no answer") if index else UnknownTopicOrPartitionError("not there")
        return RecordFailure(error, Phase.DELIVERY, Written.UNKNOWN, 17)

    return outcome


def test_failed_records_are_an_error_that_is_counted_and_each_kind_logged_once() -> None:
    web = Traced()
    web.fake.outcome_of = failing(0, 1, 2)
    assert web.post({"value": 1}, {"value": 2}, {"value": 3}, {"value": 4}).status_code == 207
    send = web.spans()["send orders"]
    assert send.status.status_code is StatusCode.ERROR
    assert send.status.description == "3 of 4 records failed: not there"
    attributes = said(send)
    assert attributes["error.type"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert attributes["pilotfish.failed_records"] == 3
    reported = [(event.name, (event.attributes or {})["exception.type"]) for event in send.events]
    assert reported == [("exception", "UNKNOWN_TOPIC_OR_PARTITION"), ("exception", "REQUEST_TIMED_OUT")]


def test_a_request_that_fails_as_a_whole_is_an_error_of_the_server_too() -> None:
    web = Traced()
    web.fake.outcome_of = failing(1)
    assert web.post({"value": 1}).status_code == 200
    web.fake.outcome_of = lambda *_: RecordFailure(TimeoutError("no"), Phase.DELIVERY, Written.NO, 1)
    assert web.post({"value": 1}).status_code == 503
    servers = [span for span in web.all_spans() if span.kind is SpanKind.SERVER]
    assert [span.status.status_code for span in servers] == [StatusCode.UNSET, StatusCode.ERROR]
    assert said(servers[1])["error.type"] == "503"


def test_a_refusal_by_the_client_is_an_error_of_its_span() -> None:
    web = Traced()
    web.fake.refuses = RecordTooLargeError("the record is too large")
    assert web.post().status_code == 413
    spans = web.spans()
    assert spans["send orders"].status.status_code is StatusCode.ERROR
    assert said(spans["send orders"])["error.type"] == "MESSAGE_TOO_LARGE"
    assert spans["POST /v1/topics/{topic}/records"].status.status_code is StatusCode.UNSET


def test_a_refusal_before_the_client_has_a_span_of_the_server_only() -> None:
    web = Traced()
    assert (
        web.ask("POST", PATH, content=b"no", headers={"content-type": "application/json"}).status_code == 400
    )
    (server,) = web.all_spans()
    assert said(server)["http.response.status_code"] == 400


def test_a_caller_who_leaves_is_reported_and_its_records_span_shows_the_real_outcome() -> None:
    web = Traced()
    web.fake.holds_records = True

    async def leave() -> None:
        async with web.client() as client:
            asking = asyncio.create_task(client.post(PATH, json={"records": [{"value": 1}]}))
            await until(lambda: web.fake.waiting)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        assert [span.name for span in web.all_spans()] == ["POST /v1/topics/{topic}/records"]
        web.fake.deliver(web.fake.undelivered[0])

    run(leave())
    server, send = web.all_spans()
    assert [event.name for event in server.events] == ["the caller left"]
    assert "http.response.status_code" not in said(server)
    assert send.status.status_code is StatusCode.UNSET


# -- which requests ------------------------------------------------------------------------------------------


async def test_a_span_that_memory_is_lacking_for_keeps_no_request_under_a_key_open() -> None:
    class NoMemoryForIt:
        error = None
        any_acknowledged = True

        @property
        def outcomes(self) -> Sequence[RecordMetadata | RecordFailure]:
            raise MemoryError

    web = Traced()
    web.fake.holds_records = True
    headers, body = {"idempotency-key": "k"}, {"records": [{"value": 1}]}
    async with web.client() as client:
        first = asyncio.create_task(client.post(PATH, json=body, headers=headers))
        await until(lambda: web.fake.waiting)
        web.fake.finish(web.fake.waiting[-1], NoMemoryForIt())
        assert (await first).status_code == 500
        again = await client.post(f"{PATH}?timeout_ms=1", json=body, headers=headers)
    assert (again.status_code, again.headers.get("pilotfish-replayed")) == (500, "true")


def test_prepared_look_ups_and_what_the_guards_refuse_have_no_span() -> None:
    web = Traced()
    assert web.ask("GET", "/v1/topics/orders").status_code == 200
    assert web.ask("GET", "/v1/topics/orders/leader?partition=0").status_code == 200
    assert web.ask("GET", "/v1/topics/orders", headers={"host": "evil.example"}).status_code == 421
    assert web.all_spans() == []


def test_other_requests_are_named_by_method_and_template() -> None:
    web = Traced()
    web.fake.on_brokers = {"late": 1}
    for path in ("/v1/status", "/v1/topics/late", "/nowhere", "/topics/orders?x=secret"):
        web.ask("GET", path)
    web.ask("HEAD", "/v1/status")
    web.ask("BREW", "/v1/cluster")
    named = [span.name for span in web.all_spans()]
    assert named == [
        "GET /v1/status",
        "GET /v1/topics/{topic}",
        "GET",
        "GET /topics/{topic}",
        "HEAD /v1/status",
        "HTTP /v1/cluster",
    ]
    assert "secret" not in str([said(span) for span in web.all_spans()])


def test_a_page_of_a_dialect_has_the_freshness_of_the_snapshot_that_it_lists() -> None:
    web = Traced()
    for path in ("brokers", "topics/orders/partitions", "topics/orders/partitions/0/replicas"):
        web.fake.clock.advance(5_000)
        web.fake.set_topics({"orders": 3})
        answer = web.ask("GET", f"/v3/clusters/cluster/{path}?page_size=1")
        version = f"{web.app.sidecar.boot}-{web.fake.cache.update_version}"
        assert answer.headers["pilotfish-metadata-version"] == version
        assert answer.headers["age"] == "0"


def test_a_look_up_of_a_topic_that_is_not_there_is_named_by_its_route_too() -> None:
    web = Traced()

    async def ask() -> None:
        async with web.client() as client:
            asking = asyncio.create_task(client.get("/v1/topics/nope"))
            await until(lambda: web.fake.waiting)
            web.fake.say_unknown(web.fake.waiting[0])
            assert (await asking).status_code == 404

    run(ask())
    (span,) = web.all_spans()
    assert span.name == "GET /v1/topics/{topic}"


def test_a_stream_is_a_span_and_each_chunk_of_it_one_of_its_records() -> None:
    web = Traced()

    async def pieces() -> Any:
        yield b'{"value":1}\n{"value":2}\n'
        yield b'{"value":3}\n'

    web.ask("POST", PATH, content=pieces(), headers={"content-type": "application/x-ndjson"})
    *sends, server = web.all_spans()
    assert (server.name, server.kind) == ("POST /v1/topics/{topic}/records", SpanKind.SERVER)
    assert [said(span).get("messaging.batch.message_count") for span in sends] == [2, None]
    assert {span.parent.span_id for span in sends if span.parent} == {ids(server)[1]}


def test_daprs_envelope_bears_the_span_that_serves_it() -> None:
    web = Traced()
    assert web.ask("POST", "/v1.0/publish/pubsub/orders", json=1, headers={"traceparent": PARENT}).is_success
    ((record,),) = web.fake.submitted
    server = next(span for span in web.all_spans() if span.kind is SpanKind.SERVER)
    trace_id, span_id = ids(server)
    event = json.loads(record.value or b"")
    assert event["traceparent"] == f"00-{trace_id:032x}-{span_id:016x}-01"
    assert "traceparent" not in dict(record.headers)


def test_a_hostile_head_makes_a_span_of_bounded_size() -> None:
    web = Traced()
    web.ask("GET", "/" + "x" * 20_000, headers={"user-agent": "y" * 20_000})
    (span,) = web.all_spans()
    assert max(len(str(value)) for value in said(span).values()) == 1_024


# -- waits ---------------------------------------------------------------------------------------------------


async def test_waits_for_metadata_and_for_memory_are_events_of_the_records_span() -> None:
    web = Traced()
    web.fake.holds_records = True
    failure = RecordFailure(TimeoutError("no memory"), Phase.BUFFER, Written.NO, 500)
    waits = (Wait(Phase.METADATA, 300), Wait(Phase.BUFFER, 200))
    async with web.client() as client:
        asking = asyncio.create_task(client.post(PATH, json={"records": [{"value": 1}]}))
        await until(lambda: web.fake.waiting)
        web.fake.finish(web.fake.waiting[0], ProduceResult(1, [FailedSpan((0,), failure)], 500, waits))
        assert (await asking).status_code == 503
    send = web.spans()["send orders"]
    metadata, buffer, _ = send.events
    assert [(e.name, dict(e.attributes or {})) for e in (metadata, buffer)] == [
        ("metadata wait", {"pilotfish.waited_ms": 300}),
        ("buffer wait", {"pilotfish.waited_ms": 200}),
    ]
    assert buffer.timestamp - metadata.timestamp == 200 * 1_000_000


async def test_the_span_of_an_acknowledged_record_has_its_partition_and_offset() -> None:
    web = Traced()
    web.fake.holds_records = True
    outcome = BatchOutcome("orders", 2, 17, 1_700_000_000_000, None, None, None, TimestampRuns(), 1)
    async with web.client() as client:
        asking = asyncio.create_task(client.post(PATH, json={"records": [{"value": 1}]}))
        await until(lambda: web.fake.waiting)
        web.fake.finish(web.fake.waiting[0], ProduceResult(1, [BatchSpan((0,), 0, outcome)], 5))
        assert (await asking).status_code == 200
    attributes = said(web.spans()["send orders"])
    assert attributes["messaging.destination.partition.id"] == "2"
    assert attributes["messaging.kafka.offset"] == 17


# -- the server's short way ----------------------------------------------------------------------------------


def test_an_answer_that_goes_out_at_once_has_its_status() -> None:
    """No ASGI message passes then."""
    web = Traced()
    written: list[int] = []

    def answer(code: int, head: bytes, body: bytes) -> bool:
        written.append(code)
        return True

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert answer_at_once(scope, scope["wanted"], [], b"")

    for status in (200, 304):
        asked: Any = {"type": "http", "method": "GET", "scheme": "http", "path": "/", "raw_path": b"/"}
        asked |= {"query_string": b"", "headers": [], ANSWER: answer, "wanted": status}
        nobody: Any = None  # neither is asked
        run(web.traces.around(app, "producer-1", lambda _: None)(asked, nobody, nobody))
    assert written == [200, 304]
    assert [said(span)["http.response.status_code"] for span in web.all_spans()] == [200, 304]


async def test_an_exception_is_an_error_by_its_name_and_no_disconnect() -> None:
    web = Traced()

    async def buggy(scope: Scope, receive: Receive, send: Send) -> None:
        raise KeyError("a bug")

    app = web.traces.around(buggy, "producer-1", lambda _: None)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.post(PATH, content=b"")).status_code == 500
    (span,) = web.all_spans()
    assert said(span)["http.response.status_code"] == 500
    assert said(span)["error.type"] == "KeyError"
    assert span.status.status_code is StatusCode.ERROR
    assert [event.name for event in span.events] == []
