"""The test cluster: brokers that die, come back, move, and keep the records that they acknowledged."""

from __future__ import annotations

import socket
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.support.kafka_admin import ends_of, read_to_the_ends
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import TopicPartition

    from tests.kafka.conftest import NewTopic
    from tests.support.kafka_home import KafkaHome
    from tests.support.kraft import KraftCluster

EOF: Final = KafkaError._PARTITION_EOF

_MAY_CREATE: Final[dict[str, str | int]] = {"allow.auto.create.topics": "true"}


def _write(
    cluster: KraftCluster,
    topic: str,
    values: list[bytes],
    *,
    partition: int = 0,
    config: dict[str, str | int] | None = None,
) -> list[KafkaError | None]:
    """Writes values by librdkafka and returns how each ended."""
    ends: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        ends.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **(config or {})})
    for value in values:
        producer.produce(
            topic,
            value,
            key=b"k",
            partition=partition,
            headers=[("h", b"1"), ("n", None)],
            on_delivery=delivered,
        )
    producer.flush(60)
    return ends


def test_three_brokers_serve_at_the_addresses_they_were_given(kafka: KraftCluster) -> None:
    # Each broker learns of the others in its own time.
    expected = {broker_id: kafka.address(broker_id) for broker_id in (1, 2, 3)}
    wait_until(lambda: kafka.admin.brokers() == expected, what="each broker is known")
    assert kafka.bootstrap_servers.count(",") == 2


