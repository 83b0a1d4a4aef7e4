"""The fast path of a single record does the same as the full path, or nothing at all."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core.cluster import TopicPartition
from client_core.errors import IllegalArgumentError, KafkaError, SerializationError
from client_core.producer.results.future_record_metadata import FutureRecordMetadata
from client_core.producer.results.producer_record import ProducerRecord
from tests.support.producer_rig import ProducerRig

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITIONS: Final = 4
SMALL: Final = ProducerRecord("orders", b"value")


def rig_of(**settings: Any) -> ProducerRig:
    return ProducerRig(topics={"orders": PARTITIONS}, **{"linger_ms": 1_000, "batch_size": 1024, **settings})


def not_plain(**members: Any) -> ProducerRecord:
    """The small record with members that may be of any type."""
    return SMALL._replace(**members)


def waiting(rig: ProducerRig) -> dict[int, list[tuple[bytes, list[tuple[Any, int]]]]]:
    """Per partition its batches: their bytes, and the owner and place of each record."""
    accumulator = rig.producer._accumulator
    return {
        partition: [
            (batch.records(), [(list(indices), first) for _, indices, first in batch.spans])
            for batch in accumulator.batches_of(TopicPartition("orders", partition))
        ]
        for partition in range(PARTITIONS)
    }


def counts(rig: ProducerRig) -> list[int]:
    """The number of records in each batch."""
    accumulator = rig.producer._accumulator
    return [
        batch.record_count
        for partition in range(PARTITIONS)
        for batch in accumulator.batches_of(TopicPartition("orders", partition))
    ]


def by_partition(rig: ProducerRig) -> list[int]:
    """The number of records in each partition."""
    batches_of = rig.producer._accumulator.batches_of
    batches = [batches_of(TopicPartition("orders", partition)) for partition in range(PARTITIONS)]
    return [sum(batch.record_count for batch in each) for each in batches]


def some_records(seed: int) -> Iterator[tuple[ProducerRecord, int]]:
    """Records of every kind, most of them small ones, and how long after each nothing happens."""
    random = Random(seed)
    for _ in range(1_500):
        value = None if random.random() < 0.02 else random.randbytes(random.choice((0, 5, 60, 130)))
        if random.random() < 0.01:
            value = bytes(2_000)
        yield (
            ProducerRecord(
                "orders",
                value,
                random.choice((None, None, b"", b"k", random.randbytes(8))),
                random.choice((None, None, None, 0, 2)),
                random.choice((None,) * 9 + (7,)),
                random.choice(((),) * 9 + ((("h", b"1"),),)),
            ),
            random.choice((0, 0, 0, 1, 90_000)),
        )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("ignore_keys", [False, True])
def test_it_leaves_the_same_batches_as_the_full_way(seed: int, codec: str, ignore_keys: bool) -> None:
    settings = {"compression_type": codec, "partitioner_ignore_keys": ignore_keys}
    short, full = rig_of(**settings), rig_of(**settings)
    for record, pause_ms in some_records(seed):
        short.producer.send(record)
        full.producer._blocking_calls.send(record, FutureRecordMetadata())
        assert counts(short) == counts(full)
        short.clock.advance(pause_ms)
        full.clock.advance(pause_ms)
    assert waiting(short) == waiting(full)
    assert short.producer.status().buffer == full.producer.status().buffer


def test_all_but_the_first_and_the_last_records_of_a_batch_go_that_way() -> None:
    rig = rig_of()
    went = [rig.producer._quick_append.append(SMALL, FutureRecordMetadata()) for _ in range(3)]
    assert went == [False, False, False]  # there is no batch to append to
    rig.producer.send(SMALL)
    went = [rig.producer._quick_append.append(SMALL, FutureRecordMetadata()) for _ in range(100)]
    assert went.count(True) > 60
    assert went == sorted(went, reverse=True)
    assert counts(rig) == [1 + went.count(True)]


def test_a_partition_that_the_topic_does_not_have_any_more_gets_no_record() -> None:
    rig = rig_of()
    rig.producer.send(SMALL)
    (sticky,) = [place for place, count in zip(range(PARTITIONS), by_partition(rig), strict=True) if count]
    assert sticky, "the first one stays"
    rig.know({"orders": 1})  # deleted, and created again
    rig.producer.send(SMALL)
    assert by_partition(rig)[0] == 1


def test_the_record_is_reported_like_any_other() -> None:
    rig = rig_of()
    rig.producer.send(SMALL)
    future = rig.producer.send(SMALL)
    (batch,) = [
        batch
        for partition in range(PARTITIONS)
        for batch in rig.producer._accumulator.batches_of(TopicPartition("orders", partition))
    ]
    batch.complete(40, None)
    assert future.result(0).offset == 41


@pytest.mark.parametrize(
    "record",
    [
        not_plain(headers=(("h", b""),)),
        not_plain(timestamp_ms=1),
        not_plain(value=None),
        not_plain(value=bytearray(b"v")),
        not_plain(value="text"),
        not_plain(key="text"),
        not_plain(key=bytearray(b"k")),
        not_plain(partition=-1),
        not_plain(partition=PARTITIONS),
        not_plain(partition="0"),
        not_plain(partition=[0]),
        not_plain(value=bytes(1_000)),
        not_plain(value=bytes(2**20)),
        not_plain(topic="unknown"),
    ],
    ids=lambda record: repr(record)[:90],
)
def test_records_that_are_not_plain_take_the_full_path(record: ProducerRecord) -> None:
    rig = rig_of()
    for partition in range(PARTITIONS):
        rig.producer.send(not_plain(partition=partition))
    assert not rig.producer._quick_append.append(record, FutureRecordMetadata())
    assert counts(rig) == [1] * PARTITIONS


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (not_plain(partition=[0]), IllegalArgumentError),
        (not_plain(partition=-1), IllegalArgumentError),
        (not_plain(value="text"), SerializationError),
        (not_plain(key=7), SerializationError),
    ],
)
def test_invalid_arguments_are_refused_as_on_the_full_path(
    record: ProducerRecord, error: type[KafkaError]
) -> None:
    rig = rig_of()
    rig.producer.send(not_plain(partition=0))
    with pytest.raises(error):
        rig.producer.send(record)


def test_records_without_a_key_go_the_full_way_while_a_leader_is_lost() -> None:
    rig = rig_of(partitioner_lost_leader_probe_interval_ms=100)
    rig.producer.send(SMALL)
    lost_leaders, append = rig.producer._accumulator.lost_leaders, rig.producer._quick_append.append
    lost_leaders.lost(0, rig.clock.now_ms())
    assert not append(SMALL, FutureRecordMetadata())
    lost_leaders.found(0)
    assert append(SMALL, FutureRecordMetadata())


def test_a_topic_that_was_deleted_or_lost_partitions_is_looked_at_anew() -> None:
    rig = rig_of()
    record = SMALL._replace(partition=3)
    rig.producer.send(record)
    assert rig.producer._quick_append.append(record, FutureRecordMetadata())
    rig.know({"orders": 2})
    assert not rig.producer._quick_append.append(record, FutureRecordMetadata())
    rig.know({}, errors={"orders": 17})
    assert not rig.producer._quick_append.append(SMALL, FutureRecordMetadata())


def test_nothing_is_appended_once_the_producer_closes() -> None:
    rig = rig_of()
    rig.producer.send(SMALL)
    rig.producer.io_thread.initiate_close()
    assert not rig.producer._quick_append.append(SMALL, FutureRecordMetadata())
    assert counts(rig) == [1]


def test_it_renews_the_topics_idle_expiry() -> None:
    rig = rig_of()
    rig.producer.send(SMALL)
    table = rig.producer.cache.topic("orders")
    assert table is not None
    table.use.touched = False
    assert rig.producer._quick_append.append(SMALL, FutureRecordMetadata())
    assert table.use.touched


def test_it_remembers_no_more_topics_than_the_client_holds() -> None:
    rig = rig_of()
    rig.producer.send(SMALL)
    for number in range(20):
        rig.know({f"topic-{number}": 1})
        rig.metadata.add(f"topic-{number}", rig.clock.now_ms())
        rig.know({f"topic-{number}": 1})
        rig.producer.send(SMALL._replace(topic=f"topic-{number}"))
    assert len(rig.producer._quick_append._known) <= len(rig.producer.cache.topics) + 1
