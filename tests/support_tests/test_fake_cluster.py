"""The fake cluster over its sockets: it answers as brokers do, and carries out a test's orders."""

from __future__ import annotations

import socket
import threading
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from client_core.error_codes import Errors
from client_core.errors import SchemaError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.api_versions_request import ApiVersionsRequest
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.init_producer_id_request import InitProducerIdRequest
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from client_core.protocol.messages.metadata_response import MetadataResponse
from client_core.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from client_core.protocol.messages.produce_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
)
from client_core.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from client_core.protocol.primitives import ZERO_UUID
from client_core.testing import (
    KAFKA_2_1,
    BehindTheNext,
    Delay,
    Disconnect,
    FakeCluster,
    FakeClusterError,
    Garbage,
    HalfFrame,
    InPieces,
    SaslDemand,
    Silence,
    TopicConfig,
    Twice,
    WrongCorrelationId,
    WrongSize,
)
from tests.support.kafka_admin import KafkaAdmin
from tests.support.live_producer import live_producer, submit
from tests.support.wire import Wire, ask
from tests.support_tests.batches import batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import KafkaError, Message

    from client_core.testing import Reaction


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as running:
        running.create_topic("orders", partitions=3, replication_factor=3)
        yield running


def _metadata(
    cluster: FakeCluster, *topics: str, broker_id: int = 1, version: int = 12, may_create: bool = True
) -> MetadataResponse:
    """What a broker says of topics; of all, where none are named."""
    wanted = tuple(MetadataRequestTopic(name=topic) for topic in topics) if topics else None
    if version == 0:
        wanted = wanted or ()
    request = MetadataRequest(wanted, allow_auto_topic_creation=may_create)
    body = ask(cluster.address(broker_id), ApiKey.METADATA, version, request.encode(version))
    return MetadataResponse.decode(body, version)


def _request(
    data: bytes | None,
    topic: str = "orders",
    partition: int = 0,
    *,
    acks: int = -1,
    topic_id: UUID = ZERO_UUID,
) -> ProduceRequest:
    topics = (TopicProduceData(topic, topic_id, (PartitionProduceData(partition, data),)),)
    return ProduceRequest(None, acks, 30_000, topics)


def _produce_response(
    cluster: FakeCluster, request: ProduceRequest, *, broker_id: int = 1, version: int = 12
) -> ProduceResponse:
    body = ask(cluster.address(broker_id), ApiKey.PRODUCE, version, request.encode(version))
    return ProduceResponse.decode(body, version)


def _produce(
    cluster: FakeCluster, request: ProduceRequest, *, broker_id: int = 1, version: int = 12
) -> PartitionProduceResponse:
    """The answer for the one partition of the request."""
    response = _produce_response(cluster, request, broker_id=broker_id, version=version)
    return response.responses[0].partition_responses[0]


# -- ApiVersions ---------------------------------------------------------------------------------------------


def test_it_says_which_versions_it_speaks(cluster: FakeCluster) -> None:
    request = ApiVersionsRequest("apache-kafka-java", "4.3.1")
    for version in range(5):
        body = ask(cluster.address(2), ApiKey.API_VERSIONS, version, request.encode(version))
        answer = ApiVersionsResponse.decode(body, version)
        spans = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        said = (answer.error_code, spans[0], spans[3], spans[18])
        assert said == (0, (0, 13), (0, 13), (0, 4)), version


def test_a_version_too_high_is_answered_in_that_of_zero_with_the_one_to_use(cluster: FakeCluster) -> None:
    cluster.set_versions(KAFKA_2_1)
    body = ask(cluster.address(1), ApiKey.API_VERSIONS, 4, ApiVersionsRequest("a", "1").encode(4))
    assert body == bytes.fromhex("0023 00000001 0012 0000 0002")


def test_a_software_name_that_is_none_is_an_invalid_request(cluster: FakeCluster) -> None:
    body = ask(cluster.address(1), ApiKey.API_VERSIONS, 3, ApiVersionsRequest("-bad-", "1").encode(3))
    assert ApiVersionsResponse.decode(body, 3).error_code == Errors.INVALID_REQUEST.code


def test_a_version_it_does_not_speak_or_what_is_no_request_ends_the_connection(cluster: FakeCluster) -> None:
    cluster.set_versions(KAFKA_2_1, broker_id=1)
    with Wire(cluster.address(1)) as wire:
        wire.send(ApiKey.METADATA, 8, MetadataRequest(None).encode(8))
        assert wire.is_closed_by_peer()
    assert _metadata(cluster, version=7).brokers
    assert _metadata(cluster, broker_id=2, version=8).brokers
    for sent in ("00000004 deadbeef", "0000000a 7fff 0000 00000001 ffff", "ffffffff", "7fffffff"):
        with Wire(cluster.address(1)) as wire:
            wire.socket.sendall(bytes.fromhex(sent))
            assert wire.is_closed_by_peer(), sent


