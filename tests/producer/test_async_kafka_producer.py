"""AsyncKafkaProducer over loopback: waiting, cancelling, and a fair share of the event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from client_core import (
    AsyncKafkaProducer,
    BufferExhaustedError,
    IllegalStateError,
    InvalidTopicError,
    NoBrokersError,
    Phase,
    ProducerClosedError,
    ProducerConfig,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    RecordTooLargeError,
    TimeoutError,
    Written,
)
from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster, Hold
from tests.support.coroutine_tests import PATIENCE_S, run, until
from tests.support.live_producer import QUICK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.behaviour("AIO-01")

#: One batch of batch.size 1 with such a value fits into the memory of SCARCE, and no second one.
_VALUE: Final = b"." * 600
SCARCE: Final = {"batch.size": 1, "buffer.memory": 1_000}
LINGERING: Final = {"linger.ms": 600_000, "delivery.timeout.ms": 1_000_000}


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as running:
        running.create_topic("orders")
        yield running


def _producer(cluster: FakeCluster, **settings: str | int | bool) -> AsyncKafkaProducer:
    given = {**QUICK, "bootstrap.servers": cluster.bootstrap_servers, **settings}
    return AsyncKafkaProducer(
        ProducerConfig.from_mapping({name: str(value).lower() for name, value in given.items()})
    )


def _values(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("orders")]


async def test_a_record_is_acknowledged(cluster: FakeCluster) -> None:
    async with _producer(cluster) as producer:
        receipt = await producer.send_and_wait(ProducerRecord("orders", b"a", timestamp_ms=5))
        assert receipt == RecordMetadata("orders", 0, 0, 5)
        assert (await producer.close()).flushed
    assert _values(cluster) == [b"a"]


async def test_records_of_a_task_are_written_in_order_and_a_flush_ends_their_futures(
    cluster: FakeCluster,
) -> None:
    async with _producer(cluster, **LINGERING) as producer:
        futures = [await producer.send(ProducerRecord("orders", b"%d" % n)) for n in range(2_000)]
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(2_000))
    assert _values(cluster) == [b"%d" % n for n in range(2_000)]


@pytest.mark.parametrize("serializer", [None, bytes])
async def test_records_of_many_tasks_are_written_in_the_order_of_the_tasks(
    cluster: FakeCluster, serializer: Callable[[bytes], bytes] | None
) -> None:
    """Each hundredth send yields: the sends behind it must not overtake it."""
    settings = {**QUICK, "bootstrap.servers": cluster.bootstrap_servers}
    async with AsyncKafkaProducer(
        ProducerConfig.from_mapping(settings), value_serializer=serializer
    ) as producer:
        await producer.partitions_for("orders")
        await asyncio.gather(*(producer.send(ProducerRecord("orders", b"%d" % n)) for n in range(1_000)))
    assert _values(cluster) == [b"%d" % n for n in range(1_000)]


async def test_other_tasks_run_between_sends(cluster: FakeCluster) -> None:
    """A task that only sends would keep the loop for as long as there is memory."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with _producer(cluster, **LINGERING) as producer:
        await producer.partitions_for("orders")
        other = asyncio.create_task(count_turns())
        for _ in range(2_000):
            await producer.send(ProducerRecord("orders", b"."))
        assert turns >= 2_000 // 100 - 1
        other.cancel()


async def test_send_waits_for_memory_while_the_loop_goes_on(cluster: FakeCluster) -> None:
    hold = Hold()
    cluster.react_next(ApiKey.PRODUCE, hold)
    async with _producer(cluster, **SCARCE) as producer:
        first = await producer.send(ProducerRecord("orders", _VALUE + b"1"))
        second = asyncio.create_task(producer.send(ProducerRecord("orders", _VALUE + b"2")))
        await until(lambda: hold.is_held and producer.status().waiting_for_buffer == 1)
        assert not second.done()
        hold.release()
        assert (await first).offset == 0
        assert (await (await second)).offset == 1


async def _until_orders_is_known(producer: AsyncKafkaProducer) -> None:
    """However often max.block.ms is over on a busy machine."""
    while True:
        try:
            await producer.partitions_for("orders")
            return
        except (NoBrokersError, TimeoutError):
            continue


async def test_a_send_that_finds_no_memory_in_time_fails_its_future(cluster: FakeCluster) -> None:
    hold = Hold()
    cluster.react_next(ApiKey.PRODUCE, hold)
    async with _producer(cluster, **SCARCE, **{"max.block.ms": 50}) as producer:
        await _until_orders_is_known(producer)
        first = await producer.send(ProducerRecord("orders", _VALUE))
        second = await producer.send(ProducerRecord("orders", _VALUE))
        with pytest.raises(BufferExhaustedError):
            await second
        hold.release()
        await first
        assert producer.status().buffer.available_bytes == SCARCE["buffer.memory"]


