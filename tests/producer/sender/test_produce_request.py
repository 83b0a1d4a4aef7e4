"""Produce requests of every version, and their responses. Twins of Produce{Request,Response}Test."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import pytest

from client_core.cluster import Node, TopicPartition
from client_core.error_codes import Errors
from client_core.errors import InvalidRecordError, UnsupportedCompressionTypeError
from client_core.metadata.leader_epochs import LeaderIdAndEpoch
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.sender.produce_request import (
    PartitionRecords,
    PartitionResponse,
    ProduceRequestBuilder,
    RecordError,
    failure,
    leader_nodes,
    partition_responses,
)
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages import produce_response as wire
from client_core.protocol.messages.produce_request import ProduceRequest
from client_core.protocol.primitives import ZERO_UUID
from client_core.record.codecs import compression_of
from client_core.record.memory_records_builder import MemoryRecordsBuilder

if TYPE_CHECKING:
    from collections.abc import Mapping


ORDERS = uuid.UUID(int=7)


VERSIONS: Final = range(3, 14)


def records(value: bytes = b"value", codec: str = "none") -> bytes:
    made = MemoryRecordsBuilder(1024, compression=compression_of(codec))
    made.append_many([ProducerRecord("t", value)], (0,), 0, 10)
    return made.build()


RECORDS = records()


def batch(partition: int, batch_bytes: bytes = RECORDS, topic: str = "orders") -> PartitionRecords:
    return PartitionRecords(TopicPartition(topic, partition), batch_bytes)


def builder(*batches: PartitionRecords, acks: str = "all") -> ProduceRequestBuilder:
    return ProduceRequestBuilder(acks, 1500, batches, {"orders": ORDERS})


def sent(version: int, *batches: PartitionRecords, acks: str = "all") -> ProduceRequest:
    """What a broker reads of a request of that version."""
    return ProduceRequest.decode(builder(*batches, acks=acks).encode(version), version)


# -- requests ------------------------------------------------------------------------------------------------


@pytest.mark.java(
    "ProduceRequestTest.BuilderOldestAndLatestAllowed",
    "ProduceRequestTest.BuildWithCurrentMessageFormat",
    "ProduceRequestTest.BuildWithCurrentMessageFormatWithoutTopicId",
)
def test_the_oldest_and_the_latest_version_are_those_of_the_api() -> None:
    for topic in ("orders", "a topic without an id"):
        asked = builder(batch(0, topic=topic))
        assert (asked.oldest_allowed_version, asked.latest_allowed_version) == (3, 13)
        assert asked.api is ApiKey.PRODUCE


def test_up_to_version_12_topics_go_by_name() -> None:
    first, second = records(b"a"), records(b"b")
    for version in range(3, 13):
        read = sent(version, batch(0, first), batch(2, second))
        (topic,) = read.topic_data
        assert topic.name == "orders", version
        assert [(p.partition_index, p.records) for p in topic.partition_data] == [(0, first), (2, second)]
        assert (read.acks, read.timeout_ms, read.transactional_id) == (-1, 1500, None), version


def test_from_version_13_topics_go_by_id_which_is_zero_where_it_is_not_known() -> None:
    (topic,) = sent(13, batch(0)).topic_data
    assert (topic.name, topic.topic_id) == ("", ORDERS)
    assert sent(13, batch(0, topic="new")).topic_data[0].topic_id == ZERO_UUID


def test_partitions_are_gathered_by_topic_whatever_order_they_come_in() -> None:
    read = sent(9, batch(0), batch(0, topic="other"), batch(1))
    assert [(t.name, [p.partition_index for p in t.partition_data]) for t in read.topic_data] == [
        ("orders", [0, 1]),
        ("other", [0]),
    ]


def test_acks_have_their_numbers_on_the_wire() -> None:
    numbers = {acks: sent(9, batch(0), acks=acks).acks for acks in ("all", "1", "0")}
    assert numbers == {"all": -1, "1": 1, "0": 0}


@pytest.mark.behaviour("REC-06")
@pytest.mark.java("ProduceRequestTest.V6AndBelowCannotUseZStdCompression")
def test_zstd_needs_version_7_and_other_codecs_none() -> None:
    for version in VERSIONS:
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            packed = records(codec=codec)
            if codec == "zstd" and version < 7:
                with pytest.raises(
                    UnsupportedCompressionTypeError, match=f"version {version} are not allowed"
                ):
                    builder(batch(0, packed)).encode(version)
            else:
                assert sent(version, batch(0, packed)).topic_data[0].partition_data[0].records == packed


@pytest.mark.java(
    "ProduceRequestTest.V3AndAboveShouldContainOnlyOneRecordBatch",
    "ProduceRequestTest.V3AndAboveCannotHaveNoRecordBatches",
)
def test_a_partition_has_one_batch_of_magic_2() -> None:
    for batch_bytes, said in (
        (b"", "must have at least one record batch per partition"),
        (RECORDS[:60], "must have at least one record batch per partition"),
        (RECORDS + RECORDS, "exactly one record batch per partition"),
        (RECORDS[:16] + b"\x01" + RECORDS[17:], "record batches with magic version 2"),
    ):
        for version in VERSIONS:
            with pytest.raises(InvalidRecordError, match=f"version {version} .*{said}"):
                builder(batch(0, batch_bytes)).encode(version)


def test_the_repr_of_a_request_has_the_names_behind_its_ids_its_sizes_and_no_data() -> None:
    asked = builder(batch(0, b"abc"), batch(1, b"de"))
    assert asked.topic_names() == {ORDERS: "orders"}
    assert repr(asked) == "<Produce acks=all partitions=2 bytes=5>"


# -- responses -----------------------------------------------------------------------------------------------


def response(
    *partitions: wire.PartitionProduceResponse, name: str = "orders", topic_id: uuid.UUID = ZERO_UUID
) -> wire.ProduceResponse:
    return wire.ProduceResponse(responses=(wire.TopicProduceResponse(name, topic_id, partitions),))


def said_in(
    answered: wire.ProduceResponse, names: Mapping[uuid.UUID, str] | None = None
) -> PartitionResponse:
    """What an answer says of its one partition."""
    ((_, said),) = partition_responses(answered, names or {})
    return said


def test_a_success_has_offset_and_time_and_none_where_the_broker_does_not_know() -> None:
    answered = response(wire.PartitionProduceResponse(3, 0, 42, 1000, 5))
    expected = PartitionResponse(Errors.NONE, base_offset=42, log_append_time_ms=1000, log_start_offset=5)
    assert list(partition_responses(answered, {})) == [(TopicPartition("orders", 3), expected)]
    said = said_in(response(wire.PartitionProduceResponse(3, 0, -1, -1, -1)))
    assert (said.base_offset, said.log_append_time_ms) == (None, None)
    assert (said.log_start_offset, said.current_leader) == (None, None)


@pytest.mark.java("ProduceResponseTest.produceResponseVersionTest")
def test_a_response_of_any_version_has_offset_and_throttle() -> None:
    made = response(wire.PartitionProduceResponse(0, 0, 10000, -1, 100), name="test", topic_id=ORDERS)
    assert made.throttle_time_ms == 0
    for version in VERSIONS:
        read = wire.ProduceResponse.decode(made._replace(throttle_time_ms=10).encode(version), version)
        assert read.throttle_time_ms == 10
        (topic,) = read.responses
        assert (topic.name, topic.topic_id) == (("test", ZERO_UUID) if version < 13 else ("", ORDERS))
        ((partition, said),) = partition_responses(read, {ORDERS: "test"})
        assert partition == TopicPartition("test", 0)
        assert (said.error, said.base_offset, said.log_append_time_ms) == (Errors.NONE, 10000, None)
        assert said.log_start_offset == (100 if version >= 5 else None), version
        assert (said.record_errors, said.error_message) == ((), None)


@pytest.mark.java("ProduceResponseTest.produceResponseRecordErrorsTest")
def test_errors_of_single_records_and_the_message_are_returned_from_version_8_on() -> None:
    made = response(
        wire.PartitionProduceResponse(
            0,
            Errors.INVALID_RECORD.code,
            10000,
            -1,
            100,
            record_errors=(wire.BatchIndexAndErrorMessage(2, "bad"), wire.BatchIndexAndErrorMessage(3, None)),
            error_message="two are bad",
        )
    )
    reported = ((RecordError(2, "bad"), RecordError(3, None)), "two are bad")
    for version in VERSIONS:
        said = said_in(wire.ProduceResponse.decode(made.encode(version), version))
        assert (said.record_errors, said.error_message) == (reported if version >= 8 else ((), None)), version
    assert str(said) == "INVALID_RECORD. Error Message: two are bad"


def test_a_code_from_the_future_keeps_its_number() -> None:
    said = said_in(response(wire.PartitionProduceResponse(0, 9999)))
    assert (said.error, said.code) == (Errors.UNKNOWN_SERVER_ERROR, 9999)


def test_a_new_leader_is_returned_with_its_address_unless_it_lacks_id_or_epoch() -> None:
    expected = {}
    for leader in ((2, 8), (-1, 8), (2, -1)):
        moved = wire.PartitionProduceResponse(
            0, Errors.NOT_LEADER_OR_FOLLOWER.code, current_leader=wire.LeaderIdAndEpoch(*leader)
        )
        expected[leader] = said_in(response(moved)).current_leader
    assert expected == {(2, 8): LeaderIdAndEpoch(2, 8), (-1, 8): None, (2, -1): None}


def test_leaders_without_a_valid_address_are_not_returned() -> None:
    addresses = (
        ("b2", 9092),
        ("", 9092),
        ("b", -1),
        ("b", 0),
        ("b" * 255, 9092),
        ("b" * 256, 9092),
        ("", -1),
    )
    endpoints = tuple(wire.NodeEndpoint(2, host, port, "rack") for host, port in addresses)
    expected = [("b2", 9092), ("b", 0), ("b" * 255, 9092)]
    answered = response()._replace(node_endpoints=endpoints)
    assert leader_nodes(answered) == tuple(Node(2, host, port, "rack") for host, port in expected)
    without_rack = response()._replace(node_endpoints=(wire.NodeEndpoint(2, "b2", 9092, None),))
    assert leader_nodes(without_rack) == (Node(2, "b2", 9092),)


def test_an_error_of_the_client_itself_has_its_code() -> None:
    said = failure(Errors.NETWORK_EXCEPTION, "Disconnected from node 1")
    assert said.code == Errors.NETWORK_EXCEPTION.code
    assert str(said) == "NETWORK_EXCEPTION. Error Message: Disconnected from node 1"
