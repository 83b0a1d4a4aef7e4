"""The fast reader against the generated message, on valid and on invalid responses."""

from __future__ import annotations

import itertools
import struct
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from client_core.cluster import Node
from client_core.errors import IllegalArgumentError, SchemaError
from client_core.metadata.leader_epochs import compare
from client_core.metadata.metadata_response import (
    MetadataReader,
    MetadataResponse,
    TopicFailure,
    read_metadata_response,
)
from client_core.metadata.topic_layout import find_faults
from client_core.metadata.topic_table import TopicTable
from client_core.protocol.messages import metadata_response as wire
from client_core.protocol.primitives import FlexibleWriter, Writer, unsigned_varint
from tests.metadata.plain_metadata import PlainTopic, plain_topics
from tests.metadata.strategies import (
    VERSIONS,
    Tags,
    encode_with_tags,
    messages,
    tags,
    write_partition,
)
from tests.support.counted_work import calls_of, python_calls
from tests.support.metadata_responses import (
    metadata_message,
    metadata_response,
    node,
    partition,
    read,
    topic,
    topic_id_of,
)
from tests.support.traced_memory import least_peak_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from client_core.metadata.topic_layout import PartitionMetadata

versions = st.sampled_from(VERSIONS)
versions_and_messages = versions.flatmap(lambda version: st.tuples(st.just(version), messages(version)))


def shown(response: MetadataResponse) -> list[PlainTopic]:
    """The fast reader's topics in plain form; everything that a table can be asked is asked."""
    return [
        PlainTopic(found.name, found.topic_id, found.is_internal, found.error_code, {})
        if isinstance(found, TopicFailure)
        else PlainTopic(found.name, found.topic_id, found.is_internal, 0, _partitions(found))
        for found in response.topics
    ]


def _partitions(table: TopicTable) -> dict[int, PartitionMetadata]:
    found: dict[int, PartitionMetadata] = {}
    for number in table.numbers:
        described = table.metadata(number)
        assert described is not None
        found[number] = described
        assert table.leader_id(number) == described.leader_id
        assert table.leader_epoch(number) == described.leader_epoch
    described_ones = list(found.values())
    assert table.partition_count == len(described_ones)
    assert table.faults.error_codes == {d.error_code for d in described_ones} - {0}
    assert table.faults.misses_epoch == any(d.leader_epoch is None for d in described_ones)
    assert table.leaderless_count == sum(d.leader_id is None for d in described_ones)
    assert [(max(leader, -1), max(epoch, -1)) for leader, epoch in table.leaders_and_epochs()] == [
        (-1 if d.leader_id is None else d.leader_id, -1 if d.leader_epoch is None else d.leader_epoch)
        for d in described_ones
    ]
    return found


def expected(message: wire.MetadataResponse, version: int) -> list[PlainTopic]:
    return [
        found._replace(partitions={}) if found.error_code else found
        for found in plain_topics(message, version)
    ]


def assert_reads_as(body: bytes, version: int) -> None:
    """The fast reader finds what the generated one finds."""
    message = wire.MetadataResponse.decode(body, version)
    response = read_metadata_response(body, version)
    assert [_sorted(found) for found in shown(response)] == [
        _sorted(found) for found in expected(message, version)
    ]
    assert response.throttle_time_ms == message.throttle_time_ms
    assert response.cluster_id == message.cluster_id
    assert response.controller_id == message.controller_id
    assert response.error_code == message.error_code
    brokers = [Node(b.node_id, b.host, b.port, b.rack) for b in message.brokers]
    assert response.brokers == {broker.id: broker for broker in brokers if not broker.is_empty}


def _sorted(found: PlainTopic) -> PlainTopic:
    return found._replace(partitions=dict(sorted(found.partitions.items())))


# -- the same as the generated reader ------------------------------------------------------------------------


@given(versions_and_messages)
def test_it_reads_what_the_generated_reader_reads(case: tuple[int, wire.MetadataResponse]) -> None:
    version, message = case
    assert_reads_as(message.encode(version), version)


