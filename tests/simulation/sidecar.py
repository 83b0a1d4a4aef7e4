"""One life of a sidecar's process: its parts as the product builds them, and its threads as actors.

    process = Process(world, brokers, disk, settings, folder, random)
    process.ask(scope, receive, send)       a request, as the server passes it to the application
    process.kill()                          SIGKILL: nothing of it runs any more
    process.terminate(ended)                SIGTERM: drained and closed, as server.py does

Threads take their turns by `IoThread.turn`, `SpoolWriter.turn` and `Delivery.turn`, each as the `_run` beside
it does; the wakeups of the product decide when. FastAPI is left out: ProduceEndpoint answers before it.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from client_core import KafkaProducer, LoopCompletions, Phase, RecordFailure, Written
from client_core.client.metadata_updater import DefaultMetadataUpdater
from client_core.client.network_client import NetworkClient
from client_core.events import BatchRetried, BatchSplit, Rebootstrapped
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.producer.sender import unclosed_producers
from client_core.producer.sender.transaction_manager import TransactionManager
from client_core.producer.sender.wiring import metadata_config, network_client_config
from service.admission.guards import Guards, hosts_of
from service.observe.slowness.collector import Slowness
from service.process.app import FanOut, _make_spooled, _never
from service.produce.ndjson import is_ndjson_stream
from service.produce.produce_endpoint import ProduceEndpoint
from service.sidecar.sidecar import build_sidecar
from service.spool.delivery import PAUSE_MS
from service.spool.spool import Spool, spool_config
from service.spool.writer import Spooled
from service.watch.notice import SnapshotNotice
from service.wire.cors import Cors
from service.wire.errors import ErrorFormats
from tests.simulation.disk import NO_DEAD_LETTER, KilledError
from tests.simulation.network import SimulatedNetwork
from tests.simulation.replication import FIRST_PORT, HOST
from tests.simulation.wire import identity_of
from tests.simulation.world import SimulatedClock, SimulatedLoop, SimulationError
from tests.support.hostile_load import LocalNames

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from random import Random

    from client_core import CloseReport, Done, Event, EventSink, ProducerConfig, ProducerRecord, Result
    from client_core.producer.requests.pending_request import ProduceTicket
    from client_core.producer.sender.io_thread import IoThread
    from service.admission.access import Access
    from service.base.settings import Settings
    from service.spool.delivery import Delivery
    from service.spool.writer import Completion, SpoolFault, SpoolWriter
    from service.wire.asgi import Receive, Scope, Send
    from tests.simulation.brokers import ReplicatedBrokers
    from tests.simulation.disk import SimulatedDisk
    from tests.simulation.world import World

_NEVER_WOKEN: Final = -1
#: How long the server looks whether what was answered has been sent.
_SENDS_FOR_MS: Final = 20
#: The files that a spool has open: one for records, and one for dead letters.
_OPEN_FILES: Final = 2


class IoActor:
    """An I/O thread. Between two turns it is where the real one is while it sleeps in its poll."""

    def __init__(self, world: World, io_thread: IoThread, network: SimulatedNetwork) -> None:
        self.name, self.kind = f"I/O thread of {network.name}", "io"
        self.has_ended = False
        self._world = world
        self._io = io_thread
        self._network = network
        self._sleeps_until_ms: int | None = None
        self._wakes_by_ms = 0
        self._closing = False
        #: When a turn last began with a batch that had not ended.
        self.had_batches_ms = 0
        network.before_wait = self._note_wait

    def _note_wait(self) -> None:
        self._wakes_by_ms = self._io._wakes_by_ms

    def due_ms(self, now_ms: int) -> int | None:
        if self.has_ended:
            return None
        until_ms = self._sleeps_until_ms
        if until_ms is None or until_ms <= now_ms or self._network.has_something():
            return now_ms
        return until_ms

    def run(self) -> None:
        if self._sleeps_until_ms is not None:
            self._sleeps_until_ms = None
            self._network.waking()
        io = self._io
        if io._accumulator.has_incomplete:
            self.had_batches_ms = self._world.now_ms
        if not io._running and not self._closing:
            self._closing = True
            io._accumulator.let_appends_finish()
            io._fail_look_ups()
            io._completions.post()
        if self._closing and (io._forced or not io._has_work()):
            io._run_end()
            self.has_ended = True
            return
        io.turn()
        if io._metadata_changed:
            self._world.perhaps_hold(self)  # others know the new metadata, those that wait do not yet
        if not self._network.found_something and self._network.limit_ms:
            self._sleeps_until_ms = self._world.now_ms + self._network.limit_ms
            io._wakes_by_ms = self._wakes_by_ms


class _Notified(threading.Condition):
    """A condition that nobody waits for, and that remembers that it was notified."""

    was_notified = False

    def notify(self, n: int = 1) -> None:
        self.was_notified = True


class WriterActor:
    """The spool's writer. It waits where it has found nothing, until it is notified."""

    name = kind = "spool writer"

    def __init__(self, writer: SpoolWriter) -> None:
        self._writer = writer
        self._condition = writer._condition = _Notified()
        self._waits = True
        self._has_ended = False
        #: Whether it is in a turn, while others run, because the disk is slow.
        self.is_writing = False

    def due_ms(self, now_ms: int) -> int | None:
        writer = self._writer
        if self._has_ended or not (writer._queue or writer._closed):
            return None
        return now_ms if self._condition.was_notified or not self._waits else None

    def run(self) -> None:
        self._condition.was_notified = False
        if not self._writer._has_work():
            self._has_ended = True
            return
        self.is_writing = True
        try:
            self._writer.turn()
        except KilledError:
            return
        finally:
            self.is_writing = False
        self._waits = not (self._writer._queue or self._writer._closed)


