"""KafkaProducer: the client's public API, and the wiring of its parts.

Calls with `done` never block: they return a Ticket, and post `done` to the CompletionSink later. The others
block as Java's do. Any thread may call, unless a docstring differs. Source: KafkaProducer, Kafka 4.3.
"""

from __future__ import annotations

import logging
import warnings
from random import Random
from typing import TYPE_CHECKING, Final, Generic

from client_core import forks
from client_core.clock import FOREVER_MS, SystemClock
from client_core.errors import IllegalArgumentError, IllegalStateError, KafkaError
from client_core.events import NO_EVENTS
from client_core.producer.accumulator.backlog import count_backlog
from client_core.producer.requests.blocking_calls import BlockingCalls
from client_core.producer.requests.lookup_requests import LookupRequests
from client_core.producer.requests.pending_request import PendingRequest, ProduceTicket
from client_core.producer.requests.preparation import Preparation
from client_core.producer.requests.quick_append import QuickAppend
from client_core.producer.requests.record_checks import (
    check_records,
    check_topics,
    checked_topics,
    largest_sure_to_fit,
)
from client_core.producer.requests.refreshes import metadata_status, node_statuses
from client_core.producer.requests.submissions import CLOSED
from client_core.producer.results.future_record_metadata import FutureRecordMetadata, renew_lock
from client_core.producer.results.producer_metrics import ProducerMetrics
from client_core.producer.results.producer_record import K, V
from client_core.producer.results.status import ClientStatus, CloseReport, do_nothing
from client_core.producer.results.ticket import CallInline, CancelTicket
from client_core.producer.sender import unclosed_producers
from client_core.producer.sender.io_thread import wake_now
from client_core.producer.sender.wiring import wired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import NoReturn, Self

    from client_core.client.kafka_client import KafkaClient
    from client_core.clock import Clock
    from client_core.cluster import PartitionInfo
    from client_core.events import EventSink
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.accumulator.backlog import Backlog
    from client_core.producer.requests.preparation import ProducerInterceptor
    from client_core.producer.results.batch_outcome import RecordOwner
    from client_core.producer.results.producer_record import ProducerRecord
    from client_core.producer.results.ticket import CompletionSink, Done, Ticket
    from client_core.producer.sender.io_thread import LoopWork, WakeSoon
    from client_core.producer.settings.config import ProducerConfig

_log: Final = logging.getLogger(__name__)

#: How long close() waits for the I/O thread after the forced close: a user's callback may hold the thread.
_FORCED_CLOSE_GRACE_MS: Final = 5_000


