"""Cancelling an await of AsyncKafkaProducer at any moment never reorders or loses what was sent (AIO-01).

`World` is a producer that is turned by hand, brokers (model_brokers.py) and callers, all on one event loop.
Each caller makes one call after the other, and cancels some of them after some steps of the world. A seed is
one run: what the callers call and cancel, what brokers do, when time passes. Awaits that no model reaches
have tests of their own: close waits in a thread, and every hundredth send yields.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core import (
    AsyncKafkaProducer,
    ProducerClosedError,
    ProducerConfig,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
)
from client_core.async_kafka_producer import LoopCompletions, _Resolved
from client_core.cluster import TopicPartition
from client_core.errors import KafkaError
from client_core.producer.results.ticket import RecordFailure, Written
from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster, Hold
from tests.support.coroutine_tests import run, until
from tests.support.live_producer import QUICK
from tests.support.model_brokers import NODES, TOPIC, ModelBrokers
from tests.support.producer_rig import ProducerRig

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from client_core.producer.results.results import ProduceResult

pytestmark = pytest.mark.behaviour("AIO-01")

PARTITIONS: Final = 2
_MOST_STEPS: Final = 5_000


class _Turned(AsyncKafkaProducer[bytes | None, bytes | None]):
    """One whose KafkaProducer is a rig's."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092"}))
        self._producer.close(0)
        self._completions = LoopCompletions()
        self.rig = ProducerRig(
            completions=self._completions, wake_soon=self._completions.wake_soon, **settings
        )
        self._producer = self.rig.producer
        self._resolved = _Resolved(self._producer.post_at_end_of_turn)

    def start(self) -> None:
        """Its turns are those of the loop."""
        self._loop = asyncio.get_running_loop()
        self._completions.bind(self._loop)


