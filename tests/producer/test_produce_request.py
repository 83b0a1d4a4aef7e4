"""Produce requests of every version, and what responses say. Twins of Produce{Request,Response}Test."""

from __future__ import annotations

import uuid

import pytest

from client_core.cluster import Node, TopicPartition
from client_core.error_codes import Errors
from client_core.errors import UnsupportedCompressionTypeError
from client_core.metadata.metadata import LeaderIdAndEpoch
from client_core.producer.produce_request import (
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

ORDERS = uuid.UUID(int=7)


def batch(partition: int, records: bytes = b"records", topic: str = "orders") -> PartitionRecords:
    return PartitionRecords(TopicPartition(topic, partition), records)


def builder(*batches: PartitionRecords, acks: str = "all") -> ProduceRequestBuilder:
    return ProduceRequestBuilder(acks, 1500, batches, {"orders": ORDERS})


def records_with_codec(codec: int) -> bytes:
    return bytes(22) + bytes([codec]) + bytes(60)


# -- requests ------------------------------------------------------------------------------------------------


def test_the_oldest_and_the_latest_version_are_those_of_the_api() -> None:
    asked = builder(batch(0))
    assert (asked.oldest_allowed_version, asked.latest_allowed_version) == (3, 13)
    assert asked.api is ApiKey.PRODUCE


@pytest.mark.parametrize("version", range(3, 13))
def test_up_to_version_12_topics_go_by_name(version: int) -> None:
    sent = ProduceRequest.decode(builder(batch(0, b"a"), batch(2, b"b")).encode(version), version)
    (topic,) = sent.topic_data
    assert topic.name == "orders"
    assert [(p.partition_index, p.records) for p in topic.partition_data] == [(0, b"a"), (2, b"b")]
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


@pytest.mark.parametrize("version", range(3, 7))
def test_zstd_needs_version_7(version: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"version {version} are not allowed"):
        builder(batch(0, records_with_codec(4))).encode(version)


def test_zstd_is_fine_from_version_7_and_other_codecs_before() -> None:
    assert builder(batch(0, records_with_codec(4))).encode(7)
    assert builder(batch(0, records_with_codec(1))).encode(3)


def test_the_names_behind_the_ids_are_those_of_the_request() -> None:
    assert builder(batch(0)).topic_names() == {ORDERS: "orders"}


def test_the_repr_tells_sizes_and_no_data() -> None:
    assert repr(builder(batch(0, b"abc"), batch(1, b"de"))) == "<Produce acks=all partitions=2 bytes=5>"


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
