"""POST …/records:batch of REST Proxy v3: up to ten entries, each answered by its id."""

from __future__ import annotations

import json
from typing import Any

import pytest

from client_core import (
    Phase,
    ProducerRecord,
    RecordFailure,
    TimeoutError,
    Written,
)
from service.dialects.rest_v3 import schemas
from tests.support.http_app import HttpApp

PATH = "/v3/clusters/cluster/topics/orders/records:batch"
JSON = {"content-type": "application/json"}


@pytest.fixture
def http() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics({"orders": 3})
    return app


def post(http: HttpApp, *entries: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Successes and failures of a request that is 207."""
    answer = http.post(PATH, content=json.dumps({"entries": entries}), headers=JSON)
    assert answer.status_code == 207, answer.text
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert list(found) == ["successes", "failures"]
    schemas.BatchAnswer.model_validate(found)
    return found["successes"], found["failures"]


def refused(http: HttpApp, body: str | bytes, **headers: str) -> tuple[int, int]:
    given = {name.replace("_", "-"): value for name, value in headers.items()} or JSON
    answer = http.post(PATH, content=body, headers=given)
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error_code", "message"]
    assert http.producer.submitted == []
    return answer.status_code, answer.json()["error_code"]


def text(value: object) -> dict[str, Any]:
    return {"type": "STRING", "data": value}


def test_entries_are_one_submit_and_answered_by_their_ids(http: HttpApp) -> None:
    successes, failures = post(
        http,
        {"id": "b", "key": text("k"), "value": text("v"), "timestamp": "2021-02-05T19:14:42.5Z"},
        {"id": "a-1_Z", "partition_id": 2, "headers": [{"name": "h"}]},
    )
    assert failures == []
    assert list(successes[0].items()) == [
        ("id", "b"),
        ("cluster_id", "cluster"),
        ("topic_name", "orders"),
        ("partition_id", 0),
        ("offset", 100),
        ("timestamp", "2021-02-05T19:14:42.500Z"),
        ("key", {"type": "STRING", "size": 1}),
        ("value", {"type": "STRING", "size": 1}),
    ]
    assert (successes[1]["id"], successes[1]["partition_id"], successes[1]["offset"]) == ("a-1_Z", 2, 101)
    assert http.producer.submitted == [
        [
            ProducerRecord("orders", b"v", b"k", None, 1_612_552_482_500),
            ProducerRecord("orders", None, None, 2, None, (("h", None),)),
        ]
    ]


def test_an_entry_that_is_no_record_fails_and_the_others_are_written(http: HttpApp) -> None:
    successes, failures = post(
        http,
        {"id": "1", "value": {"type": "BINARY", "data": 1}},
        {"id": "2", "value": text("x")},
        {"id": "3", "value": {"type": "PROTOBUF", "data": {}}},
        {"id": "4", "partition_id": -3},
        {"id": "5", "subject": "x"},
    )
    assert [s["id"] for s in successes] == ["2"]
    codes = {failure["id"]: failure["error_code"] for failure in failures}
    assert list(codes.items()) == [("1", 400), ("3", 415), ("4", 40402), ("5", 400)]
    assert list(failures[0]) == ["id", "error_code", "message"]
    assert failures[0]["message"].startswith("value.data: ")


def test_where_all_fail_it_is_still_207(http: HttpApp) -> None:
    failure = RecordFailure(TimeoutError("expired"), Phase.DELIVERY, Written.UNKNOWN, 1000)
    http.producer.outcome_of = lambda _, record: failure
    successes, failures = post(http, {"id": "1"}, {"id": "2", "x": 1})
    assert successes == []
    assert [(f["id"], f["error_code"]) for f in failures] == [("1", 50003), ("2", 400)]
    assert "a retry may write it twice" in failures[0]["message"]


def test_ten_entries_and_ids_of_eighty_characters_are_taken(http: HttpApp) -> None:
    successes, _ = post(http, *({"id": str(n) * 80} for n in range(10)))
    assert [s["id"] for s in successes] == [str(n) * 80 for n in range(10)]


def test_entries_that_cannot_be_distinguished_are_42208(http: HttpApp) -> None:
    several: list[list[dict[str, Any]]] = [
        [],
        [{"id": str(n)} for n in range(11)],
        [{"id": "1"}, {"id": "1"}],
        [{}],
        *([{"id": name}] for name in ("", "x" * 81, 1, None, "a b", "ü", "1\n")),
    ]
    for entries in several:
        assert refused(http, json.dumps({"entries": entries})) == (422, 42208), entries


def test_a_batch_that_is_none_says_what_is_wrong(http: HttpApp) -> None:
    eleven = b'{"entries":[' + b",".join([b'{"id":"1"}'] * 11) + b"]}"
    large = json.dumps({"entries": [{"id": str(n), "value": text("x" * 10_000)} for n in range(30)]}).encode()
    name = "must be a string of 1 to 80 letters, digits, '_' or '-'"
    messages = {
        b"": "Request body is empty. Data is required.",
        b"{}": "entries: at least one entry is needed",
        b'{"entries":[]}': "entries: must have 1 to 10 items, not none",
        eleven: "entries: must have 1 to 10 items, not more",
        large: "entries: must have 1 to 10 items, not more",
        b'{"entries":[{"id":"1"},{"id":"1"}]}': "entries: their ids must be distinct",
        b'{"entries":[{"id":"1"},{"id":"1","partition_id":"x"}]}': "entries: their ids must be distinct",
        b'{"entries":[{"id":"1"},{}]}': f"entries[1].id: {name}",
        b'{"entries":{}}': "entries: must be an array of entries",
        b'{"entries":[],"acks":1}': "acks: unknown member; the only one is entries",
    }
    answers = {body: http.post(PATH, content=body, headers=JSON).json() for body in messages}
    assert {body: answer["message"] for body, answer in answers.items()} == messages


def test_a_body_without_entries_is_42208_and_what_is_no_sound_json_400(http: HttpApp) -> None:
    without = (b"", b"  ", b"{}")
    unsound = (
        *(b"{", b"[]", b"null", b'{"entries":{}}', b'{"entries":null}', b'{"entries":[1]}'),
        b'{"entries":[{"id":"1"}],"entries":[{"id":"2"}]}',
        b'{"entries":[{"id":"1","id":"2"}]}',
        b'{"entries":[{"id":"1","value":{"type":"STRING","data":"\xff"}}]}',
        b'{"entries":[{"id":"1"}]}{"entries":[{"id":"2"}]}',
        b'{"entries":[{"id":"\\ud800"}]}',
    )
    assert {body: refused(http, body) for body in without + unsound} == {
        **dict.fromkeys(without, (422, 42208)),
        **dict.fromkeys(unsound, (400, 400)),
    }


def test_an_unknown_member_beside_the_entries_is_422(http: HttpApp) -> None:
    assert refused(http, b'{"records":{"subject":"foobar"}}') == (422, 422)
    assert refused(http, b'{"entries":[{"id":"1"}],"acks":1}') == (422, 422)


def test_media_type_and_charset_are_refused_as_for_a_stream(http: HttpApp) -> None:
    assert refused(http, b"{}", content_type="text/plain") == (415, 415)
    assert refused(http, b"{}", content_type="application/json; charset=x") == (400, 400)


def test_a_body_in_latin_1_is_read_so(http: HttpApp) -> None:
    body = '{"entries":[{"id":"1","value":{"type":"STRING","data":"ü"}}]}'.encode("latin-1")
    headers = {"content-type": "application/json; charset=iso-8859-1"}
    assert http.post(PATH, content=body, headers=headers).status_code == 207
    assert http.producer.submitted[0][0].value == "ü".encode()


def test_another_cluster_is_404_and_a_body_too_large_413(http: HttpApp) -> None:
    answer = http.post(PATH.replace("/cluster/", "/other/"), content=b'{"entries":[]}', headers=JSON)
    assert (answer.status_code, answer.json()["error_code"]) == (404, 404)
    small = HttpApp(max_body_bytes=100)
    small.producer.set_topics({"orders": 3})
    assert refused(small, b" " * 101) == (413, 413)


def test_each_entry_that_is_too_large_is_named_by_its_own_index(http: HttpApp) -> None:
    http.producer.too_large = frozenset({b"large"})
    values = ["a", "large", "b", "large"]
    _, failures = post(
        http, *({"id": str(index), "value": text(value)} for index, value in enumerate(values))
    )
    named = {failure["id"]: failure["message"].partition(":")[0] for failure in failures}
    assert named == {"1": "records[1]", "3": "records[3]"}


def test_each_request_is_counted_by_its_outcome(http: HttpApp) -> None:
    post(http, {"id": "1"})
    post(http, {"id": "1"}, {"id": "2", "x": 1})
    post(http, {"id": "2", "x": 1})
    refused_body = http.post(PATH, content=b"", headers=JSON)
    assert refused_body.status_code == 422
    counted = {o: http.app.sidecar.http.produced(o).count for o in ("success", "partial", "error")}
    assert counted == {"success": 1, "partial": 1, "error": 2}
