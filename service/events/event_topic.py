"""Sends event lines to a Kafka topic, through a producer of its own (buffer, connections).

Records have the sidecar's id as key, so that the events of one sidecar stay in order in one partition. The
unacknowledged bytes are bounded. A line that could not be sent goes back to the outbox, and sending pauses.
Such a line may be in the topic nevertheless, and then be in it twice. So readers must ignore a line whose
boot and number they have already read. The producer's own events are not logged, or each event would cause
others.

Event log's thread, except `_done`, which the producer's I/O thread calls.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from client_core import (
    FOREVER_MS,
    ConfigError,
    InvalidRecordError,
    KafkaError,
    KafkaProducer,
    ProducerConfig,
    ProducerRecord,
    RecordFailure,
    RecordTooLargeError,
    Result,
    UnknownTopicOrPartitionError,
)
from service.base.producer_protocol import Producer
from service.base.settings import Settings, with_sidecar_defaults
from service.events.outbox import Line, Outbox

_log: Final = logging.getLogger(__name__)

#: The most bytes of lines in one submit, and of all in flight: a few batches.
CHUNK_BYTES: Final = 128 * 1024
MOST_IN_FLIGHT_BYTES: Final = 1024 * 1024

#: The wait for a topic that is not known yet, and the pause after a failed request.
TOPIC_WAIT_MS: Final = 10_000
PAUSE_MS: Final = 5_000

#: The longest time for sending at the end, if sending failed before.
_CLOSE_WITH_FAULT_MS: Final = 1_000

#: How long batches of events wait to be filled, if delivery.timeout.ms allows it.
_LINGER_MS: Final = 1_000

#: Where the event producer differs from the sidecar's. Lines are similar: they compress tenfold.
_OF_EVENTS: Final[Mapping[str, str]] = {
    "compression.type": "zstd",
    "batch.size": str(CHUNK_BYTES),
    "buffer.memory": str(4 * MOST_IN_FLIGHT_BYTES),
    "partitioner.ignore.keys": "false",
}

#: Errors of a record that a retry cannot fix.
_HOPELESS: Final = (RecordTooLargeError, InvalidRecordError)


def events_config(settings: Settings) -> ProducerConfig:
    """Returns the configuration of the event producer.

    It is the sidecar's, with its own linger.ms, its own client.id and the differences in `_OF_EVENTS`.
    Raises ConfigError.
    """
    own = settings.producer_config()
    linger_ms = min(_LINGER_MS, max(own.delivery_timeout_ms - own.request_timeout_ms, 0))
    return ProducerConfig.from_mapping(
        {
            **with_sidecar_defaults(settings.kafka),
            **_OF_EVENTS,
            "linger.ms": str(linger_ms),
            "client.id": f"{own.client_id}-events",
        }
    )


class EventTopic:
    """A sink that sends to a topic."""

    name: Final = "topic"

    def __init__(
        self,
        producer: Producer,
        topic: str,
        key: str,
        *,
        delivery_timeout_ms: int,
        create: bool,
        call: Callable[[], None],
    ) -> None:
        """Owns the producer: starts and closes it. `call` wakes the event log after a request has ended.

        `create`: looking up the topic may create it.
        """
        self._producer = producer
        self._topic = topic
        self._key = key.encode()
        self._delivery_timeout_ms = delivery_timeout_ms
        self._create = create
        self._call = call
        self._answered: deque[tuple[Sequence[Line], Result]] = deque()
        self._resumes_ms = 0
        self._has_failed = False
        self.in_flight_bytes = 0
        self.written = 0
        self._refused = 0

    def begin(self) -> None:
        """Starts the producer."""
        self._producer.start()

    def turn(self, outbox: Outbox, now_ms: int) -> None:
        """Puts back lines that could not be sent, and submits as many as may be in flight."""
        self._hear(outbox, now_ms)
        while now_ms >= self._resumes_ms and self.in_flight_bytes < MOST_IN_FLIGHT_BYTES:
            lines = outbox.take(CHUNK_BYTES)
            if not lines:
                return
            self._submit(outbox, lines, now_ms)

    def close(self, outbox: Outbox, deadline_ms: int) -> None:
        """Sends the remaining lines until the deadline; unacknowledged ones go back to the outbox."""
        clock = self._producer.clock
        if self._has_failed:
            deadline_ms = min(deadline_ms, clock.now_ms() + _CLOSE_WITH_FAULT_MS)
        self._resumes_ms = 0
        heard = threading.Condition()
        self._call = lambda: _notify(heard)
        while True:
            now_ms = clock.now_ms()
            self.turn(outbox, now_ms)
            if not outbox or now_ms >= deadline_ms or self._resumes_ms:
                break
            with heard:
                clock.wait_for(heard, lambda: bool(self._answered), deadline_ms)
        # This also sends the batches that still linger.
        self._producer.close(max(deadline_ms - clock.now_ms(), 0))
        self._hear(outbox, FOREVER_MS)

    # -- sending ---------------------------------------------------------------------------------------------

    def _submit(self, outbox: Outbox, lines: list[Line], now_ms: int) -> None:
        """Submits lines that left the outbox. Those that an exception keeps from it are put back."""
        left = deque([lines])
        try:
            while left:
                if self._is_accepted(left[0], now_ms):
                    left.popleft()
                    continue
                too_large = left.popleft()
                if len(too_large) == 1:
                    self._refuse(outbox, too_large, "larger than max.request.size")
                else:  # only the one that is too large is lost
                    left.extend([line] for line in too_large)
        except BaseException:
            outbox.put_back([line for some in left for line in some])
            raise

    def _is_accepted(self, lines: list[Line], now_ms: int) -> bool:
        """Submits lines; returns False if one is too large for a request."""
        waiting_bytes = sum(len(line.data) for line in lines)
        records = [ProducerRecord(self._topic, line.data, key=self._key) for line in lines]
        self.in_flight_bytes += waiting_bytes
        try:
            self._producer.submit(
                self._topic,
                records,
                block_deadline_ms=now_ms + TOPIC_WAIT_MS,
                deadline_ms=now_ms + TOPIC_WAIT_MS + self._delivery_timeout_ms,
                done=lambda result: self._done(lines, result),
                create=self._create,
            )
        except BaseException as error:
            self.in_flight_bytes -= waiting_bytes
            if isinstance(error, RecordTooLargeError):
                return False
            raise
        return True

    def _done(self, lines: Sequence[Line], result: Result) -> None:
        """Queues a result. Producer's I/O thread."""
        self._answered.append((lines, result))
        self._call()

    def _hear(self, outbox: Outbox, now_ms: int) -> None:
        """Handles the results of submitted lines."""
        failed: list[Line] = []
        try:
            while self._answered:
                lines, result = self._answered[0]
                outcomes = result.outcomes  # without memory for them they are read in the next turn
                self._answered.popleft()
                self.in_flight_bytes -= sum(len(line.data) for line in lines)
                for line, outcome in zip(lines, outcomes, strict=True):
                    if not isinstance(outcome, RecordFailure):
                        self.written += 1
                        self._recovered()
                    elif isinstance(outcome.error, _HOPELESS):
                        self._refuse(outbox, [line], str(outcome.error))
                    else:
                        failed.append(line)
                        self._report(outcome.error)
        finally:
            if failed:
                self._resumes_ms = now_ms + PAUSE_MS
                outbox.put_back(failed)

    # -- faults ----------------------------------------------------------------------------------------------

    def _refuse(self, outbox: Outbox, lines: list[Line], why: str) -> None:
        outbox.lose(lines)
        if not self._refused:
            _log.warning(
                "events_topic %s: an event was refused and is lost: %s. Similar events will also be lost",
                self._topic,
                why,
            )
        self._refused += len(lines)

    def _report(self, error: KafkaError) -> None:
        """Logs a fault once, until lines are acknowledged again."""
        if not self._has_failed:
            is_missing = isinstance(error.__cause__, UnknownTopicOrPartitionError)
            fault = "it does not exist: create it (docs/events.md)" if is_missing else error
            _log.warning("events_topic %s: %s; events wait in memory", self._topic, fault)
        self._has_failed = True

    def _recovered(self) -> None:
        if self._has_failed:
            self._has_failed = False
            _log.info("events_topic %s: events are acknowledged again", self._topic)


def _notify(condition: threading.Condition) -> None:
    with condition:
        condition.notify_all()


def make_event_topic(settings: Settings, key: str, call: Callable[[], None]) -> EventTopic:
    """Returns a sink with its own producer, which is not started yet. Raises ConfigError."""
    try:
        config = events_config(settings)
    except ConfigError as error:
        message = f"{error.message} (in the configuration of the producer of events)"
        raise ConfigError(message, name=error.name) from error
    return EventTopic(
        KafkaProducer(config, resolves_later=True, spreads_refreshes=True, keeps_metrics=False),
        settings.events_topic,
        key,
        delivery_timeout_ms=config.delivery_timeout_ms,
        create=settings.auto_create_topics,
        call=call,
    )
