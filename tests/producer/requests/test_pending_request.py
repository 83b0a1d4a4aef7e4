"""A submitted request: which record goes where, the countdown, and the end that is reported once."""

from __future__ import annotations

import threading
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import KafkaError, TimeoutError
from client_core.producer.accumulator.partitioner import partition_for_key
from client_core.producer.accumulator.producer_batch import ProducerBatch
from client_core.producer.requests.pending_request import PartitionGroup, PendingRequest, group_by_partition
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from client_core.producer.results.ticket import Phase, RecordFailure, Result, Written
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.support.sender_rig import ORDERS_0
from tests.support.waiting import patient

if TYPE_CHECKING:
    from client_core.producer.results.ticket import Done


class Ended:
    """Notes which requests have ended."""

    def __init__(self) -> None:
        self.requests: list[PendingRequest] = []

    def __call__(self, request: PendingRequest, done: Done, then: Done | None) -> None:
        self.requests.append(request)


def ignore(result: Result) -> None:
    """Nobody listens."""


def request_of(count: int, ended: Ended) -> PendingRequest:
    records = [ProducerRecord("orders", b"%d" % index) for index in range(count)]
    return PendingRequest(
        "orders", records, ignore, ended, submitted_ms=100, block_deadline_ms=200, deadline_ms=300
    )


def batch_with(request: PendingRequest, *indices: int) -> ProducerBatch:
    batch = ProducerBatch(ORDERS_0, MemoryRecordsBuilder(10_000), 0)
    batch.append_many(request.records, indices, 0, request, wall_ms=50)
    return batch


def failure(phase: Phase = Phase.METADATA) -> RecordFailure:
    return RecordFailure(KafkaError("no"), phase, Written.NO, 5)


# -- groups --------------------------------------------------------------------------------------------------


def groups(*records: ProducerRecord, partitions: int = 4, ignore_keys: bool = False) -> list[PartitionGroup]:
    return group_by_partition(records, range(len(records)), partitions, ignore_keys=ignore_keys)


def test_records_without_a_key_stay_together() -> None:
    assert groups(ProducerRecord("t"), ProducerRecord("t")) == [PartitionGroup(None, range(2))]


def test_records_with_and_without_a_partition_do_not_overtake_each_other() -> None:
    """Those without one may go to the same partition."""
    of_1, of_2, any_partition = (ProducerRecord("t", partition=p) for p in (1, 2, None))
    assert groups(of_1, of_2, of_1, any_partition, any_partition, of_1, of_2) == [
        PartitionGroup(1, [0, 2]),
        PartitionGroup(2, [1]),
        PartitionGroup(None, [3, 4]),
        PartitionGroup(1, [5]),
        PartitionGroup(2, [6]),
    ]


def test_a_key_chooses_among_all_partitions_as_java_does() -> None:  # ACC-18
    (group,) = groups(ProducerRecord("t", key=b"customer-7"))
    assert group.partition == partition_for_key(b"customer-7", 4)


def test_an_empty_key_is_a_key() -> None:
    (group,) = groups(ProducerRecord("t", key=b""))
    assert group.partition == partition_for_key(b"", 4)


def test_an_explicit_partition_goes_before_the_key_and_may_be_out_of_range() -> None:
    assert groups(ProducerRecord("t", key=b"k", partition=9)) == [PartitionGroup(9, [0])]


def test_keys_can_be_ignored() -> None:
    assert groups(ProducerRecord("t", key=b"k"), ignore_keys=True) == [PartitionGroup(None, [0])]


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=3), st.none() | st.integers(0, 5)), max_size=30),
    st.integers(1, 5),
)
def test_each_record_is_in_one_group_and_the_order_of_a_group_is_the_requests(
    records: list[tuple[bytes | None, int | None]], partitions: int
) -> None:
    made = groups(
        *(ProducerRecord("t", key=key, partition=partition) for key, partition in records),
        partitions=partitions,
    )
    assert sorted(index for group in made for index in group.indices) == list(range(len(records)))
    assert all(list(group.indices) == sorted(group.indices) for group in made)
    for earlier, later in combinations(made, 2):
        if earlier.partition == later.partition or None in {earlier.partition, later.partition}:
            assert max(earlier.indices) < min(later.indices)


# -- the countdown -------------------------------------------------------------------------------------------


def test_it_ends_when_each_record_is_accounted_for() -> None:
    ended = Ended()
    request = request_of(3, ended)
    first, second = batch_with(request, 0, 2), batch_with(request, 1)
    first.complete(10, None)
    assert ended.requests == []
    second.complete(20, None)
    assert ended.requests == [request]
    assert request.is_finished
    assert request.result(130).outcomes == (
        RecordMetadata("orders", 0, 10, 50),
        RecordMetadata("orders", 0, 20, 50),
        RecordMetadata("orders", 0, 11, 50),
    )
    assert request.result(130).waited_ms == 30


