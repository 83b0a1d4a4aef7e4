"""The CloudEvent that Dapr makes of a body, and what `?metadata.…` means; cases of its tests and beyond."""

from __future__ import annotations

import base64
import json
import re
from contextlib import suppress
from typing import Any

import jsonschema_rs
import pytest

from service.dialects.dapr.envelope import Origin, Trace, completed, time_text, wrapped
from service.dialects.dapr.publish_metadata import BOOLEANS, metadata_of_query, understand
from service.dialects.dapr.schemas import PUBLISH_REQUEST
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


def test_the_ttl_of_the_request_holds_over_the_expiration_that_the_callers_own_event_brings() -> None:
    event = b'{"id":"1","expiration":"2030-01-01T00:00:00Z"}'
    assert complete(event)["expiration"] == "2030-01-01T00:00:00Z"
    assert complete(event, ttl_ms=1_000)["expiration"] == "2023-11-14T22:13:21Z"


#: A content type and data, and the member that holds it.
DATA: dict[tuple[str, bytes], tuple[str, object]] = {
    ("application/json", b'{"status": "completed"}'): ("data", {"status": "completed"}),
    ("application/json; charset=utf-8", b"[1]"): ("data", [1]),
    ("Application/JSON", b'"text"'): ("data", "text"),
    ("application/json", b"null"): ("data", None),
    ("application/json", b"0"): ("data", 0),
    ("application/json", b"no json"): ("data", "no json"),
    ("application/json", b'{"a":1} and more'): ("data", '{"a":1} and more'),
    ("application/json", b""): ("data", ""),
    ("application/vnd.api+json", b'{"a":1}'): ("data", '{"a":1}'),  # to Dapr JSON is application/json only
    ("text/plain", "grüße".encode()): ("data", "grüße"),
    ("application/xml", b"<a/>"): ("data", "<a/>"),
    ("originaldatacontenttype", b"originaldata"): ("data", "originaldata"),
    ("text/plain", b""): ("data", ""),
    ("application/octet-stream", b"\x00\xff"): ("data_base64", "AP8="),
    ("application/octet-stream; a=b", b"x"): ("data_base64", "eA=="),
    ("application/cloudevents+protobuf", b"x"): ("data_base64", "eA=="),
    ("application/x-protobuf", b"x"): ("data_base64", "eA=="),
    # what is not UTF-8 is kept byte for byte, where Dapr would write question marks
    **{
        (content_type, b"gr\xfc\xdfe"): ("data_base64", base64.b64encode(b"gr\xfc\xdfe").decode())
        for content_type in ("text/plain", "application/json", "image/png")
    },
}


def test_the_content_type_decides_how_data_is_written_in_the_envelope() -> None:
    assert {(content_type, data): wrap(data, content_type) for content_type, data in DATA} == {
        given: {**WRAPPED, "datacontenttype": given[0], member: value}
        for given, (member, value) in DATA.items()
    }


def test_json_goes_on_the_wire_compacted_with_its_digits_kept() -> None:
    data = b'{"n" : 1.10, "big": 12345678901234567890, "n": "\\u00fc<"}'
    envelope = wrapped(data, "application/json", ORIGIN, {}, None)
    assert b'"data":{"n":1.10,"big":12345678901234567890,"n":"\\u00fc<"}' in envelope


def test_json_that_nests_too_deeply_is_refused() -> None:
    for depth in (129, 1_000, 2_000, 100_000):  # the last two also for the parser
        with pytest.raises(BodyError, match="too deeply"):
            wrap(b"[" * depth + b"]" * depth)
    assert wrap(b"[" * 128 + b"]" * 128)
    assert wrap(b"[" * 900)["data"] == "[" * 900, "invalid JSON is a string"


def test_metadata_overrides_what_dapr_lets_it_override() -> None:
    overrides = {"id": "i", "source": "s", "type": "t", "subject": "j"}
    trace = {"tracestate": "c=d", "traceparent": "p"}
    content = {"datacontenttype": "application/json", "data": 1}
    envelope = wrap(b"1", "application/json", TRACED, **overrides, **trace)
    assert envelope == {**WRAPPED, **overrides, **trace, "traceid": "p", **content}
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


def test_missing_members_of_the_callers_own_event_are_filled_in() -> None:
    assert complete(b'{"data": 1.10}') == {**WRAPPED, "data": 1.1}
    nulls = b'{"id":null,"source":null,"type":null,"specversion":null,"time":null}'
    assert complete(nulls) == {**WRAPPED, "time": None}


def test_a_trace_is_added_to_the_callers_own_event_unless_it_has_one() -> None:
    added = complete(b"{}", TRACED)
    assert (added["traceid"], added["traceparent"], added["tracestate"]) == (PARENT, PARENT, "a=b")
    own = complete(b'{"traceid":"x","tracestate":"y"}', TRACED)
    assert (own["traceid"], own.get("traceparent"), own["tracestate"]) == ("x", None, "y")


def test_an_event_of_the_callers_own_that_is_none_is_refused() -> None:
    def is_taken(event: bytes) -> bool:
        with suppress(BodyError):
            return bool(complete(event))
        return False

    events = (b"", b"[]", b"1", b"null", b"{", b'{"id":1,"id":2}', b"\xff")
    assert [event for event in events if is_taken(event)] == []


def test_members_are_in_the_order_of_their_names_as_go_writes_them() -> None:
    for envelope in (wrap(b"1", "application/json", TRACED, 1), complete(b'{"z":1,"a":2}', TRACED, 1)):
        assert list(envelope) == sorted(envelope)


