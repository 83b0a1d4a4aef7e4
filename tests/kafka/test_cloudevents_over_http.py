"""Events that the CloudEvents SDK sends over HTTP are read back from Kafka by the same SDK, unchanged.

Both of its programming interfaces are used as their own documentation has it: `core`, and `v1`, which was the
only one before version 2. acks=all, replication factor 3, min.insync.replicas 2.
"""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx
import pytest
from cloudevents.core.bindings import http as core_http
from cloudevents.core.bindings import kafka as core_kafka
from cloudevents.core.v1.event import CloudEvent
from cloudevents.v1 import conversion as v1_conversion
from cloudevents.v1 import http as v1_http
from cloudevents.v1 import kafka as v1_kafka

from tests.support.plain_http import NO_TLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.kafka.conftest import NewTopic
    from tests.support.kafka_admin import ReadRecord
    from tests.support.kraft import KraftCluster
    from tests.support.sidecar import Sidecar

STRUCTURED: Final = b"application/cloudevents+json; charset=UTF-8"

#: The conformance suite's yaml/v1.0/v1_minimum.yaml: media type and data of each event.
CONFORMANCE: Final = (
    ("text/plain; charset=us-ascii", "Hello, World!\n"),
    ("text/plain; charset=utf-8", "Hello, 🌎!\n"),
    ("application/json; charset=utf-8", '"Hello, 🌎!"\n'),
    ("application/json; charset=utf-8", '{"msg":"Hello, 🌎!"}\n'),
    ("application/json; charset=utf-8", '["Hello","🌎!"]\n'),
    ("application/xml; charset=utf-8", "<msg>Hello, 🌎!</msg>\n"),
)


class Sent(NamedTuple):
    """A request that an SDK made."""

    headers: Mapping[str, str]
    body: bytes


@pytest.fixture
def topic(new_topic: NewTopic, sidecar: Sidecar) -> str:
    topic = new_topic(partitions=3, replication_factor=3, min_insync_replicas=2)
    sidecar.wait_until_it_knows(topic)
    return topic


def with_httpx(url: str, sent: Sent) -> tuple[int, Any]:
    answer = httpx.post(url, headers=dict(sent.headers), content=sent.body, timeout=60, verify=NO_TLS)
    return answer.status_code, answer.json()


def as_message(record: ReadRecord) -> tuple[dict[str, bytes], bytes | None, bytes]:
    assert len(dict(record.headers)) == len(record.headers), "a header is given twice"
    headers = {name: value for name, value in record.headers if value is not None}
    return headers, record.key, record.value or b""


def record_of(kafka: KraftCluster, topic: str, answer: tuple[int, Any]) -> ReadRecord:
    """The last record of its partition, where the answer says that it is."""
    status, body = answer
    assert status == 202, body
    (result,) = body["results"]
    record = max(r for r in kafka.read_back(topic) if r.partition == result["partition"])
    assert body == {
        "topic": topic,
        "results": [
            {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp_ms}
        ],
    }
    return record


MODES: Final[Mapping[str, Callable[[CloudEvent], core_http.HTTPMessage]]] = {
    "binary": core_http.to_binary_event,
    "structured": core_http.to_structured_event,
}
DATA: Final[Mapping[str, dict[str, Any] | str | bytes]] = {
    "application/json": {"total": 12.5, "to": "Müller €"},
    "text/plain": "grüße",
    "application/octet-stream": b"\x00\xff\x80",
}


def test_an_event_of_the_sdks_core_comes_back_as_it_was(
    kafka: KraftCluster, sidecar: Sidecar, topic: str
) -> None:
    for (mode, made), (content_type, data) in itertools.product(MODES.items(), DATA.items()):
        case = f"{mode}, {content_type}"
        event = CloudEvent(
            {
                "id": "A 234-1234 %41",
                "source": "https://example.com/orders?tenant=7#top",
                "type": "com.example.order.placed",
                "subject": 'für "alle" €',
                "time": datetime(2018, 4, 5, 17, 31, 0, 123456, UTC),
                "datacontenttype": content_type,
                "partitionkey": "Künde-7",
                "comexampleextension1": "value",
            },
            data,
        )
        message = made(event)
        answer = with_httpx(f"{sidecar.api_url}/cloudevents/{topic}", Sent(message.headers, message.body))
        headers, key, value = as_message(record_of(kafka, topic, answer))
        assert key == "Künde-7".encode(), case
        assert ("ce_id" in headers) == (mode == "binary"), case
        assert headers["content-type"] == (content_type.encode() if mode == "binary" else STRUCTURED), case
        back = core_kafka.from_kafka_event(core_kafka.KafkaMessage(headers, key, value))
        assert back.get_attributes() == event.get_attributes(), case
        assert back.get_data() == data, case
    assert len(kafka.read_back(topic)) == len(MODES) * len(DATA)


