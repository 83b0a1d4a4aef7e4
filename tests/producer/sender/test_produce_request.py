"""Produce requests of every version, and what responses say. Twins of Produce{Request,Response}Test."""

from __future__ import annotations

import uuid

import pytest

from client_core.cluster import Node, TopicPartition
from client_core.error_codes import Errors
from client_core.errors import InvalidRecordError, UnsupportedCompressionTypeError
from client_core.metadata.leader_epochs import LeaderIdAndEpoch
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

ORDERS = uuid.UUID(int=7)


def records(value: bytes = b"value", codec: str = "none") -> bytes:
    made = MemoryRecordsBuilder(1024, compression=compression_of(codec))
    made.append(10, None, value)
    return made.build()


RECORDS = records()


def batch(partition: int, batch_bytes: bytes = RECORDS, topic: str = "orders") -> PartitionRecords:
    return PartitionRecords(TopicPartition(topic, partition), batch_bytes)


def builder(*batches: PartitionRecords, acks: str = "all") -> ProduceRequestBuilder:
    return ProduceRequestBuilder(acks, 1500, batches, {"orders": ORDERS})


# -- requests ------------------------------------------------------------------------------------------------


@pytest.mark.java(
    "ProduceRequestTest.BuilderOldestAndLatestAllowed",
    "ProduceRequestTest.BuildWithCurrentMessageFormat",
    "ProduceRequestTest.BuildWithCurrentMessageFormatWithoutTopicId",
)
@pytest.mark.parametrize("topic", ["orders", "a topic without an id"])
def test_the_oldest_and_the_latest_version_are_those_of_the_api(topic: str) -> None:
    asked = builder(batch(0, topic=topic))
    assert (asked.oldest_allowed_version, asked.latest_allowed_version) == (3, 13)
    assert asked.api is ApiKey.PRODUCE


@pytest.mark.parametrize("version", range(3, 13))
def test_up_to_version_12_topics_go_by_name(version: int) -> None:
    first, second = records(b"a"), records(b"b")
    sent = ProduceRequest.decode(builder(batch(0, first), batch(2, second)).encode(version), version)
    (topic,) = sent.topic_data
    assert topic.name == "orders"
    assert [(p.partition_index, p.records) for p in topic.partition_data] == [(0, first), (2, second)]
    assert (sent.acks, sent.timeout_ms, sent.transactional_id) == (-1, 1500, None)


def test_from_version_13_topics_go_by_id() -> None:
    sent = ProduceRequest.decode(builder(batch(0)).encode(13), 13)
    (topic,) = sent.topic_data
    assert (topic.name, topic.topic_id) == ("", ORDERS)


def test_a_topic_whose_id_is_not_known_goes_as_zero() -> None:
    sent = ProduceRequest.decode(builder(batch(0, topic="new")).encode(13), 13)
    assert sent.topic_data[0].topic_id == ZERO_UUID


def test_partitions_are_gathered_by_topic_whatever_order_they_come_in() -> None:
    asked = builder(batch(0), batch(0, topic="other"), batch(1))
    sent = ProduceRequest.decode(asked.encode(9), 9)
    assert [(t.name, [p.partition_index for p in t.partition_data]) for t in sent.topic_data] == [
        ("orders", [0, 1]),
        ("other", [0]),
    ]


@pytest.mark.parametrize(("acks", "wire_acks"), [("all", -1), ("1", 1), ("0", 0)])
def test_acks_have_their_numbers_on_the_wire(acks: str, wire_acks: int) -> None:
    assert ProduceRequest.decode(builder(batch(0), acks=acks).encode(9), 9).acks == wire_acks


@pytest.mark.behaviour("REC-06")
@pytest.mark.java("ProduceRequestTest.V6AndBelowCannotUseZStdCompression")
@pytest.mark.parametrize("version", range(3, 7))
def test_zstd_needs_version_7(version: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"version {version} are not allowed"):
        builder(batch(0, records(codec="zstd"))).encode(version)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("version", range(3, 14))