def test_times_are_utc_to_the_second() -> None:
    assert time_text(0) == "1970-01-01T00:00:00Z"
    assert time_text(1_700_000_000_999 + (2**63 - 1) // 10**6).startswith("23")


# -- ?metadata.… of a publish --------------------------------------------------------------------------------


def fault_of(metadata: dict[str, str]) -> str:
    """What is wrong with it, and nothing where nothing is."""
    try:
        understand(metadata)
    except ValueError as error:
        return str(error)
    return ""


def test_parameters_of_metadata_lose_their_prefix_and_others_are_refused() -> None:
    given = [("metadata.partitionKey", "k"), ("metadata.a.b", ""), ("metadata.ü", "ü")]
    assert metadata_of_query(given) == {"partitionKey": "k", "a.b": "", "ü": "ü"}
    for name in ("partitionKey", "metadata.", "Metadata.ttl", "metadata"):
        with pytest.raises(ValueError, match="unknown parameter"):
            metadata_of_query([(name, "1")])


def test_all_metadata_becomes_headers_as_in_dapr() -> None:
    metadata = {"partitionKey": "k", "rawPayload": "true", "correlationId": "ü"}
    asked = understand(metadata)
    assert asked.headers == (("partitionKey", b"k"), ("rawPayload", b"true"), ("correlationId", "ü".encode()))
    assert (asked.raw, asked.key, asked.partition, asked.ttl_ms) == (True, b"k", None, None)
    assert understand({}) == (False, None, None, None, {}, ())


def test_true_and_false_are_what_go_calls_so_and_anything_else_is_no_boolean() -> None:
    true, false = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False", "")
    assert [word for word in (*true, *false) if understand({"rawPayload": word}).raw] == [*true]
    for word in ("100", "yes", "tRUE", " true", "1 "):
        assert "rawPayload value must be a valid boolean" in fault_of({"rawPayload": word}), word


def test_either_name_of_the_key_is_taken_but_not_two_keys() -> None:
    assert understand({"__key": "k"}).key == b"k"
    assert understand({"__key": "k", "partitionKey": "k"}).key == b"k"
    assert understand({"partitionKey": ""}).key == b""
    with pytest.raises(ValueError, match="differ"):
        understand({"__key": "k", "partitionKey": "l"})


def test_a_partition_can_be_named_and_what_is_none_is_refused() -> None:
    numbers = {"0": 0, "007": 7, "2147483647": 2**31 - 1}
    assert {word: understand({"partitionNumber": word}).partition for word in numbers} == numbers
    for word in ("", "-1", "+1", "1.0", "2147483648", "9" * 10_000, "²", "one"):
        assert "partitionNumber" in fault_of({"partitionNumber": word}), word


TTLS = {
    "1": 1_000,
    "120": 120_000,
    "9223372036854775807": (2**63 - 1) // 10**6,
    "1h30m": 5_400_000,
    "1.5s": 1_500,
    "250ms": 250,
    "1000us": 1,
    "1000µs": 1,  # the micro sign
    "1000\u03bcs": 1,  # the Greek letter
    "999999999h": (2**63 - 1) // 10**6,
    "-5s": 0,
    ".5s": 500,
}


def test_a_ttl_is_seconds_or_a_duration_of_gos_and_no_other_is_passed_over() -> None:
    for name in ("ttlInSeconds", "ttl", "TTLINSECONDS"):
        assert {written: understand({name: written}).ttl_ms for written in TTLS} == TTLS, name
    for written in ("0", "-1", "soon", "1 s", "1d", "5s more", "9" * 10_000, "1" * 99 + "x"):
        assert "ttl must be" in fault_of({"ttlInSeconds": written}), written


def test_ttl_goes_before_ttl_in_seconds_and_an_empty_one_is_none() -> None:
    assert understand({"ttlInSeconds": "9", "ttl": "1s"}).ttl_ms == 1_000
    assert understand({"ttlInSeconds": ""}).ttl_ms is None


def test_overrides_are_found_whatever_their_case_and_empty_ones_are_none() -> None:
    metadata = {
        "cloudevent.Type": "t",
        "CloudEvent.id": "i",
        "cloudevent.topic": "x",
        "cloudevent.source": "",
    }
    assert understand(metadata).overrides == {"type": "t", "id": "i"}


def test_schemas_are_refused_with_a_way_round() -> None:
    for written in ("Avro", "avro", "JSON"):
        with pytest.raises(ValueError, match="rawPayload=true"):
            understand({"valueSchemaType": written})
    assert understand({"valueSchemaType": "None"})


WORDS = {
    "rawPayload": [*BOOLEANS, "", "100", "yes", " true"],
    "partitionNumber": ["0", "2147483647", "2147483648", "-1", "one"],
    "ttlInSeconds": ["", "1", "90", "1m30s", "-2h", ".5s", "0", "-1", "1.5", "s", "1d"],
}


def test_the_document_allows_what_is_understood_and_nothing_else() -> None:
    for name, words in WORDS.items():
        parameters = PUBLISH_REQUEST["parameters"]
        schema = next(one["schema"] for one in parameters if one["name"] == f"metadata.{name}")
        validator = jsonschema_rs.validator_for(schema)
        for written in words:
            is_number = re.fullmatch("-?[0-9]+", written) is not None
            allowed = validator.is_valid(written) or (is_number and validator.is_valid(int(written)))
            assert allowed is not bool(fault_of({name: written})), (name, written)