class DeliveryActor:
    """The spool's delivery, and its thread: which is in a turn while others run, if the disk is slow."""

    name = kind = "spool delivery"

    def __init__(self, world: World, delivery: Delivery) -> None:
        self._world = world
        self._delivery = delivery
        self._until_ms = 0
        self._turns = 0
        delivery._thread = self  # type: ignore[assignment]

    def is_alive(self) -> bool:
        """Returns whether it is in a turn: then whoever closes it finds that the disk does not answer."""
        return self._turns > 0

    def join(self, timeout_s: float) -> None:
        """Returns at once: what waits for the disk goes on behind whoever calls this."""

    def due_ms(self, now_ms: int) -> int | None:
        if self._delivery._closed:
            return None
        return now_ms if self._delivery._called else self._until_ms

    def run(self) -> None:
        self._turns += 1
        try:
            self._run_turn()
        finally:
            self._turns -= 1

    def _run_turn(self) -> None:
        delivery, now_ms = self._delivery, self._world.now_ms
        delivery._called = False
        failed_in_ways = max((_ways_to_fail(result) for *_, result in delivery._answered), default=0)
        before = self._world.reached.get(NO_DEAD_LETTER, 0)
        try:
            self._until_ms = delivery.turn(now_ms)
            assert not delivery.failed_turns, "an exception of the spool's delivery: the log has the stack"
            if failed_in_ways > 1 and self._world.reached.get(NO_DEAD_LETTER, 0) > before:
                self._world.reach("a dead letter could not be written, and others of its request wait")
        except OSError as error:
            delivery._report(error.strerror or str(error))
            self._until_ms = now_ms + PAUSE_MS
        except KilledError:
            return


def _ways_to_fail(result: Result) -> int:
    """Returns for how many reasons records of a request failed."""
    failures = [outcome for outcome in result.outcomes if isinstance(outcome, RecordFailure)]
    return len({(failure.error.error, failure.phase) for failure in failures})


