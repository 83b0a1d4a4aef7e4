"""The cluster for trying out: it is there at once, has its topics, takes records, and goes when closed."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from client_core.error_codes import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.api_versions_request import ApiVersionsRequest
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from client_core.protocol.messages.metadata_response import MetadataResponse
from service.process.embedded import EmbeddedCluster, EmbeddedClusterError
from tests.support.kafka_admin import KafkaAdmin, read_back
from tests.support.wire import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import KafkaError, Message


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, topics=("orders", "payments")) as running:
        yield running


def _addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    pairs = (address.rsplit(":", 1) for address in bootstrap_servers.split(","))
    return [(host, int(port)) for host, port in pairs]


def test_every_broker_listens_on_a_port_of_its_own(cluster: EmbeddedCluster) -> None:
    addresses = _addresses(cluster.bootstrap_servers)
    assert len(set(addresses)) == 3
    for address in addresses:
        socket.create_connection(address, timeout=5).close()


def test_the_topics_asked_for_are_there_with_replicas_on_all_brokers(cluster: EmbeddedCluster) -> None:
    admin = KafkaAdmin(cluster.bootstrap_servers)
    assert admin.topics() == ("orders", "payments")
    for partition in admin.partitions("orders") or pytest.fail("orders is missing"):
        assert partition.leader is not None
        assert set(partition.replicas) == {1, 2, 3}


def test_a_topic_can_be_added_while_it_runs(cluster: EmbeddedCluster) -> None:
    cluster.add_topic("refunds")
    cluster.add_topic("refunds")
    assert KafkaAdmin(cluster.bootstrap_servers).topics() == ("orders", "payments", "refunds")


def test_records_are_kept_until_it_is_closed(cluster: EmbeddedCluster) -> None:
    from confluent_kafka import Producer

    acknowledged: list[tuple[KafkaError | None, int]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        acknowledged.append((error, message.timestamp()[1]))

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    producer.produce("orders", b"value", key=b"key", partition=2, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert acknowledged == [(None, 1234)]  # what the module's docstring warns of
    (record,) = read_back(cluster.bootstrap_servers, "orders")
    assert (record.partition, record.offset, record.key, record.value) == (2, 0, b"key", b"value")


def test_it_refuses_flexible_api_versions_so_that_a_client_must_fall_back(cluster: EmbeddedCluster) -> None:
    (address, *_) = _addresses(cluster.bootstrap_servers)
    request = ApiVersionsRequest("pilotfish", "1")
    # Kafka answers in the form of version 0; this broker in that of version 3, and its count of APIs is one
    # short.
    refused = ApiVersionsResponse.decode(ask(address, ApiKey.API_VERSIONS, 3, request.encode(3)), 3)
    assert (refused.error_code, refused.api_keys) == (Errors.UNSUPPORTED_VERSION.code, ())
    taken = ApiVersionsResponse.decode(ask(address, ApiKey.API_VERSIONS, 2, request.encode(2)), 2)
    assert taken.error_code == 0
    versions = {key.api_key: (key.min_version, key.max_version) for key in taken.api_keys}
    assert versions[ApiKey.PRODUCE.id][1] <= ApiKey.PRODUCE.max_version
    assert versions[ApiKey.METADATA.id][1] <= ApiKey.METADATA.max_version


def test_a_flexible_metadata_answer_is_readable_in_spite_of_its_stray_byte(cluster: EmbeddedCluster) -> None:
    (address, *_) = _addresses(cluster.bootstrap_servers)
    request = MetadataRequest((MetadataRequestTopic(name="orders"),), allow_auto_topic_creation=False)
    body = ask(address, ApiKey.METADATA, 12, request.encode(12))
    answer = MetadataResponse.decode(body, 12)
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("orders", 4)]
    assert len(answer.encode(12)) + 1 == len(body)


def test_after_closing_nothing_listens_and_nothing_is_told() -> None:
    cluster = EmbeddedCluster(brokers=1)
    (address,) = _addresses(cluster.start())
    assert cluster.start() == cluster.bootstrap_servers
    cluster.close()
    cluster.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5)
    with pytest.raises(EmbeddedClusterError, match="not running"):
        _ = cluster.bootstrap_servers


def test_without_the_wheel_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    with pytest.raises(EmbeddedClusterError, match="pip install confluent-kafka"):
        EmbeddedCluster().start()


def test_what_to_try_is_said_once_it_can_be_tried() -> None:
    command = [sys.executable, "-m", "service", "serve", "--embedded", "--api-port", "0", "--admin-port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1
    ) as process:
        try:
            assert process.stdout is not None
            url = next(line.split()[-1] for line in process.stdout if line.endswith("/v1/status\n"))
            assert httpx.get(url).json()["state"] == "running"
        finally:
            process.terminate()
        assert process.wait(30) == 0


def test_a_cluster_without_brokers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        EmbeddedCluster(brokers=0)
