"""Appends requests to the accumulator: without blocking, or waiting for memory.

`append` is for submitted requests, first on the caller's thread, later on the I/O thread. It never blocks and
returns what the remaining records wait for. `append_blocking` appends one record for `send`, as Java does.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.errors import IllegalArgumentError, KafkaError, ProducerClosedError
from client_core.producer.requests.metadata_wait import Fail, Known, judge_metadata_wait
from client_core.producer.requests.pending_request import PartitionGroup, group_by_partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from client_core.clock import Clock
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.producer.accumulator.buffer_pool import BufferPool
    from client_core.producer.accumulator.record_accumulator import RecordAccumulator
    from client_core.producer.requests.pending_request import PendingRequest
    from client_core.producer.results.batch_outcome import RecordOwner
    from client_core.producer.results.producer_record import ProducerRecord


class Appended(Enum):
    """How far an append went, and what the rest waits for."""

    ALL = "all"
    UP_TO_MISSING_METADATA = "the topic is unknown"
    UP_TO_A_MISSING_PARTITION = "the remaining records are for partitions that the topic does not have"
    UP_TO_FULL_BUFFER = "there is no memory"
    CHUNK = "more can be appended at once, in another turn"


class Appending(NamedTuple):
    """The result of an append.

    `wakes`: a batch was begun or filled, so the I/O thread has work.
    """

    so_far: Appended
    wakes: bool = False
    needed_bytes: int | None = None
    error: KafkaError | None = None


#: Records of a request `in_chunks` that are appended in one turn: about 25 ms. Fewer would leave half-full
#: batches behind, which are sent as they are.
CHUNK_RECORDS: Final = 10_000
#: The limit of their keys' total size, without the last key: hashing that takes 20 ms.
CHUNK_KEY_BYTES: Final = 256 * 1024

_METADATA_IS_MISSING: Final = Appending(Appended.UP_TO_MISSING_METADATA)


def append(
    request: PendingRequest,
    accumulator: RecordAccumulator,
    cache: MetadataCache,
    now_ms: int,
    wall_ms: int,
    *,
    ignore_keys: bool,
    answered: bool,
    was_parked: bool = False,
) -> Appending:
    """Appends the request's next records, never blocking. The caller holds the request, and no lock.

    `wall_ms` is for records without a timestamp: the time after the wait for metadata (PROD-13). An error
    is for all that is not appended. What `was_parked` is appended also while the producer closes.
    """
    judged = judge_metadata_wait(cache, request.topic, None, answered=answered)
    if isinstance(judged, Fail):
        return Appending(Appended.UP_TO_MISSING_METADATA, error=judged.error)
    if not isinstance(judged, Known):
        return _METADATA_IS_MISSING
    if request.ungrouped:
        chunk = _chunk_of(request) if request.in_chunks else request.ungrouped
        request.todo.extend(
            group_by_partition(request.records, chunk, judged.partition_count, ignore_keys=ignore_keys)
        )
        request.ungrouped = request.ungrouped[len(chunk) :]
    try:
        went = _append_groups(
            request, accumulator, cache, judged.partition_count, now_ms, wall_ms, was_parked=was_parked
        )
        if request.ungrouped and went.needed_bytes is None:
            if accumulator.appender.ended:  # no other turn follows; existing partitions have rejected it
                raise ProducerClosedError("Producer closed while send in progress")
            return went._replace(so_far=Appended.CHUNK)
        return went
    except ProducerClosedError as error:
        return Appending(Appended.UP_TO_FULL_BUFFER, error=error)
    except IllegalArgumentError as error:  # batch.size is larger than buffer.memory
        return Appending(Appended.UP_TO_FULL_BUFFER, error=KafkaError(str(error)))


def _chunk_of(request: PendingRequest) -> Sequence[int]:
    """Returns the next ungrouped records to group and append in one turn."""
    key_bytes = 0
    for count, index in enumerate(request.ungrouped[:CHUNK_RECORDS], 1):
        key_bytes += len(request.records[index].key or b"")
        if key_bytes >= CHUNK_KEY_BYTES:
            return request.ungrouped[:count]
    return request.ungrouped[:CHUNK_RECORDS]


def _append_groups(
    request: PendingRequest,
    accumulator: RecordAccumulator,
    cache: MetadataCache,
    partition_count: int,
    now_ms: int,
    wall_ms: int,
    *,
    was_parked: bool,
) -> Appending:
    todo = request.todo
    beyond: list[PartitionGroup] = []
    wakes = False
    needed_bytes: int | None = None
    try:
        while todo and needed_bytes is None:
            partition, indices = todo[0]
            if partition is not None and partition >= partition_count:
                beyond.append(todo.popleft())
                continue
            result = accumulator.append_many(
                request.topic,
                partition,
                request.records,
                indices,
                request,
                cache.cluster,
                now_ms,
                wall_ms,
                reserved_bytes=request.reserved_bytes,
                was_parked=was_parked,
            )
            request.reserved_bytes = result.reserved_left
            wakes = wakes or result.batch_is_full or result.new_batch_created
            needed_bytes = result.needed_bytes
            if result.appended == len(indices):
                todo.popleft()
            else:
                todo[0] = PartitionGroup(partition, indices[result.appended :])
            if result.interrupt is not None:
                raise result.interrupt
    except BaseException:
        todo.extendleft(reversed(beyond))  # the caller fails what is not appended: these, too
        raise
    if needed_bytes is not None:
        todo.extendleft(reversed(beyond))  # before the next chunk's records for the same partitions
        return Appending(Appended.UP_TO_FULL_BUFFER, wakes, needed_bytes)
    if beyond:
        todo.extend(beyond)
        return Appending(Appended.UP_TO_A_MISSING_PARTITION, wakes)
    return Appending(Appended.ALL, wakes)


def append_blocking(
    record: ProducerRecord,
    owner: RecordOwner,
    accumulator: RecordAccumulator,
    pool: BufferPool,
    cache: MetadataCache,
    clock: Clock,
    max_block_ms: int,
    *,
    ignore_keys: bool,
) -> bool:
    """Appends one record of a known topic, waiting for memory; returns whether to wake the I/O thread.

    Raises BufferExhaustedError after max_block_ms, ProducerClosedError when the producer closes.
    """
    (group,) = group_by_partition(
        (record,), (0,), cache.partition_count(record.topic) or 1, ignore_keys=ignore_keys
    )
    reserved_bytes, left_ms = 0, max_block_ms
    try:
        while True:
            # The time after each wait: it is the record's timestamp and the batch's creation (PROD-13).
            now_ms = clock.now_ms()
            result = accumulator.append_many(
                record.topic,
                group.partition,
                (record,),
                group.indices,
                owner,
                cache.cluster,
                now_ms,
                clock.wall_ms(),
                reserved_bytes=reserved_bytes,
            )
            reserved_bytes = result.reserved_left
            if result.interrupt is not None:
                raise result.interrupt
            if result.needed_bytes is None:
                return result.batch_is_full or result.new_batch_created
            unused_bytes, reserved_bytes = reserved_bytes, 0
            if unused_bytes:
                pool.deallocate(unused_bytes)
            pool.allocate(result.needed_bytes, left_ms)
            reserved_bytes = result.needed_bytes
            left_ms = max(left_ms - (clock.now_ms() - now_ms), 0)
    finally:
        if reserved_bytes:
            pool.deallocate(reserved_bytes)