async def test_a_cancelled_send_drops_its_record_and_lets_the_next_one_pass(cluster: FakeCluster) -> None:
    hold = Hold()
    cluster.react_next(ApiKey.PRODUCE, hold)
    async with _producer(cluster, **SCARCE) as producer:
        first = await producer.send(ProducerRecord("orders", _VALUE + b"1"))
        cancelled = asyncio.create_task(producer.send(ProducerRecord("orders", _VALUE + b"2")))
        await until(lambda: hold.is_held and producer.status().waiting_for_buffer == 1)
        last = asyncio.create_task(producer.send_and_wait(ProducerRecord("orders", _VALUE + b"3")))
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        hold.release()
        assert ((await first).offset, (await last).offset) == (0, 1)
    assert _values(cluster) == [_VALUE + b"1", _VALUE + b"3"]


async def test_a_cancelled_future_leaves_its_record_to_be_delivered(cluster: FakeCluster) -> None:
    async with _producer(cluster, **LINGERING) as producer:
        future = await producer.send(ProducerRecord("orders", b"a"))
        waiting = asyncio.create_task(producer.send_and_wait(ProducerRecord("orders", b"b")))
        await until(lambda: producer.status().buffer.records == 2)
        last = await producer.send(ProducerRecord("orders", b"c"))
        future.cancel()
        waiting.cancel()
        await producer.flush()
        assert future.cancelled()
        assert last.result().offset == 2
    assert _values(cluster) == [b"a", b"b", b"c"]


async def test_a_cancelled_future_whose_record_fails_does_not_keep_the_error_from_others(
    cluster: FakeCluster,
) -> None:
    async with _producer(cluster, **LINGERING) as producer:
        futures = [await producer.send(ProducerRecord("orders", b"%d" % n)) for n in range(3)]
        futures[1].cancel()
        await producer.close(0)
        assert isinstance(futures[2].exception(), ProducerClosedError)


async def test_a_wrong_record_raises_or_fails_the_future_as_in_java(
    cluster: FakeCluster,
) -> None:
    async with _producer(cluster) as producer:
        with pytest.raises(InvalidTopicError):
            await (await producer.send(ProducerRecord("no such name")))
    async with _producer(cluster, **{"max.block.ms": 50, "max.request.size": 1_000}) as producer:
        await _until_orders_is_known(producer)
        with pytest.raises(TimeoutError, match="Partition 7 of topic orders"):
            await (await producer.send(ProducerRecord("orders", b"", partition=7)))
        too_large = await producer.send(ProducerRecord("orders", b"." * 1_000))
        with pytest.raises(RecordTooLargeError):
            await too_large
        with pytest.raises(ValueError, match="Invalid partition: -1"):
            await producer.send(ProducerRecord("orders", b"", partition=-1))
        assert (await producer.send_and_wait(ProducerRecord("orders", b"a"))).offset == 0


