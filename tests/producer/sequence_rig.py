"""Shared by the tests of Sender's sequences: an idempotent rig, its answers, and the state of a partition.

Our producer sends the first batch of a partition alone. So where Java has two batches in flight from the
start, ours first has one acknowledged: `acknowledged_rig`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from client_core.backoff import ExponentialBackoff
from client_core.error_codes import Errors
from client_core.producer.accumulator.producer_batch import ProducerBatch, ProducerIdAndEpoch
from client_core.producer.results.producer_record import ProducerRecord
from client_core.producer.sender.transaction_manager import TransactionManager
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.support.sender_rig import ORDERS_0, SenderRig, produced

if TYPE_CHECKING:
    from client_core.cluster import TopicPartition
    from client_core.producer.results.future_record_metadata import FutureRecordMetadata

LAST_EPOCH: Final = 2**15 - 1


def new_rig(*, retries: int = 2**31 - 1, guarantee_message_order: bool = False, epoch: int = 0) -> SenderRig:
    """An idempotent producer that retries without a backoff."""
    return SenderRig(
        idempotent=True,
        retry_backoff_ms=0,
        retries=retries,
        guarantee_message_order=guarantee_message_order,
        producer_epoch=epoch,
    )


def acknowledged_rig() -> SenderRig:
    """One whose partition 0 has sequence 0 already."""
    rig = new_rig()
    send_and_acknowledge(rig, offset=0)
    return rig


def send_and_acknowledge(rig: SenderRig, topic_partition: TopicPartition = ORDERS_0, *, offset: int) -> None:
    future = rig.send(topic_partition.partition)
    answer(rig, None, topic_partition, offset=offset)
    assert future.result(0).offset == offset


def answer(
    rig: SenderRig,
    sequence: int | None,
    topic_partition: TopicPartition = ORDERS_0,
    *,
    error: Errors = Errors.NONE,
    offset: int = -1,
    log_start: int = -1,
    epoch: int | None = None,
) -> None:
    """Answers the oldest request, which must have that sequence, and lets the sender read the answer."""
    sent_epoch, sent_sequence = rig.sent_sequence(0)
    assert sequence in (None, sent_sequence)
    assert epoch in (None, sent_epoch)
    rig.answer(produced(topic_partition, error=error, offset=offset, log_start_offset=log_start))


def state_of(
    rig: SenderRig, topic_partition: TopicPartition = ORDERS_0
) -> tuple[int | None, int, int | None]:
    """The partition's epoch, its next sequence, and the last one acknowledged."""
    entry = rig.idempotence._partitions[topic_partition]
    return (
        None if entry.producer is None else entry.producer.epoch,
        entry.next_sequence,
        entry.last_acked_sequence,
    )


def epoch_of(rig: SenderRig) -> int:
    producer = rig.idempotence.producer_id_and_epoch
    assert producer is not None
    return producer.epoch


def in_flight(rig: SenderRig) -> int:
    return rig.client.in_flight_request_count()


def queued(rig: SenderRig) -> list[int | None]:
    """The sequences of what waits for partition 0."""
    return [batch.base_sequence for batch in rig.accumulator.batches_of(ORDERS_0)]


def send(rig: SenderRig, *, records: int = 1, partition: int = 0) -> FutureRecordMetadata:
    future = rig.send(partition, count=records)
    return future


# -- TransactionManager alone --------------------------------------------------------------------------------

PRODUCER: Final = ProducerIdAndEpoch(77, 0)


def manager(*, ready: bool = True, epoch: int = 0, restarts: bool = False) -> TransactionManager:
    made = TransactionManager(ExponentialBackoff(100, 100, Random(1)), restarts=restarts)
    if ready:
        made.init_sent()
        made.init_succeeded(PRODUCER._replace(epoch=epoch))
    return made


def next_sequence(of: TransactionManager, topic_partition: TopicPartition = ORDERS_0) -> int:
    """The sequence of the next record drained to the partition. This and the next two: for all tests."""
    return of._partitions[topic_partition].next_sequence


def first_in_flight_sequence(
    of: TransactionManager, topic_partition: TopicPartition = ORDERS_0
) -> int | None:
    """The lowest unfinished sequence, which a retry must wait for (IDM-03); None without one."""
    in_flight = of._partitions[topic_partition].in_flight
    return in_flight[0].base_sequence if in_flight else None


def is_unresolved(of: TransactionManager, topic_partition: TopicPartition = ORDERS_0) -> bool:
    """Whether a batch was given up after it was sent, so that it may or may not be in the log (IDM-05)."""
    return topic_partition in of._unresolved


def drain(
    to: TransactionManager, *, records: int = 1, topic_partition: TopicPartition = ORDERS_0
) -> ProducerBatch:
    """A batch with its sequence, as the accumulator's drain gives it."""
    builder = MemoryRecordsBuilder(10_000)
    builder.append_many([ProducerRecord("t", b"v")] * records, range(records), 0, 0)
    batch = ProducerBatch(topic_partition, builder, 0)
    to.assign_sequence(batch)
    return batch


def sequence_of(batch: ProducerBatch) -> tuple[int | None, int | None]:
    return batch.producer_epoch, batch.base_sequence
