"""Bulk publish: entries in Dapr's shape, and which of them failed."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import TYPE_CHECKING, Any

from client_core import Phase, RecordFailure, TimeoutError, Written
from tests.service.dialects.dapr.dapr_app import details, envelope, refusal, taken, web
from tests.support.coroutine_tests import until

if TYPE_CHECKING:
    import httpx

    from client_core import ProducerRecord
    from tests.support.http_app import HttpApp

BULK = "/v1.0-alpha1/publish/bulk/pubsub/orders"
STABLE = "/v1.0/publish/bulk/pubsub/orders"
JSON = {"content-type": "application/json"}
ONE = {"entryId": "1", "event": "x", "contentType": "text/plain"}

#: The reference of Dapr's API, its bulk example as it is printed there, with a comma behind the last entry.
DOCUMENTED = b"""[
        {
            "entryId": "ae6bf7c6-4af2-11ed-b878-0242ac120002",
            "event":  "first text message",
            "contentType": "text/plain"
        },
        {
            "entryId": "b1f40bd6-4af2-11ed-b878-0242ac120002",
            "event":  {
                "message": "second JSON message"
            },
            "contentType": "application/json"
        },
      ]"""


def bulk(app: HttpApp, entries: Any, path: str = BULK, method: str = "POST") -> httpx.Response:
    body = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return app.ask(method, path, headers=JSON, content=body)


def test_each_entry_is_a_record_wrapped_by_its_own_content_type() -> None:
    app = web()
    entries = [
        {"entryId": "1", "event": "first text message", "contentType": "text/plain"},
        {"entryId": "2", "event": {"message": 1.10}, "contentType": "application/json"},
        {"entryId": "3", "event": "AP8=", "contentType": "application/octet-stream"},
        {"entryId": "4", "event": "<a/>", "contentType": "application/xml; charset=utf-8"},
        {"entryId": "5", "event": {"id": "own", "data": 5}, "contentType": "application/cloudevents+json"},
        {"entryId": "6", "event": None, "contentType": "application/json", "metadata": None},
    ]
    data = ["first text message", {"message": 1.1}, "AP8=", "<a/>", 5, None]
    for path, method in product((BULK, STABLE), ("POST", "PUT")):
        events = [envelope(record) for record in taken(app, bulk(app, entries, path, method))]
        assert [event.get("data", event.get("data_base64")) for event in events] == data
        assert "data_base64" in events[2]
        assert events[4]["id"] == "own"
        assert len({event["id"] for event in events}) == 6
        assert {event["topic"] for event in events} == {"orders"}


def test_the_documented_example_is_taken_without_the_comma_that_json_does_not_have() -> None:
    app = web()
    assert refusal(app, bulk(app, DOCUMENTED), 400) == "ERR_PUBSUB_EVENTS_SER"
    records = taken(app, bulk(app, DOCUMENTED.replace(b"},\n      ]", b"}]")))
    data = ["first text message", {"message": "second JSON message"}]
    assert [envelope(record)["data"] for record in records] == data


def test_names_are_matched_whatever_their_case_as_the_javascript_sdk_needs_it() -> None:
    app = web()
    (record,) = taken(app, bulk(app, [{"entryID": "1", "Event": "x", "contenttype": "text/plain"}]))
    assert envelope(record)["data"] == "x"


def test_an_entrys_metadata_goes_over_that_of_the_request() -> None:
    app = web()
    path = f"{BULK}?metadata.partitionKey=all&metadata.cloudevent.type=t&metadata.ttlInSeconds=60"
    own = {"partitionKey": "own", "rawPayload": "true"}
    first, second = taken(app, bulk(app, [ONE, {**ONE, "entryId": "2", "metadata": own}], path))
    assert (first.key, envelope(first)["type"]) == (b"all", "t")
    assert envelope(first)["expiration"] == "2023-11-14T22:14:20Z"
    assert (second.key, second.value) == (b"own", b"x")
    assert dict(second.headers)["partitionKey"] == b"own"


def test_raw_entries_are_written_as_they_came_and_null_is_a_tombstone() -> None:
    app = web()
    entries = [
        {**ONE, "metadata": {"partitionKey": "k"}},
        {"entryId": "2", "event": {"a": 1}, "contentType": "application/json"},
        {"entryId": "3", "event": "AP8=", "contentType": "application/octet-stream"},
        {"entryId": "4", "event": None, "contentType": "application/json"},
    ]
    records = taken(app, bulk(app, entries, f"{BULK}?metadata.rawPayload=true"))
    assert [record.value for record in records] == [b"x", b'{"a":1}', b"\x00\xff", None]


def test_no_entries_at_all_are_nothing_to_do() -> None:
    app = web()
    assert bulk(app, []).status_code == 204
    assert app.producer.submitted == []


#: By what is said of them.
NO_ENTRIES: dict[str, list[object]] = {
    "entryId is missing or empty": [
        *({**ONE, "entryId": ""}, {**ONE, "entryId": None}, {"event": "x", "contentType": "text/plain"}),
    ],
    "entryId must be a string": [{**ONE, "entryId": 1}],
    "event is missing": [{"entryId": "1", "contentType": "text/plain"}],
    "does not match contentType ''": [{"entryId": "1", "event": "x"}],
    "does not match contentType 'image/png'": [{**ONE, "contentType": "image/png"}],
    "contentType must be a string": [{**ONE, "contentType": 1}],
    "does not match contentType 'text/plain'": [{**ONE, "event": {"a": 1}}],
    "bad base64": [{**ONE, "contentType": "application/octet-stream"}],
    "does not match contentType": [{**ONE, "contentType": "application/octet-stream", "event": {}}],
    "metadata must be an object of strings": [{**ONE, "metadata": {"a": 1}}, {**ONE, "metadata": []}],
    "metdata: unknown member": [{**ONE, "metdata": {}}],
    "ENTRYID: duplicate field": [{**ONE, "ENTRYID": "2"}],
    "must be a JSON object": [[], 1],
}


def test_an_entry_that_is_none_refuses_all_and_is_named() -> None:
    app = web()
    for said, entries in NO_ENTRIES.items():
        for entry in entries:
            answer = bulk(app, [{**ONE, "entryId": "0"}, entry])
            assert refusal(app, answer, 400) == "ERR_PUBSUB_EVENTS_SER"
            assert "[1]" in answer.json()["message"]
            assert said in answer.json()["message"], entry


def test_what_is_no_array_of_entries_is_refused() -> None:
    app = web()
    for body in (
        *(b"", b"{}", b"null", b"[", b"\xff[]"),
        b'[{"entryId":"1","entryId":"1","event":"x","contentType":"text/plain"}]',
        b'[{"entryId":"1","event":"x","contentType":"text/plain","metadata":{"a":"1","a":"2"}}]',
        b'[{"entryId":"1","event":' + b"[" * 5_000 + b"]" * 5_000 + b',"contentType":"application/json"}]',
    ):
        assert refusal(app, bulk(app, body), 400) == "ERR_PUBSUB_EVENTS_SER"


def test_entry_ids_are_distinct() -> None:
    app = web()
    answer = bulk(app, [ONE, {**ONE, "entryId": "2"}, {**ONE, "event": "y"}])
    assert refusal(app, answer, 400) == "ERR_PUBSUB_EVENTS_SER"
    assert "[2].entryId" in answer.json()["message"]


def test_there_are_as_many_entries_as_the_limit_allows() -> None:
    app = web(max_records_per_request=1)
    answer = bulk(app, [ONE, {**ONE, "entryId": "2"}])
    assert refusal(app, answer, 413) == "ERR_PUBSUB_EVENTS_SER"
    assert "more than 1 entries" in answer.json()["message"]


def test_metadata_of_the_request_does_not_multiply_without_bound() -> None:
    """A few kilobytes of query are headers of each of many records."""
    app = web(max_waiting_bytes=100_000)
    entries = [{**ONE, "entryId": str(n)} for n in range(200)]
    answer = bulk(app, entries, f"{BULK}?metadata.note={'x' * 1_000}")
    assert refusal(app, answer, 413) == "ERR_PUBSUB_EVENTS_SER"
    assert "max_waiting_bytes" in answer.json()["message"]
    assert bulk(app, entries[:10], f"{BULK}?metadata.note={'x' * 1_000}").status_code == 204


async def test_envelopes_and_metadata_count_among_what_waits_until_they_are_delivered() -> None:
    app = web()
    app.producer.holds_records = True
    admission = app.app.sidecar.admission
    one, many = f"metadata.note={'x' * 1_000}", "&".join(f"metadata.n{n}={'x' * 20}" for n in range(50))
    async with app.client() as client:
        for query in (one, many):
            entries = [{**ONE, "entryId": n} for n in "abcd"]
            posting = asyncio.create_task(client.post(f"{BULK}?{query}", json=entries))
            await until(lambda: app.producer.waiting)
            assert admission.bytes > 4_000
            app.producer.acknowledge(app.producer.waiting[0])
            assert (await posting).status_code == 204
            assert admission.bytes == 0


def test_an_event_of_the_callers_own_that_is_none_is_dapr_500() -> None:
    app = web()
    answer = bulk(app, [{**ONE, "event": [1], "contentType": "application/cloudevents+json"}])
    assert refusal(app, answer, 500) == "ERR_PUBSUB_CLOUD_EVENTS_SER"


def test_metadata_that_can_not_be_used_is_refused_by_the_entrys_id() -> None:
    app = web()
    answer = bulk(app, [{**ONE, "entryId": "bad", "metadata": {"ttlInSeconds": "x"}}])
    assert refusal(app, answer, 400) == "ERR_PUBSUB_REQUEST_METADATA"
    assert "entry bad" in answer.json()["message"]
    answer = bulk(app, [ONE], f"{BULK}?metadata.rawPayload=100")
    assert refusal(app, answer, 400) == "ERR_PUBSUB_REQUEST_METADATA"


def failing(app: HttpApp, *indices: int) -> None:
    error = TimeoutError("no acknowledgement came")

    def outcome(index: int, record: ProducerRecord) -> Any:
        if index in indices:
            return RecordFailure(error, Phase.DELIVERY, Written.UNKNOWN, 30)
        return app.producer.receipt(index, record)

    app.producer.outcome_of = outcome


def test_failed_entries_of_a_bulk_are_reported_by_id_in_the_callers_spelling_too() -> None:
    """The JavaScript SDK looks for `entryID`, and without it overlooks a failure."""
    app = web()
    failing(app, 1)
    for name in ("entryId", "entryID"):
        entries = [{name: entry_id, "event": "x", "contentType": "text/plain"} for entry_id in "abc"]
        answer = bulk(app, entries)
        assert (answer.status_code, answer.headers["content-type"]) == (500, "application/json")
        assert answer.json() == {
            "failedEntries": [{"entryId": "b", name: "b", "error": "no acknowledgement came"}],
            "errorCode": "ERR_PUBSUB_PUBLISH_MESSAGE",
        }


def test_all_of_a_bulk_may_fail() -> None:
    app = web()
    failing(app, 0, 1)
    answer = bulk(app, [ONE, {**ONE, "entryId": "2"}])
    assert answer.status_code == 500
    assert [entry["entryId"] for entry in answer.json()["failedEntries"]] == ["1", "2"]


def test_each_request_is_counted_once_by_its_outcome() -> None:
    app = web()
    bulk(app, [ONE])
    bulk(app, [])
    bulk(app, b"{")
    failing(app, 1)
    bulk(app, [ONE, {**ONE, "entryId": "2"}])
    failing(app, 0)
    bulk(app, [ONE])
    metrics = app.app.sidecar.http
    counts = {outcome: metrics.produced(outcome).count for outcome in ("success", "partial", "error")}
    assert counts == {"success": 2, "partial": 1, "error": 2}


def test_a_bulk_without_a_topic_is_no_publish_of_an_array() -> None:
    """Under /v1.0 it would be an event to the topic `pubsub` of the pubsub `bulk`."""
    app = web()
    app.producer.set_topics({"pubsub": 1})
    for path in ("/v1.0/publish/bulk/pubsub", "/v1.0-alpha1/publish/bulk/pubsub/"):
        answer = bulk(app, [ONE], path)
        assert refusal(app, answer, 404) == "ERR_TOPIC_NAME_EMPTY"
        assert details(answer)["reason"] == "DAPR_PUBSUB_TOPIC_NAME_EMPTY"
