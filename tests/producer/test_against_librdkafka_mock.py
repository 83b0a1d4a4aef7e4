"""The client against brokers that are not Kafka's: librdkafka's mock cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core import KafkaProducer, ProducerConfig, ProducerRecord
from client_core.error_codes import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.api_versions_request import ApiVersionsRequest
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from client_core.protocol.messages.metadata_response import MetadataResponse
from tests.support.kafka_admin import read_back
from tests.support.librdkafka_mock import librdkafka_mock
from tests.support.live_producer import PATIENCE_S
from tests.support.wire import ask

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with librdkafka_mock(3, "orders") as bootstrap_servers:
        yield bootstrap_servers


def address(servers: str) -> tuple[str, int]:
    host, port = servers.split(",")[0].rsplit(":", 1)
    return host, int(port)


def test_records_are_acknowledged_and_can_be_read_by_librdkafka(servers: str) -> None:
    with KafkaProducer(ProducerConfig.from_mapping({"bootstrap.servers": servers})) as producer:
        sent = producer.send(ProducerRecord("orders", b"value", key=b"key", partition=2)).result(PATIENCE_S)
    assert (sent.partition, sent.offset) == (2, 0)
    (record,) = read_back(servers, "orders")
    assert (record.partition, record.offset, record.key, record.value) == (2, 0, b"key", b"value")


def test_it_refuses_flexible_api_versions_so_that_the_client_fell_back(servers: str) -> None:
    request = ApiVersionsRequest("pilotfish", "1")
    # Kafka answers in the form of version 0; this broker in that of version 3, and its count of APIs is one
    # short.
    refused = ApiVersionsResponse.decode(ask(address(servers), ApiKey.API_VERSIONS, 3, request.encode(3)), 3)
    assert (refused.error_code, refused.api_keys) == (Errors.UNSUPPORTED_VERSION.code, ())
    taken = ApiVersionsResponse.decode(ask(address(servers), ApiKey.API_VERSIONS, 2, request.encode(2)), 2)
    assert taken.error_code == 0


def test_its_flexible_metadata_answer_is_read_in_spite_of_a_stray_byte(servers: str) -> None:
    request = MetadataRequest((MetadataRequestTopic(name="orders"),), allow_auto_topic_creation=False)
    body = ask(address(servers), ApiKey.METADATA, 12, request.encode(12))
    answer = MetadataResponse.decode(body, 12)
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("orders", 4)]
    assert len(answer.encode(12)) + 1 == len(body)
