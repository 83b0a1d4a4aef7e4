"""Requests to a v2 proxy from the documentation and tests of others, sent literally.

Each request is copied literally, headers and spacing included. Sources: Confluent's API reference, the quick
start of Strimzi's bridge and its tests, and the tests of Karapace's proxy. Where the three want different
things of one request, docs/rest-v2.md says which of them is followed.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from client_core import ProducerRecord
from tests.support.http_app import HttpApp

V2 = "application/vnd.kafka.v2+json"
_JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
_BINARY = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
_TEXT = {"Content-Type": "application/vnd.kafka.text.v2+json"}


class Sent(NamedTuple):
    """A request, and the records that it means."""

    path: str
    headers: dict[str, str]
    body: str
    records: list[ProducerRecord]


def record(
    value: bytes | None,
    key: bytes | None = None,
    partition: int | None = None,
    timestamp_ms: int | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> ProducerRecord:
    return ProducerRecord("test", value, key, partition, timestamp_ms, headers)


PRODUCED = {
    "confluent, binary, to a topic": Sent(
        "/topics/test",
        {"Host": "localhost", **_BINARY, "Accept": V2},
        """{
  "records": [
    {
      "key": "a2V5",
      "value": "Y29uZmx1ZW50"
    },
    {
      "value": "a2Fma2E=",
      "partition": 1
    },
    {
      "value": "bG9ncw=="
    }
  ]
}""",
        [record(b"confluent", b"key"), record(b"kafka", None, 1), record(b"logs")],
    ),
    "confluent, json, to a topic": Sent(
        "/topics/test",
        {**_JSON, "Accept": "application/vnd.kafka.v2+json, application/vnd.kafka+json, application/json"},
        '{"records":[{"key":"somekey","value":{"foo":"bar"}},{"value":["foo","bar"],"partition":1},{"value":53.5}]}',
        [record(b'{"foo":"bar"}', b'"somekey"'), record(b'["foo","bar"]', None, 1), record(b"53.5")],
    ),
    "confluent, json, to a partition": Sent(
        "/topics/test/partitions/1",
        {**_JSON, "Accept": V2},
        '{"records":[{"key":"somekey","value":{"foo":"bar"}},{"value":53.5}]}',
        [record(b'{"foo":"bar"}', b'"somekey"', 1), record(b"53.5", None, 1)],
    ),
    "confluent, its own client's nulls": Sent(
        "/topics/test",
        {**_JSON, "Accept": V2},
        '{"records":[{"key":"key","value":null,"partition":null}],"key_schema_id":null,"key_schema":null,'
        '"value_schema_id":null,"value_schema":null}',
        [record(None, b'"key"')],
    ),
    "strimzi, the quick start": Sent(
        "/topics/test",
        {**_JSON, "User-Agent": "curl/8.5.0", "Accept": "*/*"},
        """{
    "records": [
        {
            "key": "my-key",
            "value": "sales-lead-0001"
        },
        {
            "value": "sales-lead-0002",
            "partition": 2
        },
        {
            "value": "sales-lead-0003"
        }
    ]
}""",
        [
            record(b'"sales-lead-0001"', b'"my-key"'),
            record(b'"sales-lead-0002"', None, 2),
            record(b'"sales-lead-0003"'),
        ],
    ),
    "strimzi, headers": Sent(
        "/topics/test",
        _JSON,
        """{
    "records": [
        {
            "key": "my-key",
            "value": "sales-lead-0001",
            "partition": 2,
            "headers": [
              {
                "key": "key1",
                "value": "QXBhY2hlIEthZmthIGlzIHRoZSBib21iIQ=="
              }
            ]
        }
    ]
}""",
        [record(b'"sales-lead-0001"', b'"my-key"', 2, None, (("key1", b"Apache Kafka is the bomb!"),))],
    ),
    "strimzi, the openapi example": Sent(
        "/topics/test",
        _TEXT,
        '{"records":[{"key":"key1","partition":0,"timestamp":1591897790000,"value":"value1",'
        '"headers":[{"key":"key1","value":"dmFsdWUx"},{"key":"key2","value":"dmFsdWUy"}]}]}',
        [record(b"value1", b"key1", 0, 1_591_897_790_000, (("key1", b"value1"), ("key2", b"value2")))],
    ),
    "strimzi, json with an object for a key": Sent(
        "/topics/test/partitions/0",
        _JSON,
        '{"records":[{"value":{"v":128},"key":{"k":"key"}}]}',
        [record(b'{"v":128}', b'{"k":"key"}', 0)],
    ),
    "karapace, json": Sent(
        "/topics/test/partitions/0",
        {**_JSON, "Accept": f"application/vnd.kafka.json.v2+json, {V2}, application/json, */*"},
        '{"records": [{"value": {"foo": "bar"}}]}',
        [record(b'{"foo":"bar"}', None, 0)],
    ),
    "karapace, binary": Sent(
        "/topics/test",
        {**_BINARY, "Accept": f"application/vnd.kafka.binary.v2+json, {V2}, application/json, */*"},
        '{"records": [{"value": "Zm9vCg=="}]}',
        [record(b"foo\n")],
    ),
}
#: Karapace's and Strimzi's tests of malformed requests, and Confluent's of an empty one.
MALFORMED = [
    *((_JSON, body) for body in ('{"records": []}', '{"foo": "bar"}', "{}")),
    (_JSON, '{"records": [{"valur": {"foo": "bar"}}]}'),
    (_BINARY, ""),
    (_TEXT, '{"records":[{"value":{"message":"Hi, This is kafka bridge"}}]}'),
    (_TEXT, '{"records":[{"key":{"my-key":"This is a json key"},"value":"Text value"}]}'),
]
#: Karapace's list of types that are none.
NO_TYPES = (
    *("application/vnd.kafka.v3+json", "application/vnd.kafka.json+avro", "application/vnd.kafka"),
    *("application/text", "bar/baz"),
)


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics({"test": 3})
    app.producer.on_brokers = {"test": 3}
    return app


def test_requests_of_other_clients_are_read_as_they_mean_them(web: HttpApp) -> None:
    for name, sent in PRODUCED.items():
        answer = web.post(sent.path, content=sent.body.encode(), headers=sent.headers)
        assert (answer.status_code, answer.headers["content-type"]) == (200, V2), name
        assert len(answer.json()["offsets"]) == len(sent.records), name
        assert web.producer.submitted == [sent.records], name
        web.producer.submitted.clear()


def test_requests_that_other_proxies_refuse_are_refused_alike(web: HttpApp) -> None:
    of_no_type = [({"Content-Type": name}, '{"records":[{"value":"Zm9v"}]}', 415) for name in NO_TYPES]
    for headers, body, status in (*((*sent, 422) for sent in MALFORMED), *of_no_type):
        for path in ("/topics/test", "/topics/test/partitions/0"):
            answer = web.post(path, content=body.encode(), headers=headers)
            assert answer.status_code == status, (headers, body)
            assert {"error_code", "message"} == set(answer.json())
    assert web.producer.submitted == []


def test_karapaces_list_of_accept_headers_is_served_and_that_of_those_that_are_not_is_406(
    web: HttpApp,
) -> None:
    served = ("application/vnd.kafka+json", "application/json", "application/*", "*/*")
    refused = (
        *("application/octet-stream", "application/vnd.kafka+foo", "application/text", "foo/*", "bar/json"),
    )
    statuses = {name: web.get("/brokers", headers={"Accept": name}).status_code for name in served + refused}
    assert statuses == {**dict.fromkeys(served, 200), **dict.fromkeys(refused, 406)}
    one_list = [("Accept", "application/*;q=0"), ("Accept", "*/*")]
    assert web.get("/brokers", headers=one_list).status_code == 406
