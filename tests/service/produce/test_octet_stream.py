"""One record whose value is the body: application/octet-stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core import ProducerRecord
from tests.support.http_app import NativeApp

if TYPE_CHECKING:
    import httpx

PATH = "/v1/topics/orders/records"
BINARY = bytes(range(256))


@pytest.fixture
def web() -> NativeApp:
    web = NativeApp(max_records_per_request=2)
    web.producer.set_topics({"orders": 3})
    return web


def post(
    web: NativeApp, body: bytes = b"v", query: str = "", *headers: tuple[str, str | bytes], path: str = PATH
) -> httpx.Response:
    given = [(b"content-type", b"application/octet-stream")]
    for name, value in headers:
        given.append((name.encode(), value if isinstance(value, bytes) else value.encode()))
    return web.post(path + query, content=body, headers=given)


def taken(web: NativeApp, answer: httpx.Response) -> ProducerRecord:
    """The record of a request that was accepted, the only one since this was last asked."""
    assert answer.status_code == 200, answer.text
    ((record,),) = web.producer.submitted
    web.producer.submitted.clear()
    return record


def test_the_body_is_the_value_as_it_is(web: NativeApp) -> None:
    receipt = {"partition": 0, "offset": 100, "timestamp": 1_700_000_000_000}
    for body in (b"", b"\0", BINARY, b'{"records":[]}', b"x" * 100_000):
        answer = post(web, body)
        assert answer.json() == {"topic": "orders", "results": [receipt]}
        assert taken(web, answer) == ProducerRecord("orders", body)


def test_the_key_is_in_the_query_in_its_format_or_in_a_header(web: NativeApp) -> None:
    of_query = {
        "?key=customer-7": b"customer-7",
        "?key=": b"",
        "?key=%C3%BC%26%20": "ü& ".encode(),
        "?key=AAE=&key_format=base64": b"\0\1",
        '?key={"a": 1.0}&key_format=json': b'{"a":1.0}',
        "?key=null&key_format=json": None,
        "?key=null": b"null",
        "?key_format=json": None,
    }
    assert {query: taken(web, post(web, b"v", query)) for query in of_query} == {
        query: ProducerRecord("orders", b"v", key) for query, key in of_query.items()
    }
    written = ("customer-7", "", "ü", "a,b")
    keys = {one: taken(web, post(web, b"v", "", ("Pilotfish-Key", one))).key for one in written}
    assert keys == {one: one.encode() for one in written}


def test_partition_and_timestamp_are_in_the_query(web: NativeApp) -> None:
    answer = post(web, b"v", "?partition=2&timestamp=9223372036854775807&timeout_ms=900")
    assert taken(web, answer) == ProducerRecord("orders", b"v", None, 2, 2**63 - 1)
    asked = web.producer.calls[0][1]
    assert asked["deadline_ms"] - web.producer.clock.now_ms() == 900


def test_record_headers_are_pairs_of_base64(web: NativeApp) -> None:
    pairs: dict[tuple[str, ...], tuple[tuple[str, bytes | None], ...]] = {
        ("aA==:AAE=",): (("h", b"\0\1"),),
        ("aA==:",): (("h", b""),),
        ("aA==",): (("h", None),),
        (":AA==",): (("", b"\0"),),
        ("aA==:AA==,aA==:AQ==  ,\tw7w=:",): (("h", b"\0"), ("h", b"\1"), ("ü", b"")),
        ("aA==:AA==", "aA==:AQ=="): (("h", b"\0"), ("h", b"\1")),
        ("",): (),
    }
    for written, headers in pairs.items():
        record = taken(web, post(web, b"v", "", *(("Pilotfish-Headers", value) for value in written)))
        assert record.headers == headers, written


def of_pairs(*written: str) -> list[tuple[str, str | bytes]]:
    return [("Pilotfish-Headers", one) for one in written]


#: What follows the path, headers besides the type, and the status and the place of the refusal.
REFUSED: list[tuple[str, list[tuple[str, str | bytes]], tuple[int, str | None]]] = [
    ("?key=a&key=b", [], (400, "query.key")),
    ("?key=a", [("Pilotfish-Key", "a")], (422, "query.key")),
    ("", [("Pilotfish-Key", "a"), ("Pilotfish-Key", "a")], (400, "Pilotfish-Key")),
    ("", [("Pilotfish-Key", b"\xff")], (400, "Pilotfish-Key")),
    ("?key=%ff", [], (400, "query")),
    *(
        (f"?{query}", [], (422, "query.key"))
        for query in ("key=a&key_format=base64", "key=nope&key_format=json")
    ),
    ("?key=a&key_format=xml", [], (422, "query.key_format")),
    ("?value_format=text", [], (422, "query.value_format")),
    *((f"?partition={n}", [], (422, "query.partition")) for n in ("-1", "2147483648", "1_0", "null")),
    *((f"?timestamp={n}", [], (422, "query.timestamp")) for n in ("9223372036854775808", "1" * 30)),
    ("?timeout_ms=120001", [], (422, "query.timeout_ms")),
    *(
        ("", of_pairs(written), (422, "Pilotfish-Headers[0]"))
        for written in ("a", "aA==:AA=", "aA==:AA==:AA==", ",", "/w==:", "ü:")
    ),
    *(
        ("", of_pairs(written), (422, "Pilotfish-Headers[1]"))
        for written in ("aA==:AA==,aA==:*", "aA==:AA==,")
    ),
    ("", [("Content-Encoding", "br")], (415, "Content-Encoding")),
]


def test_a_value_that_does_not_fit_is_refused_with_its_place(web: NativeApp) -> None:
    for query, headers, said in REFUSED:
        answer = post(web, b"v", query, *headers)
        outcomes = answer.json()
        assert (answer.status_code, outcomes.get("place")) == said, (query, headers)
        assert outcomes["written"] == "no"
    assert web.producer.submitted == []


def test_a_path_in_an_unusual_spelling_is_served_alike(web: NativeApp) -> None:
    answer = post(web, b"v", "?key=k", path="/v1/topics/%6Frders/records")
    assert taken(web, answer) == ProducerRecord("orders", b"v", b"k")


def test_parameters_of_the_media_type_mean_nothing(web: NativeApp) -> None:
    headers = {"content-type": "Application/Octet-Stream; charset=binary"}
    assert web.post(PATH, content=BINARY, headers=headers).status_code == 200


def test_a_body_without_a_type_is_refused_and_the_answer_names_the_types(web: NativeApp) -> None:
    answer = web.post(PATH, content=b"v")
    assert answer.status_code == 415
    for known in ("application/json", "application/x-ndjson", "application/octet-stream"):
        assert known in answer.json()["detail"]
    assert web.producer.submitted == []


def test_the_headers_of_one_record_are_refused_with_a_body_of_records(web: NativeApp) -> None:
    """Once they were ignored, and the record had no key."""
    for path, body in [
        (PATH, b'{"records":[{"value":1}]}'),
        (f"{PATH}/spool", b'{"records":[{"value":1}]}'),
        ("/v1/records", b'{"records":[{"topic":"orders","value":1}]}'),
    ]:
        for name, value in (("Pilotfish-Key", "a"), ("Pilotfish-Headers", "YQ==:YQ==")):
            headers = {"content-type": "application/json", name: value}
            answer = web.post(path, content=body, headers=headers)
            assert (answer.status_code, answer.json()["place"]) == (422, name), path
    assert web.producer.submitted == []


# -- JSON's own bound ----------------------------------------------------------------------------------------


def test_a_json_request_may_bring_so_many_records(web: NativeApp) -> None:
    for count in (1, 2):
        assert web.produce('{"records": [' + ", ".join(['{"value": 1}'] * count) + "]}").status_code == 200
    assert web.produce('{"records":[{"value":[{"a":1},{"a":1},{"a":1}]}]}').status_code == 200
    web.producer.submitted.clear()
    answer = web.produce('{"records": [' + ", ".join(['{"value": 1}'] * 3) + "]}")
    outcomes = answer.json()
    assert (answer.status_code, outcomes["place"], outcomes["written"]) == (413, "records", "no")
    assert outcomes["detail"] == "records: more than 2 records"
    assert web.producer.submitted == []


def test_a_long_list_of_what_are_no_records_is_reported_as_what_it_is(web: NativeApp) -> None:
    answer = web.produce('{"records":{"a":[{},{},{},{}]}}')
    assert (answer.status_code, answer.json()["place"]) == (422, "records")