class World:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random = Random(f"cancellation {seed}")
        self.producer = _Turned(
            enable_idempotence=True,
            batch_size=random.choice((1, 150, 400)),
            buffer_memory=random.choice((900, 900, 3_000)),
            linger_ms=random.choice((0, 3)),
            delivery_timeout_ms=1_000_000,
            request_timeout_ms=60,
            retry_backoff_ms=5,
            retry_backoff_max_ms=5,
            max_in_flight_requests_per_connection=random.choice((1, 5)),
        )
        self.rig = self.producer.rig
        self.brokers = ModelBrokers(self.rig.client, self.rig.clock, partitions=PARTITIONS)
        self.rig.client.update_metadata(self.brokers.metadata(0), 13)
        self.known = 0
        #: What became of each record, by caller and number: what the brokers have to have, or may have.
        self.sent: dict[tuple[int, int], asyncio.Future[RecordMetadata]] = {}
        self.outcomes: dict[tuple[int, int], RecordMetadata | RecordFailure] = {}
        self.doubtful: set[tuple[int, int]] = set()
        self._next: Counter[int] = Counter()
        #: What a call was waiting for when it was cancelled.
        self.cancelled: Counter[str] = Counter()

    # -- callers ---------------------------------------------------------------------------------------------

    async def call(self, caller: int, random: Random) -> None:
        for _ in range(random.randrange(4, 12)):
            await random.choice((self._send, self._send, self._send_and_wait, self._submit, self._look_up))(
                caller, random
            )

    def _record(self, caller: int, random: Random) -> tuple[tuple[int, int], ProducerRecord]:
        name = caller, self._next[caller]
        self._next[caller] += 1
        size = random.choices((0, 20, 120, 420), (9, 9, 3, 1))[0]
        partition = random.choice((None, 0, 1))
        return name, ProducerRecord(TOPIC, b"%d:%05d:" % name + bytes(size), partition=partition)

    async def _or_cancelled(
        self, what: str, call: Coroutine[Any, Any, Any], random: Random
    ) -> asyncio.Task[Any]:
        """Waits for the call, or cancels it after some turns of the loop; it has ended then."""
        task = asyncio.create_task(call)
        turns = random.choice((None, None, 0, 1, 2, 5, 20, 80))
        while not task.done() and turns != 0:
            await asyncio.sleep(0)
            turns = None if turns is None else turns - 1
        if not task.done():
            status = self.producer.status()
            waits_for = "memory" if status.waiting_for_buffer else "acknowledgement"
            self.cancelled[f"{what}, {'metadata' if status.waiting_for_metadata else waits_for}"] += 1
            task.cancel()
            await asyncio.wait((task,))
        return task

    async def _send(self, caller: int, random: Random) -> None:
        name, record = self._record(caller, random)
        task = await self._or_cancelled("send", self.producer.send(record), random)
        if task.cancelled():
            self.doubtful.add(name)
            return
        self.sent[name] = future = task.result()
        if random.random() < 0.1:
            future.cancel()

    async def _send_and_wait(self, caller: int, random: Random) -> None:
        name, record = self._record(caller, random)
        task = await self._or_cancelled("send_and_wait", self.producer.send_and_wait(record), random)
        if task.cancelled():
            self.doubtful.add(name)
        else:
            self.outcomes[name] = task.result()

    async def _submit(self, caller: int, random: Random) -> None:
        made = [self._record(caller, random) for _ in range(random.randrange(1, 4))]
        call = self.producer.submit(TOPIC, [record for _, record in made])
        task = await self._or_cancelled("submit", call, random)
        if task.cancelled():
            self.doubtful.update(name for name, _ in made)
            return
        result: ProduceResult = task.result()
        self.outcomes.update(
            {name: outcome for (name, _), outcome in zip(made, result.outcomes, strict=True)}
        )

    async def _look_up(self, caller: int, random: Random) -> None:
        await self._or_cancelled("partitions_for", self.producer.partitions_for(TOPIC), random)

    # -- the world -------------------------------------------------------------------------------------------

    def step(self, *, is_well: bool) -> None:
        random, brokers, client = self.random, self.brokers, self.rig.client
        node = random.choice(NODES)
        if is_well or random.random() < 0.1:
            self.known = PARTITIONS
        if not client.has_pending_metadata_updates:
            client.prepare_metadata_update(brokers.metadata(self.known), 13)
        self.rig.turn()
        brokers.look(applied_when_lost=random.random() < 0.5)
        if is_well:
            for one in NODES:
                brokers.apply(one)
                brokers.answer(one)
        elif random.random() < 0.4:
            brokers.apply(node)
        elif random.random() < 0.4:
            brokers.answer(node)
        elif random.random() < 0.1:
            brokers.disconnect(node, applied=random.random() < 0.5)
        elif random.random() < 0.1:
            brokers.move_leader(random.randrange(PARTITIONS))
        self.rig.clock.advance(random.choice((0, 0, 1, 5)))

    async def live(self) -> None:
        self.producer.start()
        callers = [
            asyncio.create_task(self.call(caller, Random(self.random.random()))) for caller in range(3)
        ]
        for step in range(_MOST_STEPS):
            self.step(is_well=step > 60)
            await asyncio.sleep(0)
            if all(task.done() for task in callers) and self._is_settled():
                break
        else:
            raise AssertionError(f"seed {self.seed}: not over: {callers} {self.producer.status()}")
        for task in callers:
            task.result()
        for _ in range(3):  # what is posted comes in the loop's next turn
            self.step(is_well=True)
            await asyncio.sleep(0)
        self.check()
        self.producer._producer.close(0)

    def _is_settled(self) -> bool:
        producer = self.producer._producer
        return not (
            producer._accumulator.has_incomplete or producer._parked.gate.topics or self.rig.client.requests
        )

    # -- what must hold --------------------------------------------------------------------------------------

    def check(self) -> None:
        place = f"seed {self.seed}"
        logs = [
            [self._name(record.value or b"") for record in self.brokers.logs[one].records(0)]
            for one in (TopicPartition(TOPIC, number) for number in range(PARTITIONS))
        ]
        everything = [name for log in logs for name in log]
        assert len(everything) == len(set(everything)), f"{place}: duplicates"
        for log in logs:
            for caller in range(3):
                numbers = [number for who, number in log if who == caller]
                assert numbers == sorted(numbers), f"{place}: caller {caller}: {numbers}"
        for name, future in self.sent.items():
            assert future.done(), f"{place}: {name} has no outcome"
            if not future.cancelled():
                self.outcomes[name] = future.result()
            assert name in everything, f"{place}: {name} was accepted and is lost"
        for name, outcome in self.outcomes.items():
            if isinstance(outcome, RecordMetadata):
                assert outcome.offset is None or logs[outcome.partition][outcome.offset] == name, place
            else:
                assert outcome.written is Written.NO, f"{place}: {outcome}"
        known = self.sent.keys() | self.outcomes.keys() | self.doubtful
        assert known == {(caller, n) for caller, count in self._next.items() for n in range(count)}
        pool = self.producer._producer._pool
        assert pool.available_bytes == pool.total_bytes, f"{place}: {pool}"
        status = self.producer.status()
        assert (status.waiting_for_metadata, status.waiting_for_buffer) == (0, 0), place

    @staticmethod
    def _name(value: bytes) -> tuple[int, int]:
        caller, number, _ = value.split(b":", 2)
        return int(caller), int(number)


