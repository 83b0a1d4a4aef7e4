"""Dapr's own JavaScript SDK, unchanged, and the requests that Dapr's documentation prints: on real brokers.

What is published is read back and must be a CloudEvent to the CloudEvents SDK. acks=all, replication factor
3, min.insync.replicas 2.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from cloudevents.core.bindings import kafka as ce_kafka

from tests.support.npm_packages import find_node, install
from tests.support.shared_sidecar import SharedSidecar
from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.conftest import NewTopic
    from tests.support.kafka_admin import ReadRecord
    from tests.support.kraft import KraftCluster

_CLIENT: Final = Path(__file__).parent / "dapr_client"
_TIMEOUT_S: Final = patient(120)

#: A topic that was just made may take a busy broker longer to know than a caller waits for an unknown one.
PATIENT: Final = ("--unknown-topic-wait-ms", "10000")

STRUCTURED: Final = b"application/cloudevents+json; charset=UTF-8"


@pytest.fixture(scope="module")
def dapr_sdk() -> list[str]:
    """The command that runs the client. NodeMissingError says what to install."""
    return [str(find_node()), str(install(_CLIENT) / "publish.js")]


@pytest.fixture(scope="module")
def shared_sidecar(
    kafka_of_the_session: KraftCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedSidecar]:
    with SharedSidecar(tmp_path_factory.mktemp("dapr"), kafka_of_the_session, flags=PATIENT) as shared:
        yield shared


@pytest.fixture
def sidecar(kafka: KraftCluster, shared_sidecar: SharedSidecar) -> Sidecar:
    return shared_sidecar.running()


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(partitions=3, replication_factor=3, min_insync_replicas=2)


def run(sdk: list[str], sidecar: Sidecar, topic: str, missing: str, token: str = "") -> dict[str, Any]:
    """What the SDK was answered."""
    ran = subprocess.run(
        [*sdk, str(sidecar.api_port), topic, missing],
        env={**os.environ, "DAPR_API_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout)
    return said


def event_of(record: ReadRecord) -> Any:
    """The event in a record, read by the CloudEvents SDK."""
    headers = {name: value for name, value in record.headers if value is not None}
    assert headers["content-type"] == STRUCTURED
    return ce_kafka.from_kafka_event(ce_kafka.KafkaMessage(headers, None, record.value or b""))


@pytest.mark.tools
def test_the_javascript_sdk_publishes_what_is_read_back_as_cloudevents(
    kafka: KraftCluster, sidecar: Sidecar, topic: str, topic_name: Callable[[], str], dapr_sdk: list[str]
) -> None:
    said = run(dapr_sdk, sidecar, topic, missing=topic_name())

    assert said["healthy"] is True
    assert said["metadata"]["id"] == "pilotfish"
    assert said["metadata"]["components"][0]["type"] == "pubsub.kafka"
    assert said["metadata"]["extended"]["language"] == "JavaScript ❤"
    assert said["published"] == [{}] * 5
    assert said["bulk"] == {"failedMessages": []}

    read = kafka.read_back(topic)
    by_key = {record.key: record for record in read if record.key is not None}
    for key, content_type, data in [
        (b"object", "application/json", {"orderId": "100", "total": 12.5}),
        (b"string", "text/plain", "grüße, 🌍"),
        (b"bytes", "application/octet-stream", b"\x00\xff\x80"),
        (b"bulk", "text/plain", "with metadata"),
    ]:
        event = event_of(by_key[key])
        assert event.get_data() == data
        assert event.get_datacontenttype() == content_type
        assert (event.get_source(), event.get_type()) == ("pilotfish", "com.dapr.event.sent")
        assert (event.get_extension("topic"), event.get_extension("pubsubname")) == (topic, "pubsub")
        assert dict(by_key[key].headers)["partitionKey"] == key
    own = event_of(by_key[b"event"])
    assert (own.get_id(), own.get_source(), own.get_type()) == ("own-1", "/own", "com.example.own")
    assert own.get_data() == {"n": 1}
    raw = by_key[b"raw"]
    assert raw.value == b'{"raw":true}'
    assert dict(raw.headers) == {"partitionKey": b"raw", "rawPayload": b"true", "correlationId": b"c-1"}
    without_key = [event_of(record).get_data() for record in read if record.key is None]
    assert sorted(map(str, without_key)) == ["a string", "good", "{'an': 'object'}"]


@pytest.mark.tools
def test_the_javascript_sdk_hears_what_failed_and_which_of_a_bulk(
    sidecar: Sidecar, topic: str, topic_name: Callable[[], str], dapr_sdk: list[str]
) -> None:
    missing = topic_name()
    said = run(dapr_sdk, sidecar, topic, missing)
    ((failed, error),) = said["failed"]
    assert failed == "bad"
    assert "Partition 999" in error
    refused = json.loads(said["refused"])
    assert refused["status"] == 500
    assert json.loads(refused["error_msg"])["errorCode"] == "ERR_PUBSUB_PUBLISH_MESSAGE"
    assert missing in refused["error_msg"]


@pytest.mark.tools
def test_the_javascript_sdk_brings_its_token(
    kafka: KraftCluster,
    tmp_path: Path,
    topic: str,
    topic_name: Callable[[], str],
    dapr_sdk: list[str],
) -> None:
    tokens = TokensFile(tmp_path, shop={"produce": [topic]})
    flags = ["--tokens-file", tokens.setting]
    sidecar = Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=flags)
    sidecar.api.headers.update(tokens.of("shop"))
    with sidecar:
        said = run(dapr_sdk, sidecar, topic, topic_name(), token=tokens.token("shop"))
    assert said["published"] == [{}] * 5
    refused = json.loads(said["refused"])
    assert refused["status"] == 403
    assert json.loads(refused["error_msg"])["errorCode"] == "ERR_PUBSUB_FORBIDDEN"
    assert len(kafka.read_back(topic)) == 9


#: Requests as Dapr's documentation of August 2026 prints them, in the reference of its pub/sub API, in its
#: how-tos of publishing, raw payloads and time to live, and for its Kafka component. Only the topic is ours.
DOCUMENTED: Final = {
    "reference": (
        "/v1.0/publish/pubsubName/{topic}",
        "application/json",
        '{\n       "status": "completed"\n     }',
    ),
    "how-to": ("/v1.0/publish/order-pub-sub/{topic}", "application/json", '{"orderId": "100"}'),
    "own event": (
        "/v1.0/publish/order-pub-sub/{topic}",
        "application/cloudevents+json",
        '{"specversion" : "1.0", "type" : "com.dapr.cloudevent.sent", "source" : "testcloudeventspubsub", '
        '"subject" : "Cloud Events Test", "id" : "someCloudEventId", "time" : "2021-08-02T09:00:00Z", '
        '"datacontenttype" : "application/cloudevents+json", "data" : {"orderId": "100"}}',
    ),
    "ttl": (
        "/v1.0/publish/pubsub/{topic}?metadata.ttlInSeconds=120",
        "application/json",
        '{"order-number": "345"}',
    ),
    "raw": (
        "/v1.0/publish/pubsub/{topic}?metadata.rawPayload=true",
        "application/json",
        '{"order-number": "345"}',
    ),
    "key": (
        "/v1.0/publish/myKafka/{topic}?metadata.partitionKey=key1",
        "application/json",
        '{\n        "data": {\n          "message": "Hi"\n        }\n      }',
    ),
    "correlation": (
        "/v1.0/publish/myKafka/{topic}?metadata.correlationId=myCorrelationID&metadata.partitionKey=key1",
        "application/json",
        '{\n        "data": {\n          "message": "Hi"\n        }\n      }',
    ),
}


@pytest.fixture
def publish(kafka: KraftCluster, sidecar: Sidecar, topic: str) -> Callable[[str], ReadRecord]:
    """Sends one of the documented requests and gives the record that came of it."""
    seen: list[ReadRecord] = []

    def send(name: str) -> ReadRecord:
        path, content_type, body = DOCUMENTED[name]
        answer = sidecar.api.post(
            path.format(topic=topic), headers={"Content-Type": content_type}, content=body
        )
        assert (answer.status_code, answer.content) == (204, b""), answer.text
        (record,) = (read for read in kafka.read_back(topic) if read not in seen)
        seen.append(record)
        return record

    return send


def test_a_documented_request_is_read_back_in_an_envelope(
    publish: Callable[[str], ReadRecord], topic: str
) -> None:
    for name, data in {
        "reference": {"status": "completed"},
        "how-to": {"orderId": "100"},
        "ttl": {"order-number": "345"},
        "key": {"data": {"message": "Hi"}},
        "correlation": {"data": {"message": "Hi"}},
    }.items():
        record = publish(name)
        event = event_of(record)
        assert event.get_data() == data, name
        assert event.get_extension("topic") == topic
        assert event.get_extension("pubsubname") == DOCUMENTED[name][0].split("/")[3]
        assert (event.get_extension("expiration") is not None) == (name == "ttl")
        assert record.key == (b"key1" if name in ("key", "correlation") else None)
        assert ("correlationId", b"myCorrelationID") in record.headers or name != "correlation"


def test_the_documented_own_event_and_raw_payload_are_read_back(publish: Callable[[str], ReadRecord]) -> None:
    event = event_of(publish("own event"))
    assert (event.get_id(), event.get_subject()) == ("someCloudEventId", "Cloud Events Test")
    assert (event.get_source(), event.get_type()) == ("testcloudeventspubsub", "com.dapr.cloudevent.sent")
    assert event.get_time().isoformat() == "2021-08-02T09:00:00+00:00"

    record = publish("raw")
    assert record.value == b'{"order-number": "345"}'
    assert record.headers == (("rawPayload", b"true"),)


def test_health_and_metadata_are_what_sdks_wait_for(sidecar: Sidecar) -> None:
    assert sidecar.api.get("/v1.0/healthz").status_code == 204
    # Its own first metadata may still be on the way.
    wait_until(lambda: sidecar.api.get("/v1.0/healthz/outbound").status_code == 204, what="a broker's answer")
    assert sidecar.api.get("/v1.0/metadata").json()["id"] == "pilotfish"


def test_a_sidecar_without_brokers_says_that_it_can_not_send(tmp_path: Path) -> None:
    with Sidecar(tmp_path, bootstrap_servers="127.0.0.1:1") as alone:
        assert alone.api.get("/v1.0/healthz").status_code == 204
        answer = alone.api.get("/v1.0/healthz/outbound")
        assert (answer.status_code, answer.json()["errorCode"]) == (500, "ERR_OUTBOUND_HEALTH_NOT_READY")
