"""Metadata responses that are large: read in pieces like whole, bounded in memory, refused beyond a limit."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import SchemaError
from client_core.metadata import metadata_response
from client_core.metadata.metadata_response import (
    MetadataReader,
    MetadataResponse,
    read_metadata_response,
)
from client_core.metadata.topic_listing import TopicListingRequestBuilder
from client_core.metadata.topic_table import TopicTable
from client_core.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from client_core.protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from client_core.protocol.primitives import MOST_ELEMENTS
from tests.metadata.strategies import VERSIONS, messages
from tests.support.counted_work import PythonCalls
from tests.support.giant_answers import ASKED, GIANTS, VERSION, Giant, body_of, partitions_of, topic_of
from tests.support.metadata_responses import metadata_message, partition, topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from client_core.protocol.messages import metadata_response as wire
    from client_core.protocol.request import ResponseReader

_PIECE_BYTES: Final = 128 * 1024
#: The memory limit while any giant is read: the requested topics, and a few pieces.
_MOST_BYTES: Final = 40_000_000


def in_pieces(
    body: bytes,
    cuts: Sequence[int],
    version: int,
    known: Mapping[str, TopicTable],
    asked: Sequence[str] | None,
) -> MetadataResponse:
    reader = MetadataReader(len(body), version, known, asked)
    at = 0
    for cut in cuts:
        reader.feed(body[at : at + cut])
        at += cut
    reader.feed(body[at:])
    return reader.finish()


def seen(response: MetadataResponse) -> list[object]:
    """All that a response says, to be compared."""
    topics = [
        (found.name, found.topic_id, found.raw, {n: found.metadata(n) for n in found.numbers})
        if isinstance(found, TopicTable)
        else found
        for found in response.topics
    ]
    return [response.brokers, response.cluster_id, response.controller_id, response.error_code, topics]


def test_a_topic_that_comes_in_many_pieces_is_tried_as_often_as_its_size_doubles() -> None:
    described = [partition(p, replicas=range(1 + p % 3)) for p in range(2_000)]
    body = metadata_message(1, [topic("t", described)]).encode(13)
    reader = MetadataReader(len(body), 13)
    with PythonCalls() as counted:
        for at in range(0, len(body) - 50, 50):
            reader.feed(body[at : at + 50])
    assert counted.calls < len(body) // 50 * 2


_VERSIONED = st.sampled_from(VERSIONS).flatmap(lambda version: st.tuples(st.just(version), messages(version)))


@given(_VERSIONED, st.lists(st.integers(0, 40), max_size=60), st.booleans(), st.booleans())
def test_a_response_in_pieces_is_the_same_response(
    case: tuple[int, wire.MetadataResponse], cuts: list[int], some: bool, again: bool
) -> None:
    version, message = case
    body = message.encode(version)
    asked = [t.name for t in message.topics[::2] if t.name is not None] if some else None
    whole = read_metadata_response(body, version, asked=asked)
    known = {found.name: found for found in whole.topics if isinstance(found, TopicTable)} if again else {}
    assert seen(in_pieces(body, cuts, version, known, asked)) == seen(whole)


@pytest.mark.parametrize("version", [8, 13])
def test_parts_that_were_not_asked_for_are_skipped(version: int) -> None:
    described = [
        topic("other", 20),
        topic("asked", 3),
        topic("odd", [partition(0), partition(1, replicas=(0, 1, 2, 3))]),
        topic("asked too", 2),
    ]
    body = metadata_message(2, described, errors={"denied": 3}).encode(version)
    response = read_metadata_response(body, version, asked=["asked too", "asked", "denied"])
    assert {found.name for found in response.topics} == {"asked", "asked too", "denied"}
    assert len(response.brokers) == 2


def _honest() -> wire.MetadataResponse:
    return metadata_message(3, [topic(ASKED, 3)])


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
def test_a_giant_takes_little_memory_and_leaves_none() -> None:
    for name, giant in GIANTS.items():
        body = body_of(_honest(), giant(12_000_000))
        tracemalloc.start()
        try:
            _read(body)
            _, most = tracemalloc.get_traced_memory()
            left, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < _MOST_BYTES, f"{most:,} bytes for {len(body):,} of {name}"
        assert left < 200_000, f"{left:,} bytes are left of {name}"


def _feed(reader: ResponseReader, body: bytes) -> None:
    for at in range(0, len(body), _PIECE_BYTES):
        reader.feed(body[at : at + _PIECE_BYTES])


def _read(body: bytes) -> MetadataResponse | None:
    reader = MetadataReader(len(body), VERSION, asked=[ASKED])
    try:
        _feed(reader, body)
        return reader.finish()
    except SchemaError:
        return None


@pytest.mark.usefixtures("_no_collector")
def test_a_piece_of_a_giant_is_a_short_turn() -> None:
    """Counted: a piece holds some 5,000 partitions, and none costs more than a few calls."""
    for name, giant in GIANTS.items():
        body = body_of(_honest(), giant(400_000))
        reader = MetadataReader(len(body), VERSION, asked=[ASKED])
        for at in range(0, len(body), _PIECE_BYTES):
            piece = body[at : at + _PIECE_BYTES]
            counted = PythonCalls()
            try:
                with counted:
                    reader.feed(piece)
            except SchemaError:
                break
            finally:
                assert counted.calls < 150_000, name


def test_a_limit_is_named_with_what_exceeded_it() -> None:
    for name, reported in {
        "partitions of a topic that was asked for": "615384 partitions of one topic, more than 200000",
        "topics without partitions": "topics, more than 150000",
        "brokers": "brokers, more than 10000",
        "a host name": "a string of 16000000 bytes, more than 32767",
        "racks": "32000 characters of a rack, more than 1024",
        "a cluster id": "a string of 16000000 bytes, more than 32767",
        "replicas of a partition that was asked for": "2000000 replicas of one partition, more than 10000",
        "in-sync replicas of partitions that were asked for": "more than 12582912",
        "tagged fields": "more than 150000 elements in one message",
        "a tagged field": "of more than 1048576 bytes",
    }.items():
        body = body_of(_honest(), GIANTS[name](16_000_000))
        with pytest.raises(SchemaError, match=reported):
            _feed(MetadataReader(len(body), VERSION, asked=[ASKED]), body)


def test_the_bytes_of_all_topics_that_are_kept_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    body = metadata_message(1, [topic("a", 9), topic("b", 9)], errors={"denied": 29}).encode(VERSION)
    tables = [
        found for found in read_metadata_response(body, VERSION).topics if isinstance(found, TopicTable)
    ]
    kept = sum(len(table.raw) for table in tables)
    monkeypatch.setattr(metadata_response, "MOST_KEPT_BYTES", kept)
    end_of_kept = body.index(tables[-1].raw) + len(tables[-1].raw)
    # What follows them takes none of these bytes: it is waited for, wherever it is cut.
    for cuts in ([], [end_of_kept], [end_of_kept + 1], [end_of_kept + 9]):
        assert len(in_pieces(body, cuts, VERSION, {}, None).topics) == 3
    monkeypatch.setattr(metadata_response, "MOST_KEPT_BYTES", kept - 1)
    with pytest.raises(SchemaError, match=f"{kept} bytes of topics, more than {kept - 1}"):
        read_metadata_response(body, VERSION)


def test_a_true_cluster_of_a_million_partitions_is_read_for_the_topics_that_are_asked_for() -> None:
    partitions = partitions_of(1_000)
    others = b"".join(topic_of(f"t{n}", 1_000, partitions) for n in range(1_000))
    body = body_of(_honest(), Giant(topics=(1_000, others)))
    for response in (_read(body), read_metadata_response(body, VERSION, asked=[ASKED])):
        assert response is not None
        [orders] = response.topics
        assert isinstance(orders, TopicTable)
        assert orders.partition_count == 3


def test_the_list_of_a_cluster_of_many_partitions_takes_the_memory_of_its_names() -> None:
    partitions, count = partitions_of(10), 20_000
    topics = b"".join(topic_of(f"some.topic.{n}", 10, partitions) for n in range(count))
    body = body_of(_honest(), Giant(topics=(count, topics)))
    reader = TopicListingRequestBuilder().response_reader(len(body), VERSION)
    tracemalloc.start()
    try:
        _feed(reader, body)
        listing = reader.finish()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(listing.topics) == count + 1
    assert listing.topics["some.topic.7"].partition_count == 10
    assert listing.topics["some.topic.7"].replication_factor == 3
    assert most < 600 * count


_MANY: Final = MOST_ELEMENTS + 1


@pytest.mark.parametrize(
    ("version", "answer", "decode"),
    [
        (3, ApiVersionsResponse(api_keys=(ApiVersion(1, 0, 1),) * _MANY), ApiVersionsResponse.decode),
        (
            13,
            ProduceResponse(
                (TopicProduceResponse(partition_responses=(PartitionProduceResponse(),) * _MANY),)
            ),
            ProduceResponse.decode,
        ),
        (
            8,
            ProduceResponse(
                (
                    TopicProduceResponse(
                        partition_responses=(
                            PartitionProduceResponse(record_errors=(BatchIndexAndErrorMessage(),) * _MANY),
                        )
                    ),
                )
            ),
            ProduceResponse.decode,
        ),
    ],
    ids=["ApiVersions", "Produce", "record errors"],
)
def test_no_answer_has_more_elements_than_any_honest_one(
    version: int, answer: ApiVersionsResponse | ProduceResponse, decode: Callable[[bytes, int], object]
) -> None:
    with pytest.raises(SchemaError, match=f"more than {MOST_ELEMENTS} elements"):
        decode(answer.encode(version), version)
