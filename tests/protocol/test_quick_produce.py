"""The fast path of Produce reads and writes the same bytes as the generated messages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from client_core.errors import SchemaError, UnsupportedVersionError
from client_core.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from client_core.protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from client_core.protocol.primitives import ZERO_UUID
from client_core.protocol.quick_produce import FIRST_FLEXIBLE, encode_produce_request, read_produce_response

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FLEXIBLE = st.integers(FIRST_FLEXIBLE, 13)
INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
#: Names whose lengths take one byte, and two.
NAMES = st.text(max_size=10) | st.text("a", min_size=120, max_size=140)
#: Lengths around those at which a varint gets longer.
RECORDS = st.builds(bytes, st.sampled_from([0, 1, 126, 127, 128, 16_382, 16_383, 16_384]))
PARTITIONS = st.lists(st.tuples(INT32, RECORDS), max_size=3)


@given(
    version=FLEXIBLE,
    acks=st.sampled_from([-1, 0, 1]),
    timeout_ms=INT32,
    by_topic=st.dictionaries(NAMES, PARTITIONS, max_size=3),
    known=st.integers(0, 3),
)
def test_a_request_is_the_same_to_the_byte(
    version: int,
    acks: int,
    timeout_ms: int,
    by_topic: Mapping[str, Sequence[tuple[int, bytes]]],
    known: int,
) -> None:
    ids = {topic: UUID(int=number + 1) for number, topic in enumerate(list(by_topic)[:known])}
    plain = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(
            TopicProduceData(
                name="" if version >= 13 else topic,
                topic_id=ids.get(topic, ZERO_UUID) if version >= 13 else ZERO_UUID,
                partition_data=tuple(PartitionProduceData(*each) for each in partitions),
            )
            for topic, partitions in by_topic.items()
        ),
    )
    assert encode_produce_request(version, acks, timeout_ms, by_topic, ids) == plain.encode(version)


STORED = st.builds(
    PartitionProduceResponse,
    partition_index=INT32,
    error_code=st.just(0),
    base_offset=INT64,
    log_append_time_ms=INT64,
    log_start_offset=INT64,
    record_errors=st.just(()),
    error_message=st.none(),
    current_leader=st.just(LeaderIdAndEpoch()),
)
ANY_ANSWER = st.builds(
    PartitionProduceResponse,
    INT32,
    INT16,
    INT64,
    INT64,
    INT64,
    st.lists(st.builds(BatchIndexAndErrorMessage, INT32, st.none() | NAMES), max_size=2).map(tuple),
    st.none() | NAMES,
    st.builds(LeaderIdAndEpoch, INT32, INT32),
)


def answers(partition: st.SearchStrategy[PartitionProduceResponse]) -> st.SearchStrategy[ProduceResponse]:
    topic = st.builds(
        TopicProduceResponse, st.text(max_size=9), st.uuids(), st.lists(partition, max_size=3).map(tuple)
    )
    return st.builds(ProduceResponse, st.lists(topic, max_size=3).map(tuple), INT32, st.just(()))


def as_of(version: int, answer: ProduceResponse) -> ProduceResponse:
    """The same with what the version carries: names or ids."""
    kept = {"topic_id": ZERO_UUID} if version < 13 else {"name": ""}
    return answer._replace(responses=tuple(topic._replace(**kept) for topic in answer.responses))


@given(version=FLEXIBLE, answer=answers(STORED), behind=st.binary(max_size=3))
def test_an_answer_in_which_all_is_stored_is_read_to_the_same_value(
    version: int, answer: ProduceResponse, behind: bytes
) -> None:
    answer = as_of(version, answer)
    body = answer.encode(version) + behind
    assert read_produce_response(body, version) == answer == ProduceResponse.decode(body, version)


@given(version=FLEXIBLE, answer=answers(ANY_ANSWER))
def test_any_other_answer_is_read_alike_or_left_alone(version: int, answer: ProduceResponse) -> None:
    try:
        body = as_of(version, answer).encode(version)
    except UnsupportedVersionError:
        reject()  # version 9 names no leaders
    assert read_produce_response(body, version) in (None, ProduceResponse.decode(body, version))


@given(version=FLEXIBLE, answer=answers(STORED), cut=st.integers(1, 60))
def test_what_is_cut_off_is_left_to_who_says_what_is_wrong(
    version: int, answer: ProduceResponse, cut: int
) -> None:
    body = as_of(version, answer).encode(version)
    assert read_produce_response(body[:-cut], version) is None
    with pytest.raises(SchemaError):
        ProduceResponse.decode(body[:-cut], version)


@pytest.mark.parametrize("version", [10, 13])
def test_an_answer_that_introduces_brokers_is_left_alone(version: int) -> None:
    answer = ProduceResponse(node_endpoints=(NodeEndpoint(1, "broker-1", 9092, None),))
    assert read_produce_response(answer.encode(version), version) is None


@pytest.mark.parametrize("version", [9, 13])
def test_an_answer_with_a_tag_of_a_later_broker_is_left_alone(version: int) -> None:
    """Else the tag's bytes could be read as a pause of nineteen days."""
    plain = as_of(version, ProduceResponse((TopicProduceResponse("t", UUID(int=1), ()),))).encode(version)
    topic, end = plain[:-6], plain[-5:]  # behind the topic's tags: the pause, and the answer's tags
    for tagged in (topic + b"\x01\x63\x00" + end, plain[:-1] + b"\x01\x63\x00"):
        assert ProduceResponse.decode(tagged, version) == ProduceResponse.decode(plain, version)
        assert read_produce_response(tagged, version) is None


@given(version=FLEXIBLE, body=st.binary(max_size=80))
def test_no_bytes_are_read_to_another_value(version: int, body: bytes) -> None:
    quickly = read_produce_response(body, version)
    if quickly is not None:
        assert quickly == ProduceResponse.decode(body, version)