@given(
    st.integers(9, 13).flatmap(lambda version: st.tuples(st.just(version), messages(version))),
    st.tuples(tags, tags, tags, tags),
)
def test_unknown_tagged_fields_are_passed_over(
    case: tuple[int, wire.MetadataResponse], fields: Sequence[Tags]
) -> None:
    version, message = case
    assert_reads_as(encode_with_tags(message, version, fields), version)


@settings(max_examples=30)
@given(versions_and_messages, st.binary(min_size=1, max_size=3))
def test_trailing_bytes_are_tolerated(case: tuple[int, wire.MetadataResponse], stray: bytes) -> None:
    """librdkafka's mock cluster appends a stray byte to its flexible answers."""
    version, message = case
    assert_reads_as(message.encode(version) + stray, version)


def of_many_partitions(count: int, version: int) -> bytes:
    """A response with one topic, whose partitions are led by 0, 1 and 2 in turn."""
    first_three = topic("large", 3, nodes=(0, 1, 2))
    pieces = []
    for described in first_three.partitions:
        writer: Writer = FlexibleWriter() if version >= 9 else Writer()
        write_partition(writer, described, version, [])
        pieces.append(writer.getvalue())
    # The partition's number follows two bytes of error.
    repeated = itertools.islice(itertools.cycle(pieces), count)
    many = [each[:2] + n.to_bytes(4, "big") + each[6:] for n, each in enumerate(repeated)]
    few, much = (
        unsigned_varint(n + 1) if version >= 9 else n.to_bytes(4, "big") for n in (len(pieces), count)
    )
    body = metadata_response(3, [first_three], version=version)
    assert body.count(few + b"".join(pieces)) == 1
    return body.replace(few + b"".join(pieces), much + b"".join(many))


def test_a_large_topic_of_one_layout_lies_at_a_stride() -> None:
    numbers = (0, 1, 255, 256, 65_535, 65_536, 69_999)
    for version in VERSIONS:
        [table] = read_metadata_response(of_many_partitions(70_000, version), version).topics
        assert isinstance(table, TopicTable)
        assert isinstance(table.numbers, range), version
        assert [table.leader_id(p) for p in numbers] == [p % 3 for p in numbers], version
        assert table.partition_count == 70_000, version
        assert table.leader_id(70_000) is None
        assert table.leader_id(-1) is None


def test_a_version_that_is_not_spoken_is_refused() -> None:
    for version in (0, 14):
        with pytest.raises(IllegalArgumentError, match=f"version {version} "):
            read_metadata_response(b"", version)


@pytest.mark.behaviour("META-11")
def test_epochs_of_versions_below_9_are_not_relied_on() -> None:
    for version, epoch in ((8, None), (9, 10)):
        (table,) = read(1, [topic("t", [partition(0, epoch=10)])], version=version).topics
        assert isinstance(table, TopicTable)
        assert table.leader_epoch(0) == epoch


def test_the_controller_is_a_broker_or_nobody() -> None:
    assert read(2, controller_id=1).controller == node(1)
    assert read(2, controller_id=7).controller is None


def test_errors_are_those_of_topics() -> None:
    response = read(1, {"good": 1}, errors={"missing": 3, "secret": 29})
    assert response.errors == {"missing": 3, "secret": 29}


def test_a_zero_topic_id_is_none() -> None:
    described = [topic("topic1"), topic("topic3", topic_id=topic_id_of("topic3"))]
    assert [found.topic_id for found in read(1, described).topics] == [None, topic_id_of("topic3")]


# -- reuse ---------------------------------------------------------------------------------------------------


def known(response: MetadataResponse) -> dict[str, TopicTable]:
    return {found.name: found for found in response.topics if isinstance(found, TopicTable)}


@given(versions_and_messages, versions_and_messages, st.booleans())
def test_reading_against_known_topics_finds_the_same(
    first: tuple[int, wire.MetadataResponse], second: tuple[int, wire.MetadataResponse], again: bool
) -> None:
    tables = known(read_metadata_response(first[1].encode(first[0]), first[0]))
    version, message = first if again else second
    body = message.encode(version)
    assert shown(read_metadata_response(body, version, tables)) == shown(
        read_metadata_response(body, version)
    )


