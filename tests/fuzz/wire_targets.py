"""Kafka's wire format: every generated message at every version, and the client's own readers."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from client_core.client.api_versions import ApiVersionsRequestBuilder, NodeApiVersions
from client_core.client.in_flight_requests import InFlightRequest
from client_core.client.kafka_client import ClientRequest
from client_core.client.response_parsing import parse_response
from client_core.cluster import TopicPartition
from client_core.errors import InvalidReceiveError, ProtocolError, SchemaError
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.metadata.metadata_request import MetadataRequestBuilder
from client_core.metadata.metadata_response import MetadataResponse, read_metadata_response
from client_core.metadata.topic_configs import TopicConfigsRequestBuilder
from client_core.metadata.topic_listing import TopicListingRequestBuilder
from client_core.metadata.topic_table import TopicTable
from client_core.network.network_receive import NetworkReceive
from client_core.producer.sender.produce_request import PartitionRecords, ProduceRequestBuilder, leader_nodes
from client_core.producer.sender.produce_request import partition_responses as outcomes
from client_core.producer.sender.transaction_manager import InitProducerIdRequestBuilder
from client_core.protocol.header import decode_request_header, encode_request_header, encode_response_header
from client_core.protocol.messages import metadata_response as wire
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.produce_response import ProduceResponse
from tests.fuzz.mutation import EXTREMES
from tests.fuzz.target import Target
from tests.fuzz.wire_values import message
from tests.protocol.messages import GeneratedMessage, generated_messages
from tests.support.metadata_responses import metadata_response
from tests.support_tests.batches import batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from client_core.protocol.request import RequestBuilder

_TOKENS: Final = (*EXTREMES, b"\x02\x63\x03abc\xe8\x07\x00", b"\x01\x00\x05\xff\xff\xff\xff\x0f", b"\0\0")
#: Java's clients take gigabytes; a test's frames are far below.
_MAX_RECEIVE: Final = 1_000_000
_ORDERS: Final = TopicPartition("orders", 0)
_BUILDERS: Final[tuple[RequestBuilder, ...]] = (
    ApiVersionsRequestBuilder("fuzz", "1"),
    MetadataRequestBuilder(("orders",), True),
    ProduceRequestBuilder("all", 100, (PartitionRecords(_ORDERS, batch(b"a")),), {}),
    InitProducerIdRequestBuilder(),
    TopicConfigsRequestBuilder(("orders",)),
    TopicListingRequestBuilder(),
)


def targets() -> Iterator[Target]:
    """All of them."""
    messages = generated_messages()
    for generated in messages:
        for version in generated.versions:
            yield _message_target(generated, version)
    responses = {one.api_key: one for one in messages if one.name.endswith("Response")}
    for builder in _BUILDERS:
        for version in range(builder.oldest_allowed_version, builder.latest_allowed_version + 1):
            yield _answer_target(builder, responses[builder.api.id], version)
    for version in range(1, wire.MAX_VERSION + 1):
        yield _metadata_target(version)
    yield Target("request header", _request_header, decode_request_header, (SchemaError,), _TOKENS)
    yield Target("frames of a connection", _frames, _split, (InvalidReceiveError,), _TOKENS)


# -- generated messages --------------------------------------------------------------------------------------


def _encoded(generated: GeneratedMessage, version: int) -> Callable[[Random], bytes]:
    def make(random: Random) -> bytes:
        encoded: bytes = message(generated.type, version, random).encode(version)
        return encoded

    return make


def _message_target(generated: GeneratedMessage, version: int) -> Target:
    def read(data: bytes) -> object:
        return generated.type.decode(data, version)

    name = f"{generated.name} v{version}"
    return Target(name, _encoded(generated, version), read, (SchemaError,), _TOKENS)


# -- answers, as the client reads them -----------------------------------------------------------------------


def _answer_target(builder: RequestBuilder, response: GeneratedMessage, version: int) -> Target:
    """A frame, its header and correlation id, and what the client does with what it has read."""
    waiting = InFlightRequest(ClientRequest(1, builder, 7, 0, True, 1_000, None), version, False, 0, 0)
    header = encode_response_header(builder.api, version, 7)

    def make(random: Random) -> bytes:
        body: bytes = message(response.type, version, random).encode(version)
        return header + body

    def read(data: bytes) -> None:
        _look_at(parse_response(data, waiting))

    name = f"{type(builder).__name__.removesuffix('Builder')} v{version} answered"
    return Target(name, make, read, (ProtocolError,), _TOKENS)


def _look_at(body: Any) -> None:
    if isinstance(body, MetadataResponse):
        _take_in(body)
    elif isinstance(body, ProduceResponse):
        tuple(outcomes(body, {}))
        leader_nodes(body)
    elif isinstance(body, ApiVersionsResponse):
        assert str(NodeApiVersions.of_response(body))


def _take_in(body: MetadataResponse) -> None:
    metadata = Metadata(MetadataConfig(), Random(0))
    metadata.bootstrap([("localhost", 9_092)])
    for now_ms in (0, 1):  # the second time the topics are known
        metadata.update(0, body, False, now_ms)
    cache = metadata.cache
    for table in cache.topics.values():
        for number in table.numbers[:50]:
            partition = TopicPartition(table.name, number)
            cache.leader_for(partition)
            metadata.current_leader(partition)
            table.partition(number, cache.nodes_by_id)
    assert cache.leaderless_total <= cache.partition_total


def _metadata_target(version: int) -> Target:
    """The reader of Metadata, with topics that it knows from an honest answer: the way of most answers."""

    def make(random: Random) -> bytes:
        topics = {f"t{n}": random.choice((1, 2, 3, 40)) for n in range(random.choice((1, 3, 8)))}
        return metadata_response(nodes=3, topics=topics, version=version)

    known = {
        table.name: table
        for table in read_metadata_response(make(Random(1)), version).topics
        if isinstance(table, TopicTable)
    }

    def read(data: bytes) -> None:
        response = read_metadata_response(data, version, known)
        for topic in response.topics:
            if isinstance(topic, TopicTable):
                topic.leaders_and_epochs()
                assert topic.replication_factor >= 0
        plain = wire.MetadataResponse.decode(data, version)
        assert len(plain.topics) >= len(response.topics)

    return Target(f"topic table v{version}", make, read, (SchemaError,), _TOKENS)


# -- headers and frames --------------------------------------------------------------------------------------


def _request_header(random: Random) -> bytes:
    builder = random.choice(_BUILDERS)
    version = random.randint(builder.oldest_allowed_version, builder.latest_allowed_version)
    client_id = random.choice((None, "", "sidecar", "ü" * 100))
    return encode_request_header(builder.api, version, random.randrange(1 << 31), client_id)


def _frames(random: Random) -> bytes:
    pieces = []
    for _ in range(random.choice((1, 2, 5))):
        body = random.randbytes(random.choice((0, 1, 4, 100, 3_000)))
        pieces.append(len(body).to_bytes(4) + body)
    return b"".join(pieces)


def _split(data: bytes) -> int:
    """Feeds it in pieces that depend on the data alone; how many frames came out."""
    random, stream, at, frames = Random(len(data)), NetworkReceive(_MAX_RECEIVE), 0, 0
    while at < len(data):
        size = random.choice((1, 3, 200, 60_000))
        stream.feed(data[at : at + size])
        at += size
        while stream.take() is not None:
            frames += 1
    return frames
