"""KafkaProducer: the client's public API, and the wiring of its parts.

There are two kinds of calls. `submit`, `request_topics`, `request_update`, `list_topics` and
`describe_topic_configs` never block: they return a Ticket, and `done` is posted to the CompletionSink later.
`send`, `flush` and `partitions_for` are Java's and block as long as Java's do. Any thread may call any
method, unless its docstring says otherwise. Source: KafkaProducer, Kafka 4.3.
"""

from __future__ import annotations

import logging
import warnings
from random import Random
from typing import TYPE_CHECKING, Final

from client_core import forks
from client_core.backoff import ExponentialBackoff
from client_core.clock import FOREVER_MS, SystemClock
from client_core.errors import (
    ApiError,
    IllegalArgumentError,
    IllegalStateError,
    ProducerClosedError,
)
from client_core.events import NO_EVENTS
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.producer.accumulator.backlog import count_backlog
from client_core.producer.accumulator.buffer_pool import BufferPool
from client_core.producer.accumulator.record_accumulator import RecordAccumulator
from client_core.producer.requests.blocking_calls import BlockingCalls
from client_core.producer.requests.least_loaded_call import CLOSED_WHILE_WAITING
from client_core.producer.requests.lookup_requests import LookupRequests
from client_core.producer.requests.pending_configs import PendingConfigs
from client_core.producer.requests.pending_metadata import PendingLookups
from client_core.producer.requests.pending_request import PendingRequest
from client_core.producer.requests.quick_append import QuickAppend
from client_core.producer.requests.record_checks import (
    check_arguments,
    check_records,
    check_topics,
    largest_sure_to_fit,
)
from client_core.producer.requests.refreshes import RefreshFailures, metadata_status, node_statuses
from client_core.producer.requests.submissions import CLOSED, Submissions
from client_core.producer.results.future_record_metadata import FutureRecordMetadata, renew_lock
from client_core.producer.results.status import ClientStatus, CloseReport
from client_core.producer.results.ticket import CallInline, CancelTicket, Completions
from client_core.producer.sender import unclosed_producers
from client_core.producer.sender.io_thread import IoThread, wake_now
from client_core.producer.sender.sender import Sender
from client_core.producer.sender.transaction_manager import TransactionManager
from client_core.producer.sender.wiring import (
    accumulator_config,
    metadata_config,
    network_client,
    sender_config,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from client_core.client.kafka_client import KafkaClient
    from client_core.clock import Clock
    from client_core.cluster import PartitionInfo
    from client_core.events import EventSink
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.producer.accumulator.backlog import Backlog
    from client_core.producer.results.producer_record import ProducerRecord
    from client_core.producer.results.ticket import CompletionSink, Done, Ticket
    from client_core.producer.sender.io_thread import LoopWork, WakeSoon
    from client_core.producer.settings.config import ProducerConfig

_log: Final = logging.getLogger(__name__)

IO_THREAD_NAME: Final = "pilotfish-io"

#: The first and the longest pause of a thread whose turns fail: ours, and not a setting, since only a bug
#: needs it.
_PAUSES_AFTER_FAILED_TURNS_MS: Final = (100, 1_000)

#: How long close() waits for the I/O thread after it has told it to give up: a callback of the user's may
#: hold it.
_FORCED_CLOSE_GRACE_MS: Final = 5_000


class KafkaProducer:
    """A producer and its cache of the cluster's metadata.

    `start()` it and `close()` it, or use it as a context manager, which does both. What becomes of one that
    nobody closes is in `unclosed_producers.py`.

    It belongs to the process that made it. In the child of a fork every call but `close` raises
    IllegalStateError, and `close` returns at once: make a new producer there.
    """

    #: Until all of it is made, there is nothing to close.
    _closed = True

    def __init__(
        self,
        config: ProducerConfig,
        *,
        clock: Clock | None = None,
        events: EventSink = NO_EVENTS,
        completions: CompletionSink | None = None,
        wake_soon: WakeSoon = wake_now,
        random: Random | None = None,
        metadata: ProducerMetadata | None = None,
        client: KafkaClient | None = None,
        resolves_later: bool = False,
        whole_requests: bool = False,
    ) -> None:
        """Resolves bootstrap.servers, so it may block for as long as DNS does; reads certificates, keys and
        credentials. Raises ConfigError, naming the setting. Nothing is connected to before `start()`.

        With `resolves_later` it asks no resolver: a name of bootstrap.servers is resolved when it is
        connected to, and again after reconnect.backoff.ms where that fails. `status().nodes` has the
        resolver's error. Without it a producer whose names are all unknown is a ConfigError, as in Java.

        `wake_soon` is given the wakeup of the I/O thread when `submit` was called. Who submits from an event
        loop calls it at the end of the loop's turn: all that was submitted in one costs one wakeup then, and
        the two threads don't wait for each other in the middle of it.

        `metadata` and `client` take the places of what would be built: a test's own.

        `whole_requests`: the records of one `submit` for one partition are one batch, whatever its size, and
        that is not split where a broker finds it too large. So they are written or refused together, and
        none is ever ahead of an earlier one that was refused. Java's producer has no such mode.
        """
        clock = clock if clock is not None else SystemClock()
        random = random if random is not None else Random()  # noqa: S311 - jitter and sticky partitions
        config.log_remarks()
        forks.watch(renew_lock)
        self._made_at: Final = forks.count
        self.config: Final = config
        self.clock: Final[Clock] = clock
        self._events = events
        self._metadata = metadata or ProducerMetadata(metadata_config(config), random, clock, events)
        self._refreshes = RefreshFailures(events, clock, self._metadata)
        self._client = client or network_client(
            config,
            self._metadata,
            clock,
            random,
            self._refreshes,
            events,
            resolves_later=resolves_later,
        )
        backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
        self._transaction_manager = (
            TransactionManager(backoff, restarts=config.idempotence_restart_enable)
            if config.enable_idempotence
            else None
        )
        self._pool = BufferPool(config.buffer_memory, config.batch_size, clock, events)
        self._accumulator = RecordAccumulator(
            accumulator_config(config, whole_requests=whole_requests),
            self._pool,
            backoff,
            random,
            self._transaction_manager,
        )
        self._completions = Completions(completions if completions is not None else CallInline())
        self._submissions = Submissions(
            self._metadata,
            self._accumulator,
            self._pool,
            self._completions,
            clock,
            events,
            ignore_keys=config.partitioner_ignore_keys,
        )
        parked = self._parked = self._submissions.parked
        lookups = PendingLookups(self._metadata, self._completions, backoff, parked.waits_for)
        self._lookups = lookups
        self._configs = PendingConfigs(self._metadata, self._completions, backoff)
        self._sender = Sender(
            self._client,
            self._metadata,
            self._accumulator,
            sender_config(config, whole_requests=whole_requests),
            clock,
            events,
            self._transaction_manager,
            lambda now_ms: io_thread.poll_limit_ms(now_ms),  # not self, which the thread must not keep alive
        )
        io_thread = IoThread(
            self._sender,
            self._client,
            self._metadata,
            self._accumulator,
            parked,
            lookups,
            self._configs,
            self._completions,
            clock,
            ExponentialBackoff(*_PAUSES_AFTER_FAILED_TURNS_MS, random),
            IO_THREAD_NAME,
            wake_soon,
        )
        #: For tests that turn it by hand.
        self.io_thread: Final = io_thread
        self._submissions.connect(self.io_thread, lookups)
        self._lookup_requests = LookupRequests(self.io_thread, lookups, self._configs, clock)
        self._blocking_calls = BlockingCalls(
            config,
            self._metadata,
            self._accumulator,
            self._pool,
            self.io_thread,
            parked.gate,
            self._completions,
            clock,
            events,
        )
        self._quick_append = QuickAppend(
            self._metadata,
            self._accumulator.appender,
            clock,
            most_bytes=largest_sure_to_fit(config.max_request_size, config.buffer_memory),
            ignore_keys=config.partitioner_ignore_keys,
            held_topics=parked.gate.topics,
        )
        unclosed_producers.watch(self.io_thread, config.client_id, config.exit_flush_timeout_ms)
        self._closed = False

    def __repr__(self) -> str:
        state = "FORKED" if self.io_thread.is_inherited else self.io_thread.life_cycle.name
        return f"<KafkaProducer {self.config.client_id} {state}>"

    def __del__(self) -> None:
        if self._closed or self.io_thread.is_over or self.io_thread.is_inherited:
            return
        name = repr(self)
        unclosed_producers.let_go(self.io_thread)
        if self.io_thread.was_started:
            warnings.warn(f"unclosed {name}", ResourceWarning, stacklevel=2, source=self)

    def start(self) -> None:
        """Starts the I/O thread. Once."""
        self._ensure_own_process()
        self.io_thread.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it as Java's try-with-resources does: waits for what was sent, for as long as it takes."""
        self.close()

    # -- metadata --------------------------------------------------------------------------------------------

    @property
    def cache(self) -> MetadataCache:
        """What is known of the cluster now: take it once, and answer from it.

        While no broker can be reached it stays the last that one of them made, even when the client has
        forgotten its brokers and begun anew (META-23).
        """
        self._ensure_own_process()
        return self._metadata.answered_cache

    def configure_topics(self, names: Iterable[str]) -> None:
        """Keeps the metadata of these topics for ever, used or not."""
        self._ensure_own_process()
        topics = tuple(names)
        check_topics(topics)
        self._metadata.configure_topics(topics)
        self.wakeup()

    def lower_metadata_max_age(self, max_age_ms: int) -> None:
        """Refreshes metadata at least so often from now on, never seldomer than it was.

        `status().metadata.max_age_ms` is what is in force. Raises IllegalArgumentError below 1 ms.
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

        `settle`: brokers are believed when they have said twice in a row that a topic does not exist;
        without it the wait is for the topic to appear. `create`: asking may create it, if the brokers allow
        that.
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
        """Ends with a MetadataResult when the snapshot has that update_version and is no older than that.

        At once if it is so already. Without either demand: after a full refresh that begins now.
        """
        self._ensure_open()
        return self._lookup_requests.update(deadline_ms, done, min_version=min_version, max_age_ms=max_age_ms)

    def list_topics(self, *, deadline_ms: int, done: Done) -> Ticket:
        """Ends with a ListingResult: all topics, by a request of its own that leaves the cache alone."""
        self._ensure_open()
        return self._lookup_requests.listing(deadline_ms, done)

    def describe_topic_configs(self, topic: str, *, deadline_ms: int, done: Done) -> Ticket:
        """Ends with a TopicConfigsResult: the configs of a topic as some broker tells them, kept nowhere."""
        self._ensure_open()
        return self._lookup_requests.topic_configs(topic, deadline_ms, done)

    def partitions_for(self, topic: str) -> Sequence[PartitionInfo]:
        """The partitions of a topic; blocks for up to max.block.ms for it to be known."""
        self._ensure_open()
        cache, _ = self.wait_on_metadata(topic, None, self.config.max_block_ms)
        return cache.cluster.partitions_for_topic(topic)

    def wait_on_metadata(
        self, topic: str, partition: int | None, max_wait_ms: int
    ) -> tuple[MetadataCache, int]:
        """A snapshot that knows the topic, and the partition if one is named; and how long that took.

        Blocks, but not on the I/O thread, which would wait for itself. Raises TimeoutError,
        InvalidTopicError, TopicAuthorizationError and what makes metadata impossible (PROD-01..04).
        """
        self._ensure_own_process()
        return self._blocking_calls.wait_on_metadata(topic, partition, max_wait_ms)

    # -- records ---------------------------------------------------------------------------------------------

    def check(self, topic: str, records: Sequence[ProducerRecord]) -> None:
        """Raises what `submit` raises for records that are invalid without asking a broker."""
        self._ensure_own_process()
        check_topics((topic,))
        check_records(records, self.config.max_request_size, self.config.buffer_memory)

    def submit(
        self,
        topic: str,
        records: Sequence[ProducerRecord],
        *,
        block_deadline_ms: int,
        deadline_ms: int,
        done: Done,
        create: bool = True,
        settled: Done | None = None,
        since_ms: int | None = None,
        checked: bool = False,
        in_chunks: bool = False,
    ) -> Ticket:
        """Ends with a ProduceResult: one outcome per record, in order. Never blocks.

        What metadata and memory allow is appended at once; the rest is parked, in order, until
        `block_deadline_ms`. At `deadline_ms` what was never sent is taken back, and what is on its way
        counts as unknown. `create`: asking for an unknown topic may create it. `settled` is posted once, like
        `done`, but when nothing of the request is in the client any more: with it or right after it, or
        later, after a deadline or a cancel, with what became of the records. `since_ms` is when the request
        came, if that was before now: what it waited is counted from there. Checks all records before it
        appends one: raises IllegalArgumentError for a negative partition or timestamp, SerializationError for
        what is no bytes, RecordTooLargeError (PROD-07, PROD-12); IllegalStateError after close.

        `checked`: the records went through `check` already, on whatever thread. `in_portions`: they are many,
        or have long keys, and the caller's thread is not to be held by that: the I/O thread appends them,
        some in each of its turns, and later requests for the topic wait for it.
        """
        self._ensure_open()
        if not records:
            raise IllegalArgumentError("A request needs at least one record.")
        if topic not in self._metadata.cache.topics:
            check_topics((topic,))
        if not checked:
            check_records(records, self.config.max_request_size, self.config.buffer_memory)
        now_ms = self.clock.now_ms()
        request = PendingRequest(
            topic,
            records,
            done,
            self._submissions.finished,
            submitted_ms=now_ms if since_ms is None else since_ms,
            block_deadline_ms=block_deadline_ms,
            deadline_ms=deadline_ms,
            may_create=create,
            settled=settled,
            in_chunks=in_chunks,
        )
        submissions = self._submissions
        submissions.take(request, now_ms)
        return CancelTicket(lambda: submissions.cancel(request))  # without self, which a ticket need not keep

    def send(
        self, record: ProducerRecord, on_done: Callable[[FutureRecordMetadata], None] | None = None
    ) -> FutureRecordMetadata:
        """Appends one record as Java's send does: blocks for at most max.block.ms for metadata and memory.

        What a broker could also have answered (timeouts, authorization, size) is the future's error; a closed
        producer or a wrong argument is raised (PROD-06). `on_done(future)` runs on the I/O thread, in order,
        before a flush ends.
        """
        self._ensure_open()
        future = FutureRecordMetadata(on_done)
        if self._quick_append.append(record, future):
            return future
        check_arguments(record)
        try:
            self._blocking_calls.send(record, future)
        except ApiError as error:
            _log.debug("A record for topic %s was not appended: %s", record.topic, error)
            self._accumulator.failed.add(record.topic, None, 1)
            if self.io_thread.is_over:  # too late for the report of close: so it was never accepted
                raise ProducerClosedError(CLOSED_WHILE_WAITING) from error
            future.fail(error)
        return future

    def flush(self) -> None:
        """Sends all that was accepted, linger or not, and blocks until it is acknowledged or failed.

        Also what is parked for metadata or memory; what was submitted has been told when this returns
        (ACC-12, ORD-02).
        """
        self._ensure_own_process()
        self._blocking_calls.flush()

    # -- the whole -------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Makes the I/O thread turn now: `status().loop_turns` grows if it is alive."""
        self._ensure_own_process()
        self.io_thread.wakeup()

    def status(self) -> ClientStatus:
        """What the client is doing, without waiting for it."""
        self._ensure_own_process()
        io_thread, manager = self.io_thread, self._transaction_manager
        now_ms = self.clock.now_ms()
        return ClientStatus(
            state=io_thread.life_cycle.value,
            loop_turns=io_thread.turns,
            loop_age_ms=max(now_ms - io_thread.last_turn_ms, 0),
            waiting_for_metadata=self._parked.waiting_for_metadata
            + self._lookups.count
            + self._configs.count,
            waiting_for_buffer=self._parked.waiting_for_buffer,
            in_flight_batches=self._sender.in_flight_batches,
            producer_id=None if manager is None else manager.producer_id,
            metadata=metadata_status(self._metadata, self._refreshes, now_ms),
            buffer=self._accumulator.status(now_ms),
            nodes=node_statuses(self._client, now_ms),
        )

    def loop_work(self) -> LoopWork:
        """How long the turns of the I/O thread took, without their sleep. Any thread."""
        self._ensure_own_process()
        return self.io_thread.turn_times.read(failed_turns=self.io_thread.failed_turns)

    def backlog(self) -> Backlog:
        """Which records wait for which node, and which requests for their topic. Walks the batches."""
        self._ensure_own_process()
        cache = self._metadata.answered_cache
        batches = self._accumulator.incomplete()
        return count_backlog(batches, cache.topics, cache.nodes_by_id, self._parked.topic_waits())

    def close(self, timeout_ms: int = FOREVER_MS) -> CloseReport:
        """Sends accepted records for up to timeout_ms, gives up the rest and returns the report (SND-13).

        What is parked is sent too (ORD-03); a `send` that still blocks raises ProducerClosedError. Nothing is
        accepted from here on. Again: the same report. From a callback it gives up at once, since the I/O
        thread can't wait for itself; its report names what is open, of which this turn may still acknowledge
        some (PROD-09).
        """
        if timeout_ms < 0:
            raise IllegalArgumentError("The timeout cannot be negative.")
        self._closed = True
        if self.io_thread.is_inherited:
            return CloseReport()  # the parent has the thread, the sockets and the records
        failed = self._accumulator.failed
        if self.io_thread.is_current:
            if timeout_ms > 0:
                _log.warning("close(%d) inside a callback waits for nothing: it is close(0)", timeout_ms)
            self.io_thread.force_close()
            return failed.report(self.io_thread.still_open())
        self._submissions.close()
        _log.info("Closing the Kafka producer with a timeout of %s ms", timeout_ms)
        try:
            self._close_in(timeout_ms)
        except BaseException:
            # An interrupt (KeyboardInterrupt) ends the wait, as in Java, but not the close.
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
        _log.info(
            "Not all was acknowledged within %s ms, or nothing was waited for: giving it up", timeout_ms
        )
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