def test_an_event_of_the_sdks_first_interface_comes_back_as_it_was(
    kafka: KraftCluster, sidecar: Sidecar, topic: str
) -> None:
    """Its binary mode encodes no header value, so these are ASCII."""
    data = {"message": "Hello, 🌎!"}
    attributes = {
        "type": "com.example.sampletype1",
        "source": "https://example.com/event-producer",
        "ext": "e",
    }
    for mode, to_http, from_kafka in (
        ("binary", v1_conversion.to_binary, v1_kafka.from_binary),
        ("structured", v1_conversion.to_structured, v1_kafka.from_structured),
    ):
        event = v1_http.CloudEvent(attributes, data)
        answer = with_httpx(f"{sidecar.api_url}/cloudevents/{topic}", Sent(*to_http(event)))
        message = v1_kafka.KafkaMessage(*as_message(record_of(kafka, topic, answer)))
        back: Any = from_kafka(message)
        for name in ("id", "source", "type", "specversion", "time", "ext"):
            assert back[name] == event[name], (mode, name)
        read = back.get_data()
        assert (read if isinstance(read, dict) else json.loads(read)) == data, mode
    assert len(kafka.read_back(topic)) == 2


def test_the_conformance_suites_events_are_read_back_byte_for_byte(
    kafka: KraftCluster, sidecar: Sidecar, topic: str
) -> None:
    attributes = {
        "specversion": "1.0",
        "type": "io.cloudevents.minimum",
        "id": "conformance-0001",
        "source": "//github.com/cloudevents/cloudeventsconformance/yaml/v1.yaml",
    }
    for content_type, data in CONFORMANCE:
        headers = {f"ce-{name}": value for name, value in attributes.items()} | {"content-type": content_type}
        answer = with_httpx(f"{sidecar.api_url}/cloudevents/{topic}", Sent(headers, data.encode()))
        record = record_of(kafka, topic, answer)
        assert (record.key, record.value) == (None, data.encode())
        assert dict(record.headers) == {
            **{f"ce_{name}": value.encode() for name, value in attributes.items()},
            "content-type": content_type.encode(),
        }
    assert len(kafka.read_back(topic)) == len(CONFORMANCE)


def test_a_batch_is_read_back_as_structured_events_each_where_its_key_belongs(
    kafka: KraftCluster, sidecar: Sidecar, topic: str
) -> None:
    events = [
        {
            "specversion": "1.0",
            "id": str(number),
            "source": "/batch",
            "type": "t",
            "partitionkey": f"key-{number % 4}",
            "data": {"n": number},
        }
        for number in range(20)
    ]
    headers = {"content-type": "application/cloudevents-batch+json; charset=UTF-8"}
    status, body = with_httpx(
        f"{sidecar.api_url}/cloudevents/{topic}", Sent(headers, json.dumps(events).encode())
    )
    assert status == 202, body
    read = {(record.partition, record.offset): record for record in kafka.read_back(topic)}
    assert len(read) == len(body["results"]) == len(events)
    for event, result in zip(events, body["results"], strict=True):
        record = read[result["partition"], result["offset"]]
        assert json.loads(record.value or b"") == event
        assert record.headers == (("content-type", STRUCTURED),)
        leader = sidecar.api.get(f"/v1/topics/{topic}/leader", params={"key": str(event["partitionkey"])})
        assert leader.json()["partition"] == record.partition


def test_an_event_without_data_is_a_tombstone_on_a_compacted_topic(
    kafka: KraftCluster, sidecar: Sidecar, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, config={"cleanup.policy": "compact"})
    sidecar.wait_until_it_knows(topic)
    headers = {
        "ce-specversion": "1.0",
        "ce-id": "1",
        "ce-source": "/a",
        "ce-type": "deleted",
        "ce-partitionkey": "customer-7",
    }
    answer = with_httpx(f"{sidecar.api_url}/cloudevents/{topic}", Sent(headers, b""))
    record = record_of(kafka, topic, answer)
    assert (record.key, record.value, record.offset) == (b"customer-7", None, 0)