def test_zstd_is_fine_from_version_7_and_other_codecs_before(version: int, codec: str) -> None:
    if codec != "zstd" or version >= 7:
        sent = ProduceRequest.decode(builder(batch(0, records(codec=codec))).encode(version), version)
        assert sent.topic_data[0].partition_data[0].records == records(codec=codec)


@pytest.mark.java(
    "ProduceRequestTest.V3AndAboveShouldContainOnlyOneRecordBatch",
    "ProduceRequestTest.V3AndAboveCannotHaveNoRecordBatches",
)
@pytest.mark.parametrize(
    ("batch_bytes", "said"),
    [
        (b"", "must have at least one record batch per partition"),
        (RECORDS[:60], "must have at least one record batch per partition"),
        (RECORDS + RECORDS, "exactly one record batch per partition"),
        (RECORDS[:16] + b"\x01" + RECORDS[17:], "record batches with magic version 2"),
    ],
)
@pytest.mark.parametrize("version", range(3, 14))
def test_a_partition_has_one_batch_of_magic_2(version: int, batch_bytes: bytes, said: str) -> None:
    with pytest.raises(InvalidRecordError, match=f"version {version} .*{said}"):
        builder(batch(0, batch_bytes)).encode(version)


def test_the_names_behind_the_ids_are_those_of_the_request() -> None:
    assert builder(batch(0)).topic_names() == {ORDERS: "orders"}


def test_the_repr_tells_sizes_and_no_data() -> None:
    asked = builder(batch(0, b"abc"), batch(1, b"de"))
    assert repr(asked) == "<Produce acks=all partitions=2 bytes=5>"


# -- responses -----------------------------------------------------------------------------------------------


def response(
    *partitions: wire.PartitionProduceResponse, name: str = "orders", topic_id: uuid.UUID = ZERO_UUID
) -> wire.ProduceResponse:
    return wire.ProduceResponse(responses=(wire.TopicProduceResponse(name, topic_id, partitions),))


def test_a_success_tells_offset_and_time() -> None:
    answered = response(wire.PartitionProduceResponse(3, 0, 42, 1000, 5))
    assert list(partition_responses(answered, {})) == [
        (
            TopicPartition("orders", 3),
            PartitionResponse(Errors.NONE, base_offset=42, log_append_time_ms=1000, log_start_offset=5),
        )
    ]


def test_what_the_broker_does_not_know_is_none() -> None:
    answered = response(wire.PartitionProduceResponse(3, 0, -1, -1, -1))
    ((_, said),) = partition_responses(answered, {})
    assert (said.base_offset, said.log_append_time_ms, said.log_start_offset, said.current_leader) == (
        None,
        None,
        None,
        None,
    )


def test_an_answer_by_id_gets_the_name_that_was_sent() -> None:
    answered = response(wire.PartitionProduceResponse(1), name="", topic_id=ORDERS)
    ((partition, _),) = partition_responses(answered, {ORDERS: "orders"})
    assert partition == TopicPartition("orders", 1)


@pytest.mark.java("ProduceResponseTest.produceResponseVersionTest")
@pytest.mark.parametrize("version", range(3, 14))
def test_a_response_of_any_version_tells_offset_and_throttle(version: int) -> None:
    made = response(wire.PartitionProduceResponse(0, 0, 10000, -1, 100), name="test", topic_id=ORDERS)
    read = wire.ProduceResponse.decode(made._replace(throttle_time_ms=10).encode(version), version)
    assert (made.throttle_time_ms, read.throttle_time_ms) == (0, 10)
    (topic,) = read.responses
    assert (topic.name, topic.topic_id) == (("test", ZERO_UUID) if version < 13 else ("", ORDERS))
    ((partition, said),) = partition_responses(read, {ORDERS: "test"})
    assert partition == TopicPartition("test", 0)
    assert (said.error, said.base_offset, said.log_append_time_ms) == (Errors.NONE, 10000, None)
    assert said.log_start_offset == (100 if version >= 5 else None)
    assert (said.record_errors, said.error_message) == ((), None)


