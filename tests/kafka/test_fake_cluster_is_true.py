"""The fake cluster answers as a real 4.3.1 broker does: the same bytes to both, their answers compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

import pytest
from confluent_kafka import KafkaException

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.api_versions_request import ApiVersionsRequest
from client_core.protocol.messages.init_producer_id_request import InitProducerIdRequest
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from client_core.protocol.messages.metadata_response import MetadataResponse
from client_core.protocol.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from client_core.protocol.messages.produce_response import ProduceResponse
from client_core.protocol.primitives import ZERO_UUID
from client_core.testing import FakeCluster, TopicConfig
from tests.support.waiting import wait_until
from tests.support.wire import Wire, ask
from tests.support_tests.batches import batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster


class Place(NamedTuple):
    """A topic with one partition that broker 1 leads and broker 2 follows, in one of the two clusters."""

    cluster: FakeCluster | KraftCluster
    topic: str

    def metadata(
        self, *topics: MetadataRequestTopic, broker_id: int = 1, version: int = 12
    ) -> MetadataResponse:
        request = MetadataRequest(topics, allow_auto_topic_creation=version < 4)
        body = ask(self.cluster.address(broker_id), ApiKey.METADATA, version, request.encode(version))
        return MetadataResponse.decode(body, version)

    def topic_id(self) -> UUID:
        return self.metadata(MetadataRequestTopic(name=self.topic)).topics[0].topic_id


class Produce(NamedTuple):
    """A produce request for the place's partition, unless it says otherwise."""

    data: bytes | None
    version: int = 12
    topic: str | None = None
    topic_id: UUID | None = None
    partition: int = 0
    acks: int = -1
    broker_id: int = 1

    def to(self, place: Place) -> ProduceResponse:
        topic_id = self.topic_id
        if topic_id is None:
            topic_id = place.topic_id() if self.version >= 13 else ZERO_UUID
        data = TopicProduceData(
            self.topic or place.topic, topic_id, (PartitionProduceData(self.partition, self.data),)
        )
        request = ProduceRequest(None, self.acks, 10_000, (data,)).encode(self.version)
        body = ask(place.cluster.address(self.broker_id), ApiKey.PRODUCE, self.version, request)
        return ProduceResponse.decode(body, self.version)


def led(kafka: KraftCluster, topic: str) -> Place:
    """A new topic; waits until its leader, which may be the last to learn of it, knows that it leads."""

    def is_known() -> bool:
        try:
            return bool(kafka.admin.high_watermarks(topic))
        except KafkaException:
            return False

    wait_until(is_known, what=f"the leader of {topic} leads it")
    return Place(kafka, topic)


@pytest.fixture
def real(kafka: KraftCluster, new_topic: NewTopic) -> Place:
    place = led(kafka, new_topic(assignment=[[1, 2]]))
    wanted = MetadataRequestTopic(name=place.topic)
    for broker_id in (1, 2):
        wait_until(
            lambda b=broker_id: bool(place.metadata(wanted, broker_id=b).topics[0].partitions),  # type: ignore[misc]
            what=f"broker {broker_id} knows {place.topic}",
        )
    return place


@pytest.fixture
def fake() -> Iterator[Place]:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic("topic", assignment=[[1, 2]])
        yield Place(cluster, "topic")


def _outcome(response: ProduceResponse) -> tuple[int, int, bool, int, int, tuple[int, ...]]:
    """The parts that a client uses: code, offset, whether there is an append time, log start, new leader."""
    answer = response.responses[0].partition_responses[0]
    return (
        answer.error_code,
        answer.base_offset,
        answer.log_append_time_ms == -1,
        answer.log_start_offset,
        answer.current_leader.leader_id,
        tuple(endpoint.node_id for endpoint in response.node_endpoints),
    )


_DAMAGED: Final = batch(b"value")[:-1] + b"\x01"