# -- Metadata ------------------------------------------------------------------------------------------------


def test_metadata_is_answered_in_every_version(cluster: FakeCluster) -> None:
    addresses = [(i, cluster.address(i)) for i in (1, 2, 3)]
    for version in range(14):
        answer = _metadata(cluster, "orders", version=version)
        assert [(b.node_id, (b.host, b.port)) for b in answer.brokers] == addresses, version
        (topic,) = answer.topics
        assert (topic.error_code, topic.name) == (0, "orders"), version
        leaders = [(p.partition_index, p.leader_id) for p in topic.partitions]
        assert leaders == [(0, 1), (1, 2), (2, 3)], version
        assert topic.partitions[1].replica_nodes == topic.partitions[1].isr_nodes == (2, 3, 1), version
        assert version < 2 or answer.cluster_id == cluster.cluster_id, version
        assert version < 7 or topic.partitions[0].leader_epoch == 0, version


def test_null_topics_are_all_and_no_topics_are_none(cluster: FakeCluster) -> None:
    cluster.create_topic("zebra")
    assert [topic.name for topic in _metadata(cluster).topics] == ["orders", "zebra"]
    assert [topic.name for topic in _metadata(cluster, version=0).topics] == ["orders", "zebra"]
    body = ask(cluster.address(1), ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
    assert MetadataResponse.decode(body, 12).topics == ()


def test_forbidden_topics_are_named_with_an_error_and_otherwise_left_out(cluster: FakeCluster) -> None:
    cluster.forbid("secret")
    cluster.create_topic("secret")
    named = _metadata(cluster, "secret", "orders").topics
    assert [(t.name, t.error_code, len(t.partitions)) for t in named] == [("secret", 29, 0), ("orders", 0, 3)]
    assert [topic.name for topic in _metadata(cluster).topics] == ["orders"]
    cluster.permit("secret")
    assert _metadata(cluster, "secret").topics[0].error_code == 0


def test_a_missing_topic_stays_missing_where_topics_are_not_made_and_an_illegal_name_is_invalid(
    cluster: FakeCluster,
) -> None:
    for _ in range(2):
        (topic,) = _metadata(cluster, "fresh").topics
        assert (topic.error_code, topic.partitions) == (3, ())
    invalid = Errors.INVALID_TOPIC_EXCEPTION.code
    illegal = ("bad topic!", "..", "")
    assert [_metadata(cluster, name).topics[0].error_code for name in illegal] == [invalid] * 3


def test_a_missing_topic_is_made_when_cluster_and_client_allow_it() -> None:
    with FakeCluster(brokers=2, auto_create=True, auto_create_partitions=4) as cluster:
        assert _metadata(cluster, "fresh", may_create=False).topics[0].error_code == 3
        assert _metadata(cluster, "fresh", may_create=False).topics[0].error_code == 3
        assert _metadata(cluster, "fresh").topics[0].error_code == 3
        (topic,) = _metadata(cluster, "fresh", may_create=False).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 4)


def test_a_topic_is_found_by_its_id(cluster: FakeCluster) -> None:
    topic_id = _metadata(cluster, "orders").topics[0].topic_id
    for wanted, expected in ((topic_id, (0, "orders")), (UUID(int=99), (100, None))):
        request = MetadataRequest((MetadataRequestTopic(wanted, None),))
        body = ask(cluster.address(1), ApiKey.METADATA, 12, request.encode(12))
        (topic,) = MetadataResponse.decode(body, 12).topics
        assert (topic.error_code, topic.name) == expected


def test_the_death_of_a_broker_shows_in_brokers_leaders_and_offline_replicas(cluster: FakeCluster) -> None:
    cluster.kill(1)
    answer = _metadata(cluster, "orders", broker_id=2)
    assert [broker.node_id for broker in answer.brokers] == [2, 3]
    first = answer.topics[0].partitions[0]
    assert (first.leader_id, first.leader_epoch) == (2, 1)
    assert (first.isr_nodes, first.offline_replicas) == ((2, 3), (1,))
    cluster.revive(1, new_port=True)
    back = _metadata(cluster, "orders", broker_id=1)
    assert (back.brokers[0].host, back.brokers[0].port) == cluster.address(1)
    assert back.topics[0].partitions[0].isr_nodes == (1, 2, 3)