@pytest.mark.java("ProduceResponseTest.produceResponseRecordErrorsTest")
@pytest.mark.parametrize("version", range(3, 14))
def test_errors_of_single_records_are_told_from_version_8_on(version: int) -> None:
    made = response(
        wire.PartitionProduceResponse(
            0,
            0,
            10000,
            -1,
            100,
            record_errors=(wire.BatchIndexAndErrorMessage(3, "Record error"),),
            error_message="Produce failed",
        )
    )
    ((_, said),) = partition_responses(wire.ProduceResponse.decode(made.encode(version), version), {})
    reported = ((RecordError(3, "Record error"),), "Produce failed")
    assert (said.record_errors, said.error_message) == (reported if version >= 8 else ((), None))


def test_errors_of_single_records_and_the_message_are_kept() -> None:
    answered = response(
        wire.PartitionProduceResponse(
            0,
            Errors.INVALID_RECORD.code,
            record_errors=(wire.BatchIndexAndErrorMessage(2, "bad"), wire.BatchIndexAndErrorMessage(3, None)),
            error_message="two are bad",
        )
    )
    ((_, said),) = partition_responses(answered, {})
    assert said.record_errors == (RecordError(2, "bad"), RecordError(3, None))
    assert str(said) == "INVALID_RECORD. Error Message: two are bad"


def test_a_code_from_the_future_keeps_its_number() -> None:
    ((_, said),) = partition_responses(response(wire.PartitionProduceResponse(0, 9999)), {})
    assert (said.error, said.code) == (Errors.UNKNOWN_SERVER_ERROR, 9999)


def test_a_new_leader_is_told_with_its_address() -> None:
    answered = response(
        wire.PartitionProduceResponse(
            0, Errors.NOT_LEADER_OR_FOLLOWER.code, current_leader=wire.LeaderIdAndEpoch(2, 8)
        )
    )._replace(node_endpoints=(wire.NodeEndpoint(2, "b2", 9092, None), wire.NodeEndpoint(3, "", -1, None)))
    ((_, said),) = partition_responses(answered, {})
    assert said.current_leader == LeaderIdAndEpoch(2, 8)
    assert leader_nodes(answered) == (Node(2, "b2", 9092),)


@pytest.mark.parametrize(
    ("host", "port", "is_reported"),
    [
        ("", 9092, False),
        ("b", -1, False),
        ("b", 0, True),
        ("b" * 255, 9092, True),
        ("b" * 256, 9092, False),
    ],
)
def test_a_leader_without_an_address_that_can_be_one_is_not_told(
    host: str, port: int, is_reported: bool
) -> None:
    answered = response()._replace(node_endpoints=(wire.NodeEndpoint(2, host, port, "rack"),))
    assert leader_nodes(answered) == ((Node(2, host, port, "rack"),) if is_reported else ())


@pytest.mark.parametrize("leader", [(-1, 8), (2, -1)])
def test_a_leader_without_id_or_epoch_is_none(leader: tuple[int, int]) -> None:
    answered = response(
        wire.PartitionProduceResponse(
            0, Errors.NOT_LEADER_OR_FOLLOWER.code, current_leader=wire.LeaderIdAndEpoch(*leader)
        )
    )
    ((_, said),) = partition_responses(answered, {})
    assert said.current_leader is None


def test_what_the_client_says_itself_has_the_code_of_its_error() -> None:
    said = failure(Errors.NETWORK_EXCEPTION, "Disconnected from node 1")
    assert said.code == Errors.NETWORK_EXCEPTION.code
    assert str(said) == "NETWORK_EXCEPTION. Error Message: Disconnected from node 1"