def test_records_of_one_client_are_read_back_by_partition_and_offset(
    kafka: KraftCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2, replication_factor=3, min_insync_replicas=2)

    assert _write(kafka, topic, [b"c"], partition=1) == [None]
    assert _write(kafka, topic, [b"a", b"b"], partition=0) == [None, None]

    records = kafka.read_back(topic)
    assert [(r.partition, r.offset, r.value) for r in records] == [(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")]
    assert {r.key for r in records} == {b"k"}
    assert {r.headers for r in records} == {(("h", b"1"), ("n", None))}
    assert {r.timestamp_type for r in records} == {"CreateTime"}
    assert kafka.admin.high_watermarks(topic) == {0: 2, 1: 1}


def test_an_empty_topic_reads_back_as_nothing_and_a_missing_one_is_an_error(
    kafka: KraftCluster, new_topic: NewTopic, topic_name: Callable[[], str]
) -> None:
    assert kafka.read_back(new_topic()) == []
    with pytest.raises(AssertionError, match="can't be read back"):
        kafka.read_back(topic_name())


def test_an_assignment_decides_the_leader(kafka: KraftCluster, new_topic: NewTopic) -> None:
    topic = new_topic(assignment=[[2, 3], [3, 1]])
    seen = kafka.admin.partitions(topic)
    assert seen is not None
    assert [(p.leader, p.replicas, set(p.isr)) for p in seen] == [(2, (2, 3), {2, 3}), (3, (3, 1), {3, 1})]


def test_a_topic_grows_and_goes(kafka: KraftCluster, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=1)
    kafka.admin.add_partitions(topic, total=4)
    assert len(kafka.admin.partitions(topic) or ()) == 4
    kafka.admin.delete_topic(topic)
    assert topic not in kafka.admin.topics()


def test_a_killed_leader_is_replaced_and_comes_back_in_sync(kafka: KraftCluster, new_topic: NewTopic) -> None:
    topic = new_topic(assignment=[[1, 2, 3]], min_insync_replicas=2)
    assert _write(kafka, topic, [b"before"], config={"acks": "all"}) == [None]

    kafka.kill(1)
    assert not kafka.is_running(1)
    assert kafka.admin.wait_for_leader_other_than(topic, 0, 1) in (2, 3)
    assert _write(kafka, topic, [b"while"], config={"acks": "all"}) == [None]

    kafka.restart(1)
    kafka.admin.wait_until_in_sync(topic)
    assert [r.value for r in kafka.read_back(topic)] == [b"before", b"while"]


def test_a_stopped_broker_hands_its_partitions_over_first(kafka: KraftCluster, new_topic: NewTopic) -> None:
    topic = new_topic(assignment=[[3, 2]])
    kafka.stop(3)
    # No session has to run out: the controller knew before the process ended.
    assert kafka.admin.wait_for_leader_other_than(topic, 0, 3, timeout_s=8) == 2
    kafka.wait_until_fenced(3)


def test_when_any_broker_is_killed_the_others_go_on(kafka: KraftCluster, new_topic: NewTopic) -> None:
    topic = new_topic(assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    before = kafka.disturbances
    kafka.kill(1)
    kafka.kill(2)
    assert kafka.disturbances == before + 2
    for partition in range(3):
        kafka.admin.wait_for_leader(topic, partition, 3)


def test_all_brokers_come_back_at_other_addresses_with_their_records(
    kafka: KraftCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=1, replication_factor=3)
    assert _write(kafka, topic, [b"kept"]) == [None]
    before = {broker_id: kafka.address(broker_id) for broker_id in kafka.broker_ids}

    kafka.move_all_brokers()

    after = {broker_id: kafka.address(broker_id) for broker_id in kafka.broker_ids}
    assert not set(before.values()) & set(after.values())
    for address in before.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
    # They know a high watermark of some seconds ago, until their followers have asked: nothing may be missed.
    assert [r.value for r in kafka.read_back(topic)] == [b"kept"]


def test_a_new_leader_that_does_not_know_yet_what_is_committed_is_waited_for() -> None:
    """Two of three records are acknowledged, and its followers have not asked since it was elected."""

    class Reader:
        """A consumer of librdkafka whose leader learns at the third look."""

        def __init__(self) -> None:
            self.looks = 0
            self.said = deque([[at(0)], [at(1, EOF)], [at(1), at(2)], [], [at(3, EOF)]])

        def get_watermark_offsets(self, asked: TopicPartition, *, timeout: float, cached: bool) -> Any:
            assert (asked.topic, asked.partition, cached) == ("t", 0, False)
            self.looks += 1
            if self.looks == 1:
                raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE))
            return None if self.looks == 2 else (0, 3)

        def consume(self, *, num_messages: int, timeout: float) -> list[Message]:
            return self.said.popleft()

    def at(offset: int, error: int | None = None) -> Message:
        said = None if error is None else KafkaError(error)
        return Message(topic="t", partition=0, offset=offset, value=b"%d" % offset, error=said)

    reader: Any = Reader()
    ends = ends_of(reader, "t", [0], timeout_s=60.0)
    assert (ends, reader.looks) == ({0: 3}, 3)
    assert [r.value for r in read_to_the_ends(reader, ends, timeout_s=60.0)] == [b"0", b"1", b"2"]


def test_a_broker_maps_the_classes_that_were_read_once(kafka: KraftCluster, kafka_home: KafkaHome) -> None:
    (option,) = kafka_home.java_options
    archive = option.partition("=")[2]
    if not Path(archive).exists():
        pytest.skip(f"{kafka_home.java} makes no archives of classes")
    assert archive in Path(f"/proc/{kafka.pid(1)}/maps").read_text()


def test_a_paused_broker_accepts_connections_and_says_nothing(kafka: KraftCluster) -> None:
    before = kafka.disturbances
    kafka.pause(2)
    assert kafka.disturbances > before
    try:
        with socket.create_connection(kafka.address(2), timeout=5) as connection:
            # ApiVersions v0, correlation id 1, no client id: any broker answers that at once.
            connection.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
            connection.settimeout(0.5)
            with pytest.raises(TimeoutError):
                connection.recv(4)
            kafka.resume(2)
            connection.settimeout(30)
            assert len(connection.recv(4)) == 4
    finally:
        kafka.resume(2)


def test_without_auto_creation_a_producers_topic_stays_missing(
    kafka: KraftCluster, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    (end,) = _write(
        kafka, topic, [b"x"], config={"allow.auto.create.topics": "true", "message.timeout.ms": 3_000}
    )
    assert end is not None
    assert topic not in kafka.admin.topics()


def test_with_auto_creation_a_producers_topic_appears(
    auto_creating_kafka: KraftCluster, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    assert _write(auto_creating_kafka, topic, [b"x"], config=_MAY_CREATE) == [None]
    assert len(auto_creating_kafka.admin.partitions(topic) or ()) == 3
    assert [r.value for r in auto_creating_kafka.read_back(topic)] == [b"x"]


def test_logs_of_every_process_are_at_hand(kafka: KraftCluster) -> None:
    logs = kafka.logs()
    assert set(logs) == {"broker 1", "broker 2", "broker 3", "controller"}
    assert all(text.strip() and "it never started" not in text for text in logs.values())