def test_a_partition_without_leader_says_leader_not_available(cluster: FakeCluster) -> None:
    cluster.move_leader("orders", 0, None)
    partition = _metadata(cluster, "orders").topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (5, -1, 1)


def test_a_frozen_broker_names_the_old_leader(cluster: FakeCluster) -> None:
    cluster.freeze_metadata(3)
    cluster.move_leader("orders", 0, 2)
    assert _metadata(cluster, "orders", broker_id=1).topics[0].partitions[0].leader_id == 2
    assert _metadata(cluster, "orders", broker_id=3).topics[0].partitions[0].leader_id == 1
    cluster.thaw_metadata(3)
    assert _metadata(cluster, "orders", broker_id=3).topics[0].partitions[0].leader_id == 2


def test_no_broker_reports_a_partition_being_deleted_and_none_accepts_its_records(
    cluster: FakeCluster,
) -> None:
    cluster.begin_deletion("orders", 1)
    (topic,) = _metadata(cluster, "orders").topics
    assert [partition.partition_index for partition in topic.partitions] == [0, 2]
    answer = _produce(cluster, _request(batch(b"a"), partition=1), broker_id=2)
    assert answer.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code
    cluster.begin_deletion("orders")
    assert _metadata(cluster, "orders").topics[0].error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION.code
    assert _metadata(cluster).topics == ()


def test_racks_are_returned() -> None:
    with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        assert [broker.rack for broker in _metadata(cluster).brokers] == ["a", "b"]


def test_a_new_broker_joins(cluster: FakeCluster) -> None:
    assert cluster.add_broker() == 4
    assert [broker.node_id for broker in _metadata(cluster, broker_id=4).brokers] == [1, 2, 3, 4]


# -- Produce -------------------------------------------------------------------------------------------------


def test_records_are_stored_in_every_version(cluster: FakeCluster) -> None:
    topic_id = _metadata(cluster, "orders").topics[0].topic_id
    request = _request(batch(b"a", b"b"), topic_id=topic_id)
    stored: list[tuple[int, bytes]] = []
    for version in range(3, 14):
        at = len(stored)
        stored += [(at, b"a"), (at + 1, b"b")]
        expected = PartitionProduceResponse(0, 0, at, -1, 0 if version >= 5 else -1)
        assert _produce(cluster, request, version=version) == expected, version
    assert [(r.offset, r.value) for r in cluster.records("orders")] == stored


