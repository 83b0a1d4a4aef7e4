"""The spool of a sidecar: its folder, its writer, its delivery, and what is told of it.

`submit` on the event loop; `status` on any thread. Made only where spool_folder is set: nothing of it is
loaded otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from client_core import Clock, ConfigError, KafkaProducer, ProducerConfig, ProducerRecord
from service.base.disk import Disk
from service.base.producer_protocol import Producer
from service.base.settings import SIDECAR_DEFAULTS, Settings
from service.base.settings_sources import SettingsError
from service.spool.dead_letters import DeadLetterFolder
from service.spool.delivery import Delivery
from service.spool.folder import FolderError, SpoolFolder, read_mark
from service.spool.lanes import CHUNK_BYTES
from service.spool.requeue import Chosen, Requeued
from service.spool.segments import Segments
from service.spool.writer import Completion, SpoolWriter, WriterLimits

_log: Final = logging.getLogger(__name__)

#: A spool is so many files when it is full, and a file is not larger than this.
_SEGMENTS: Final = 16
_MOST_SEGMENT_BYTES: Final = 16 * 1024 * 1024

#: After how long records in the producer are tried anew: Kafka's default of delivery.timeout.ms.
_DELIVERY_TIMEOUT_MS: Final = 120_000
#: The most that Kafka's settings can say.
_MOST: Final = 2**31 - 1

#: How many topics /v1/status names whose records are refused.
_MOST_REFUSED: Final = 50

Call = Callable[[Callable[[], None]], None]


class Spool:
    """One spool, in a folder that is its own."""

    def __init__(
        self, settings: Settings, producer: Producer, clock: Clock, disk: Disk | None = None
    ) -> None:
        """`producer` is its own, and not started yet. Raises SettingsError where the folder can't be used."""
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
            # What was delivered once is done, though a crash of the machine may have taken it from the end.
            self.segments.next_sequence = max(self.segments.next_sequence, mark.done)
            self.aside: Final = DeadLetterFolder(path, disk, mark)
        except OSError as e:
            self._folder.close()
            raise SettingsError(f"spool_folder: can't read {path}: {e.strerror or e}") from e
        segment_bytes = min(self.max_bytes // _SEGMENTS, _MOST_SEGMENT_BYTES)
        self.writer: Final = SpoolWriter(
            self.segments,
            clock,
            WriterLimits(self.max_bytes, segment_bytes),
            call=lambda function: self._call(function),
            committed=lambda: self.delivery.wake(),
            dead_letter_bytes=lambda: self.aside.total_bytes,
        )
        self.delivery: Final = Delivery(
            self.segments,
            self.aside,
            mark,
            producer,
            clock,
            committed=lambda: self.writer.committed_sequence,
            topic_wait_ms=settings.spool_topic_wait_ms,
            create=settings.auto_create_topics,
            chunk_bytes=min(CHUNK_BYTES, spool_config(settings).max_request_size),
        )

    def start(self, call: Call) -> None:
        """Begins to take records and to deliver them. `call` has a function called on the event loop."""
        self._call = call
        self.delivery.start()
        self.writer.start()
        if self.entries:
            _log.info("spool: %d records of %s are to be delivered", self.entries, self._folder.path)

    def submit(self, records: Sequence[ProducerRecord], on_done: Completion) -> None:
        """See SpoolWriter.submit."""
        self.writer.submit(records, on_done)

    def requeue(self, chosen: Chosen, ended: Callable[[Requeued], None]) -> bool:
        """Puts what was set aside and is chosen behind what is to be delivered; `ended` on the event loop.

        False: too many have asked for it already, or the sidecar ends. `chosen` is called on another thread.
        """
        return self.delivery.requeue(
            self.writer.put_back, chosen, lambda result: self._call(lambda: ended(result))
        )

    def close(self, timeout_ms: int) -> None:
        """Takes nothing more, and delivers what is on its way for so long at most; the rest stays. Blocks."""
        if not self.writer.close(timeout_ms):
            _log.error("spool: the disk did not answer in %d ms; waiting requests get no answer", timeout_ms)
        self.delivery.close(timeout_ms)
        if self.entries:
            _log.info("spool: %d records stay in %s for the next start", self.entries, self._folder.path)
        self.release()

    def release(self) -> None:
        """Lets go of the folder."""
        self._folder.close()

    # -- what is told ----------------------------------------------------------------------------------------

    @property
    def entries(self) -> int:
        """How many records are to be delivered."""
        view = self.delivery.view
        return max(self.writer.committed_sequence - view.read_sequence, 0) + view.undone

    @property
    def bytes(self) -> int:
        """Bytes in the folder, with dead letters."""
        return self.writer.held_bytes

    @property
    def oldest_age_ms(self) -> int | None:
        """Since the oldest record that is to be delivered was accepted; None where there is none."""
        oldest_wall_ms = self.delivery.view.oldest_wall_ms
        return None if oldest_wall_ms is None else max(self._clock.wall_ms() - oldest_wall_ms, 0)

    def status(self, may_read: Callable[[str], bool]) -> dict[str, Any]:
        """The spool's part of GET /v1/status, with no topic that its caller may not read."""
        error = self.delivery.last_error
        refused = [topic for topic in self.delivery.view.refused if may_read(topic.topic)]
        now_ms = self._clock.now_ms()  # read last, so that no age is negative
        return {
            "entries": self.entries,
            "bytes": self.bytes,
            "max_bytes": self.max_bytes,
            "oldest_age_ms": self.oldest_age_ms,
            "set_aside": self.aside.records,
            "damaged_files": self.aside.damaged_files,
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
    """Kafka's settings for the spool's producer: the sidecar's, but nothing overtakes.

    What expires is tried again by its lane, so nothing is lost by a delivery.timeout.ms that does not let
    batches of a topic that is gone stay. The lanes bound what is in memory; buffer.memory would count a whole
    batch for each partition, and what stands still would soon keep all others from theirs. The records of a
    request for one partition are one batch (`whole_requests`): none is delivered ahead of one that was
    refused.

    Raises ConfigError.
    """
    own = settings.producer_config()
    kafka = {
        **SIDECAR_DEFAULTS,
        **settings.kafka,
        "acks": "all",
        "retries": str(_MOST),
        "delivery.timeout.ms": str(max(_DELIVERY_TIMEOUT_MS, own.request_timeout_ms)),
        "buffer.memory": str(_MOST),
        "batch.size": str(min(max(own.batch_size, CHUNK_BYTES), own.max_request_size)),
        "linger.ms": "0",  # a request is a batch already, and nothing else of its topic is sent meanwhile
        "client.id": f"{own.client_id}-spool",
    }
    try:
        config = ProducerConfig.from_mapping(kafka)
        if config.enable_idempotence:
            return config
        return ProducerConfig.from_mapping({**kafka, "max.in.flight.requests.per.connection": "1"})
    except ConfigError as e:
        raise ConfigError(f"{e.message} (of the producer of the spool)", name=e.name) from e


def make_spool(settings: Settings, clock: Clock) -> Spool:
    """The spool that the settings ask for. Raises SettingsError and ConfigError."""
    producer = KafkaProducer(
        spool_config(settings), clock=clock, resolves_later=True, whole_requests=True, keeps_metrics=False
    )
    return Spool(settings, producer, clock)


def _call_now(function: Callable[[], None]) -> None:
    """Before there is an event loop nobody waits on one."""
    function()
