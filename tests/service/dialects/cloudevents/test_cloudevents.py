"""CloudEvents over HTTP become records of the Kafka protocol binding, or are refused by the attribute's name.

The events called EXAMPLE are those of the specification and of its conformance suite.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from client_core import Phase, RecordFailure, RecordTooLargeError, TimeoutError, Written
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from client_core import ProducerRecord

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
STRUCTURED_HEADERS = (("content-type", b"application/cloudevents+json; charset=UTF-8"),)

#: features/http-protocol-binding.feature of the conformance suite.
EXAMPLE_HEADERS = {
    "ce-specversion": "1.0",
    "ce-type": "com.example.someevent",
    "ce-time": "2018-04-05T03:56:24Z",
    "ce-id": "1234-1234-1234",
    "ce-source": "/mycontext/subcontext",
}
EXAMPLE_DATA = b'{\n    "message": "Hello World!"\n}\n'
EXAMPLE = {
    "specversion": "1.0",
    "type": "com.example.someevent",
    "time": "2018-04-05T03:56:24Z",
    "id": "1234-1234-1234",
    "source": "/mycontext/subcontext",
    "datacontenttype": "application/json",
    "data": {"message": "Hello World!"},
}
LEAST = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t"}


def web(**settings: Any) -> HttpApp:
    app = HttpApp(**{"dialects": "cloudevents", "console": False, **settings})
    app.producer.set_topics({"orders": 3})
    return app


def binary(
    app: HttpApp, headers: Mapping[str, str | None], body: bytes = b"{}", /, **changed: str | None
) -> httpx.Response:
    """Posts an event in binary mode; a header given as None is left out."""
    attributes = {f"ce-{name}": value for name, value in changed.items()}
    merged = {"content-type": "application/json", **headers, **attributes}
    sent = [(name.encode(), value.encode()) for name, value in merged.items() if value is not None]
    return app.post("/cloudevents/orders", headers=sent, content=body)


def structured(app: HttpApp, event: Any, content_type: str = STRUCTURED) -> httpx.Response:
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    return app.post("/cloudevents/orders", headers={"content-type": content_type}, content=body)


def taken(app: HttpApp, answer: httpx.Response) -> ProducerRecord:
    """The record of an event that was accepted, the only one since this was last asked."""
    assert answer.status_code == 202, f"{sent_in(answer)}: {answer.text}"
    ((record,),) = app.producer.submitted
    app.producer.submitted.clear()
    return record


def refusal(app: HttpApp, answer: httpx.Response) -> tuple[int, str]:
    """The status and the place of a refusal, of which nothing was written."""
    problem = answer.json()
    shape = (answer.headers["content-type"], problem.get("written"), app.producer.submitted)
    assert shape == ("application/problem+json", "no", []), f"{sent_in(answer)}: {answer.text}"
    return answer.status_code, problem.get("place", "")


def sent_in(answer: httpx.Response) -> str:
    return f"{answer.request.headers.raw!r} {answer.request.content[:200]!r}"


# -- binary mode ---------------------------------------------------------------------------------------------


def test_the_conformance_suites_binary_event_becomes_ce_headers_and_a_value() -> None:
    app = web()
    for content_type in ("application/json", "application/json; charset=utf-8"):
        answer = binary(app, {**EXAMPLE_HEADERS, "content-type": content_type}, EXAMPLE_DATA)
        record = taken(app, answer)
        receipt = {"partition": 0, "offset": 100, "timestamp": 1_700_000_000_000}
        assert answer.json() == {"topic": "orders", "results": [receipt]}
        assert record.headers == (
            ("ce_specversion", b"1.0"),
            ("ce_type", b"com.example.someevent"),
            ("ce_time", b"2018-04-05T03:56:24Z"),
            ("ce_id", b"1234-1234-1234"),
            ("ce_source", b"/mycontext/subcontext"),
            ("content-type", content_type.encode()),
        )
        assert (record.key, record.value, record.partition) == (None, EXAMPLE_DATA, None)


#: A header's value, and what it means.
DECODED = {
    "Euro%20%E2%82%AC%20%F0%9F%98%80": "Euro € 😀",  # the specification's example
    "%e2%82%ac": "€",
    "%41": "A",
    "a%25b": "a%b",
    "%2541": "%41",  # one round, not two
    '"quoted \\"text\\""': 'quoted "text"',
    '"%41\\\\"': "A\\",
    '""': "",
    "plain": "plain",
    'a "b" c': 'a "b" c',
    "grüße €": "grüße €",  # not what the specification says to send, and not to be misread
}


def test_header_values_are_unwrapped_and_percent_decoded_once() -> None:
    app, name = web(), "comexampleextension1"
    records = {sent: taken(app, binary(app, EXAMPLE_HEADERS, **{name: sent})) for sent in DECODED}
    assert {sent: dict(record.headers)[f"ce_{name}"] for sent, record in records.items()} == {
        sent: meant.encode() for sent, meant in DECODED.items()
    }


#: Attributes of which the second is the value that they can't have.
NO_ATTRIBUTES = [
    *(("specversion", "0.3"), ("specversion", "1.1"), ("source", "not%20a%20uri")),
    *(("time", "yesterday"), ("time", "2018-02-30T00:00:00Z"), ("dataschema", "/not-absolute")),
    *(("subject", ""), ("partitionkey", ""), ("datacontenttype", "application/json")),
    *(("data", "x"), ("data_base64", "eA=="), ("com_example", "x"), ("a-b", "x"), ("", "x")),
    *((name, value) for name in ("specversion", "id", "source", "type") for value in (None, "")),
    # badly encoded
    *(("subject", value) for value in ("%C0%A0", "%FF", "100%", "%4", "%zz", '"open', '"a"b', '"', '"a\\"')),
    *(("subject", value) for value in ("%00", "a%0Ab", "%EF%BF%BF")),
]


def test_a_header_that_no_cloudevent_has_or_lacks_or_that_is_encoded_badly_is_named() -> None:
    app = web()
    for name, value in NO_ATTRIBUTES:
        answer = binary(app, EXAMPLE_HEADERS, **{name: value})
        assert refusal(app, answer) == (400, f"ce-{name}"), (name, value)
    headers = [(n.encode(), v.encode()) for n, v in EXAMPLE_HEADERS.items()]
    in_latin_1 = app.post(
        "/cloudevents/orders", headers=[*headers, (b"ce-subject", b"gr\xfc\xdfe")], content=b"x"
    )
    assert refusal(app, in_latin_1) == (400, "ce-subject")
    assert "only version 1.0" in binary(app, EXAMPLE_HEADERS, specversion="0.3").json()["detail"]


def test_a_header_of_an_event_may_not_occur_twice() -> None:
    app = web()
    for name in ("ce-id", "ce-comexampleextension1", "content-type"):
        headers = [*EXAMPLE_HEADERS.items(), (name, "a/b"), (name, "a/b")]
        answer = app.post("/cloudevents/orders", headers=headers, content=b"x")
        assert refusal(app, answer) == (400, name)


def test_the_refusal_of_a_body_without_any_ce_header_names_all_three_modes() -> None:
    app = web()
    answer = binary(app, {})
    assert refusal(app, answer) == (400, "body")
    for said in ("ce-*", STRUCTURED, BATCH):
        assert said in answer.json()["detail"]


def test_a_content_type_that_is_none_is_refused() -> None:
    app = web()
    for content_type in ("json", "a/b, c/d", "application/json; =", "a/ü"):
        answer = binary(app, {**EXAMPLE_HEADERS, "content-type": content_type})
        assert refusal(app, answer) == (400, "content-type"), content_type


def test_an_event_without_data_is_a_record_without_value_as_the_kafka_binding_wants_it() -> None:
    app = web()
    record = taken(app, binary(app, EXAMPLE_HEADERS, b"", partitionkey="k"))
    assert (record.key, record.value) == (b"k", None)


def test_without_a_content_type_the_record_has_none() -> None:
    app = web()
    record = taken(app, binary(app, {**EXAMPLE_HEADERS, "content-type": None}, b"\x00\xff"))
    assert "content-type" not in dict(record.headers)
    assert record.value == b"\x00\xff"


def test_the_partitionkey_is_the_key_and_stays_an_attribute() -> None:
    app = web()
    record = taken(app, binary(app, EXAMPLE_HEADERS, partitionkey="K%C3%BCnde-7"))
    assert record.key == dict(record.headers)["ce_partitionkey"] == "Künde-7".encode()


def test_headers_that_are_none_of_cloudevents_stay_behind() -> None:
    app = web()
    others = {"x-request-id": "7", "authorization": "Bearer x"}
    record = taken(app, binary(app, {**EXAMPLE_HEADERS, **others}))
    assert {name.partition("_")[0] for name, _ in record.headers} == {"ce", "content-type"}


# -- structured mode -----------------------------------------------------------------------------------------


def test_the_conformance_suites_structured_event_is_the_value() -> None:
    app = web()
    odd = 'Application/CloudEvents+JSON ;charset="UTF-8"; a=b'
    for content_type in (STRUCTURED, f"{STRUCTURED}; charset=utf-8", odd):
        record = taken(app, structured(app, json.dumps(EXAMPLE, indent=4).encode(), content_type))
        assert record.value == json.dumps(EXAMPLE, separators=(",", ":")).encode()
        assert (record.key, record.headers) == (None, STRUCTURED_HEADERS)


def test_digits_escapes_and_the_order_of_members_stay_as_they_came() -> None:
    app = web()
    event = (
        b'{ "data": {"n": 1.10, "n": 1e3, "s": "\\u00fc\\/"},\n "type":"t", "id":"\\u0031",'
        b' "source":"/a", "specversion":"1.0", "ext": -2147483648, "flag": true, "unset": null }'
    )
    assert taken(app, structured(app, event)).value == (
        b'{"data":{"n":1.10,"n":1e3,"s":"\\u00fc\\/"},"type":"t","id":"\\u0031",'
        b'"source":"/a","specversion":"1.0","ext":-2147483648,"flag":true,"unset":null}'
    )


def test_the_partitionkey_of_an_envelope_is_the_key() -> None:
    app = web()
    for written, key in (("Künde", "Künde".encode()), (None, None)):
        assert taken(app, structured(app, {**LEAST, "partitionkey": written})).key == key


def test_ce_headers_beside_an_envelope_are_not_listened_to() -> None:
    app = web()
    headers = {"content-type": STRUCTURED, "ce-id": "another", "ce-partitionkey": "k"}
    record = taken(app, app.post("/cloudevents/orders", headers=headers, content=json.dumps(LEAST)))
    assert (record.key, record.headers) == (None, STRUCTURED_HEADERS)


#: Members of an envelope that they can't be, by the attribute.
NO_MEMBERS: dict[str, list[object]] = {
    **{name: [None, "", 1, True, [], {}] for name in ("id", "type")},
    "specversion": [None, "", 1, True, [], {}, "0.3"],
    "source": [None, "", 1, True, [], {}, "a b"],
    "time": ["2018-04-05", 1_522_949_460],
    "subject": [""],
    "dataschema": ["schema.json"],
    "datacontenttype": ["json"],
    "partitionkey": [7, ""],
    **{name: ["x"] for name in ("comExample", "com_example", "")},
    "ext": [1.5, 2**31, -(2**31) - 1, {}, [], "a\nb", "\x7f"],
    "data_base64": ["eA", "e A==", 1],
}


def test_an_attribute_that_no_cloudevent_has_or_lacks_is_refused_and_named() -> None:
    app = web()
    for name, values in NO_MEMBERS.items():
        for value in values:
            assert refusal(app, structured(app, {**LEAST, name: value})) == (400, name or "body"), value
    for name in LEAST:
        without = {n: v for n, v in LEAST.items() if n != name}
        assert refusal(app, structured(app, without)) == (400, name)
    data: object
    for data in (None, "x", {}):
        both = structured(app, {**LEAST, "data": data, "data_base64": "eA=="})
        assert refusal(app, both) == (400, "data_base64"), data
    for twice in (b'"id":"1","id":"1"', b'"id":"1","\\u0069d":"1"'):
        event = b'{"specversion":"1.0","source":"/a","type":"t",' + twice + b"}"
        assert refusal(app, structured(app, event)) == (400, "id"), twice


def test_the_json_formats_own_examples_are_taken() -> None:
    app = web()
    some: list[dict[str, object]] = [
        {"data": None},
        {"data": "I'm just a string"},
        {"data": 1.5},
        {"data": '<much wow="xml"/>', "datacontenttype": "application/xml"},
        {"data_base64": base64.b64encode(b'{ "xyz": 123 }').decode()},
        {"data_base64": ""},
        {"data_base64": None, "data": 1},
        {"subject": None, "time": None, "dataschema": None, "datacontenttype": None},
        {"comexampleextension1": "value", "comexampleothervalue": 5, "flag": False},
        {"dataschema": "https://example.com/schema.json#/definitions/order"},
    ]
    for extra in some:
        record = taken(app, structured(app, {**LEAST, **extra}))
        assert json.loads(record.value or b"") == {**LEAST, **extra}


#: By the way in which it is sent, what is none of it.
NO_JSON: dict[str, list[object]] = {
    STRUCTURED: [
        *(b"", b"{", b"[]", b"null", b"1", b'"x"', b"[{}]"),
        *(b'{"id":"1"} x', b'\xff{"id":"1"}', b'{"id":"\\ud800"}'),
        *(
            b'{"specversion":"1.0","id":"1","source":"/a","type":"t","data":%s%s}' % (b"[" * n, b"]" * n)
            for n in (130, 100_000)
        ),
    ],
    BATCH: [LEAST, b"", b"1", b"[", b"null"],
}


def test_what_is_no_json_object_in_utf_8_or_no_array_of_them_or_too_deep_is_refused() -> None:
    app = web()
    for content_type, bodies in NO_JSON.items():
        for body in bodies:
            assert refusal(app, structured(app, body, content_type))[0] == 400


# -- batch mode ----------------------------------------------------------------------------------------------


def test_a_batch_is_that_many_structured_records_in_order() -> None:
    app = web()
    events = [{**LEAST, "id": str(n), "partitionkey": f"k{n}", "data": n} for n in range(3)]
    answer = structured(app, events, f"{BATCH}; charset=UTF-8")
    assert answer.status_code == 202, answer.text
    assert [result["offset"] for result in answer.json()["results"]] == [100, 101, 102]
    (records,) = app.producer.submitted
    assert [json.loads(record.value or b"") for record in records] == events
    assert [record.key for record in records] == [b"k0", b"k1", b"k2"]
    assert {record.headers for record in records} == {STRUCTURED_HEADERS}


def test_an_empty_batch_is_valid_and_writes_nothing() -> None:
    app = web()
    answer = structured(app, [], BATCH)
    assert (answer.status_code, answer.json()) == (202, {"topic": "orders", "results": []})
    assert app.producer.submitted == []


def test_one_bad_event_refuses_its_batch_whole_and_is_named() -> None:
    app = web()
    for events, place in (
        ([LEAST, LEAST, {**LEAST, "id": ""}], "[2].id"),
        ([LEAST, 1], "[1]"),
        ([{**LEAST, "data": 1, "data_base64": ""}], "[0].data_base64"),
    ):
        assert refusal(app, structured(app, events, BATCH)) == (400, place)


def test_a_batch_is_as_long_as_the_limit_allows() -> None:
    app = web(max_records_per_request=2)
    answer = structured(app, [LEAST] * 3, BATCH)
    assert refusal(app, answer)[0] == 413
    assert "more than 2 events" in answer.json()["detail"]
    assert structured(app, [LEAST] * 2, BATCH).status_code == 202


def failing(app: HttpApp, *indices: int) -> None:
    """Has the records of these indices fail, after they were sent."""
    error = TimeoutError("no acknowledgement came")

    def outcome(index: int, record: ProducerRecord) -> Any:
        if index in indices:
            return RecordFailure(error, Phase.DELIVERY, Written.UNKNOWN, 30)
        return app.producer.receipt(index, record)

    app.producer.outcome_of = outcome


def test_some_of_a_batch_failed_is_207_event_by_event() -> None:
    app = web()
    failing(app, 1)
    answer = structured(app, [LEAST] * 3, BATCH)
    assert (answer.status_code, answer.headers["pilotfish-failed-records"]) == (207, "1")
    first, second, third = answer.json()["results"]
    assert (first["offset"], third["offset"]) == (100, 102)
    assert second["error"]["kafka_error"] == "REQUEST_TIMED_OUT"
    assert second["error"]["written"] == "unknown"


def test_none_acknowledged_is_never_2xx() -> None:
    app = web()
    failing(app, 0, 1)
    for events, content_type, results in ((LEAST, STRUCTURED, 1), ([LEAST, LEAST], BATCH, 2)):
        answer = structured(app, events, content_type)
        assert answer.status_code == 504
        assert answer.json()["written"] == "unknown"
        assert len(answer.json()["results"]) == results


# -- the request itself --------------------------------------------------------------------------------------


def test_other_formats_charsets_and_encodings_of_cloudevents_are_415() -> None:
    app = web()
    for content_type in (
        *("application/cloudevents+avro", "application/cloudevents", "application/cloudevents-batch+xml"),
        *("APPLICATION/CLOUDEVENTS+PROTOBUF", f"{STRUCTURED}; charset=utf-16", f"{BATCH};charset=latin-1"),
    ):
        assert refusal(app, structured(app, LEAST, content_type))[0] == 415, content_type
    assert refusal(app, binary(app, {**EXAMPLE_HEADERS, "content-encoding": "br"}))[0] == 415


def test_an_invalid_topic_a_stray_parameter_and_another_method_are_refused() -> None:
    app = web()
    answer = app.post("/cloudevents/a,b", headers=EXAMPLE_HEADERS, content=b"x")
    assert refusal(app, answer)[0] == 400
    assert answer.json()["kafka_error"] == "INVALID_TOPIC_EXCEPTION"
    answer = app.post("/cloudevents/orders?key=7", headers=EXAMPLE_HEADERS, content=b"x")
    assert (answer.status_code, answer.json().get("written")) == (422, "no")
    assert app.ask("PUT", "/cloudevents/orders", headers=EXAMPLE_HEADERS).status_code == 405
    assert app.post("/cloudevents/a/b", headers=EXAMPLE_HEADERS, content=b"x").status_code == 404
    assert app.producer.submitted == []


def test_a_record_that_never_fits_is_413() -> None:
    app = web()
    app.producer.refuses = RecordTooLargeError("The message is too large.")
    answer = binary(app, EXAMPLE_HEADERS)
    assert (answer.status_code, answer.json()["written"]) == (413, "no")


def test_without_acknowledgements_the_offset_is_null() -> None:
    app = web(kafka={"acks": "0"})
    app.producer.outcome_of = lambda index, record: app.producer.receipt(index, record)._replace(offset=None)
    answer = binary(app, EXAMPLE_HEADERS)
    assert (answer.status_code, answer.json()["results"][0]["offset"]) == (202, None)


def test_each_request_is_counted_once_by_its_outcome() -> None:
    app = web()
    binary(app, EXAMPLE_HEADERS)
    structured(app, [], BATCH)
    binary(app, {})
    failing(app, 1)
    structured(app, [LEAST] * 2, BATCH)
    failing(app, 0)
    structured(app, LEAST)
    counted = {o: app.app.sidecar.http.produced(o).count for o in ("success", "partial", "error")}
    assert counted == {"success": 2, "partial": 1, "error": 2}