async def test_a_failed_record_whose_future_is_not_read_gives_no_log_line_of_asyncio(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with _producer(cluster, **{"max.request.size": 1_000}) as producer:
        await producer.send(ProducerRecord("orders", b"." * 1_000))
        gc.collect()
    assert "never retrieved" not in caplog.text


# -- submit --------------------------------------------------------------------------------------------------


async def test_a_submitted_request_has_one_outcome_per_record(cluster: FakeCluster) -> None:
    async with _producer(cluster) as producer:
        result = await producer.submit("orders", [ProducerRecord("orders", b"%d" % n) for n in range(3)])
        assert [outcome.offset for outcome in result.outcomes if isinstance(outcome, RecordMetadata)] == [
            0,
            1,
            2,
        ]


async def test_a_submitted_request_ends_at_its_timeout_with_what_is_known(cluster: FakeCluster) -> None:
    hold = Hold()
    cluster.react_next(ApiKey.PRODUCE, hold)
    async with _producer(cluster, **SCARCE) as producer:
        await producer.partitions_for("orders")
        await until(lambda: producer.status().producer_id is not None)
        on_its_way = asyncio.create_task(
            producer.submit("orders", [ProducerRecord("orders", _VALUE)], timeout_ms=2_000)
        )
        await until(lambda: hold.is_held)
        waits = await producer.submit("orders", [ProducerRecord("orders", _VALUE)], max_block_ms=20)
        (parked,) = waits.outcomes
        assert isinstance(parked, RecordFailure)
        assert (parked.phase, parked.written) == (Phase.BUFFER, Written.NO)
        (sent,) = (await on_its_way).outcomes
        assert isinstance(sent, RecordFailure)
        assert (sent.phase, sent.written) == (Phase.DELIVERY, Written.UNKNOWN)
        hold.release()


async def test_a_cancelled_submit_takes_back_what_was_not_sent(cluster: FakeCluster) -> None:
    hold = Hold()
    cluster.react_next(ApiKey.PRODUCE, hold)
    async with _producer(cluster, **SCARCE) as producer:
        first = await producer.send(ProducerRecord("orders", _VALUE + b"1"))
        cancelled = asyncio.create_task(producer.submit("orders", [ProducerRecord("orders", _VALUE)]))
        await until(lambda: hold.is_held and producer.status().waiting_for_buffer == 1)
        cancelled.cancel()
        await until(cancelled.done)
        hold.release()
        await first
    assert _values(cluster) == [_VALUE + b"1"]


async def test_partitions_for_waits_for_a_topic_and_raises_what_is_wrong_with_it(
    cluster: FakeCluster,
) -> None:
    async with _producer(cluster, **{"max.block.ms": 50}) as producer:
        await _until_orders_is_known(producer)
        with pytest.raises(TimeoutError):
            await producer.partitions_for("missing")
    async with _producer(cluster) as producer:
        assert [partition.partition for partition in await producer.partitions_for("orders")] == [0]
        with pytest.raises(InvalidTopicError):
            await producer.partitions_for("no such name")
        waiting = asyncio.create_task(producer.partitions_for("missing"))
        await until(lambda: producer.status().waiting_for_metadata == 1)
        waiting.cancel()
        await until(lambda: producer.status().waiting_for_metadata == 0)


# -- its loop ------------------------------------------------------------------------------------------------


def test_it_belongs_to_the_loop_that_started_it(cluster: FakeCluster) -> None:
    producer = _producer(cluster)
    record = ProducerRecord("orders", b"a")
    with pytest.raises(IllegalStateError, match="was not started: call start"):
        run(producer.send(record))

    async def begin() -> asyncio.Future[RecordMetadata]:
        producer.start()
        return await producer.send(record)

    run(begin())
    with pytest.raises(IllegalStateError, match="belongs to another event loop"):
        run(producer.send(record))
    assert run(producer.close()).flushed  # its own loop is closed; what it was given arrives all the same
    assert _values(cluster) == [b"a"]


async def test_a_second_start_is_refused_and_the_loop_of_the_first_one_stays(cluster: FakeCluster) -> None:
    hold = cluster.hold_next(ApiKey.PRODUCE)

    async def start_again(producer: AsyncKafkaProducer) -> None:
        producer.start()

    async with _producer(cluster) as producer:
        pending = await producer.send(ProducerRecord("orders", b"a"))
        with pytest.raises(IllegalStateError, match="was started already"):
            await asyncio.to_thread(lambda: asyncio.run(start_again(producer)))
        hold.release()
        assert (await asyncio.wait_for(pending, PATIENCE_S)).offset == 0
        assert (await producer.send_and_wait(ProducerRecord("orders", b"b"))).offset == 1
        await producer.close()
        with pytest.raises(IllegalStateError, match="after producer has been closed"):
            producer.start()


async def test_after_close_every_call_is_refused_and_a_second_close_reports_the_same(
    cluster: FakeCluster,
) -> None:
    async with _producer(cluster) as producer:
        report = await producer.close(20_000)
        assert await producer.close() == report
        with pytest.raises(IllegalStateError, match="after producer has been closed"):
            await producer.send(ProducerRecord("orders", b"a"))
        with pytest.raises(IllegalStateError, match="after producer has been closed"):
            await producer.submit("orders", [ProducerRecord("orders", b"a")])
        with pytest.raises(IllegalStateError, match="after producer has been closed"):
            await producer.partitions_for("orders")


async def test_close_ends_waiting_calls(cluster: FakeCluster) -> None:
    hold = Hold()
    cluster.react_next(ApiKey.PRODUCE, hold)
    async with _producer(cluster, **SCARCE) as producer:
        first = await producer.send(ProducerRecord("orders", _VALUE))
        second = asyncio.create_task(producer.send(ProducerRecord("orders", _VALUE)))
        await until(lambda: hold.is_held and producer.status().waiting_for_buffer == 1)
        report = await producer.close(0)
        assert sum(each.records for each in report.unacknowledged) == 2
        for future in (first, await second):
            with pytest.raises(ProducerClosedError):
                await future
        hold.release()


async def test_flush_and_close_need_no_thread_of_the_loops_executor(cluster: FakeCluster) -> None:
    """It has few: the caller, or flushes that were cancelled, may have taken all of them."""
    loop, is_over = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, is_over.wait)
    try:
        async with asyncio.timeout(PATIENCE_S / 2), _producer(cluster, **LINGERING) as producer:
            future = await producer.send(ProducerRecord("orders", b"a"))
            await producer.flush()
            assert future.done()
            assert (await producer.close()).flushed
    finally:
        is_over.set()
        await busy


async def test_a_flush_also_waits_for_records_that_wait_for_memory(cluster: FakeCluster) -> None:
    hold = Hold()
    cluster.react_next(ApiKey.PRODUCE, hold)
    async with _producer(cluster, **SCARCE) as producer:
        records = [ProducerRecord("orders", b"%d" % n + _VALUE) for n in range(4)]
        waiting = [asyncio.create_task(producer.send(record)) for record in records]
        await until(lambda: hold.is_held and producer.status().waiting_for_buffer)
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        hold.release()
        await flushing
        assert [record.value for record in records] == _values(cluster)
        assert all(future.done() for future in await asyncio.gather(*waiting))


async def test_one_that_is_dropped_sends_what_it_has(cluster: FakeCluster) -> None:
    producer = _producer(cluster, **LINGERING)
    producer.start()
    future = await producer.send(ProducerRecord("orders", b"a"))
    with pytest.warns(ResourceWarning, match="unclosed <KafkaProducer"):  # noqa: PT031
        del producer
        gc.collect()
    assert (await future).offset == 0
