"""Other consumers read what we produce, in every codec: librdkafka, aiokafka, and Java's console consumer.

Each codec has a topic of its own with one partition. Producers of three levels write the same records to it:
the default level and the two extremes. Records are compared field by field with the sent ones. The codec is
read from the leader's log: brokers store batches as they came (compression.type=producer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from client_core.record.compression import Codec
from client_core.record.record_batch import LOG_OVERHEAD, decode_record_batch
from tests.support.consumed_records import as_read, assert_same, records_of_all_kinds
from tests.support.live_producer import PATIENCE_MS, Outcome, live_producer
from tests.support.other_consumers import read_by_aiokafka, read_by_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from client_core import ProducerRecord
    from tests.kafka.conftest import NewTopic
    from tests.support.kafka_admin import ReadRecord
    from tests.support.kafka_home import KafkaHome
    from tests.support.kraft import KraftCluster

#: What the producers of a codec's topic are set to, one after the other.
_WRITERS: Final[Mapping[str, Sequence[Mapping[str, int]]]] = {
    "none": ({},),
    "gzip": ({}, {"compression.gzip.level": 1}, {"compression.gzip.level": 9}),
    "snappy": ({},),
    "lz4": ({}, {"compression.lz4.level": 1}, {"compression.lz4.level": 17}),
    "zstd": ({}, {"compression.zstd.level": -131_072}, {"compression.zstd.level": 22}),
}


@pytest.fixture(scope="module", params=list(_WRITERS))
def codec(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class _Written:
    """The topics of this module and what was sent to them: each is written once, for all consumers."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[str, list[ReadRecord]]] = {}

    def topic(self, codec: str, kafka: KraftCluster, new_topic: NewTopic) -> tuple[str, list[ReadRecord]]:
        """The topic of a codec, and what every consumer should read of it."""
        if codec not in self._topics:
            topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
            sent = [record for writer in _WRITERS[codec] for record in _write(kafka, topic, codec, writer)]
            self._topics[codec] = topic, as_read(sent)
        return self._topics[codec]


@pytest.fixture(scope="module")
def _topics() -> _Written:
    return _Written()


@pytest.fixture
def written(
    codec: str, _topics: _Written, kafka: KraftCluster, new_topic: NewTopic
) -> tuple[str, list[ReadRecord]]:
    """A codec's topic, and what every consumer should read of it."""
    return _topics.topic(codec, kafka, new_topic)


def _write(
    kafka: KraftCluster, topic: str, codec: str, settings: Mapping[str, int]
) -> Sequence[ProducerRecord]:
    records = records_of_all_kinds(topic)
    # Batches of several blocks; linger, so that a batch is full before it goes.
    batches: dict[str, str | int] = {"compression.type": codec, "batch.size": 150_000, "linger.ms": 20}
    with live_producer(kafka.bootstrap_servers, {**batches, **settings}) as producer:
        reported = Outcome()
        now_ms = producer.clock.now_ms()
        producer.submit(
            topic,
            records,
            block_deadline_ms=now_ms + PATIENCE_MS,
            deadline_ms=now_ms + PATIENCE_MS,
            done=reported,
        )
        assert len(reported.offsets()) == len(records)
    return records


def test_librdkafka_reads_what_was_sent(kafka: KraftCluster, written: tuple[str, list[ReadRecord]]) -> None:
    topic, sent = written
    assert_same(kafka.read_back(topic), sent)


def test_aiokafka_reads_what_was_sent(kafka: KraftCluster, written: tuple[str, list[ReadRecord]]) -> None:
    topic, sent = written
    assert_same(read_by_aiokafka(kafka.bootstrap_servers, topic, count=len(sent)), sent)


def test_java_reads_what_was_sent(
    kafka: KraftCluster, kafka_home: KafkaHome, written: tuple[str, list[ReadRecord]], tmp_path: Path
) -> None:
    topic, sent = written
    home = kafka_home
    read = read_by_java(
        home.java, home.jars, kafka.bootstrap_servers, topic, count=len(sent), temporary=tmp_path
    )
    assert_same(read, sent)


def test_the_brokers_log_holds_batches_of_this_codec(
    kafka: KraftCluster, codec: str, written: tuple[str, list[ReadRecord]]
) -> None:
    topic, sent = written
    leader = kafka.admin.leader(topic, 0)
    assert leader is not None
    batches = list(_batches(kafka.log_segment(leader, topic, 0)))
    assert {batch_codec for batch_codec, _ in batches} == {Codec.named(codec)}
    assert sum(records for _, records in batches) == len(sent)


def _batches(segment: bytes) -> Iterator[tuple[Codec, int]]:
    """The codec and the number of records of each batch of a log segment."""
    offset = 0
    while offset < len(segment):
        batch = decode_record_batch(segment, offset)
        yield batch.codec, batch.record_count
        offset += LOG_OVERHEAD + int.from_bytes(segment[offset + 8 : offset + LOG_OVERHEAD], "big")