class _HardStates:
    """An EventSink that counts what makes a run worth its time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wants(self, kind: type) -> bool:
        return kind in (BatchRetried, BatchSplit, Rebootstrapped)

    def emit(self, event: Event, /) -> None:
        if isinstance(event, BatchRetried):
            self._world.reach(f"a batch was sent again after {event.error.name}")
            self._world.moment("a batch is sent again", event.node_id or 0)
            return
        self._world.reach(f"event {type(event).__name__}")


class SimulatedProducer(KafkaProducer[Any, Any]):
    """A KafkaProducer whose I/O thread is an actor."""

    def __init__(
        self,
        world: World,
        brokers: ReplicatedBrokers,
        config: ProducerConfig,
        clock: SimulatedClock,
        random: Random,
        name: str,
        *,
        events: EventSink,
        **wiring: Any,
    ) -> None:
        self._world = world
        self._wire = brokers.wire
        #: The values that were submitted, in order.
        self.submitted: list[bytes] = []
        #: Whether each was written, as often as it failed.
        self.failures: dict[bytes, list[Written]] = {}
        #: When records that had been in a batch last ended.
        self.batched_until_ms = 0
        self.network = SimulatedNetwork(world, brokers, random, name)
        brokers.networks.append(self.network)
        metadata = ProducerMetadata(metadata_config(config, spreads_refreshes=True), random, clock, events)
        metadata.bootstrap([(HOST, FIRST_PORT + n) for n in range(len(brokers.ports))])
        settings = network_client_config(config, {HOST})
        client = NetworkClient(
            self.network,
            DefaultMetadataUpdater(metadata, settings),
            settings,
            LocalNames(HOST),
            random,
            events,
        )
        super().__init__(
            config,
            clock=clock,
            random=random,
            metadata=metadata,
            client=client,
            keeps_metrics=False,
            events=events,
            **wiring,
        )
        self.actor = IoActor(world, self.io_thread, self.network)

    def start(self) -> None:
        """The thread takes turns from now on."""
        self._world.add(self.actor)

    def submit(
        self, topic: str, records: Sequence[ProducerRecord], *, done: Done, **times: Any
    ) -> ProduceTicket:
        """Notes the order, and what becomes of each record."""
        values = [identity_of(record) for record in records]

        def noted(result: Result) -> None:
            for value, outcome in zip(values, result.outcomes, strict=True):
                if isinstance(outcome, RecordFailure):
                    self.failures.setdefault(value, []).append(outcome.written)
                if not isinstance(outcome, RecordFailure) or outcome.phase is Phase.DELIVERY:
                    self.batched_until_ms = self._world.now_ms
            done(result)

        kind, _, number = self.network.name.partition(" ")
        for value in values:
            self._wire.note_one(value, "spool" if kind == "spool" else "submit", int(number or 0))
        ticket = super().submit(topic, records, done=noted, **times)
        self.submitted += values
        return ticket

    def close(self, timeout_ms: int = 0) -> CloseReport:
        """Blocks the thread that closes, as `join` does, while the others run."""
        self._submissions.close()
        self.io_thread.initiate_close()
        if not self._world.run_until(self._is_over, timeout_ms):
            self.io_thread.force_close()
            self._world.run_until(self._is_over, 1_000)
        if self.network.is_dead:
            raise KilledError
        report = super().close(0)
        self._world.remove(self.actor)
        return report

    def _is_over(self) -> bool:
        return self.actor.has_ended or self.network.is_dead

    def abandon(self) -> None:
        """The process was killed: no exit handler and no finalizer may run for it."""
        self._closed = True
        unclosed_producers.forget(self.io_thread)
        self._world.remove(self.actor)
        self.network.die()


class Process:
    """See the module."""

    def __init__(
        self,
        world: World,
        brokers: ReplicatedBrokers,
        disk: SimulatedDisk | None,
        clock: SimulatedClock,
        settings: Settings,
        random: Random,
        number: int,
        access: Access | None = None,
    ) -> None:
        self.world = world
        self.number = number
        self.is_alive = True
        self.is_draining = False
        self.started_ms = world.now_ms
        #: When SIGTERM came.
        self.drained_from_ms = 0
        self._brokers = brokers
        self._disk = disk
        self.clock = clock
        self.loop = SimulatedLoop(world)
        completions = LoopCompletions()
        completions.bind(self.loop.me)
        slowness, notice = Slowness(clock), SnapshotNotice()
        events = FanOut(slowness, notice, _HardStates(world))
        self.producer = SimulatedProducer(
            world,
            brokers,
            settings.producer_config(),
            clock,
            random,
            f"sidecar {number}",
            events=events,
            completions=completions,
            wake_soon=completions.wake_soon,
        )
        self.spool: Spool | None = None
        self._writer: WriterActor | None = None
        self._actors: list[Any] = [self.loop]
        if disk is not None:
            spool_producer = SimulatedProducer(
                world,
                brokers,
                spool_config(settings),
                clock,
                random,
                f"spool {number}",
                events=FanOut(_HardStates(world)),
                whole_requests=True,
            )
            self.spool = Spool(settings, spool_producer, clock, disk)
            self.spool._call = completions.call
            self.spool_producer = spool_producer
            self._writer = WriterActor(self.spool.writer)
            self._actors += [self._writer, DeliveryActor(world, self.spool.delivery)]
        self.sidecar = build_sidecar(settings, self.producer, "0", slowness, notice, self.spool)
        sidecar = self.sidecar
        endpoint = ProduceEndpoint(
            _never,
            sidecar.producing,
            sidecar.streams,
            body_threads=sidecar.body_threads,
            admission=sidecar.admission,
            keys=sidecar.keys,
            limits=sidecar.limits,
            metrics=sidecar.http,
            retry_after=sidecar.retry_after,
            failed=sidecar.failed,
            spooled=None if self.spool is None else _make_spooled(sidecar, self.spool),
        )
        self._entry = Guards(
            endpoint,
            endpoint,
            allowed_hosts=hosts_of(settings.allowed_hosts, settings.api_host),
            cors=Cors(()),
            max_body_bytes=settings.max_body_bytes,
            drain=sidecar.drain,
            error_formats=ErrorFormats({}),
            metrics=sidecar.http,
            retry_after=sidecar.retry_after,
            is_stream=is_ndjson_stream,
            may_be_written=endpoint.may_be_written,
            access=access,
        )
        self.producer.start()
        if disk is not None:
            self.spool_producer.start()
        for actor in self._actors:
            world.add(actor)

    def ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request in a task of its own."""

        async def serve() -> None:
            await self._entry(scope, receive, send)

        self.loop.create_task(serve())

    def requeue(self, noted: Callable[[int, Sequence[ProducerRecord]], None], of: int) -> None:
        """Puts dead letters back into the spool: those whose number is a multiple of `of`.

        `noted`: their first number there, and the records.
        """
        if self.spool is None:
            return

        def put_back(records: Sequence[ProducerRecord], done: Completion) -> None:
            def spooled(outcome: Spooled | SpoolFault) -> None:
                if isinstance(outcome, Spooled):
                    self.world.reach("dead letters were put back")
                    noted(outcome.first_sequence, records)
                done(outcome)

            for record in records:
                self._brokers.wire.requeued[identity_of(record)] += 1
                self._brokers.wire.note_one(identity_of(record), "requeue")
            spool.writer.put_back(records, spooled)

        spool = self.spool
        spool.delivery.requeue(put_back, lambda dead: dead.sequence % of == 0, lambda _: None)

    # -- ends ------------------------------------------------------------------------------------------------

    def terminate(self, ended: Callable[[], None]) -> None:
        """SIGTERM. `ended` is called when the process has ended by itself."""
        if self.is_draining or not self.is_alive:
            return
        self.is_draining = True
        self.drained_from_ms = self.world.now_ms
        self.world.log(f"sidecar {self.number}", "SIGTERM")

        def drain() -> None:
            self.sidecar.drain.begin()
            closing = self.loop.run_in_executor(None, self._close)
            closing.add_done_callback(exit_process)

        def exit_process(closing: asyncio.Future[None]) -> None:
            self.world.at(_SENDS_FOR_MS, self._end_if_alive(closing, ended))

        self.loop.call_soon_threadsafe(drain)

    def _end_if_alive(self, closing: asyncio.Future[None], ended: Callable[[], None]) -> Callable[[], None]:
        def end() -> None:
            closing.result()  # raises what went wrong there
            is_answering = self.loop.due_ms(self.world.now_ms) is not None
            if self.is_alive and (is_answering or (self._writer is not None and self._writer.is_writing)):
                # The close waits for the disk, and the server until what was answered has been sent.
                self.world.at(_SENDS_FOR_MS, end)
                return
            if self.is_alive and self.spool is not None and self.spool.writer._queue:
                raise SimulationError("answered", "SIGTERM left requests to the spool's writer")
            if self.is_alive:
                self.kill()
                ended()

        return end

    def _close(self) -> None:
        """As App._close; what blocks there lets the world run."""
        try:
            self.producer.close(self.sidecar.settings.drain_timeout_ms)
            if self.spool is not None:
                spool = self.spool
                spool.writer.close(1)
                self.world.run_until(lambda: not (spool.writer._queued_bytes and self.is_alive), 2_000)
                spool.close(2_000)
        except KilledError:
            return

    def kill(self, how: str = "kill") -> None:
        """Nothing of the process runs any more; the system closes what it had open. `how`: for the trace."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._brokers.wire.note_one(None, how, self.number)
        for actor in self._actors:
            self.world.remove(actor)
        self.loop.die()
        self._brokers.networks.remove(self.producer.network)
        self.producer.abandon()
        if self.spool is not None:
            self._brokers.networks.remove(self.spool_producer.network)
            self.spool_producer.abandon()
            self.spool.release()
        if self._disk is not None:
            self._disk.kill()
        self.sidecar.body_threads.close()

    @property
    def has_batches(self) -> bool:
        """Returns whether a batch of the producer is open, waits, is under way, or has ended just now."""
        if self.producer._accumulator.has_incomplete or self.producer.network.has_requests:
            return True
        return self.world.now_ms in (self.producer.batched_until_ms, self.producer.actor.had_batches_ms)

    @property
    def waits(self) -> int:
        """Returns how many requests wait in the producer."""
        parked = self.producer._parked
        return parked.waiting_for_metadata + parked.waiting_for_buffer

    @property
    def waits_for_memory(self) -> bool:
        """Returns whether a request waits in the producer for memory."""
        return self.producer._parked.waiting_for_buffer > 0

    def waits_for_both(self, topic: str) -> bool:
        """Returns whether requests wait in the producer for a partition of a topic, and others for memory."""
        parked = self.producer._parked
        queue = parked._queues.get(topic)
        return topic in parked._unblocked and queue is not None and queue.phase is Phase.BUFFER

    def has_forgotten(self, topic: str) -> bool:
        """Returns whether the producer has forgotten a topic, and has its sequences still."""
        sequences = self.producer._accumulator._sequences
        return isinstance(sequences, TransactionManager) and any(
            left.topic == topic for left in sequences._left
        )

    @property
    def stray_bytes(self) -> int:
        """Returns how much memory of the producer neither a batch has, nor the first that waits for it.

        While a request is under way, only what is held for a partition that is not there: batches of the
        request may have been given up, and have their memory still. Nor while the producer closes.
        """
        producer = self.producer
        if self.is_draining:
            return 0
        if producer.network.has_requests:
            unblocked = producer._parked._unblocked.values()
            return sum(request.reserved_bytes for waiting in unblocked for request in waiting.requests)
        stray = producer._pool.total_bytes - producer._pool.available_bytes
        for batch in producer._accumulator.incomplete():
            stray -= 0 if batch.is_buffer_deallocated else batch.allocated_bytes
        for queue in producer._parked._queues.values():
            stray -= queue.first.reserved_bytes
            waiter = queue.first.waiter
            if waiter is not None:
                stray -= waiter.size_bytes if waiter.granted else waiter.collected_bytes
        return stray

    def held(self) -> dict[str, int]:
        """Returns what is held, in records, requests or bytes: nothing when nothing is under way."""
        sidecar, producer = self.sidecar, self.producer
        held = {
            "waiting requests": sidecar.admission.requests,
            "waiting bytes": sidecar.admission.bytes,
            "streams": sidecar.streams.open_now,
            "requests in progress": sidecar.http.in_progress,
            "memory": producer._pool.total_bytes - producer._pool.available_bytes,
            "batches": int(producer._accumulator.has_incomplete),
            "parked": self.waits,
        }
        if self.spool is not None:
            held["requests that the spool's writer has"] = len(self.spool.writer._queue)
            held["spooled records"] = self.spool.entries
            held["memory of the spool's delivery"] = self.spool.delivery.lanes._memory_bytes
            held["memory of the spool's producer"] = int(self.spool_producer._accumulator.has_incomplete)
        if self._disk is not None:
            held["files that nobody closes"] = max(self._disk.open_files - _OPEN_FILES, 0)
        return held

    def counted(self) -> Counter[str]:
        """Returns what the metrics count: requests by status, and replays."""
        counted: Counter[str] = Counter()
        for family in self.sidecar.http.collect():
            for sample in family.samples:
                if sample.name == "pilotfish_http_requests_total":
                    counted[sample.labels["code"]] += int(sample.value)
                elif sample.name == "pilotfish_idempotency_replays_total":
                    counted["replays"] += int(sample.value)
        return counted

    def check(self) -> None:
        """Raises where a part has had an error of its own."""
        if self.loop.faults:
            raise SimulationError("unexpected exception", self.loop.faults[0])