def test_an_unchanged_topic_keeps_its_table() -> None:
    unchanged = [topic("same", 3), topic("s" * 200, 2)]
    for version in VERSIONS:
        tables = known(read(1, [*unchanged, topic("other", 1)], version=version))
        described = [topic("other", 2), *reversed(unchanged)]
        response = read(2, described, version=version, controller_id=1, known_topics=tables)
        found = known(response)
        assert {name: found[name] is tables[name] for name in tables} == {
            "same": True,
            "s" * 200: True,
            "other": False,
        }, version
        assert response.differences.keys() == {"other"}, version


@pytest.mark.parametrize(
    "changed", [{"t0": 0}, {"t0": 2}, *({f"{name}{n}": 2 for n in range(9)} for name in ("t", "new"))]
)
def test_known_topics_are_in_step_again_behind_those_that_changed(changed: dict[str, int]) -> None:
    """Else each topic behind them would be looked up by its name. Without partitions: it is gone."""
    counts = {f"t{n}": 1 for n in range(1_000)}
    tables = known(read(1, counts))
    later = (changed | counts | changed).items()
    body = metadata_response(1, {name: count for name, count in later if count})
    assert python_calls(lambda: read_metadata_response(body, 13, tables)) < 2 * len(counts)


def test_usual_topics_are_read_in_a_run_and_compared_each_for_itself() -> None:
    """The topic before an unusual one is read alone, because its end may be wrong."""
    tables = known(read(3, [topic(name, [partition(p) for p in range(4)]) for name in "abcd"]))
    run = [topic(name, [partition(p, leader=(p + n) % 3) for p in range(4)]) for n, name in enumerate("abcd")]
    body = metadata_response(3, [*run, topic("empty", 0), topic("failed", 40, error=5)])
    read_anew: list[MetadataResponse] = []
    one_by_one = calls_of(
        find_faults.__code__, lambda: read_anew.append(read_metadata_response(body, 13, tables))
    )
    assert one_by_one == len(["the run", "d", "empty"])
    [response] = read_anew
    found = known(response)
    assert response.differences == {name: compare(tables[name], found[name]) for name in "abcd"}
    assert response.errors == {"failed": 5}


def test_versions_with_one_layout_share_tables_and_others_do_not() -> None:
    tables = known(read(1, {"t": 3}, version=10))
    assert known(read(1, {"t": 3}, version=13, known_topics=tables))["t"] is tables["t"]
    assert known(read(1, [topic("t", 3)], version=9, known_topics=tables))["t"] is not tables["t"]


def test_tables_of_another_version_do_no_harm() -> None:
    """The bytes of version 7, for one, are the beginning of those of version 8."""
    described = [topic("a", 2), topic("b", 0), topic("c", 1)]
    for before, version in itertools.product(VERSIONS, VERSIONS):
        tables = known(read(1, described, version=before))
        against_known = read(1, described, version=version, known_topics=tables)
        assert shown(against_known) == shown(read(1, described, version=version)), (before, version)


def test_a_topic_under_an_overlay_is_read_anew() -> None:
    tables = known(read(1, {"t": 3}))
    overlaid = tables["t"].with_overlay({0: None})
    assert known(read(1, {"t": 3}, known_topics={"t": overlaid}))["t"].overlay == {}


def test_a_changed_topic_goes_on_with_the_use_of_the_known_one() -> None:
    tables = known(read(1, {"t": 3}))
    assert known(read(1, {"t": 4}, known_topics=tables))["t"].use is tables["t"].use


# -- invalid responses ---------------------------------------------------------------------------------------