def _cancelled_in(seeds: range) -> Counter[str]:
    reached: Counter[str] = Counter()
    for seed in seeds:
        world = World(seed)
        run(world.live())
        reached += world.cancelled
    return reached


def test_no_cancelled_await_reorders_or_loses_what_was_sent() -> None:
    reached = _cancelled_in(range(16))
    assert {"send, metadata", "send, memory", "submit, acknowledgement"} < reached.keys(), reached


def test_no_cancelled_await_reorders_or_loses_what_was_sent_in_a_thousand_runs() -> None:
    reached = _cancelled_in(range(16, 1_016))
    for call in ("send_and_wait", "submit"):
        for what in ("metadata", "memory", "acknowledgement"):
            assert reached[f"{call}, {what}"] > 10, reached


# -- awaits outside of the model -----------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as running:
        running.create_topic("orders")
        yield running


class Closings(ProducerInterceptor[bytes | None, bytes | None]):
    """An interceptor that notes on which thread it is closed, each time."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def close(self) -> None:
        self.threads.append(threading.get_ident())


def _over(cluster: FakeCluster, *interceptors: Closings) -> AsyncKafkaProducer[bytes | None, bytes | None]:
    settings = {**QUICK, "bootstrap.servers": cluster.bootstrap_servers}
    return AsyncKafkaProducer(ProducerConfig.from_mapping(settings), interceptors=interceptors)


async def test_a_send_that_is_cancelled_as_it_yields_is_delivered_in_its_place(cluster: FakeCluster) -> None:
    async with _over(cluster) as producer:
        await producer.partitions_for("orders")
        producer._sends_in_a_row = 99
        sending = asyncio.create_task(producer.send(ProducerRecord("orders", b"cancelled")))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await producer.send_and_wait(ProducerRecord("orders", b"sent"))
    assert [record.value for record in cluster.records("orders")] == [b"cancelled", b"sent"]


async def test_a_flush_that_is_cancelled_leaves_its_records_to_be_delivered(cluster: FakeCluster) -> None:
    hold = Hold()
    cluster.react_next(ApiKey.PRODUCE, hold)
    async with _over(cluster) as producer:
        future = await producer.send(ProducerRecord("orders", b"a"))
        flushing = asyncio.create_task(producer.flush())
        await until(lambda: hold.is_held)
        flushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flushing
        assert not producer._producer._accumulator.flush_in_progress, "lingering batches linger again"
        assert not future.done()
        hold.release()
        assert (await future).offset == 0


async def test_a_close_that_is_cancelled_goes_on_and_closes_the_interceptors_once(
    cluster: FakeCluster,
) -> None:
    hold, interceptor = Hold(), Closings()
    cluster.react_next(ApiKey.PRODUCE, hold)
    async with _over(cluster, interceptor) as producer:
        future = await producer.send(ProducerRecord("orders", b"a"))
        closing = asyncio.create_task(producer.close())
        await until(lambda: hold.is_held and producer.status().state == "closing")
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert interceptor.threads == []
        hold.release()
        await until(lambda: interceptor.threads)
        assert (await future).offset == 0
        assert (await producer.close()).flushed
    assert interceptor.threads == [threading.get_ident()], "closed once, on the loop"


async def test_what_a_cancelled_close_gives_up_is_logged(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    hold = Hold()
    cluster.react_next(ApiKey.PRODUCE, hold)
    producer = _over(cluster)
    producer.start()
    future = await producer.send(ProducerRecord("orders", b"a"))
    await until(lambda: hold.is_held)
    closing = asyncio.create_task(producer.close())
    await until(lambda: producer.status().state == "closing")
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not (await producer.close(0)).flushed, "this ends the other one"
    with pytest.raises(ProducerClosedError):
        await future
    (line,) = (r.getMessage() for r in caplog.records if "not delivered" in r.getMessage())
    assert line.startswith("1 records that the producer ")
    assert "was being closed when that was cancelled" in line


async def test_of_two_tasks_that_close_each_has_the_report(cluster: FakeCluster) -> None:
    interceptor = Closings()
    producer = _over(cluster, interceptor)
    producer.start()
    with pytest.raises(KafkaError):  # a topic that is refused: a report that is not empty
        await producer.send_and_wait(ProducerRecord("no such name", b"a"))
    first, second = await asyncio.gather(producer.close(), producer.close())
    assert first == second
    assert first.failed_earlier == 1
    assert len(interceptor.threads) == 1
