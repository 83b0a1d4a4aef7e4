"""Turns the client's events and snapshots into event v1, on its own thread.

    client ──▶ inbox ──▶ windows, comparison of snapshots, heartbeats ──▶ one outbox per sink ──▶ sinks

A turn takes new input, does a limited piece of work, and lets the sinks send what they can. If there is much
to report (a hundred thousand partitions at the start), turns are short, with pauses in between: other threads
need the interpreter. Snapshots are compared only while a sink accepts lines. Windows and heartbeats cannot
wait: if no sink accepts lines, they displace the oldest lines. `make_event_log` makes the log that the
settings describe.

Threads: `wants` and `emit` on the client's, `turn` on the log's or a test's, `start` and `close` on any.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final, NamedTuple

from client_core import FOREVER_MS, Clock, MetadataRefreshFailed, NodeDisconnected, NodeReady, UncaughtErrors
from service.base.producer_protocol import Producer
from service.base.settings import Settings
from service.base.version import pilotfish_version
from service.events.event_files import EventFiles, FileLimits
from service.events.event_topic import make_event_topic
from service.events.event_v1 import (
    TYPE_NAMES,
    ConnectionEvent,
    Event,
    HeartbeatEvent,
    Origin,
    PartitionEvent,
    RefreshEvent,
    WindowEvent,
    encode,
    time_text,
)
from service.events.inbox import Inbox, LeftOut, Notice, SnapshotNotice
from service.events.outbox import Channel, Line, Outbox, Sink, all_unreported
from service.events.produce_windows import ProduceWindow
from service.events.reported_metadata import PIECE, ReportedMetadata

_log: Final = logging.getLogger(__name__)

#: The longest time until new input is processed, and until lines are in the file.
TICK_MS: Final = 1_000
#: The pause between two turns while there is more work, for other threads.
PAUSE_MS: Final = 2
#: Finished batches that one turn adds to their window: about 2 ms.
FINISHED_PER_TURN: Final = 1_000

#: A boot id is the second of the start since 1970, then this many random bits. It is below 2^53, so that
#: readers that have only floating-point numbers keep it exactly.
_CHANCE_BITS: Final = 21

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")

#: Marks the end of the events.
_IT_ENDED: Final = Event(observed_at="")


class EventLogConfig(NamedTuple):
    """The settings of the event log."""

    window_ms: int
    heartbeat_ms: int
    max_waiting_bytes: int
    version: str


class EventLog:
    """A Subscriber of the client's events. Start it before the client, and close it after the client."""

    def __init__(self, origin: Origin, config: EventLogConfig, clock: Clock) -> None:
        self._origin = origin
        self._config = config
        self._clock = clock
        self._producer: Producer | None = None
        self._condition = threading.Condition()
        self._called = False
        self._close_by_ms: int | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pilotfish-events", daemon=True)
        self._inbox = Inbox(clock, self.call)
        #: The client calls the inbox's methods directly, which saves a call.
        self.wants: Final = self._inbox.wants
        self.emit: Final = self._inbox.emit
        self._channels: list[Channel] = []
        self._queued = dict.fromkeys(TYPE_NAMES, 0)
        self._seq = 0
        self._began_ms = clock.now_ms()
        self._cluster_id: str | None = None
        self._reported = ReportedMetadata()
        self._reporting: Iterator[Event | None] = iter(())
        self._window = ProduceWindow(self._began_ms)
        self._window_events: list[WindowEvent] = []
        self._heartbeat_at_ms = self._began_ms
        self._uncaught = UncaughtErrors(_log, "the event log")

    def __repr__(self) -> str:
        sinks = ", ".join(channel.sink.name for channel in self._channels)
        return f"<EventLog {self._origin.sidecar_id} to {sinks} seq={self._seq}>"

    # -- any thread ------------------------------------------------------------------------------------------

    def add_sink(self, sink: Sink) -> None:
        """Adds a destination of lines. Called before the start."""
        self._channels.append(Channel(sink, Outbox(self._config.max_waiting_bytes)))

    def follow(self, producer: Producer) -> None:
        """Sets the producer whose events are reported. Called before the start."""
        self._producer = producer
        self._inbox.follow(lambda: producer.cache)

    def start(self) -> None:
        """Starts the thread. Called once."""
        self._thread.start()

    def call(self) -> None:
        """Makes the log process its input now, not at its next tick."""
        with self._condition:
            self._called = True
            self._condition.notify_all()

    def close(self, timeout_ms: int) -> None:
        """Writes the remaining events and a last heartbeat; waits at most `timeout_ms`. Idempotent.

        If a sink hangs, the thread is abandoned, and ends with the process.
        """
        with self._condition:
            if self._close_by_ms is None:
                self._close_by_ms = self._clock.now_ms() + timeout_ms
            self._condition.notify_all()
        if self._thread.ident is not None and not self._ended.wait(timeout_ms / 1000):
            _log.warning("not all events were delivered within %d ms", timeout_ms)

    @property
    def failed_turns(self) -> int:
        """Turns that ended with an exception, of the log or of one of its sinks."""
        return self._uncaught.count

    @property
    def queued(self) -> Mapping[str, int]:
        """Events by type, since the start."""
        return self._queued

    @property
    def left_out(self) -> LeftOut:
        """What came too fast to be reported."""
        left_out = self._inbox.left_out
        return left_out._replace(batches=left_out.batches + self._window.left_out)

    @property
    def channels(self) -> Sequence[Channel]:
        return self._channels

    @property
    def dropped(self) -> int:
        """Events that were numbered, but never reached a sink."""
        return sum(outbox.dropped for _, outbox in self._channels)

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._guarded(self.begin)
            while self._close_by_ms is None:
                self._wait_until(self._guarded(self.turn))
                if self._uncaught.unreported:
                    self._uncaught.sum_up_when_due(self._clock.now_ms())
            self._guarded(lambda: self.end(self._close_by_ms or 0))
            self._uncaught.end(self._clock.now_ms())
        finally:
            self._ended.set()

    def _guarded(self, step: Callable[[], int | None]) -> int | None:
        try:
            return step()
        except BaseException as error:  # noqa: BLE001 -- outermost, also for sinks: must not end the log
            self._uncaught.report(error, self._clock.now_ms())
            return None

    def _wait_until(self, due_ms: int | None) -> None:
        deadline_ms = self._clock.now_ms() + TICK_MS if due_ms is None else due_ms
        with self._condition:
            self._clock.wait_for(
                self._condition, lambda: self._called or self._close_by_ms is not None, deadline_ms
            )
            self._called = False

    def begin(self) -> None:
        """Starts the sinks. Called once, before the first turn. Event log's thread, or a test's.

        The first event of a boot is a heartbeat, however soon the boot ends.
        """
        for sink, _ in self._channels:
            sink.begin()
        self._beat(self._clock.now_ms())

    def turn(self) -> int:
        """Does a piece of the work; returns the now_ms by which it must be called again."""
        now_ms = self._clock.now_ms()
        if now_ms >= self._heartbeat_at_ms:
            self._beat(now_ms)
        has_more = self._take_finished()
        window_ends_ms = self._window.started_ms + self._config.window_ms
        if now_ms >= window_ends_ms:
            self._close_window(now_ms)
            window_ends_ms = now_ms + self._config.window_ms
        has_more |= self._report_windows()
        has_more |= self._report_metadata()
        self._turn_sinks(now_ms)
        due_ms = PAUSE_MS if has_more else TICK_MS
        return min(now_ms + due_ms, window_ends_ms, self._heartbeat_at_ms)

    def end(self, deadline_ms: int) -> None:
        """Queues the remaining events and a last heartbeat, and closes the sinks; until the deadline."""
        while self._take_finished():
            self._turn_sinks(self._clock.now_ms())
        self._close_window(self._clock.now_ms())
        while self._report_windows() or self._report_metadata():
            self._turn_sinks(self._clock.now_ms())
            if self._clock.now_ms() >= deadline_ms:
                break
        self._heartbeat(self._clock.now_ms())
        for sink, outbox in self._channels:
            self._guarded(partial(sink.close, outbox, deadline_ms))
            lost = outbox.take(FOREVER_MS)
            outbox.lose(lost)
            if lost:
                _log.warning(
                    "%d events were not delivered to the %s before the shutdown", len(lost), sink.name
                )

    def _turn_sinks(self, now_ms: int) -> None:
        """Runs each sink by itself: an exception in one must not keep lines from the other."""
        for sink, outbox in self._channels:
            self._guarded(partial(sink.turn, outbox, now_ms))

    # -- events to report ------------------------------------------------------------------------------------

    def _take_finished(self) -> bool:
        """Adds finished batches to their window; returns whether more are waiting."""
        finished = self._inbox.take_finished(FINISHED_PER_TURN)
        self._window.add(finished)
        return len(finished) == FINISHED_PER_TURN

    def _close_window(self, now_ms: int) -> None:
        self._window_events += self._window.close(now_ms, self._clock.wall_ms())

    def _report_windows(self) -> bool:
        """Queues rows of closed windows; returns whether there are more."""
        for event in self._window_events[:PIECE]:
            self._queue(event)
        del self._window_events[:PIECE]
        return bool(self._window_events)

    def _report_metadata(self) -> bool:
        """Queues a piece of the snapshots' changes, and notices; returns whether there may be more at once.

        Returns False while no sink has room. A sink may call `call` once it has room; the next tick checks
        anyway.
        """
        had_room = False
        while any(outbox.has_room for _, outbox in self._channels):
            had_room = True
            event = next(self._reporting, _IT_ENDED)
            if event is None:
                break
            if event is not _IT_ENDED:
                self._queue(event)
                continue
            notice = self._inbox.take_notice()
            if notice is None:
                return False
            self._reporting = self._events_of(notice)
        return had_room

    def _events_of(self, notice: Notice) -> Iterator[Event | None]:
        if isinstance(notice, SnapshotNotice):
            yield from self._snapshot_events(notice)
        elif isinstance(notice.event, MetadataRefreshFailed):
            yield self._failure_event(notice.wall_ms, notice.event)
        else:
            yield _connection_event(notice.wall_ms, notice.event)

    def _snapshot_events(self, notice: SnapshotNotice) -> Iterator[Event | None]:
        changed, cache = 0, notice.cache
        if cache is not None:
            self._cluster_id = cache.cluster_id
            unreported = all_unreported(outbox.take_unreported() for _, outbox in self._channels)
            for event in self._reported.report(notice, cache, unreported):
                changed += isinstance(event, PartitionEvent)
                yield event
        refreshed = notice.refreshed
        if refreshed is not None:
            yield RefreshEvent(
                observed_at=time_text(notice.wall_ms),
                duration_us=refreshed.duration_ms * 1000,
                broker=refreshed.node_id,
                topics=refreshed.topics,
                partitions=refreshed.partitions,
                changed=changed,
                reason=refreshed.reason,
                outcome="ok",
                metadata_version=refreshed.update_version,
            )

    def _failure_event(self, wall_ms: int, failed: MetadataRefreshFailed) -> Event:
        cache = self._reported.cache
        return RefreshEvent(
            observed_at=time_text(wall_ms),
            duration_us=failed.duration_ms * 1000,
            broker=failed.node_id,
            topics=len(cache.topics),
            partitions=cache.partition_total,
            changed=0,
            reason=failed.reason,
            outcome=failed.outcome,
            metadata_version=cache.update_version,
        )

    def _beat(self, now_ms: int) -> None:
        self._heartbeat_at_ms = now_ms + self._config.heartbeat_ms
        self._heartbeat(now_ms)

    def _heartbeat(self, now_ms: int) -> None:
        if self._producer is None:
            return
        metadata = self._producer.status().metadata
        self._queue(
            HeartbeatEvent(
                observed_at=time_text(self._clock.wall_ms()),
                uptime_ms=now_ms - self._began_ms,
                dropped=self.dropped,
                topics=metadata.topics,
                partitions=metadata.partitions,
                metadata_max_age_ms=metadata.max_age_ms,
                version=self._config.version,
            )
        )

    def _queue(self, event: Event) -> None:
        """Numbers an event, and queues its line for each sink."""
        self._seq += 1
        event.sidecar_id, event.service, event.boot_id = self._origin
        event.seq = self._seq
        if event.cluster_id is None:
            event.cluster_id = self._cluster_id
        self._queued[event.type] += 1
        line = Line(encode(event), event.topic if isinstance(event, PartitionEvent) else None)
        for _, outbox in self._channels:
            outbox.put(line)