_SINGLE: Final = {
    **{f"taken in version {version}": Produce(batch(b"a", b"b"), version) for version in range(3, 14)},
    "acks=1": Produce(batch(b"a"), acks=1),
    "a timestamp of -1": Produce(batch(b"a", timestamp_ms=-1)),
    "a timestamp of 2001": Produce(batch(b"a", timestamp_ms=1_000_000_000_000)),
    "a timestamp far ahead": Produce(batch(b"a", timestamp_ms=9_000_000_000_000)),
    "an unknown topic": Produce(batch(b"a"), topic="nowhere"),
    "an unknown topic id": Produce(batch(b"a"), 13, topic_id=UUID(int=77)),
    "no topic id": Produce(batch(b"a"), 13, topic_id=ZERO_UUID),
    "an unknown partition": Produce(batch(b"a"), partition=99),
    "acks=2": Produce(batch(b"a"), acks=2),
    "empty records": Produce(b""),
    "a batch above max.message.bytes": Produce(batch(bytes(1_100_000))),
    "two batches": Produce(batch(b"a") + batch(b"b")),
    "a damaged batch": Produce(_DAMAGED),
    "a damaged batch in an old version": Produce(_DAMAGED, 3),
    "not the leader": Produce(batch(b"a"), broker_id=2),
    "not the leader, in an old version": Produce(batch(b"a"), 9, broker_id=2),
    "not even a replica": Produce(batch(b"a"), broker_id=3),
    "zstd in a version before it": Produce(batch(b"a", attributes=4), 6),
    "an unknown producer in the middle": Produce(batch(b"a", producer=(4_000, 0, 5))),
}


def test_produces_end_alike(real: Place, fake: Place) -> None:
    """One after the other into the same partition, so each finds what those before it left there."""
    assert {case: _outcome(request.to(fake)) for case, request in _SINGLE.items()} == {
        case: _outcome(request.to(real)) for case, request in _SINGLE.items()
    }


def test_too_few_replicas_in_sync_end_alike(kafka: KraftCluster, new_topic: NewTopic, fake: Place) -> None:
    assert isinstance(fake.cluster, FakeCluster)
    real = Place(kafka, new_topic(assignment=[[1, 2]], min_insync_replicas=2))
    fake.cluster.create_topic("strict", assignment=[[1, 2]], config=TopicConfig(min_insync_replicas=2))
    fakes = Place(fake.cluster, "strict")
    kafka.stop(2)
    fake.cluster.kill(2)
    wait_until(lambda: _outcome(Produce(batch(b"a")).to(real))[0] == 19, what="broker 2 is out of the ISR")
    # Without the offsets: while waiting, the real broker may have taken some.
    for acks in (-1, 1):
        assert (
            _outcome(Produce(batch(b"a"), acks=acks).to(fakes))[::2]
            == (_outcome(Produce(batch(b"a"), acks=acks).to(real))[::2])
        )


def test_more_replicas_than_there_are_can_not_be_asked_for(
    kafka: KraftCluster, new_topic: NewTopic, fake: Place
) -> None:
    assert isinstance(fake.cluster, FakeCluster)
    real = led(kafka, new_topic(assignment=[[1, 2]], min_insync_replicas=3))
    fake.cluster.create_topic("strict", assignment=[[1, 2]], config=TopicConfig(min_insync_replicas=3))
    request = Produce(batch(b"a"))
    assert _outcome(request.to(Place(fake.cluster, "strict"))) == _outcome(request.to(real))


def _with(*, base: int, epoch: int = 0, values: tuple[bytes, ...] = (b"a",)) -> Produce:
    return Produce(batch(*values, producer=(4_000, epoch, base)))


_SEQUENCES: Final = {
    "a duplicate": [_with(base=0), _with(base=1), _with(base=0), _with(base=1), _with(base=2)],
    "a duplicate older than five": [*(_with(base=base) for base in range(6)), _with(base=0), _with(base=1)],
    "a gap": [_with(base=0), _with(base=2), _with(base=1)],
    "a new epoch": [_with(base=0), _with(base=1, epoch=1), _with(base=0, epoch=1), _with(base=1, epoch=1)],
    "a stale epoch": [_with(base=0, epoch=1), _with(base=1, epoch=0), _with(base=0, epoch=0)],
    "a batch that overlaps": [_with(base=0, values=(b"a", b"b")), _with(base=1, values=(b"b", b"c"))],
    "the largest sequence": [_with(base=(1 << 31) - 2, values=(b"a", b"b", b"c")), _with(base=1)],
}


def test_idempotent_sequences_end_alike(kafka: KraftCluster, new_topic: NewTopic, fake: Place) -> None:
    """Each in a partition of its own, so that no producer depends on another's records."""
    count = len(_SEQUENCES)
    reals = led(kafka, new_topic(assignment=[[1, 2]] * count))
    assert isinstance(fake.cluster, FakeCluster)
    fake.cluster.create_topic("sequences", assignment=[[1, 2]] * count)
    fakes = Place(fake.cluster, "sequences")

    def ends(place: Place) -> dict[str, list[object]]:
        return {
            name: [_outcome(request._replace(partition=partition).to(place)) for request in requests]
            for partition, (name, requests) in enumerate(_SEQUENCES.items())
        }

    assert ends(fakes) == ends(reals)


