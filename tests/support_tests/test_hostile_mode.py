"""The hostile mode of the fake cluster: the same lies for the same seed, of every kind, and their end."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from client_core.error_codes import Errors
from client_core.errors import KafkaError, SchemaError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_response_header, encode_request_header
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.protocol.messages.metadata_request import MetadataRequest
from client_core.protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from client_core.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from client_core.testing import Disconnect, FakeCluster
from tests.support.fake_cluster.hostile import HostileAnswer, Hostility, main, outlasts
from tests.support.fake_cluster.hostile_frames import spoilt
from tests.support.fake_cluster.hostile_values import mutated
from tests.support.fake_cluster.in_process import InProcessBrokers
from tests.support.hostile_simulation import survive_in_process
from tests.support.wire import Wire, ask

if TYPE_CHECKING:
    from collections.abc import Iterator

_PARTITION = MetadataResponsePartition(0, 0, 1, 5, (1, 2), (1,))
_METADATA = MetadataResponse(
    0,
    (MetadataResponseBroker(1, "h", 9_092), MetadataResponseBroker(2, "h", 9_093)),
    "c",
    1,
    (MetadataResponseTopic(0, "orders", partitions=(_PARTITION, _PARTITION._replace(partition_index=1))),),
)
_FRAME = b"\x00\x00\x00\x14" + b"\x00\x00\x00\x07" + bytes(range(16))


def _produced(error: Errors) -> ProduceResponse:
    partition = PartitionProduceResponse(0, error.code)
    return ProduceResponse((TopicProduceResponse("t", partition_responses=(partition,)),))


# -- values --------------------------------------------------------------------------------------------------


def test_lies_are_of_every_kind_that_was_asked_for_and_a_seeds_are_the_same_again() -> None:
    lies = [mutated(_METADATA, Random(seed)) for seed in range(3_000)]
    assert lies[:50] == [mutated(_METADATA, Random(seed)) for seed in range(50)]
    assert sum(lie != _METADATA for lie in lies[:50]) > 40
    brokers = [broker for lie in lies for broker in lie.brokers]
    topics = [topic for lie in lies for topic in lie.topics]
    partitions = [partition for topic in topics for partition in topic.partitions]
    assert any(not lie.brokers for lie in lies)
    assert any(lie.throttle_time_ms == 2**31 - 1 for lie in lies)
    assert any(broker.node_id < 0 for broker in brokers)
    assert any(not 0 <= broker.port < 65_536 for broker in brokers)
    assert any(len(broker.host) >= 32_000 for broker in brokers)
    assert any(partition.leader_epoch == 2**31 - 1 for partition in partitions)
    assert any(partition.partition_index < 0 for partition in partitions)
    assert any(len(topic.partitions) >= 1_000 for topic in topics)
    codes = {lie.error_code for lie in lies} | {partition.error_code for partition in partitions}
    assert len(codes & {error.code for error in Errors}) > 50
    assert codes - {error.code for error in Errors}


def test_most_lies_can_be_encoded_and_read() -> None:
    read = 0
    for seed in range(300):
        try:
            body = mutated(_METADATA, Random(seed)).encode(12)
        except KafkaError:
            continue
        MetadataResponse.decode(body, 12)
        read += 1
    assert read > 200


# -- frames --------------------------------------------------------------------------------------------------


def test_a_frame_is_spoilt_in_every_way() -> None:
    sendings = [spoilt(_FRAME, Random(seed)) for seed in range(2_000)]
    assert sendings[:50] == [spoilt(_FRAME, Random(seed)) for seed in range(50)]
    sizes = {int.from_bytes(s.pieces[0][:4], signed=True) for s in sendings if s.pieces and s.pieces[0]}
    assert {0, -1, -(2**31), 2**31 - 1} <= sizes
    assert any(len(s.pieces) == len(_FRAME) for s in sendings), "a byte at a time"
    assert any(s.pieces == (_FRAME + _FRAME,) for s in sendings), "twice"
    assert any(s.then_close and 0 < len(b"".join(s.pieces)) < len(_FRAME) for s in sendings), (
        "half, and the end"
    )
    assert any(s.then_silent and not s.pieces for s in sendings), "silence"
    correlation_ids = {s.pieces[0][4:8] for s in sendings if s.pieces and len(s.pieces[0]) == len(_FRAME)}
    assert len(correlation_ids) > 3
    assert sum(b"".join(s.pieces) != _FRAME or s.then_close or s.then_silent for s in sendings) > 1_700


# -- the decision --------------------------------------------------------------------------------------------


def _reactions(hostility: Hostility, broker_id: int, count: int = 40) -> list[str]:
    return [type(hostility.next_answer(broker_id, ApiKey.METADATA)).__name__ for _ in range(count)]


def test_a_brokers_answers_do_not_depend_on_the_others() -> None:
    alone, among_others = Hostility(7), Hostility(7)
    expected = _reactions(alone, 1)
    found = []
    for _ in range(40):
        among_others.next_answer(2, ApiKey.PRODUCE)
        found.append(type(among_others.next_answer(1, ApiKey.METADATA)).__name__)
    assert found == expected
    assert {"Reaction", "HostileAnswer"} == set(found)
    assert _reactions(Hostility(8), 1) != expected


def test_the_rate_says_how_many_answers_are_spoilt() -> None:
    for rate, spoilt_answers in ((0.0, 0), (1.0, 40)):
        hostility = Hostility(3, rate=rate)
        _reactions(hostility, 1)
        assert hostility.spoilt == spoilt_answers
        assert repr(hostility) == f"<Hostility seed=3 spoilt={spoilt_answers} of 40>"


def _reported(response: Any, api: ApiKey, version: int, *, lasting: bool) -> Iterator[Any]:
    """What can be read of the answers of a hostile broker."""
    for seed in range(1_500):
        answer = HostileAnswer(Random(seed), api, lasting=lasting, in_values=seed % 2 == 0)
        body = b"\x00\x00\x00\x01" + b"\x00" + answer.encode(response, version)
        for piece in answer.shape(len(body).to_bytes(4) + body).pieces:
            try:
                _, offset = decode_response_header(piece[4:], api, version)
                yield type(response).decode(piece[4:], version, offset)
            except SchemaError:
                continue


def test_lies_that_outlast_the_hostility_are_left_out_on_demand() -> None:
    producer_ids = InitProducerIdResponse(producer_id=1, producer_epoch=0)
    for lasting in (True, False):
        metadata = _reported(_METADATA, ApiKey.METADATA, 12, lasting=lasting)
        assert (max(reported.throttle_time_ms for reported in metadata) > 40) is lasting
        given = _reported(producer_ids, ApiKey.INIT_PRODUCER_ID, 4, lasting=lasting)
        codes = {reported.error_code for reported in given} - {0}
        assert any(not Errors.of(code).retriable for code in codes) is lasting


def test_lies_that_outlast_the_hostility_are_known() -> None:
    for response, lasts in (
        (_METADATA, False),
        (_METADATA._replace(throttle_time_ms=40), False),
        (_METADATA._replace(throttle_time_ms=41), True),
        (_produced(Errors.NOT_LEADER_OR_FOLLOWER), False),
        (_produced(Errors.CLUSTER_AUTHORIZATION_FAILED), True),
        (_produced(Errors.UNSUPPORTED_VERSION), True),
        (InitProducerIdResponse(error_code=Errors.COORDINATOR_LOAD_IN_PROGRESS.code), False),
        (InitProducerIdResponse(error_code=Errors.CLUSTER_AUTHORIZATION_FAILED.code), True),
    ):
        assert outlasts(response) is lasts, response


# -- the cluster ---------------------------------------------------------------------------------------------


def _ask_for_metadata(cluster: FakeCluster) -> bytes:
    return ask(cluster.address(1), ApiKey.METADATA, 12, MetadataRequest(()).encode(12))


def test_a_hostile_cluster_lies_until_it_is_honest_again_but_for_what_a_test_orders() -> None:
    with FakeCluster(brokers=1) as cluster:
        ordered = Hostility(1, rate=1.0)
        cluster.disturb(ordered)
        cluster.react_next(ApiKey.METADATA, Disconnect())
        with pytest.raises(ConnectionError):
            _ask_for_metadata(cluster)
        assert ordered.spoilt == 0
        cluster.disturb(None)
        honest = _ask_for_metadata(cluster)
        cluster.disturb(Hostility(1, rate=1.0))
        answers = set()
        for _ in range(30):
            with Wire(cluster.address(1)) as wire:
                wire.socket.settimeout(0.1)
                wire.send(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
                try:
                    answers.add(wire.socket.recv(100_000))
                except OSError:
                    answers.add(b"")
        assert len(answers) > 10
        cluster.disturb(None)
        assert _ask_for_metadata(cluster) == honest


def test_brokers_in_process_answer_as_those_on_sockets_do() -> None:
    brokers = InProcessBrokers(2)
    brokers.state.controller.create_topic("orders", partitions=2)
    payload = encode_request_header(ApiKey.METADATA, 12, 5, "test") + MetadataRequest(None).encode(12)
    sending = brokers.answer(2, payload)
    assert sending is not None
    (frame,) = sending.pieces
    assert frame[:8] == (len(frame) - 4).to_bytes(4) + (5).to_bytes(4)
    reported = MetadataResponse.decode(frame, 12, 9)
    assert [topic.name for topic in reported.topics] == ["orders"]
    assert [broker.port for broker in reported.brokers] == list(brokers.ports)
    too_new = encode_request_header(ApiKey.METADATA, 99, 5, "test") + MetadataRequest(None).encode(12)
    closing = brokers.answer(2, too_new)
    assert closing is not None
    assert (list(closing.pieces), closing.then_close) == ([], True)


# -- the runs ------------------------------------------------------------------------------------------------


def test_a_run_of_a_seed_is_the_same_again() -> None:
    assert survive_in_process(5) == survive_in_process(5)


def test_the_entry_point_says_what_it_ran(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--first", "4"]) == 0
    assert "2 runs in" in capsys.readouterr().out
