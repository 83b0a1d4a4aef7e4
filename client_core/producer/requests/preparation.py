"""Prepares a record before it is checked: interceptors may replace it, then serializers make bytes of it.

Interceptors see each record as the caller gave it, and later what became of it. An interceptor that raises is
logged once, and its record continues without it. One that returns no record, and a serializer that raises,
fail their record alone. Caller's thread; acknowledgements run where the producer reports them. Source:
ProducerInterceptors, Serializer, KafkaProducer.doSend, Kafka 4.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from client_core.errors import IllegalArgumentError, SerializationError
from client_core.producer.results.producer_record import K, ProducerRecord, RecordMetadata, V
from client_core.producer.results.status import do_nothing
from client_core.uncaught import is_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.producer.results.future_record_metadata import FutureRecordMetadata
    from client_core.producer.results.ticket import Done, Result

_Given = TypeVar("_Given")

_log: Final = logging.getLogger(__name__)

#: The partition (if none was chosen) and the timestamp of a failed record.
_UNKNOWN: Final = -1


class ProducerInterceptor(Generic[K, V]):
    """Sees each record on its way out and its acknowledgement. Override what you need.

    The producer calls `on_send` on the sender's thread, `on_acknowledgement` on the I/O thread, or on the
    event loop for AsyncKafkaProducer. Neither may block. Source: ProducerInterceptor, Kafka 4.3.
    """

    def on_send(self, record: ProducerRecord[K, V]) -> ProducerRecord[K, V]:
        """Returns the record to send: the same, or another one. Called before the serializers."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Called once per record, before the caller's own callback.

        Of a record that failed, `metadata` has offset None and timestamp -1. Its partition is -1 if none was
        chosen, or if a `submit` reached its deadline while the record was in flight.
        """

    def close(self) -> None:
        """Called once, when the producer is closed."""


class Preparation(Generic[K, V]):
    """A producer's interceptors and serializers.

    A serializer is never given None: it stays the null of a tombstone, or no key.
    """

    def __init__(
        self,
        key_serializer: Callable[[K], bytes | None] | None,
        value_serializer: Callable[[V], bytes | None] | None,
        interceptors: Sequence[ProducerInterceptor[K, V]],
    ) -> None:
        self._serialize_key = key_serializer
        self._serialize_value = value_serializer
        self._interceptors = tuple(interceptors)
        self._logged: set[tuple[int, str]] = set()
        #: Called with the topic and the number of records that are refused here.
        self.count_refused: Callable[[str, int], None] = do_nothing

    @property
    def changes_nothing(self) -> bool:
        """Returns whether records are sent unchanged, and nothing must be called."""
        return not self._interceptors and self._serialize_key is None and self._serialize_value is None

    def prepared(self, record: ProducerRecord[K, V]) -> ProducerRecord:
        """Returns the record to append.

        Raises SerializationError, with the serializer's exception as cause, and IllegalArgumentError for an
        interceptor that returns no record. Interceptors are notified of the record.
        """
        return self.all_prepared((record,))[0]

    def _prepared(self, record: ProducerRecord[K, V]) -> ProducerRecord:
        try:
            for interceptor in self._interceptors:
                record = self._seen_by(interceptor, record)
            value = _bytes_of(record.topic, "value", record.value, self._serialize_value)
            key = _bytes_of(record.topic, "key", record.key, self._serialize_key)
        except (IllegalArgumentError, SerializationError) as error:
            self.failed(record, error)
            raise
        return ProducerRecord(record.topic, value, key, record.partition, record.timestamp_ms, record.headers)

    def _seen_by(
        self, interceptor: ProducerInterceptor[K, V], record: ProducerRecord[K, V]
    ) -> ProducerRecord[K, V]:
        try:
            made: object = interceptor.on_send(record)
        except Exception:  # noqa: BLE001 -- user code: the record continues without it
            self._log_once(interceptor, "on_send")
            return record
        if not isinstance(made, ProducerRecord):
            raise IllegalArgumentError(
                f"Interceptor {type(interceptor).__name__}.on_send returned a {type(made).__name__} for "
                f"topic {record.topic}; it must return a ProducerRecord"
            )
        return made

    def failed(self, record: ProducerRecord[object, object], error: Exception) -> None:
        """Notifies the interceptors of a record that failed before a partition was chosen for it."""
        self.acknowledged(_place_of(record, None), error)

    def all_prepared(self, records: Sequence[ProducerRecord[K, V]]) -> list[ProducerRecord]:
        """Returns a request's records to append: all of them, or it raises what `prepared` raises."""
        made: list[ProducerRecord] = []
        try:
            made.extend(map(self._prepared, records))  # those before the one that raises stay in it
        except (IllegalArgumentError, SerializationError) as error:
            self.all_failed(made, error)
            self.count_refused(records[0].topic, len(records))
            raise
        return made

    def all_failed(self, records: Sequence[ProducerRecord], error: Exception) -> None:
        for record in records:
            self.failed(record, error)

    def before(
        self, on_done: Callable[[FutureRecordMetadata], None] | None, record: ProducerRecord
    ) -> Callable[[FutureRecordMetadata], None] | None:
        """Returns the callback of a record's future: first the interceptors, then `on_done`."""
        if not self._interceptors:
            return on_done

        def notify(future: FutureRecordMetadata) -> None:
            error = future.exception()
            receipt = future.result() if error is None else None
            self.ended(record, receipt, future.partition, error)
            if on_done is not None:
                on_done(future)

        return notify

    def ended(
        self,
        record: ProducerRecord,
        receipt: RecordMetadata | None,
        partition: int | None,
        error: Exception | None,
    ) -> None:
        """Notifies the interceptors of a receipt; without one, of an error and of the partition, if known."""
        self.acknowledged(_place_of(record, partition) if receipt is None else receipt, error)

    def notified(
        self, records: Sequence[ProducerRecord], done: Done, settled: Done | None = None
    ) -> tuple[Done, Done | None]:
        """Returns the `done` and the `settled` of a request: each first notifies the interceptors, once.

        Of a cancelled request only `settled` is posted.
        """
        if not self._interceptors:
            return done, settled
        is_notified = False

        def notify(result: Result) -> None:
            nonlocal is_notified
            if is_notified:
                return
            is_notified = True
            for record, outcome in zip(records, result.outcomes, strict=True):
                if isinstance(outcome, RecordMetadata):
                    self.acknowledged(outcome, None)
                else:
                    self.ended(record, None, outcome.partition, outcome.error)

        def notify_first(result: Result) -> None:
            notify(result)
            done(result)

        def notify_at_last(result: Result) -> None:
            notify(result)
            if settled is not None:
                settled(result)

        return notify_first, notify_at_last

    def acknowledged(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Notifies the interceptors of a record's outcome."""
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except BaseException as failure:  # user code: the next one and the record's waiter still are
                if is_interrupt(failure):
                    raise
                self._log_once(interceptor, "on_acknowledgement")

    def close(self) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.close()
            except BaseException as failure:  # user code: the next one is still closed
                if is_interrupt(failure):
                    raise
                self._log_once(interceptor, "close")

    def _log_once(self, interceptor: ProducerInterceptor[K, V], method: str) -> None:
        place = (id(interceptor), method)
        if place not in self._logged:
            self._logged.add(place)
            name = type(interceptor).__name__
            _log.exception(
                "Interceptor %s.%s raised an exception, which is ignored; later ones are not logged",
                name,
                method,
            )


def _place_of(record: ProducerRecord[object, object], partition: int | None) -> RecordMetadata:
    chosen = record.partition if partition is None else partition
    return RecordMetadata(record.topic, _UNKNOWN if chosen is None else chosen, None, _UNKNOWN)


def _bytes_of(
    topic: str, what: str, given: _Given | None, serialize: Callable[[_Given], bytes | None] | None
) -> bytes | None:
    if serialize is None or given is None:
        return cast("bytes | None", given)  # other types are rejected by the record checks
    try:
        made = serialize(given)
    except Exception as error:
        raise SerializationError(
            f"The serializer of the {what} failed on a {type(given).__name__} for topic {topic}: {error}"
        ) from error
    if made is not None and not isinstance(made, bytes):
        raise SerializationError(
            f"The serializer of the {what} returned a {type(made).__name__} for topic {topic}; "
            "it must return bytes or None"
        )
    return made
