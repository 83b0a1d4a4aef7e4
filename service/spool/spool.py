"""Builds a sidecar's spool: segments, dead letters, writer, delivery. Reports its status.

`submit` is called on the event loop, `status` on any thread. Loaded only if spool_folder is set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from client_core import Clock, ConfigError, KafkaProducer, ProducerConfig, ProducerRecord
from service.base.disk import Disk
from service.base.producer_protocol import Producer
from service.base.settings import Settings, with_sidecar_defaults
from service.base.settings_sources import SettingsError
from service.spool.dead_letters import DeadLetterFolder
from service.spool.delivery import Delivery
from service.spool.folder import FolderError, SpoolFolder, read_mark
from service.spool.lanes import CHUNK_BYTES
from service.spool.requeue import Chosen, Requeued
from service.spool.segments import Segments
from service.spool.writer import Completion, SpoolWriter

_log: Final = logging.getLogger(__name__)

#: The number of files in a full spool (more if the files would be too large), and the most bytes of one.
_SEGMENTS: Final = 16
_MOST_SEGMENT_BYTES: Final = 16 * 1024 * 1024

#: Kafka's default of delivery.timeout.ms; after it, the lane sends the records again.
_DELIVERY_TIMEOUT_MS: Final = 120_000
#: The largest value of Kafka's integer settings.
_MOST: Final = 2**31 - 1

#: The most refused topics that /v1/status lists.
_MOST_REFUSED: Final = 50

Call = Callable[[Callable[[], None]], None]


class Spool:
    """One spool in its own folder."""

    def __init__(
        self, settings: Settings, producer: Producer, clock: Clock, disk: Disk | None = None
    ) -> None:
        """`producer` is the spool's own, not started yet. Raises SettingsError if the folder is unusable."""
        disk = Disk() if disk is None else disk
        path = Path(settings.spool_folder)
        self._clock = clock
        self._call: Call = _call_now
        self.max_bytes: Final = settings.spool_max_bytes
        try:
            self._folder = SpoolFolder(path)
        except FolderError as e:
            raise SettingsError(f"spool_folder: {e}") from e
        try:
            mark = read_mark(path, disk)
            self.segments: Final = Segments(path, disk)
            self.dead_letters: Final = DeadLetterFolder(path, disk, mark)
            self.segments.skip_to(max(mark.done, self.dead_letters.last_sequence + 1))
        except OSError as e:
            self._folder.close()
            raise SettingsError(f"spool_folder: can't read {e.filename or path}: {e.strerror or e}") from e
        segment_bytes = min(self.max_bytes // _SEGMENTS, _MOST_SEGMENT_BYTES)
        self.writer: Final = SpoolWriter(
            self.segments,
            clock,
            max_bytes=self.max_bytes,
            segment_bytes=segment_bytes,
            call=lambda function: self._call(function),
            committed=lambda: self.delivery.wake(),
            dead_letter_bytes=lambda: self.dead_letters.total_bytes,
            keep_folder=self._folder.keep,
        )
        self.delivery: Final = Delivery(
            self.segments,
            self.dead_letters,
            mark,
            producer,
            clock,
            committed=lambda: self.writer.committed_sequence,
            keep_folder=self._folder.keep,
            topic_wait_ms=settings.spool_topic_wait_ms,
            create=settings.auto_create_topics,
            chunk_bytes=min(CHUNK_BYTES, spool_config(settings).max_request_size),
        )

    def start(self, call: Call) -> None:
        """Starts to accept and deliver records. `call` runs a function on the event loop."""
        self._call = call
        self.delivery.start()
        self.writer.start()
        if self.entries:
            _log.info("spool: %d records of %s are to be delivered", self.entries, self._folder.path)

    def submit(self, records: Sequence[ProducerRecord], on_done: Completion) -> None:
        """Queues records for the writer; see SpoolWriter.submit."""
        self.writer.submit(records, on_done)

    def requeue(self, chosen: Chosen, ended: Callable[[Requeued], None]) -> bool:
        """Moves the chosen dead letters back into the spool, behind the waiting records.

        `ended` runs on the event loop, `chosen` on another thread. Returns False at a limit.
        """
        return self.delivery.requeue(
            self.writer.put_back, chosen, lambda result: self._call(lambda: ended(result))
        )

    def close(self, timeout_ms: int) -> None:
        """Stops accepting records, and waits for those in flight; the others stay on the disk. Blocks.

        The writer, the delivery's thread and the producer get at most `timeout_ms` each.
        """
        if not self.writer.close(timeout_ms):
            _log.error("spool: the disk did not answer in %d ms; waiting requests get no answer", timeout_ms)
        self.delivery.close(timeout_ms)
        if self.entries:
            _log.info("spool: %d records stay in %s for the next start", self.entries, self._folder.path)
        self.release()

    def release(self) -> None:
        """Releases the folder's lock."""
        self._folder.close()

    # -- status ----------------------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """The number of records to deliver."""
        view = self.delivery.view
        return max(self.writer.committed_sequence - view.done, 0) + view.undone

    @property
    def bytes(self) -> int:
        """Bytes in the folder, including dead letters."""
        return self.writer.held_bytes

    @property
    def oldest_age_ms(self) -> int | None:
        """Milliseconds since the oldest undelivered record was accepted; None if there is none."""
        oldest_wall_ms = self.delivery.view.oldest_wall_ms
        return None if oldest_wall_ms is None else max(self._clock.wall_ms() - oldest_wall_ms, 0)

    def status(self, may_read: Callable[[str], bool]) -> dict[str, Any]:
        """Returns the spool's part of GET /v1/status, without topics that the caller may not read."""
        error = self.delivery.last_error
        refused = [topic for topic in self.delivery.view.refused if may_read(topic.topic)]
        now_ms = self._clock.now_ms()  # read last, so that no age is negative
        return {
            "entries": self.entries,
            "bytes": self.bytes,
            "max_bytes": self.max_bytes,
            "oldest_age_ms": self.oldest_age_ms,
            "set_aside": self.dead_letters.records,
            "damaged_files": self.dead_letters.damaged_files,
            "last_error": None if error is None else error.kafka_error,
            "last_error_age_ms": None if error is None else now_ms - error.at_ms,
            "refused": [
                {
                    "topic": topic,
                    "records": records,
                    "reason": reason,
                    "detail": detail,
                    "refused_ms": now_ms - since_ms,
                }
                for topic, records, reason, since_ms, detail in refused[:_MOST_REFUSED]
            ],
        }


def spool_config(settings: Settings) -> ProducerConfig:
    """Returns the configuration of the spool's producer: the sidecar's, changed so that order is kept.

    delivery.timeout.ms is limited, so that batches of a deleted topic leave the producer. Nothing is lost:
    the lane sends expired records again. buffer.memory is not limited, because the lanes bound the memory.
    It counts a whole batch per partition, so stalled topics would soon block the others. The records of a
    request for one partition form one batch (`whole_requests`): none is delivered before one that was
    refused.

    Raises ConfigError.
    """
    own = settings.producer_config()
    kafka = {
        **with_sidecar_defaults(settings.kafka),
        "acks": "all",
        "retries": str(_MOST),
        "delivery.timeout.ms": str(max(_DELIVERY_TIMEOUT_MS, own.request_timeout_ms)),
        "buffer.memory": str(_MOST),
        "batch.size": str(min(max(own.batch_size, CHUNK_BYTES), own.max_request_size)),
        "linger.ms": "0",  # a request is one batch already, and its topic has no other in flight
        "client.id": f"{own.client_id}-spool",
    }
    try:
        config = ProducerConfig.from_mapping(kafka)
        if config.enable_idempotence:
            return config
        return ProducerConfig.from_mapping({**kafka, "max.in.flight.requests.per.connection": "1"})
    except ConfigError as e:
        raise ConfigError(f"{e.message} (the spool's producer)", name=e.name) from e


def make_spool(settings: Settings, clock: Clock) -> Spool:
    """Returns the spool for the settings, with its own producer. Raises SettingsError and ConfigError."""
    producer = KafkaProducer(
        spool_config(settings),
        clock=clock,
        resolves_later=True,
        spreads_refreshes=True,
        whole_requests=True,
        keeps_metrics=False,
    )
    return Spool(settings, producer, clock)


def _call_now(function: Callable[[], None]) -> None:
    """Calls at once: before the event loop runs, no request waits on it."""
    function()