def test_requests_that_a_real_broker_refuses_are_refused_with_its_code(cluster: FakeCluster) -> None:
    a = batch(b"a")
    for name, request, version, error in (
        ("topic", _request(a, "nowhere"), 12, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        ("topic id", _request(a, topic_id=UUID(int=5)), 13, Errors.UNKNOWN_TOPIC_ID),
        ("no topic id", _request(a), 13, Errors.UNKNOWN_TOPIC_ID),
        ("partition", _request(a, partition=99), 12, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        ("acks", _request(a, acks=2), 12, Errors.INVALID_REQUIRED_ACKS),
        ("no batch", _request(None), 12, Errors.INVALID_RECORD),
        ("two batches", _request(a + batch(b"b")), 12, Errors.INVALID_RECORD),
        ("checksum", _request(a[:-1] + b"!"), 12, Errors.CORRUPT_MESSAGE),
        ("codec", _request(batch(b"a", attributes=4)), 6, Errors.UNSUPPORTED_COMPRESSION_TYPE),
        ("timestamp", _request(batch(b"a", timestamp_ms=1 << 62)), 12, Errors.INVALID_TIMESTAMP),
    ):
        answer = _produce(cluster, request, version=version)
        assert (answer.error_code, answer.base_offset) == (error.code, -1), name
    assert not cluster.records("orders")


def test_a_broker_that_does_not_lead_names_the_leader(cluster: FakeCluster) -> None:
    cluster.move_leader("orders", 0, 3)
    response = _produce_response(cluster, _request(batch(b"a")), broker_id=1, version=12)
    answer = response.responses[0].partition_responses[0]
    assert (answer.error_code, answer.current_leader) == (6, LeaderIdAndEpoch(3, 1))
    assert response.node_endpoints == (NodeEndpoint(3, *cluster.address(3)),)
    older = _produce(cluster, _request(batch(b"a")), broker_id=1, version=9)
    assert older.current_leader == LeaderIdAndEpoch()
    assert _produce(cluster, _request(batch(b"a")), broker_id=3).error_code == 0


def test_too_few_replicas_in_sync_refuse_acks_all_only_and_more_than_there_are_are_not_demanded(
    cluster: FakeCluster,
) -> None:
    cluster.create_topic("safe", assignment=[[1, 2]], config=TopicConfig(min_insync_replicas=2))
    cluster.set_isr("safe", 0, [1])
    cluster.create_topic("strict", assignment=[[1]], config=TopicConfig(min_insync_replicas=3))
    asked = (("safe", -1), ("safe", 1), ("strict", -1))
    codes = [_produce(cluster, _request(batch(b"a"), topic, acks=acks)).error_code for topic, acks in asked]
    assert codes == [Errors.NOT_ENOUGH_REPLICAS.code, 0, 0]


def test_writing_can_be_forbidden_alone(cluster: FakeCluster) -> None:
    cluster.forbid("orders", describe=False)
    assert _metadata(cluster, "orders").topics[0].error_code == 0
    assert _produce(cluster, _request(batch(b"a"))).error_code == Errors.TOPIC_AUTHORIZATION_FAILED.code


def test_acks_zero_is_not_answered_and_its_failure_ends_the_connection(cluster: FakeCluster) -> None:
    with Wire(cluster.address(1)) as wire:
        wire.send(ApiKey.PRODUCE, 9, _request(batch(b"a"), acks=0).encode(9))
        request = MetadataRequest(())
        assert MetadataResponse.decode(wire.ask(ApiKey.METADATA, 9, request.encode(9)), 9).brokers
        wire.send(ApiKey.PRODUCE, 9, _request(batch(b"a"), "nowhere", acks=0).encode(9))
        assert wire.is_closed_by_peer()
    assert [record.value for record in cluster.records("orders")] == [b"a"]


def test_duplicates_get_the_first_offset_and_gaps_are_refused(cluster: FakeCluster) -> None:
    first = _request(batch(b"a", producer=(7, 0, 0)))
    assert _produce(cluster, first).base_offset == 0
    again = _produce(cluster, first)
    assert (again.error_code, again.base_offset) == (0, 0)
    assert again.log_append_time_ms != -1
    assert _produce(cluster, _request(batch(b"c", producer=(7, 0, 2)))).error_code == 45
    assert len(cluster.batches("orders")) == 1


def test_errors_come_as_ordered_for_the_partition_and_as_often(cluster: FakeCluster) -> None:
    a = _request(batch(b"a"))
    cluster.fail_next_produces(Errors.KAFKA_STORAGE_ERROR, times=2, topic="orders", partition=0)
    assert [_produce(cluster, a).error_code for _ in range(3)] == [56, 56, 0]
    assert len(cluster.records("orders")) == 1
    cluster.fail_next_produces(Errors.KAFKA_STORAGE_ERROR, partition=1)
    assert _produce(cluster, a).error_code == 0
    assert _produce(cluster, _request(batch(b"a"), partition=1), broker_id=2).error_code == 56
    cluster.fail_next_produces(9_999)
    assert _produce(cluster, a).error_code == 9_999, "one that nobody knows"


def test_an_error_can_hide_that_the_records_were_stored(cluster: FakeCluster) -> None:
    cluster.fail_next_produces(Errors.REQUEST_TIMED_OUT, appended=True)
    assert _produce(cluster, _request(batch(b"a"))).error_code == 7
    assert len(cluster.records("orders")) == 1


def test_a_leader_can_move_in_the_middle_of_a_request(cluster: FakeCluster) -> None:
    """The partitions before that one in the request are stored, that one is not."""
    cluster.create_topic("mine", assignment=[[1, 2], [1, 2]])
    cluster.meanwhile("mine", 1, lambda: cluster.move_leader("mine", 1, 2))
    data = (PartitionProduceData(0, batch(b"a")), PartitionProduceData(1, batch(b"b")))
    request = ProduceRequest(None, -1, 30_000, (TopicProduceData("mine", ZERO_UUID, data),))
    (topic,) = _produce_response(cluster, request).responses
    assert [partition.error_code for partition in topic.partition_responses] == [0, 6]
    assert topic.partition_responses[1].current_leader == LeaderIdAndEpoch(2, 1)
    assert [record.value for record in cluster.records("mine")] == [b"a"]
    (topic,) = _produce_response(cluster, request).responses  # once, and never again
    assert [partition.error_code for partition in topic.partition_responses] == [0, 6]
    assert cluster.partition("mine", 1).leader_epoch == 1


def test_a_topic_made_again_is_empty(cluster: FakeCluster) -> None:
    _produce(cluster, _request(batch(b"a")))
    cluster.delete_topic("orders")
    cluster.create_topic("orders")
    assert not cluster.records("orders")
    assert _produce(cluster, _request(batch(b"b"))).base_offset == 0


# -- InitProducerId ------------------------------------------------------------------------------------------


def _init_producer_id(cluster: FakeCluster, broker_id: int, version: int) -> InitProducerIdResponse:
    request = InitProducerIdRequest(None, 60_000).encode(version)
    body = ask(cluster.address(broker_id), ApiKey.INIT_PRODUCER_ID, version, request)
    return InitProducerIdResponse.decode(body, version)


def test_producer_ids_are_given_once(cluster: FakeCluster) -> None:
    for version in range(6):
        answers = [_init_producer_id(cluster, broker_id, version) for broker_id in (1, 1, 2)]
        assert [(a.error_code, a.producer_epoch) for a in answers] == [(0, 0)] * 3, version
        expected = [1_000 + 2 * version, 1_001 + 2 * version, 2_000 + version]
        assert [a.producer_id for a in answers] == expected, version


def test_producer_ids_can_be_late(cluster: FakeCluster) -> None:
    cluster.fail_next_init_producer_ids(Errors.COORDINATOR_LOAD_IN_PROGRESS, times=2)
    assert [_init_producer_id(cluster, 1, 4).error_code for _ in range(3)] == [14, 14, 0]


# -- SASL ----------------------------------------------------------------------------------------------------


def _handshake(wire: Wire, mechanism: str) -> SaslHandshakeResponse:
    body = wire.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism).encode(1))
    return SaslHandshakeResponse.decode(body, 1)