def test_topics_are_described_alike(real: Place, fake: Place) -> None:
    def described(place: Place, version: int, name: str | None) -> object:
        answer = place.metadata(
            MetadataRequestTopic(name=place.topic if name is None else name), version=version
        )
        topic = answer.topics[0]
        partitions = [partition._replace(leader_epoch=0) for partition in topic.partitions]
        return topic.error_code, topic.is_internal, partitions, len(answer.brokers), answer.error_code

    cases = [
        (version, name) for version in range(1, 14) for name in (None, "nowhere", "bad topic!", "..", "")
    ]
    assert {case: described(fake, *case) for case in cases} == {
        case: described(real, *case) for case in cases
    }


def test_topics_are_found_alike_by_id(real: Place, fake: Place) -> None:
    for topic_id, expected in ((None, 0), (UUID(int=77), 100)):
        answers = [
            place.metadata(MetadataRequestTopic(topic_id or place.topic_id(), None)).topics[0]
            for place in (fake, real)
        ]
        assert [answer.error_code for answer in answers] == [expected, expected]
        assert [answer.name == place.topic for answer, place in zip(answers, (fake, real), strict=True)] == [
            topic_id is None
        ] * 2


def test_api_versions_too_high_are_answered_alike(kafka: KraftCluster, fake: Place) -> None:
    body = ApiVersionsRequest("pilotfish", "1").encode(4)
    for version in (5, 9, 100):
        for cluster in (fake.cluster, kafka):
            answer = ask(cluster.address(1), ApiKey.API_VERSIONS, version, body)
            assert answer == bytes.fromhex("0023 00000001 0012 0000 0004"), version


def test_versions_that_are_not_spoken_end_the_connection_alike(kafka: KraftCluster, fake: Place) -> None:
    for api, version in (
        (ApiKey.METADATA, 14),
        (ApiKey.PRODUCE, 2),
        (ApiKey.PRODUCE, 14),
        (ApiKey.INIT_PRODUCER_ID, 6),
    ):
        for cluster in (fake.cluster, kafka):
            with Wire(cluster.address(1)) as wire:
                wire.send(api, version, bytes(64))
                assert wire.is_closed_by_peer(), (api, version)


def test_acks_zero_is_answered_by_neither_and_its_failure_ends_the_connection(
    real: Place, fake: Place
) -> None:
    for place in (fake, real):
        with Wire(place.cluster.address(2)) as wire:
            data = (PartitionProduceData(0, batch(b"a")),)
            request = ProduceRequest(None, 0, 10_000, (TopicProduceData(place.topic, ZERO_UUID, data),))
            wire.send(ApiKey.PRODUCE, 9, request.encode(9))  # broker 2 does not lead
            assert wire.is_closed_by_peer()


def test_producer_ids_are_given_alike(kafka: KraftCluster, fake: Place) -> None:
    def given(cluster: FakeCluster | KraftCluster, version: int) -> InitProducerIdResponse:
        request = InitProducerIdRequest(None, 60_000).encode(version)
        body = ask(cluster.address(1), ApiKey.INIT_PRODUCER_ID, version, request)
        return InitProducerIdResponse.decode(body, version)

    wait_until(lambda: given(kafka, 0).error_code == 0, what="the real broker has producer ids")
    for version in range(6):
        fakes, reals = given(fake.cluster, version), given(kafka, version)
        assert fakes.producer_id >= 0, version
        assert reals.producer_id >= 0, version
        assert fakes._replace(producer_id=0) == reals._replace(producer_id=0), version


def test_a_missing_topic_is_made_alike(
    auto_creating_kafka: KraftCluster, topic_name: Callable[[], str]
) -> None:
    name = topic_name()
    wanted = MetadataRequest((MetadataRequestTopic(name=name),))
    with FakeCluster(brokers=1, auto_create=True, auto_create_partitions=3) as fake:
        for cluster in (fake, auto_creating_kafka):
            codes: list[int] = []

            def made(cluster: FakeCluster | KraftCluster = cluster, codes: list[int] = codes) -> bool:
                body = ask(cluster.address(1), ApiKey.METADATA, 12, wanted.encode(12))
                (topic,) = MetadataResponse.decode(body, 12).topics
                codes.append(topic.error_code)
                return len(topic.partitions) == 3

            wait_until(made, what=f"{name} is made")
            assert set(codes[:-1]) == {3}
            assert codes[-1] == 0
