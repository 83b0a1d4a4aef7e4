"""The CloudEvent that Dapr makes of a body. Cases are of Dapr's own tests, and what those leave out."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from service.dialects.dapr.envelope import Origin, Trace, completed, time_text, wrapped
from service.wire.strict_json import BodyError

PARENT = "00-2583c3e5f33c8db92a2ba0e3488a6a63-328e7491ec6678de-01"
ORIGIN = Origin("orders", "pubsub", "my-app", "an-id", 1_700_000_000_999)
TRACED = ORIGIN._replace(trace=Trace(PARENT, "a=b"))

WRAPPED = {
    "specversion": "1.0",
    "id": "an-id",
    "source": "my-app",
    "type": "com.dapr.event.sent",
    "time": "2023-11-14T22:13:20Z",
    "topic": "orders",
    "pubsubname": "pubsub",
}


def wrap(
    data: bytes,
    content_type: str = "application/json",
    origin: Origin = ORIGIN,
    ttl_ms: int | None = None,
    /,
    **overrides: str,
) -> dict[str, Any]:
    envelope: dict[str, Any] = json.loads(wrapped(data, content_type, origin, overrides, ttl_ms))
    return envelope


def complete(event: bytes, origin: Origin = ORIGIN, ttl_ms: int | None = None) -> dict[str, Any]:
    envelope: dict[str, Any] = json.loads(completed(event, origin, ttl_ms))
    return envelope


@pytest.mark.parametrize(
    ("content_type", "data", "member", "value"),
    [
        ("application/json", b'{"status": "completed"}', "data", {"status": "completed"}),
        ("application/json; charset=utf-8", b"[1]", "data", [1]),
        ("Application/JSON", b'"text"', "data", "text"),
        ("application/json", b"null", "data", None),
        ("application/json", b"0", "data", 0),
        ("application/json", b"no json", "data", "no json"),
        ("application/json", b'{"a":1} and more', "data", '{"a":1} and more'),
        ("application/json", b"", "data", ""),
        ("application/vnd.api+json", b'{"a":1}', "data", '{"a":1}'),  # to Dapr JSON is application/json only
        ("text/plain", "grüße".encode(), "data", "grüße"),
        ("application/xml", b"<a/>", "data", "<a/>"),
        ("originaldatacontenttype", b"originaldata", "data", "originaldata"),
        ("text/plain", b"", "data", ""),
        ("application/octet-stream", b"\x00\xff", "data_base64", "AP8="),
        ("application/octet-stream; a=b", b"x", "data_base64", "eA=="),
        ("application/cloudevents+protobuf", b"x", "data_base64", "eA=="),
        ("application/x-protobuf", b"x", "data_base64", "eA=="),
    ],
)
def test_the_content_type_decides_how_data_stands_in_the_envelope(
    content_type: str, data: bytes, member: str, value: object
) -> None:
    assert wrap(data, content_type) == {**WRAPPED, "datacontenttype": content_type, member: value}


@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "image/png"])
def test_what_is_not_utf_8_is_kept_byte_for_byte(content_type: str) -> None:
    """Dapr would write question marks."""
    data = b"gr\xfc\xdfe"
    assert base64.b64decode(wrap(data, content_type)["data_base64"]) == data


def test_json_goes_on_the_wire_compacted_with_its_digits_kept() -> None:
    envelope = wrapped(
        b'{"n" : 1.10, "big": 12345678901234567890, "n": "\\u00fc<"}', "application/json", ORIGIN, {}, None
    )
    assert b'"data":{"n":1.10,"big":12345678901234567890,"n":"\\u00fc<"}' in envelope


def test_json_that_nests_too_deeply_is_refused() -> None:
    with pytest.raises(BodyError, match="too deeply"):
        wrap(b"[" * 129 + b"]" * 129)
    assert wrap(b"[" * 128 + b"]" * 128)


def test_metadata_overrides_what_dapr_lets_it_override() -> None:
    overrides = {
        "id": "i",
        "source": "s",
        "type": "t",
        "subject": "j",
        "tracestate": "c=d",
        "traceparent": "p",
    }
    envelope = wrap(b"1", "application/json", TRACED, **overrides)
    assert envelope == {
        **WRAPPED,
        **overrides,
        "traceid": "p",
        "datacontenttype": "application/json",
        "data": 1,
    }
    assert wrap(b"1", "application/json", TRACED, traceid="q")["traceparent"] == "q"
    assert wrap(b"1", "application/json", TRACED, traceid="q", traceparent="p")["traceid"] == "p"


def test_the_callers_trace_context_is_in_the_envelope_and_nothing_where_there_is_none() -> None:
    traced = wrap(b"1", "application/json", TRACED)
    assert (traced["traceid"], traced["traceparent"], traced["tracestate"]) == (PARENT, PARENT, "a=b")
    assert not {"traceid", "traceparent", "tracestate"} & wrap(b"1").keys()


def test_a_ttl_says_when_the_event_expires() -> None:
    assert wrap(b"1", "text/plain", ORIGIN, 120_000)["expiration"] == "2023-11-14T22:15:20Z"
    assert complete(b"{}", ttl_ms=0)["expiration"] == "2023-11-14T22:13:20Z"
    assert "expiration" not in complete(b"{}")


def test_the_callers_own_event_passes_and_gets_its_topic_and_pubsub() -> None:
    event = {
        "specversion": "1.0",
        "type": "com.dapr.cloudevent.sent",
        "source": "testcloudeventspubsub",
        "subject": "Cloud Events Test",
        "id": "someCloudEventId",
        "time": "2021-08-02T09:00:00Z",
        "datacontenttype": "application/cloudevents+json",
        "data": {"orderId": "100"},
    }
    given = json.dumps({**event, "topic": "another", "pubsubname": "another"}).encode()
    assert complete(given) == {**event, "topic": "orders", "pubsubname": "pubsub"}


def test_what_the_callers_own_event_lacks_is_filled_in() -> None:
    assert complete(b'{"data": 1.10}') == {**WRAPPED, "data": 1.1}
    nulls = b'{"id":null,"source":null,"type":null,"specversion":null,"time":null}'
    assert complete(nulls) == {**WRAPPED, "time": None}


def test_a_trace_is_added_to_the_callers_own_event_unless_it_has_one() -> None:
    added = complete(b"{}", TRACED)
    assert (added["traceid"], added["traceparent"], added["tracestate"]) == (PARENT, PARENT, "a=b")
    own = complete(b'{"traceid":"x","tracestate":"y"}', TRACED)
    assert (own["traceid"], own.get("traceparent"), own["tracestate"]) == ("x", None, "y")


@pytest.mark.parametrize("event", [b"", b"[]", b"1", b"null", b"{", b'{"id":1,"id":2}', b"\xff"])
def test_an_event_of_the_callers_own_that_is_none_is_refused(event: bytes) -> None:
    with pytest.raises(BodyError):
        complete(event)


def test_members_stand_in_the_order_of_their_names_as_go_writes_them() -> None:
    for envelope in (wrap(b"1", "application/json", TRACED, 1), complete(b'{"z":1,"a":2}', TRACED, 1)):
        assert list(envelope) == sorted(envelope)


def test_times_are_utc_to_the_second() -> None:
    assert time_text(0) == "1970-01-01T00:00:00Z"
    assert time_text(1_700_000_000_999 + (2**63 - 1) // 10**6).startswith("23")
