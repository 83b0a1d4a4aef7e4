"""One record whose value is the body: application/octet-stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core import ProducerRecord
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    import httpx

PATH = "/v1/topics/orders/records"
BINARY = bytes(range(256))


@pytest.fixture
def web() -> HttpApp:
    web = HttpApp(max_records_per_request=2)
    web.producer.set_topics({"orders": 3})
    return web


def post(
    web: HttpApp, body: bytes = b"v", query: str = "", *headers: tuple[str, str | bytes], path: str = PATH
) -> httpx.Response:
    given = [(b"content-type", b"application/octet-stream")]
    for name, value in headers:
        given.append((name.encode(), value if isinstance(value, bytes) else value.encode()))
    return web.post(path + query, content=body, headers=given)


@pytest.mark.parametrize("body", [b"", b"\0", BINARY, b'{"records":[]}', b"x" * 100_000])
def test_the_body_is_the_value_as_it_is(web: HttpApp, body: bytes) -> None:
    answer = post(web, body)
    assert answer.status_code == 200
    receipt = {"partition": 0, "offset": 100, "timestamp": 1_700_000_000_000}
    assert answer.json() == {"topic": "orders", "results": [receipt]}
    assert web.producer.submitted == [[ProducerRecord("orders", body)]]


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("?key=customer-7", b"customer-7"),
        ("?key=", b""),
        ("?key=%C3%BC%26%20", "ü& ".encode()),
        ("?key=AAE=&key_format=base64", b"\0\1"),
        ('?key={"a": 1.0}&key_format=json', b'{"a":1.0}'),
        ("?key=null&key_format=json", None),
        ("?key=null", b"null"),
        ("?key_format=json", None),
    ],
)
def test_the_key_stands_in_the_query_in_its_format(web: HttpApp, query: str, key: bytes | None) -> None:
    assert post(web, b"v", query).status_code == 200
    assert web.producer.submitted == [[ProducerRecord("orders", b"v", key)]]


@pytest.mark.parametrize(
    ("written", "key"), [("customer-7", b"customer-7"), ("", b""), ("ü", "ü".encode()), ("a,b", b"a,b")]
)
def test_the_key_may_stand_in_a_header(web: HttpApp, written: str, key: bytes) -> None:
    assert post(web, b"v", "", ("Pilotfish-Key", written)).status_code == 200
    assert web.producer.submitted[0][0].key == key


def test_partition_and_timestamp_stand_in_the_query(web: HttpApp) -> None:
    assert post(web, b"v", "?partition=2&timestamp=9223372036854775807&timeout_ms=900").status_code == 200
    assert web.producer.submitted == [[ProducerRecord("orders", b"v", None, 2, 2**63 - 1)]]
    asked = web.producer.calls[0][1]
    assert asked["deadline_ms"] - web.producer.clock.now_ms() == 900


@pytest.mark.parametrize(
    ("written", "headers"),
    [
        (["aA==:AAE="], (("h", b"\0\1"),)),
        (["aA==:"], (("h", b""),)),
        (["aA=="], (("h", None),)),
        ([":AA=="], (("", b"\0"),)),
        (["aA==:AA==,aA==:AQ==  ,\tw7w=:"], (("h", b"\0"), ("h", b"\1"), ("ü", b""))),
        (["aA==:AA==", "aA==:AQ=="], (("h", b"\0"), ("h", b"\1"))),
        ([""], ()),
    ],
)
def test_record_headers_are_pairs_of_base64(
    web: HttpApp, written: list[str], headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    assert post(web, b"v", "", *(("Pilotfish-Headers", value) for value in written)).status_code == 200
    assert web.producer.submitted[0][0].headers == headers


@pytest.mark.parametrize(
    ("query", "headers", "status", "place"),
    [
        ("?key=a&key=b", [], 400, "query.key"),
        ("?key=a", [("Pilotfish-Key", "a")], 422, "key"),
        ("", [("Pilotfish-Key", "a"), ("Pilotfish-Key", "a")], 422, "key"),
        ("", [("Pilotfish-Key", b"\xff")], 400, "Pilotfish-Key"),
        ("?key=%ff", [], 400, "query"),
        ("?key=a&key_format=base64", [], 422, "query.key"),
        ("?key=nope&key_format=json", [], 422, "query.key"),
        ("?key=a&key_format=xml", [], 422, "query.key_format"),
        ("?value_format=text", [], 422, "query.value_format"),
        ("?partition=-1", [], 422, "query.partition"),
        ("?partition=2147483648", [], 422, "query.partition"),
        ("?partition=1_0", [], 422, "query.partition"),
        ("?partition=null", [], 422, "query.partition"),
        ("?timestamp=9223372036854775808", [], 422, "query.timestamp"),
        ("?timestamp=" + "1" * 30, [], 422, "query.timestamp"),
        ("?timeout_ms=120001", [], 422, "query.timeout_ms"),
        ("", [("Pilotfish-Headers", "a")], 422, "Pilotfish-Headers[0]"),
        ("", [("Pilotfish-Headers", "aA==:AA==,aA==:*")], 422, "Pilotfish-Headers[1]"),
        ("", [("Pilotfish-Headers", "aA==:AA=")], 422, "Pilotfish-Headers[0]"),
        ("", [("Pilotfish-Headers", "aA==:AA==:AA==")], 422, "Pilotfish-Headers[0]"),
        ("", [("Pilotfish-Headers", "aA==:AA==,")], 422, "Pilotfish-Headers[1]"),
        ("", [("Pilotfish-Headers", ",")], 422, "Pilotfish-Headers[0]"),
        ("", [("Pilotfish-Headers", "/w==:")], 422, "Pilotfish-Headers[0]"),
        ("", [("Pilotfish-Headers", "ü:")], 422, "Pilotfish-Headers[0]"),
        ("", [("Content-Encoding", "gzip")], 415, None),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    web: HttpApp, query: str, headers: list[tuple[str, str | bytes]], status: int, place: str | None
) -> None:
    answer = post(web, b"v", query, *headers)
    outcomes = answer.json()
    assert (answer.status_code, outcomes.get("place"), outcomes["written"]) == (status, place, "no")
    assert web.producer.submitted == []


def test_a_path_in_an_unusual_spelling_is_served_alike(web: HttpApp) -> None:
    answer = post(web, b"v", "?key=k", path="/v1/topics/%6Frders/records")
    assert answer.status_code == 200
    assert web.producer.submitted == [[ProducerRecord("orders", b"v", b"k")]]


def test_parameters_of_the_media_type_mean_nothing(web: HttpApp) -> None:
    headers = {"content-type": "Application/Octet-Stream; charset=binary"}
    assert web.post(PATH, content=BINARY, headers=headers).status_code == 200


def test_a_body_without_a_type_is_refused_and_told_of_the_types(web: HttpApp) -> None:
    answer = web.post(PATH, content=b"v")
    assert answer.status_code == 415
    for known in ("application/json", "application/x-ndjson", "application/octet-stream"):
        assert known in answer.json()["detail"]
    assert web.producer.submitted == []


# -- JSON's own bound ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "status"), [("1", 200), ("1,1", 200), ("1,1,1", 413), ('[{"a":1},{"a":1},{"a":1}]', 200)]
)
def test_a_json_request_may_bring_so_many_records(web: HttpApp, values: str, status: int) -> None:
    if values.startswith("["):
        body = f'{{"records":[{{"value":{values}}}]}}'
    else:
        body = '{"records": [' + ", ".join('{"value": 1}' for _ in values.split(",")) + "]}"
    answer = web.produce(body)
    assert answer.status_code == status
    if status == 413:
        outcomes = answer.json()
        assert (outcomes["place"], outcomes["written"]) == ("records", "no")
        assert outcomes["detail"] == "records: more than 2 records (max_records_per_request)"
        assert web.producer.submitted == []


def test_too_many_of_what_are_no_records_is_told_as_what_it_is(web: HttpApp) -> None:
    answer = web.produce('{"records":{"a":[{},{},{},{}]}}')
    assert (answer.status_code, answer.json()["place"]) == (422, "records")