def _connection_event(wall_ms: int, event: NodeReady | NodeDisconnected) -> Event:
    return ConnectionEvent(
        observed_at=time_text(wall_ms),
        broker=event.node_id,
        state="ready" if isinstance(event, NodeReady) else "disconnected",
        reason=None if isinstance(event, NodeReady) else event.reason,
    )


# -- from settings -------------------------------------------------------------------------------------------


def make_event_log(settings: Settings, clock: Clock, random: Random) -> EventLog:
    """Returns an event log that writes to the topic and the folder of the settings.

    Raises SettingsError for an unusable folder, ConfigError for an unusable producer.
    """
    origin = Origin(sidecar_id(settings), settings.service_name, new_boot_id(clock.wall_ms(), random))
    config = EventLogConfig(
        window_ms=settings.internal.events_window_ms,
        heartbeat_ms=settings.internal.events_heartbeat_ms,
        max_waiting_bytes=settings.internal.events_max_waiting_bytes,
        version=pilotfish_version(),
    )
    log = EventLog(origin, config, clock)
    if settings.events_folder:
        limits = FileLimits(
            settings.internal.events_file_max_bytes,
            settings.internal.events_file_max_age_ms,
            settings.events_files,
        )
        log.add_sink(EventFiles(settings.events_folder, origin, limits))
    if settings.events_topic:
        log.add_sink(make_event_topic(settings, origin.sidecar_id, log.call))
    return log


def sidecar_id(settings: Settings) -> str:
    """Returns the sidecar's id in its events: the setting, or the host's name (in Kubernetes the pod's)."""
    return settings.sidecar_id or _NOT_IN_NAMES.sub("-", socket.gethostname())


def new_boot_id(wall_ms: int, random: Random) -> int:
    """Returns a boot id, which is greater than those of earlier seconds."""
    return (wall_ms // 1000 << _CHANCE_BITS) | random.getrandbits(_CHANCE_BITS)
