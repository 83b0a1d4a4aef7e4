"""Thousands of spoilt answers, passed directly to their readers: each gives a protocol error or a message.

There is no other exception, and memory stays in proportion to the received bytes. A false answer that can be
read can also be taken into the metadata and looked at.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from client_core.client.api_versions import ApiVersionsRequestBuilder, NodeApiVersions
from client_core.client.in_flight_requests import InFlightRequest
from client_core.client.kafka_client import ClientRequest
from client_core.client.response_parsing import parse_response
from client_core.cluster import TopicPartition
from client_core.errors import InvalidReceiveError, ProtocolError
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.metadata.metadata_request import MetadataRequestBuilder
from client_core.metadata.metadata_response import MetadataResponse
from client_core.network.network_receive import NetworkReceive
from client_core.producer.sender.produce_request import PartitionRecords, ProduceRequestBuilder, leader_nodes
from client_core.producer.sender.produce_request import partition_responses as outcomes
from client_core.producer.sender.transaction_manager import InitProducerIdRequestBuilder
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import encode_request_header
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.produce_response import ProduceResponse
from tests.support.fake_cluster.hostile import Hostility
from tests.support.fake_cluster.in_process import InProcessBrokers
from tests.support.traced_memory import least_peak_bytes
from tests.support_tests.batches import batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client_core.protocol.request import RequestBuilder

_SEEDS: Final = 12
_SIZE: Final = struct.Struct(">i")
#: Java's clients accept gigabytes; the frames of these tests are far below this limit.
_MAX_RECEIVE: Final = 1_000_000


class _Question(NamedTuple):
    """A request as it is in flight, and its bytes."""

    waiting: InFlightRequest
    payload: bytes


def _questions(brokers: InProcessBrokers) -> Iterator[_Question]:
    topic = brokers.state.controller.topic("orders")
    assert topic is not None
    records = PartitionRecords(TopicPartition("orders", 0), batch(b"a"))
    builders: tuple[RequestBuilder, ...] = (
        ApiVersionsRequestBuilder("test", "1"),
        MetadataRequestBuilder(None, True),
        MetadataRequestBuilder(("orders", "nowhere"), True),
        ProduceRequestBuilder("all", 100, (records,), {"orders": topic.topic_id}),
        InitProducerIdRequestBuilder(),
    )
    correlation_id = 0
    for builder in builders:
        for version in range(builder.oldest_allowed_version, builder.latest_allowed_version + 1):
            correlation_id += 1
            request = ClientRequest(1, builder, correlation_id, 0, True, 1_000, None)
            header = encode_request_header(builder.api, version, correlation_id, "test")
            waiting = InFlightRequest(request, version, False, 0, 0)
            yield _Question(waiting, header + builder.encode(version))


def _brokers(seed: int, rate: float) -> InProcessBrokers:
    brokers = InProcessBrokers(3, seed=seed)
    brokers.state.controller.create_topic("orders", partitions=4, replication_factor=3)
    brokers.hostility = Hostility(seed, rate=rate)
    return brokers


def _frames(seed: int) -> Iterator[tuple[InFlightRequest, bytes]]:
    """Each question with each frame that came for it, through the splitter of the network layer."""
    brokers = _brokers(seed, 1.0)
    for waiting, payload in _questions(brokers):
        sending = brokers.answer(1, payload)
        if sending is None:
            continue
        stream = NetworkReceive(_MAX_RECEIVE)
        try:
            for piece in sending.pieces:
                stream.feed(piece)
                while (frame := stream.take()) is not None:
                    yield waiting, frame
        except InvalidReceiveError:
            continue


def _look_at(body: object, random: Random) -> None:
    """What the client does with an answer that it could read."""
    if isinstance(body, MetadataResponse):
        metadata = Metadata(MetadataConfig(), random)
        metadata.bootstrap([("localhost", 9_092)])
        for now_ms in (0, 1):  # the second time the topics are known
            metadata.update(0, body, False, now_ms)
        cache = metadata.cache
        for topic, table in cache.topics.items():
            for number in table.numbers:
                cache.leader_for(TopicPartition(topic, number))
                cache.leader_and_epoch_for(TopicPartition(topic, number))[1]
                metadata.current_leader(TopicPartition(topic, number))
                table.partition(number, cache.nodes_by_id)
        assert cache.leaderless_total <= cache.partition_total
        assert all(not node.is_empty for node in cache.nodes_by_id.values())
    elif isinstance(body, ProduceResponse):
        tuple(outcomes(body, {}))
        leader_nodes(body)
    elif isinstance(body, ApiVersionsResponse):
        assert str(NodeApiVersions.of_response(body))


@pytest.mark.behaviour("NET-11")
@pytest.mark.parametrize("first", range(0, _SEEDS * 8, _SEEDS))
def test_a_spoilt_answer_is_a_message_or_a_protocol_error(first: int) -> None:
    read = refused = 0
    for seed in range(first, first + _SEEDS):
        random = Random(seed)
        for waiting, frame in _frames(seed):
            try:
                body = parse_response(frame, waiting)
            except ProtocolError:
                refused += 1
            else:
                read += 1
                assert _SIZE.unpack_from(frame) == (waiting.request.correlation_id,)
                _look_at(body, random)
    assert read > 10 * _SEEDS
    assert refused > 5 * _SEEDS


def test_reading_takes_memory_by_what_came_and_not_by_what_was_announced() -> None:
    """An element of an empty struct takes the most memory per byte; a length of 2^31 must take none."""
    frames = [(waiting, frame) for seed in range(500, 512) for waiting, frame in _frames(seed)]
    for waiting, frame in frames:
        allowed_bytes = 60_000 + 150 * len(frame)
        assert least_peak_bytes(partial(_parse, frame, waiting), allowed_bytes) < allowed_bytes, (
            waiting,
            len(frame),
        )


def _parse(frame: bytes, waiting: InFlightRequest) -> None:
    with suppress(ProtocolError):
        parse_response(frame, waiting)


@pytest.mark.behaviour("SEL-08")
def test_a_size_that_can_not_be_is_refused_before_anything_is_kept_for_it() -> None:
    def receive(size: int) -> None:
        stream = NetworkReceive(_MAX_RECEIVE)
        stream.feed(_SIZE.pack(size) + b"x")
        with pytest.raises(InvalidReceiveError):
            stream.take()

    for size in (-1, -(2**31), 2**31 - 1, _MAX_RECEIVE + 1):
        assert least_peak_bytes(partial(receive, size), 20_000) < 20_000, size


def test_every_api_of_the_producer_is_asked_and_answered() -> None:
    """Checks that the tests above cover as much as they say."""
    brokers = _brokers(0, 0.0)
    asked = {waiting.request.builder.api for waiting, payload in _questions(brokers)}
    assert asked == {ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID}
    for waiting, payload in _questions(brokers):
        sending = brokers.answer(1, payload)
        assert sending is not None
        (frame,) = sending.pieces
        parse_response(frame[4:], waiting)