class KafkaProducer(Generic[K, V]):
    """A producer with its metadata cache. Its records have bytes, or what its serializers take.

    Call `start()` and `close()`, or use it as a context manager. Without `close`: see unclosed_producers.py.

    It belongs to the process that created it. In the child of a fork every call but `close` raises
    IllegalStateError, and `close` returns at once: create a new producer there.
    """

    _closed = True  # before the end of __init__ there is nothing to close

    def __init__(
        self,
        config: ProducerConfig,
        *,
        key_serializer: Callable[[K], bytes | None] | None = None,
        value_serializer: Callable[[V], bytes | None] | None = None,
        interceptors: Sequence[ProducerInterceptor[K, V]] = (),
        clock: Clock | None = None,
        events: EventSink = NO_EVENTS,
        completions: CompletionSink | None = None,
        wake_soon: WakeSoon = wake_now,
        random: Random | None = None,
        metadata: ProducerMetadata | None = None,
        client: KafkaClient | None = None,
        resolves_later: bool = False,
        spreads_refreshes: bool = False,
        whole_requests: bool = False,
        keeps_metrics: bool = True,
    ) -> None:
        """Resolves bootstrap.servers, which may block as long as DNS does, and reads certificates, keys and
        credentials. Opens no connection before `start()`. Raises ConfigError, which names the setting.

        `resolves_later`: each name of bootstrap.servers is resolved when the client connects to it, and again
        after reconnect.backoff.ms if that fails. `status().nodes` has the resolver's error. Otherwise
        unknown names only are a ConfigError, as in Java.

        `spreads_refreshes`: after a refresh that an event caused, metadata expires after a random part of
        metadata.max.age.ms, so that many processes do not refresh together for good. Not in Java.

        A serializer makes bytes of a key or a value, on the caller's thread; it is never given None.
        Each record goes through the `interceptors` first: see ProducerInterceptor.

        `wake_soon` gets the I/O thread's wakeup after each `submit`. An event loop calls it once at the end
        of its turn: all submits of a turn then cost one wakeup, and the threads do not wait for each other.

        `metadata` and `client` are for tests. Without `keeps_metrics`, `metrics()` is empty.

        `whole_requests`: the records of one `submit` for one partition form one batch of any size, which is
        not split if a broker finds it too large. They are written or refused together, so that no record
        gets ahead of an earlier refused one. Java's producer has no such mode.
        """
        clock = clock if clock is not None else SystemClock()
        random = random if random is not None else Random()  # noqa: S311 - jitter and sticky partitions
        config.log_remarks()
        forks.watch(renew_lock)
        preparation = Preparation(key_serializer, value_serializer, interceptors)
        self._preparation = None if preparation.changes_nothing else preparation
        self._made_at: Final = forks.count
        self.config: Final = config
        self.clock: Final[Clock] = clock
        self._metrics = ProducerMetrics(clock, events) if keeps_metrics else None
        if self._metrics is not None:
            events = self._metrics
        parts = wired(
            config,
            clock,
            random,
            events,
            CallInline() if completions is None else completions,
            wake_soon,
            metadata=metadata,
            client=client,
            resolves_later=resolves_later,
            spreads_refreshes=spreads_refreshes,
            whole_requests=whole_requests,
        )
        self._metadata = parts.metadata
        self._refreshes = parts.refreshes
        self._client = parts.client
        self._transaction_manager = parts.transaction_manager
        self._pool = parts.pool
        self._accumulator = parts.accumulator
        #: Counts refused records in `metrics()`: their topic and number. Any thread.
        self.count_refused: Final = do_nothing if self._metrics is None else self._metrics.records_failed
        preparation.count_refused = self._accumulator.failed.notify = self.count_refused
        self._submissions = parts.submissions
        self._parked = parts.submissions.parked
        self._sender = parts.sender
        self._causes = parts.causes
        #: For tests that run its turns themselves.
        self.io_thread: Final = parts.io_thread
        self.io_thread.call_at_end(preparation.close)  # after the last outcome, however the thread ends
        #: Has the completion sink call `done(result)`, with all others of the I/O thread's turn. Any thread.
        self.post_at_end_of_turn: Final = parts.completions.add
        self._lookup_requests = LookupRequests(
            self.io_thread, parts.lookups, parts.configs, parts.offsets, parts.topic_refreshes, clock
        )
        self._blocking_calls = BlockingCalls(
            config,
            parts.metadata,
            parts.accumulator,
            parts.pool,
            parts.io_thread,
            self._parked.gate,
            parts.completions,
            clock,
            events,
        )
        self._quick_append = QuickAppend(
            parts.metadata,
            parts.accumulator.appender,
            clock,
            most_bytes=largest_sure_to_fit(config.max_request_size, config.buffer_memory),
            ignore_keys=config.partitioner_ignore_keys,
            held_topics=self._parked.gate.topics,
        )
        unclosed_producers.watch(self.io_thread, config.client_id, config.exit_flush_timeout_ms)
        self._closed = False

    def __repr__(self) -> str:
        state = "FORKED" if self.io_thread.is_inherited else self.io_thread.life_cycle.name
        return f"<KafkaProducer {self.config.client_id} {state}>"

    def __reduce__(self) -> NoReturn:
        # A shallow copy has the same thread, which would end when the copy is deleted.
        raise TypeError("a KafkaProducer can't be copied or pickled: create another one from its config")

    def __del__(self) -> None:
        if self._closed or self.io_thread.is_over or self.io_thread.is_inherited:
            return
        name = repr(self)
        unclosed_producers.let_go(self.io_thread)
        if self.io_thread.was_started:
            warnings.warn(f"unclosed {name}", ResourceWarning, stacklevel=2, source=self)

    def start(self) -> None:
        """Starts the I/O thread. Once; raises IllegalStateError otherwise."""
        self._ensure_open()
        self.io_thread.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes without a time limit, as Java's try-with-resources does."""
        self.close()

    # -- metadata --------------------------------------------------------------------------------------------

    @property
    def cache(self) -> MetadataCache:
        """The current snapshot of the cluster's metadata. Read it once per answer.

        While no broker can be reached, the last response stays, also after a rebootstrap (META-23).
        """
        self._ensure_own_process()
        return self._metadata.answered_cache

    def configure_topics(self, names: Iterable[str]) -> None:
        """Keeps the metadata of these topics for good, used or not."""
        self._ensure_own_process()
        self._metadata.configure_topics(checked_topics(names))
        self.wakeup()

    def lower_metadata_max_age(self, max_age_ms: int) -> None:
        """Lowers the maximum age of metadata; a higher age changes nothing.

        `status().metadata.max_age_ms` is the current one. Raises IllegalArgumentError below 1 ms.
        """
        self._ensure_own_process()
        if max_age_ms < 1:
            raise IllegalArgumentError("The age must be at least 1 ms.")
        self._metadata.lower_max_age(max_age_ms)
        self.wakeup()

    def request_topics(
        self,
        names: Iterable[str],
        *,
        deadline_ms: int,
        create: bool = False,
        settle: bool = True,
        done: Done,
    ) -> Ticket:
        """Ends with a MetadataResult when each topic is known, or known to be missing.

        `settle`: two responses in a row without the topic end the wait; otherwise it waits for the topic to
        appear. `create`: the request may create the topic, if the brokers allow it.
        """
        self._ensure_open()
        return self._lookup_requests.topics(names, deadline_ms, done, may_create=create, settle=settle)

    def request_update(
        self,
        *,
        min_version: int | None = None,
        max_age_ms: int | None = None,
        deadline_ms: int,
        done: Done,
    ) -> Ticket:
        """Ends with a MetadataResult when the snapshot has at least `min_version` and at most `max_age_ms`.

        At once if it does already. Without both: after a full refresh that starts now.
        """
        self._ensure_open()
        return self._lookup_requests.update(deadline_ms, done, min_version=min_version, max_age_ms=max_age_ms)

    def refresh_topics(self, names: Iterable[str], *, deadline_ms: int, done: Done) -> Ticket:
        """Ends with a MetadataResult when a broker has answered a request for these known topics."""
        self._ensure_open()
        return self._lookup_requests.refresh(names, deadline_ms, done)

    def list_topics(self, *, deadline_ms: int, done: Done) -> Ticket:
        """Ends with a ListingResult: all topics, by a separate request that does not change the cache."""
        self._ensure_open()
        return self._lookup_requests.listing(deadline_ms, done)

    def describe_topic_configs(self, topic: str, *, deadline_ms: int, done: Done) -> Ticket:
        """Ends with a TopicConfigsResult: a topic's configs from a broker. They are not cached."""
        self._ensure_open()
        return self._lookup_requests.topic_configs(topic, deadline_ms, done)

    def list_offsets(self, topic: str, partition: int, *, deadline_ms: int, done: Done) -> Ticket:
        """Ends with an OffsetsResult: a held topic's partition's, from its leader, also after that moved."""
        self._ensure_open()
        return self._lookup_requests.partition_offsets(topic, partition, deadline_ms, done)

    def partitions_for(self, topic: str) -> Sequence[PartitionInfo]:
        """Returns a topic's partitions. Blocks up to max.block.ms until the topic is known."""
        self._ensure_open()
        cache, _ = self.wait_on_metadata(topic, None, self.config.max_block_ms)
        return cache.cluster.partitions_for_topic(topic)

    def wait_on_metadata(
        self, topic: str, partition: int | None, max_wait_ms: int
    ) -> tuple[MetadataCache, int]:
        """Returns a snapshot with the topic, and with the partition if given, and the wait in ms.

        Blocks, except on the I/O thread. Raises TimeoutError, InvalidTopicError, TopicAuthorizationError, and
        errors that prevent all metadata (PROD-01..04).
        """
        self._ensure_own_process()
        return self._blocking_calls.wait_on_metadata(topic, partition, max_wait_ms)

    # -- records ---------------------------------------------------------------------------------------------

    def check(self, topic: str, records: Sequence[ProducerRecord]) -> None:
        """Raises what `submit` raises for invalid records of bytes; asks no broker and no serializer."""
        self._ensure_own_process()
        check_topics((topic,))
        check_records(topic, records, self.config.max_request_size, self.config.buffer_memory)

    def submit(
        self,
        topic: str,
        records: Sequence[ProducerRecord[K, V]],
        *,
        block_deadline_ms: int,
        deadline_ms: int,
        done: Done,
        create: bool = True,
        missing_deadline_ms: int | None = None,
        settled: Done | None = None,
        appended: Done | None = None,
        since_ms: int | None = None,
        checked: bool = False,
        in_chunks: bool = False,
    ) -> ProduceTicket:
        """Ends with a ProduceResult: one outcome per record, in order. Never blocks.

        Records that have metadata and memory are appended at once; the others are parked, in order, until
        `block_deadline_ms`. At `deadline_ms` unsent records are removed, and records in flight have an
        unknown outcome. `create`: the metadata request may create the topic. From `missing_deadline_ms` on
        records do not wait for a topic or partition that brokers report missing (`parked_requests.py`).

        `settled` is posted once, when the client holds nothing of the request any more: with `done`, or
        later with the final outcomes, after a deadline or a cancel. `appended` is posted when the request
        was parked and is not any more; the ticket's `is_parked` says whether it is. `since_ms`: when the
        request arrived, if earlier than now; waits count from there.

        Checks all records first. Raises IllegalArgumentError for a wrong partition, timestamp or topic,
        SerializationError for values that are not bytes, RecordTooLargeError (PROD-07, PROD-12), and
        IllegalStateError after close.

        `checked`: the records have passed `check`, on any thread, and have headers that do not change.
        `in_chunks`: the I/O thread appends them, a chunk per turn: many records or long keys would hold the
        caller's thread. Later requests wait.
        """
        self._ensure_open()
        if not records:
            raise IllegalArgumentError("A request needs at least one record.")
        if topic not in self._metadata.cache.topics:
            check_topics((topic,))
        preparation = self._preparation
        plain: Sequence[ProducerRecord] = records  # type: ignore[assignment]  # no serializer: bytes
        if preparation is not None:
            plain = preparation.all_prepared(records)
            done, settled = preparation.notified(plain, done, settled)
        now_ms, submissions = self.clock.now_ms(), self._submissions
        try:
            if not checked:
                plain = check_records(topic, plain, self.config.max_request_size, self.config.buffer_memory)
            request = PendingRequest(
                topic,
                plain,
                done,
                submissions.finished,
                submitted_ms=now_ms if since_ms is None else since_ms,
                block_deadline_ms=block_deadline_ms,
                deadline_ms=deadline_ms,
                may_create=create,
                missing_deadline_ms=missing_deadline_ms,
                settled=settled,
                appended=appended,
                in_chunks=in_chunks,
            )
            submissions.take(request, now_ms)
        except Exception as error:
            if preparation is not None:
                preparation.all_failed(plain, error)
            if isinstance(error, KafkaError):
                self.count_refused(topic, len(plain))
            raise
        return ProduceTicket(request, submissions.cancel)  # not self: a ticket must not keep it alive

    def try_append(self, record: ProducerRecord, owner: RecordOwner) -> bool:
        """Appends one record of bytes to its open batch and returns True, or does nothing and returns False.

        Never blocks. It does nothing where the record needs a new batch, metadata, memory or a check:
        `submit` it then. `owner.batch_done` gets its outcome, on the I/O thread. No interceptor sees it.
        """
        self._ensure_open()
        return self._quick_append.append(record, owner)

    def send(
        self, record: ProducerRecord[K, V], on_done: Callable[[FutureRecordMetadata], None] | None = None
    ) -> FutureRecordMetadata:
        """Appends one record. Blocks at most max.block.ms for metadata and memory, as Java's send does.

        Timeouts, authorization and size are the future's error; IllegalStateError, IllegalArgumentError and
        SerializationError are raised (PROD-06). `on_done` runs on the I/O thread in order, before flush ends.
        """
        self._ensure_open()
        preparation = self._preparation
        if preparation is not None:
            return self._send_prepared(preparation, record, on_done)
        future = FutureRecordMetadata(on_done)
        plain: ProducerRecord = record  # type: ignore[assignment]  # no serializer: bytes
        if not self._quick_append.append(plain, future):
            self._blocking_calls.send(plain, future)
        return future

    def _send_prepared(
        self,
        preparation: Preparation[K, V],
        record: ProducerRecord[K, V],
        on_done: Callable[[FutureRecordMetadata], None] | None,
    ) -> FutureRecordMetadata:
        plain = preparation.prepared(record)
        future = FutureRecordMetadata(preparation.before(on_done, plain))
        if not self._quick_append.append(plain, future):
            try:
                self._blocking_calls.send(plain, future)
            except Exception as error:
                preparation.failed(plain, error)
                raise
        return future

    def flush(self) -> None:
        """Sends all accepted records without linger; blocks until each is acknowledged or failed.

        Parked records, too. The outcomes of earlier submits are posted when it returns (ACC-12, ORD-02).
        """
        self._ensure_own_process()
        self._blocking_calls.flush()

    def request_flush(self, done: Callable[[], None]) -> Ticket:
        """Flushes without a wait; calls `done` on the I/O thread, or now. Cancelled, batches linger again."""
        self._ensure_own_process()
        return CancelTicket(self._blocking_calls.request_flush(done).cancel)

    # -- producer --------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Wakes the I/O thread; if it is alive, `status().loop_turns` grows."""
        self._ensure_own_process()
        self.io_thread.wakeup()

    def status(self) -> ClientStatus:
        """Returns the client's state. Does not wait for the I/O thread."""
        self._ensure_own_process()
        io_thread, manager, now_ms = self.io_thread, self._transaction_manager, self.clock.now_ms()
        return ClientStatus(
            state=io_thread.life_cycle.value,
            loop_turns=io_thread.turns,
            loop_age_ms=max(now_ms - io_thread.last_turn_ms, 0),
            waiting_for_metadata=self._parked.waiting_for_metadata + self._lookup_requests.count,
            waiting_for_buffer=self._parked.waiting_for_buffer,
            in_flight_batches=self._sender.in_flight_batches,
            producer_id=None if manager is None else manager.producer_id,
            last_answer_age_ms=self._refreshes.answer_age_ms(now_ms),
            metadata=metadata_status(self._metadata, self._refreshes, now_ms),
            buffer=self._accumulator.status(now_ms),
            nodes=node_statuses(self._client, now_ms),
            cause_of_silence=self._causes.of_connections(now_ms),
        )

    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """Returns the producer's metrics by group and by Java's name: see producer_metrics.py. Any thread."""
        self._ensure_own_process()
        return {} if self._metrics is None else self._metrics.read(self.status(), self.loop_work().total_ms)

    def loop_work(self) -> LoopWork:
        """Returns the durations of the I/O thread's turns, without their sleep. Any thread."""
        self._ensure_own_process()
        return self.io_thread.turn_times.read(failed_turns=self.io_thread.failed_turns)

    def backlog(self) -> Backlog:
        """Counts the records that wait per node, and the requests that wait per topic. Visits every batch."""
        self._ensure_own_process()
        cache = self._metadata.answered_cache
        batches = self._accumulator.incomplete()
        waits, now_ms = self._parked.topic_waits(), self.clock.now_ms()
        return count_backlog(batches, cache.topics, cache.nodes_by_id, waits, self._causes, now_ms)

    def close(self, timeout_ms: int = FOREVER_MS) -> CloseReport:
        """Sends accepted records for up to timeout_ms, fails the rest, and returns the report (SND-13).

        Parked records are sent too (ORD-03). A blocked `send` raises ProducerClosedError. Later records are
        refused. A second call returns the same report. In a callback it does not wait, since the I/O thread
        can't wait for itself: its report lists open records, some of which this turn may still acknowledge
        (PROD-09), and none that other threads are sending just then.
        """
        if timeout_ms < 0:
            raise IllegalArgumentError("The timeout cannot be negative.")
        self._closed = True
        if self.io_thread.is_inherited:
            return CloseReport()  # the parent process has the thread, the sockets and the records
        failed = self._accumulator.failed
        if self.io_thread.is_current:
            if timeout_ms > 0:
                _log.warning("close(%d) in a callback does not wait: it acts as close(0)", timeout_ms)
            self.io_thread.force_close()
            return failed.report(self.io_thread.still_open())
        self._submissions.close()
        _log.info("Closing the Kafka producer with a timeout of %s ms", timeout_ms)
        try:
            self._close_in(timeout_ms)
        except BaseException:  # KeyboardInterrupt ends the wait, as in Java, but not the close
            self._give_up()
            unclosed_producers.report_lost(self.io_thread)
            raise
        unclosed_producers.forget(self.io_thread)
        return failed.report(() if self.io_thread.is_over else self.io_thread.still_open())

    def _close_in(self, timeout_ms: int) -> None:
        if timeout_ms > 0:
            self.io_thread.initiate_close()
            if self.io_thread.join(timeout_ms):
                return
        _log.info("Some records were not acknowledged within %s ms; they fail now", timeout_ms)
        self._give_up()

    def _give_up(self) -> None:
        self.io_thread.force_close()
        if not self.io_thread.join(_FORCED_CLOSE_GRACE_MS):
            _log.error("The I/O thread did not end within %d ms", _FORCED_CLOSE_GRACE_MS)

    def _ensure_own_process(self) -> None:
        if self._made_at != forks.count:
            forks.ensure_own_process(self._made_at, self)

    def _ensure_open(self) -> None:
        if self._made_at != forks.count:
            forks.ensure_own_process(self._made_at, self)
        if self._closed:
            raise IllegalStateError(CLOSED)
