"""Exemplars: from a range of a histogram to the trace of a request that fell into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from service.base.fast_metrics import Histogram, Trace
from service.observe.http_metrics import recorded_trace
from service.process.admin import make_registry
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"
OURS = {"trace_id": TRACE, "span_id": SPAN}
ONE = b'{"records":[{"value":1}]}'
JSON = {"content-type": "application/json"}

REQUESTS = "pilotfish_http_request_duration_seconds"
PRODUCES = "pilotfish_produce_duration_seconds"


def exemplars(web: HttpApp) -> Iterator[tuple[str, Mapping[str, str], Mapping[str, str]]]:
    """Of each family: the labels of the series, and those of its exemplar."""
    text = generate_openmetrics(make_registry(web.app)).decode()  # type: ignore[no-untyped-call]
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]
        for sample in family.samples:
            if sample.exemplar is not None:
                yield family.name, sample.labels, sample.exemplar.labels


def shown(web: HttpApp, family: str) -> list[Mapping[str, str]]:
    return [labels for name, _, labels in exemplars(web) if name == family]


def app(**settings: Any) -> HttpApp:
    with_app = HttpApp(dapr_pubsub_names=["kafka"], **settings)
    with_app.producer.set_topics({"orders": 3})
    return with_app


# -- exemplars -----------------------------------------------------------------------------------------------


def test_a_traced_request_is_the_exemplar_of_its_range() -> None:
    for path, route in (
        ("/v1/topics/orders", "/v1/topics/{topic}"),
        ("/v1/topics/%6Frders", "/v1/topics/{topic}"),
        ("/v1/status", "/v1/status"),
        ("/v1/topics/orders/leader?partition=1", "/v1/topics/{topic}/leader"),
    ):
        web = app()
        assert web.get(path, headers={"traceparent": TRACEPARENT}).is_success, path
        ((_, series, reported),) = [found for found in exemplars(web) if found[0] == REQUESTS]
        assert reported == OURS, path
        assert series["route"] == route, path


def test_a_traced_request_that_waited_for_a_topic_is_shown() -> None:
    web = app(lookup_wait_ms=1)
    web.producer.on_brokers = {"late": 1}
    assert web.get("/v1/topics/late", headers={"traceparent": TRACEPARENT}).is_success
    assert shown(web, REQUESTS) == [OURS]


def test_a_traced_produce_is_shown_whatever_its_form() -> None:
    for path, headers, body in (
        ("/v1/topics/orders/records", JSON, ONE),
        ("/v1/topics/or%64ers/records", JSON, ONE),
        ("/v1/topics/orders/records", {"content-type": "application/octet-stream"}, b"x"),
        ("/topics/orders", {"content-type": "application/vnd.kafka.json.v2+json"}, ONE),
        ("/v1.0/publish/kafka/orders", JSON, b"{}"),
    ):
        web = app()
        answer = web.post(path, content=body, headers={**headers, "traceparent": TRACEPARENT})
        assert answer.is_success, answer.text
        assert shown(web, PRODUCES) == [OURS], path
        assert shown(web, REQUESTS) == [OURS], path


def test_each_range_shows_the_last_one_that_fell_into_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for seen, trace_id in ((0.5, "a"), (0.6, "b"), (1.5, "c"), (9.0, "d")):
        histogram.observe(seen, Trace(trace_id, "s"))
    histogram.observe(0.1)
    reported = [bucket[2] for bucket in histogram.buckets() if len(bucket) == 3]
    assert [(one.labels["trace_id"], one.value) for one in reported] == [("b", 0.6), ("c", 1.5), ("d", 9.0)]
    assert [bucket[:2] for bucket in histogram.buckets()] == [("1.0", 3.0), ("2.0", 4.0), ("+Inf", 5.0)]


def test_an_exemplar_says_when_it_was() -> None:
    histogram = Histogram((1.0,))
    histogram.observe(0.5, Trace("a", "b"))
    (reported,) = [bucket[2] for bucket in histogram.buckets() if len(bucket) == 3]
    assert reported.timestamp is not None
    assert float(reported.timestamp) > 1.7e9


# -- traces without an exemplar ------------------------------------------------------------------------------


def test_the_older_format_has_none() -> None:
    web = app()
    web.get("/v1/topics/orders", headers={"traceparent": TRACEPARENT})
    assert TRACE not in generate_latest(make_registry(web.app)).decode()


def test_a_request_without_a_trace_leaves_no_exemplar() -> None:
    web = app()
    web.get("/v1/topics/orders")
    web.produce(ONE)
    assert list(exemplars(web)) == []


def test_where_they_are_off_there_are_none() -> None:
    web = app(exemplars=False)
    web.get("/v1/topics/orders", headers={"traceparent": TRACEPARENT})
    web.get("/v1/status", headers={"traceparent": TRACEPARENT})
    web.post("/v1/topics/orders/records", content=ONE, headers={**JSON, "traceparent": TRACEPARENT})
    assert list(exemplars(web)) == []


def test_a_trace_that_is_not_recorded_gives_no_exemplar() -> None:
    for traceparent in (
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-00",  # nobody records it
        f"00-{TRACE}-{SPAN}-02",  # nor this one, which has another flag
        f"00-{TRACE}-{SPAN}-0",
        f"00-{TRACE}-{SPAN}-01-more",  # version 0 has four fields
        f"ff-{TRACE}-{SPAN}-01",  # no version
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01",
        "x" * 100_000,
    ):
        assert recorded_trace(traceparent.encode()) is None, traceparent[:99]


def test_what_is_a_recorded_trace_is_one_in_later_versions_too() -> None:
    for traceparent in (TRACEPARENT, f"00-{TRACE}-{SPAN}-03", f"cc-{TRACE}-{SPAN}-01-what"):
        assert recorded_trace(traceparent.encode()) == Trace(TRACE, SPAN), traceparent


def test_two_of_them_are_none() -> None:
    web = app()
    twice = [("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT)]
    web.get("/v1/topics/orders", headers=twice)
    web.get("/v1/status", headers=twice)
    assert list(exemplars(web)) == []