def _authenticate(wire: Wire, token: bytes) -> SaslAuthenticateResponse:
    body = wire.ask(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token).encode(2))
    return SaslAuthenticateResponse.decode(body, 2)


def test_where_sasl_is_demanded_only_versions_may_be_asked_before(cluster: FakeCluster) -> None:
    cluster.demand_sasl(SaslDemand(passwords={"alice": "wonder"}, session_lifetime_ms=60_000))
    with Wire(cluster.address(1)) as wire:
        assert wire.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1").encode(3))
        wire.send(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
        assert wire.is_closed_by_peer()
    with Wire(cluster.address(1)) as wire:
        assert _handshake(wire, "PLAIN") == SaslHandshakeResponse(0, ("PLAIN",))
        assert _authenticate(wire, b"\0alice\0wonder") == SaslAuthenticateResponse(0, "", b"", 60_000)
        assert wire.ask(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
        assert _handshake(wire, "PLAIN").error_code == 0  # again
        assert _authenticate(wire, b"\0alice\0wonder").error_code == 0
        assert wire.ask(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
    assert [seen.api for seen in cluster.requests(broker_id=1)].count(ApiKey.SASL_AUTHENTICATE) == 2


def test_a_client_refused_by_sasl_gets_the_reason_and_the_connection_ends(cluster: FakeCluster) -> None:
    cluster.demand_sasl(SaslDemand(passwords={"alice": "wonder"}))
    with Wire(cluster.address(1)) as wire:
        _handshake(wire, "PLAIN")
        refused = _authenticate(wire, b"\0alice\0guess")
        assert refused.error_code == Errors.SASL_AUTHENTICATION_FAILED.code
        assert refused.error_message == "Authentication failed: Invalid username or password"
        assert wire.is_closed_by_peer()
    with Wire(cluster.address(1)) as wire:
        assert _handshake(wire, "GSSAPI").error_code == Errors.UNSUPPORTED_SASL_MECHANISM.code
        assert wire.is_closed_by_peer()
    with Wire(cluster.address(1)) as wire:
        assert _authenticate(wire, b"\0alice\0wonder").error_code == Errors.ILLEGAL_SASL_STATE.code
        assert wire.is_closed_by_peer()


def test_a_session_that_has_run_out_ends_the_connection(cluster: FakeCluster) -> None:
    cluster.demand_sasl(SaslDemand(passwords={"alice": "wonder"}, session_lifetime_ms=-1))
    with Wire(cluster.address(1)) as wire:
        _handshake(wire, "PLAIN")
        assert _authenticate(wire, b"\0alice\0wonder").session_lifetime_ms == -1
        wire.send(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
        assert wire.is_closed_by_peer()


def test_nobody_may_try_sasl_where_it_is_not_demanded(cluster: FakeCluster) -> None:
    with Wire(cluster.address(1)) as wire:
        wire.send(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest("PLAIN").encode(1))
        assert wire.is_closed_by_peer()


def test_our_own_client_authenticates_and_produces(cluster: FakeCluster) -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "alice", "sasl.password": "wonder"}
    for offset, mechanism in enumerate(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")):
        cluster.demand_sasl(SaslDemand((mechanism,), passwords={"alice": "wonder"}))
        with live_producer(cluster.bootstrap_servers, {**settings, "sasl.mechanism": mechanism}) as producer:
            assert submit(producer, "orders", [b"a"], partition=0).offsets() == [offset], mechanism


# -- reactions -----------------------------------------------------------------------------------------------


def _next_metadata(cluster: FakeCluster, reaction: Reaction) -> Wire:
    """A connection that has sent a Metadata request whose answer meets the reaction."""
    cluster.react_next(ApiKey.METADATA, reaction)
    wire = Wire(cluster.address(1))
    wire.send(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
    return wire


def _is_silent(wire: Wire) -> bool:
    wire.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        wire.socket.recv(1)
    return True


def test_silence_is_for_good_on_its_connection_and_nowhere_else(cluster: FakeCluster) -> None:
    with _next_metadata(cluster, Silence()) as wire:
        wire.send(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
        assert _is_silent(wire)
        assert _metadata(cluster).brokers


def test_half_a_frame_is_half_of_one(cluster: FakeCluster) -> None:
    whole = ask(cluster.address(1), ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
    frame_bytes = 4 + 4 + 1 + len(whole)  # size, correlation id, no tags
    for then_close in (True, False):
        with _next_metadata(cluster, HalfFrame(then_close=then_close)) as wire:
            assert len(wire.socket.recv(1_000)) == frame_bytes // 2, then_close
            assert wire.is_closed_by_peer() if then_close else _is_silent(wire), then_close


def test_an_answer_is_right_behind_a_wrong_correlation_id_in_pieces_or_late(cluster: FakeCluster) -> None:
    for reaction, number in ((WrongCorrelationId(off_by=5), 6), (InPieces(1), 1), (Delay(20), 1)):
        with _next_metadata(cluster, reaction) as wire:
            payload = wire.receive_payload()
            assert int.from_bytes(payload[:4]) == number, reaction
            assert len(MetadataResponse.decode(payload, 12, 5).brokers) == 3, reaction


def test_an_answer_can_come_behind_the_next_one(cluster: FakeCluster) -> None:
    with _next_metadata(cluster, BehindTheNext()) as wire:
        wire.send(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
        assert [int.from_bytes(wire.receive_payload()[:4]) for _ in range(2)] == [2, 1]


def test_an_answer_can_come_twice(cluster: FakeCluster) -> None:
    with _next_metadata(cluster, Twice()) as wire:
        assert wire.receive_payload() == wire.receive_payload()


def test_garbage_has_the_size_and_number_of_an_answer(cluster: FakeCluster) -> None:
    with _next_metadata(cluster, Garbage()) as wire:
        payload = wire.receive_payload()
        assert int.from_bytes(payload[:4]) == 1
        with pytest.raises(SchemaError):
            MetadataResponse.decode(payload, 12, 5)


def test_a_wrong_size_is_announced(cluster: FakeCluster) -> None:
    for size in (0x7FFFFFFF, -2):
        with _next_metadata(cluster, WrongSize(size)) as wire:
            assert int.from_bytes(wire.socket.recv(4), signed=True) == size


def test_a_disconnect_replaces_the_answer_whether_or_not_the_request_is_applied(cluster: FakeCluster) -> None:
    for asked, (applied, stored) in enumerate(((False, 0), (True, 1)), 1):
        cluster.react_next(ApiKey.PRODUCE, Disconnect(applied=applied))
        with pytest.raises(ConnectionError):
            _produce(cluster, _request(batch(b"a")))
        assert len(cluster.records("orders")) == stored
        assert len(cluster.requests(ApiKey.PRODUCE)) == asked


def test_a_held_answer_waits_for_its_release_and_others_overtake_it(cluster: FakeCluster) -> None:
    hold = cluster.hold_next(ApiKey.METADATA, broker_id=1)
    with Wire(cluster.address(1)) as wire:
        wire.send(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
        hold.wait_until_held()
        assert _metadata(cluster, broker_id=2).brokers
        assert _metadata(cluster, broker_id=1).brokers
        hold.release()
        assert len(MetadataResponse.decode(wire.receive_payload(), 12, 5).brokers) == 3


def test_a_reaction_is_for_its_broker_and_counted(cluster: FakeCluster) -> None:
    cluster.react_next(ApiKey.METADATA, Disconnect(), times=2, broker_id=2)
    assert _metadata(cluster, broker_id=1).brokers
    for _ in range(2):
        with pytest.raises(ConnectionError):
            _metadata(cluster, broker_id=2)
    assert _metadata(cluster, broker_id=2).brokers


def test_an_answer_can_be_changed_field_by_field(cluster: FakeCluster) -> None:
    cluster.change_next(ApiKey.METADATA, lambda answer: answer._replace(brokers=()))
    cluster.throttle_next(ApiKey.METADATA, 250)
    assert _metadata(cluster).brokers == ()
    assert _metadata(cluster).throttle_time_ms == 250
    assert _metadata(cluster).throttle_time_ms == 0


# -- brokers and bookkeeping ---------------------------------------------------------------------------------


def test_a_killed_broker_ends_its_connections_and_refuses_new_ones(cluster: FakeCluster) -> None:
    with Wire(cluster.address(2)) as wire:
        wire.ask(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
        assert cluster.connections(2) == 1
        cluster.kill(2)
        assert wire.is_closed_by_peer()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(cluster.address(2), timeout=5)
    cluster.revive(2)
    assert _metadata(cluster, broker_id=2).brokers


def test_a_client_that_sees_a_broker_end_gets_the_new_leader_at_once(cluster: FakeCluster) -> None:
    """Sometimes it asked between the end and the election, and then not again for five minutes."""
    stale = 0
    for _ in range(50):
        cluster.move_leader("orders", 1, 2)
        with Wire(cluster.address(2)) as wire:
            wire.ask(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
            killer = threading.Thread(target=cluster.kill, args=(2,))
            killer.start()
            assert wire.is_closed_by_peer()
            stale += cluster.partition("orders", 1).leader == 2
            killer.join()
        cluster.revive(2)
    assert stale == 0


def test_an_unnoticed_death_leaves_the_leader_in_place(cluster: FakeCluster) -> None:
    cluster.kill(2, elect=False)
    answer = _metadata(cluster, "orders")
    assert (len(answer.brokers), answer.topics[0].partitions[1].leader_id) == (3, 2)
    cluster.notice_death(2)
    answer = _metadata(cluster, "orders")
    assert (len(answer.brokers), answer.topics[0].partitions[1].leader_id) == (2, 3)


def test_dropped_connections_can_be_made_again(cluster: FakeCluster) -> None:
    with Wire(cluster.address(1)) as wire:
        wire.ask(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
        cluster.drop_connections(1)
        assert wire.is_closed_by_peer()
    assert _metadata(cluster).brokers


def test_requests_are_recorded_with_their_client_and_content(cluster: FakeCluster) -> None:
    _metadata(cluster, "orders", broker_id=3, version=9, may_create=False)
    (seen,) = cluster.requests(ApiKey.METADATA)
    assert (seen.broker_id, seen.version, seen.correlation_id, seen.client_id) == (3, 9, 1, "test")
    wanted = (MetadataRequestTopic(name="orders"),)
    assert seen.message == MetadataRequest(wanted, allow_auto_topic_creation=False)
    assert not cluster.requests(ApiKey.PRODUCE)
    assert not cluster.requests(broker_id=1)


def test_a_test_can_wait_for_a_request(cluster: FakeCluster) -> None:
    asking = threading.Thread(target=_metadata, args=(cluster,))
    asking.start()
    assert len(cluster.wait_for_requests(ApiKey.METADATA, 1)) == 1
    asking.join()
    with pytest.raises(AssertionError, match="1 of 2 Metadata requests came within 0 s"):
        cluster.wait_for_requests(ApiKey.METADATA, 2, timeout_s=0)


def test_closing_ends_what_is_held_and_silent() -> None:
    cluster = FakeCluster(brokers=1)
    cluster.start()
    hold = cluster.hold_next(ApiKey.METADATA)
    cluster.react_next(ApiKey.METADATA, Silence())
    with Wire(cluster.address(1)) as held, Wire(cluster.address(1)) as silent:
        held.send(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
        hold.wait_until_held()
        silent.send(ApiKey.METADATA, 12, MetadataRequest(()).encode(12))
        cluster.wait_for_requests(ApiKey.METADATA, 2)
        cluster.close()
        cluster.close()
        assert silent.is_closed_by_peer()


# -- another client's opinion --------------------------------------------------------------------------------


def test_another_client_gets_the_configs_of_a_topic_or_is_refused_as_by_a_broker(
    cluster: FakeCluster,
) -> None:
    from confluent_kafka import KafkaError, KafkaException

    cluster.create_topic("strict", config=TopicConfig(min_insync_replicas=2, log_append_time=True))
    admin = KafkaAdmin(cluster.bootstrap_servers)
    assert admin.topic_configs("strict") == {
        "max.message.bytes": "1048588",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "2",
    }
    for name in ("hidden", "secret"):
        cluster.create_topic(name)
    cluster.forbid("hidden")
    cluster.forbid_configs("secret")
    for topic, code in (
        ("absent", KafkaError.UNKNOWN_TOPIC_OR_PART),
        ("hidden", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ("secret", KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ):
        with pytest.raises(KafkaException) as refused:
            admin.topic_configs(topic)
        assert refused.value.args[0].code() == code, topic


@pytest.mark.parametrize(
    ("codec", "idempotent"),
    [("none", False), ("gzip", False), ("gzip", True), ("snappy", True), ("lz4", False), ("zstd", True)],
)
def test_librdkafka_takes_it_for_a_kafka_cluster(cluster: FakeCluster, codec: str, idempotent: bool) -> None:
    from confluent_kafka import Producer

    random = Random(3)
    values = [random.randbytes(random.randrange(1, 200)) for _ in range(300)]
    ends: list[tuple[int | None, int | None, bytes]] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None
        value = message.value()
        assert value is not None
        ends.append((message.partition(), message.offset(), value))

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": idempotent,
            "compression.codec": codec,
            "log_level": 0,
        }
    )
    cluster.fail_next_produces(Errors.NOT_LEADER_OR_FOLLOWER, times=2)
    for value in values:
        producer.produce("orders", value, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert sorted(ends) == [(r.partition, r.offset, r.value) for r in cluster.records("orders")]
    assert sorted(value for *_, value in ends) == sorted(values)


def test_its_history_can_be_forgotten_and_offsets_go_on(cluster: FakeCluster) -> None:
    _metadata(cluster)
    cluster.react_next(ApiKey.METADATA, Disconnect(), times=0)
    produced = _produce(cluster, _request(batch(b"a")))
    cluster.forget_history()
    assert not cluster.requests()
    assert not cluster.records("orders")
    assert _produce(cluster, _request(batch(b"b"))).base_offset == produced.base_offset + 1


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda c: c.kill(9), r"there is no broker 9: there are \[1, 2\]"),
        (lambda c: c.notice_death(9), "no broker 9"),
        (lambda c: c.revive(9), "no broker 9"),
        (lambda c: c.drop_connections(9), "no broker 9"),
        (lambda c: c.address(9), "no broker 9"),
        (lambda c: c.freeze_metadata(9), "no broker 9"),
        (lambda c: c.thaw_metadata(9), "no broker 9"),
        (lambda c: c.set_versions(KAFKA_2_1, broker_id=9), "no broker 9"),
        (lambda c: c.hold_next(ApiKey.PRODUCE, broker_id=9), "no broker 9"),
        (lambda c: c.create_topic("orders"), "there is a topic orders already"),
        (lambda c: c.create_topic("a b"), "'a b' is no name that Kafka accepts"),
        (lambda c: c.create_topic("new", partitions=0), "topic new needs partitions"),
        (lambda c: c.create_topic("new", assignment=[[1], []]), "and replicas of each"),
        (lambda c: c.create_topic("new", assignment=[[9]]), "no broker 9"),
        (lambda c: c.delete_topic("none"), "there is no topic none"),
        (lambda c: c.begin_deletion("none"), "no topic none"),
        (lambda c: c.set_config("none", TopicConfig()), "no topic none"),
        (lambda c: c.add_partitions("none", 2), "no topic none"),
        (lambda c: c.add_partitions("orders", 2), "topic orders has 2 partitions: 2 adds none"),
        (lambda c: c.move_leader("orders", 2, 1), "topic orders has no partition 2: it has 2"),
        (lambda c: c.move_leader("orders", 0, 9), "no broker 9"),
        (lambda c: c.set_isr("orders", -1, [1]), "no partition -1"),
        (lambda c: c.set_isr("orders", 0, [9]), "no broker 9"),
        (lambda c: c.partition("orders", 2), "no partition 2"),
    ],
)
def test_a_call_that_cannot_be_done_is_refused_and_changes_nothing(
    call: Callable[[FakeCluster], object], reason: str
) -> None:
    with FakeCluster(2) as cluster:
        cluster.create_topic("orders", partitions=2)
        before = cluster.topic_id("orders"), [cluster.partition("orders", number) for number in range(2)]
        with pytest.raises(FakeClusterError, match=reason):
            call(cluster)
        assert cluster.topic_names() == ["orders"]
        assert before == (
            cluster.topic_id("orders"),
            [cluster.partition("orders", number) for number in range(2)],
        )


def test_a_topic_is_not_created_before_there_are_brokers_for_it() -> None:
    """Its partitions would have no replicas for good, and no produce would ever end."""
    with pytest.raises(FakeClusterError, match="the cluster does not run"):
        FakeCluster(1).create_topic("orders")