def small_messages() -> list[wire.MetadataResponse]:
    mixed = [partition(0, isr=(0, 1), offline=(2,)), partition(1)]
    odd = [partition(3, replicas=(1,)), partition(1)]
    return [
        metadata_message(2, [topic("a", mixed, topic_id=topic_id_of("a")), topic("b", odd)], errors={"c": 3}),
        metadata_message([node(1, rack="r")], [topic("long" * 40, 2)], cluster_id=None),
        metadata_message(0, []),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_is_a_schema_error(version: int) -> None:
    for message in small_messages():
        body = message.encode(version)
        tables = known(read_metadata_response(body, version))
        for end in range(len(body)):
            for known_topics in ({}, tables):
                with pytest.raises(SchemaError):
                    read_metadata_response(body[:end], version, known_topics)


@settings(max_examples=300)
@given(st.data())
def test_damaged_bytes_are_a_schema_error_or_read_like_the_generated_reader_does(data: st.DataObject) -> None:
    version = data.draw(versions)
    body = bytearray(data.draw(st.sampled_from(small_messages())).encode(version))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(
            st.integers(0, 255) | st.sampled_from([0, 0x7F, 0xFF])
        )
    try:
        message = wire.MetadataResponse.decode(bytes(body), version)
    except SchemaError:
        with pytest.raises(SchemaError):
            read_metadata_response(bytes(body), version)
        return
    assume(all(p.partition_index >= 0 for t in message.topics for p in t.partitions))
    assert_reads_as(bytes(body), version)


def test_a_negative_partition_number_is_a_schema_error() -> None:
    with pytest.raises(SchemaError, match="partition number -1 is negative"):
        read(1, [topic("t", [partition(-1)])])


def hostile_bodies(version: int) -> Iterator[bytes]:
    """Responses that end in a count of two thousand million, at each place that has one."""
    writer: Writer = FlexibleWriter() if version >= 9 else Writer()

    def huge() -> bytes:
        return (
            writer.getvalue() + (b"\xff\xff\xff\xff\x07" if version >= 9 else b"\x7f\xff\xff\xff") + bytes(40)
        )

    if version >= 3:
        writer.int32(0)
    yield huge()  # brokers
    writer.array_length(0)
    if version >= 2:
        writer.nullable_string(None)
    writer.int32(-1)
    yield huge()  # topics
    writer.array_length(1)
    writer.int16(0)
    yield huge()  # the name's length
    writer.string("t")
    if version >= 10:
        writer.uuid(topic_id_of("t"))
    writer.boolean(False)
    yield huge()  # partitions
    writer.array_length(1)
    writer.pack(struct.Struct(">hii"), 0, 0, 0)
    if version >= 7:
        writer.int32(0)
    yield huge()  # replicas
    writer.int32_array((1,))
    yield huge()  # in-sync replicas
    writer.int32_array((1,))
    if version >= 5:
        yield huge()  # offline replicas
        writer.int32_array(())
    if version >= 9:
        yield huge()  # tagged fields of a partition


@pytest.mark.parametrize("version", VERSIONS)
def test_a_hostile_count_is_refused_before_it_sizes_anything(version: int) -> None:
    for body in hostile_bodies(version):
        assert least_peak_bytes(partial(_refused, body, version)) < 100_000


def _refused(body: bytes, version: int) -> None:
    with pytest.raises(SchemaError):
        read_metadata_response(body, version)


@pytest.mark.parametrize(
    ("longest", "brokers"),
    [
        (255, lambda size: node(0, host="h" * size)),  # RFC 1035
        (1_024, lambda size: node(0, rack="r" * size)),
    ],
    ids=["host", "rack"],
)
def test_the_longest_text_is_read_and_one_character_more_is_refused(
    longest: int, brokers: Callable[[int], Node]
) -> None:
    read_metadata_response(metadata_response([brokers(longest)], []), 13)
    with pytest.raises(SchemaError, match=f"{longest + 1} characters of a .*, more than {longest}"):
        read_metadata_response(metadata_response([brokers(longest + 1)], []), 13)


def test_the_longest_cluster_id_is_read_and_one_character_more_is_refused() -> None:
    assert (
        read_metadata_response(metadata_response([], [], cluster_id="c" * 1_024), 13).cluster_id
        == "c" * 1_024
    )
    with pytest.raises(SchemaError, match="1025 characters of a cluster id, more than 1024"):
        read_metadata_response(metadata_response([], [], cluster_id="c" * 1_025), 13)


def test_a_response_that_ends_early_is_refused() -> None:
    reader = MetadataReader(100, 13)
    with pytest.raises(SchemaError, match="the response is incomplete"):
        reader.finish()