def test_outcomes_may_differ_from_record_to_record() -> None:
    ended = Ended()
    request = request_of(2, ended)
    batch_with(request, 0).complete(10, None)
    why = failure()
    request.fail([1], why)
    outcomes = request.result(100).outcomes
    assert isinstance(outcomes[0], RecordMetadata)
    assert outcomes[1] is why


def test_a_failed_batch_reports_whether_it_may_be_written() -> None:
    request = request_of(2, Ended())
    unsent, sent = batch_with(request, 0), batch_with(request, 1)
    sent.drained(5)
    for batch in (unsent, sent):
        batch.complete_exceptionally(KafkaError("no"))
    written = [o.written for o in request.result(120).outcomes if isinstance(o, RecordFailure)]
    assert written == [Written.NO, Written.UNKNOWN]


def test_a_result_is_made_once() -> None:
    request = request_of(1, Ended())
    request.fail([0], failure())
    result = request.result(100)
    assert result.outcomes is result.outcomes
    assert result.error is None


def test_failing_no_records_changes_nothing() -> None:
    ended = Ended()
    request = request_of(1, ended)
    request.fail([], failure())
    assert ended.requests == []


def test_a_split_batch_speaks_for_its_records_in_parts() -> None:
    ended = Ended()
    request = request_of(3, ended)
    parts = batch_with(request, 0, 1, 2).split(1)
    assert len(parts) > 1
    offset = 0
    for part in parts:
        assert ended.requests == []
        part.complete(offset, None)
        offset += part.record_count
    assert [o.offset for o in request.result(0).outcomes if isinstance(o, RecordMetadata)] == [0, 1, 2]


# -- giving up -----------------------------------------------------------------------------------------------


def test_at_its_deadline_what_is_on_its_way_is_unknown_and_what_was_taken_back_is_not_written() -> None:
    ended = Ended()
    request = request_of(4, ended)
    batch_with(request, 0).complete(10, None)
    late = batch_with(request, 3)
    request.give_up(TimeoutError("late"), [1], 200)
    assert ended.requests == [request]
    result = request.result(300)
    outcomes = result.outcomes
    assert isinstance(outcomes[0], RecordMetadata)
    assert [o.written for o in outcomes if isinstance(o, RecordFailure)] == [
        Written.NO,
        Written.UNKNOWN,
        Written.UNKNOWN,
    ]
    late.complete(11, None)  # its delivery went on, and nobody hears of it
    assert ended.requests == [request]
    assert result.outcomes == outcomes
    assert isinstance(request.result(300).outcomes[3], RecordMetadata)


def test_a_request_that_has_ended_can_not_be_given_up() -> None:
    ended = Ended()
    request = request_of(1, ended)
    batch_with(request, 0).complete(10, None)
    request.give_up(TimeoutError("late"), [0], 200)
    assert ended.requests == [request]
    assert isinstance(request.result(0).outcomes[0], RecordMetadata)


def test_a_forgotten_request_reports_to_nobody() -> None:
    ended = Ended()
    request = request_of(1, ended)
    batch = batch_with(request, 0)
    assert request.forget()
    assert not request.forget()
    batch.complete(10, None)
    assert ended.requests == []


def test_what_is_not_appended_is_returned_in_order_and_can_be_dropped() -> None:
    request = request_of(5, Ended())
    request.ungrouped = (4,)
    request.todo.extend([PartitionGroup(1, [2, 3]), PartitionGroup(None, [0])])
    assert request.waits_for_partition == 1
    assert request.drop_not_appended() == [0, 2, 3, 4]
    assert not request.is_parked


def test_it_ends_once_though_many_threads_account_for_its_records() -> None:
    ended = Ended()
    request = request_of(200, ended)
    batches = [batch_with(request, index) for index in range(200)]
    start = threading.Barrier(4)

    def complete(part: list[ProducerBatch]) -> None:
        start.wait(30)
        for batch in part:
            batch.complete(0, None)

    threads = [threading.Thread(target=complete, args=(batches[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patient(30))
    assert ended.requests == [request]
    assert len(request.result(0).outcomes) == 200


def test_the_repr_shows_how_far_it_is() -> None:
    request = request_of(2, Ended())
    assert repr(request) == "<PendingRequest topic=orders records=2 remaining=2 parked=True>"


@pytest.mark.parametrize("count", [1, 3])
def test_a_new_request_has_everything_before_it(count: int) -> None:
    request = request_of(count, Ended())
    assert not request.is_finished
    assert request.not_appended() == list(range(count))


def test_results_tell_what_they_are() -> None:
    request = request_of(2, Ended())
    assert repr(request.result(130)) == "<ProduceResult records=2 waited_ms=30>"
