"""An event log turned by hand, with a mock clock: a fake producer's events go in, lines come out.

    rig = EventLogRig()
    rig.producer.set_topics({"orders": 3})
    rig.settle()
    assert rig.reported("metadata.partition")[0]["topic"] == "orders"

`KeptLines` is a sink that keeps what it takes, unless it hangs (takes nothing) or fails (gives all back).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from client_core.clock import FOREVER_MS
from client_core.error_codes import Errors
from client_core.events import NO_EVENTS, MetadataRefreshed, ProduceFinished
from service.events.event_log import PAUSE_MS, EventLog, EventLogConfig
from service.events.event_v1 import Origin
from service.process.app import FanOut
from tests.support.fake_producer import FakeProducer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from service.events.outbox import Outbox, Sink

ORIGIN: Final = Origin("pod-1", "shop", 7)
WINDOW_MS: Final = 10_000
HEARTBEAT_MS: Final = 60_000
#: More turns than anything here takes: a log that always has more to do must not hang a test.
_MOST_TURNS: Final = 10_000


class KeptLines:
    """A sink of this process."""

    def __init__(self, name: str = "kept") -> None:
        self.name = name
        self.lines: list[bytes] = []
        self.hangs = False
        self.begun = 0
        self.closed_by_ms: int | None = None
        self.in_flight_bytes = 0
        self.written = 0

    def begin(self) -> None:
        self.begun += 1

    def turn(self, outbox: Outbox, now_ms: int) -> None:
        if not self.hangs:
            taken = outbox.take(FOREVER_MS)
            self.lines += [line.data for line in taken]
            self.written += len(taken)

    def close(self, outbox: Outbox, deadline_ms: int) -> None:
        self.turn(outbox, deadline_ms)
        self.closed_by_ms = deadline_ms

    def reported(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The events in their order: all, or those of one type."""
        events = [json.loads(line) for line in self.lines]
        return [event for event in events if kind in (None, event["type"])]


class EventLogRig:
    """An event log over a fake producer, and no thread."""

    def __init__(self, *sinks: Sink, max_waiting_bytes: int = 8 * 1024 * 1024) -> None:
        self.producer = FakeProducer()
        self.clock = self.producer.clock
        self.kept = KeptLines()
        config = EventLogConfig(WINDOW_MS, HEARTBEAT_MS, max_waiting_bytes, "1.2.3")
        self.log = EventLog(ORIGIN, config, self.clock)
        for sink in sinks or (self.kept,):
            self.log.add_sink(sink)
        self.log.follow(self.producer)
        self.producer.events = FanOut(self.log)
        self.log.begin()

    def settle(self) -> int:
        """Turns until the log has nothing more to do now; how many turns that took."""
        for turns in range(1, _MOST_TURNS):
            if self.log.turn() != self.clock.now_ms() + PAUSE_MS:
                return turns
        raise AssertionError(f"there was still more to do after {_MOST_TURNS} turns")

    def after(self, ms: int) -> None:
        """Time goes by, and the log has done what is due then."""
        self.clock.advance(ms)
        self.settle()

    def reported(self, kind: str | None = None) -> list[dict[str, Any]]:
        return self.kept.reported(kind)

    def forget(self, topics: Mapping[str, int] | Sequence[Any]) -> None:
        """A refresh with these topics, in which nobody asked for those that are missing now."""
        events, self.producer.events = self.producer.events, NO_EVENTS
        self.producer.set_topics(topics)
        self.producer.events = events
        cache = self.producer.cache
        refreshed = MetadataRefreshed(
            "expired", cache.update_version, 0, False, 1, len(cache.topics), 0, 0, cache.cluster_id
        )
        events.emit(refreshed)


def finished(
    topic: str = "orders",
    partition: int = 0,
    *,
    node_id: int | None = 1,
    records: int = 1,
    batch_bytes: int = 100,
    produce_ms: int = 5,
    retries: int = 0,
    error: Errors = Errors.NONE,
) -> ProduceFinished:
    """A batch that was acknowledged, or failed."""
    return ProduceFinished(topic, partition, node_id, records, batch_bytes, produce_ms, retries, error)
