"""A producer's metrics by Java's names, from its events and failed records: `KafkaProducer.metrics()`.

    producer.metrics()["producer-metrics"]["record-send-total"]
    producer.metrics()["producer-node-metrics.node-1"]["request-latency-avg"]
    producer.metrics()["producer-topic-metrics.orders"]["record-error-total"]

Names, units and groups are those of Java's JMX beans, a tag behind its group's name. Totals count since the
start. Rates, averages and maxima are of the last 30 to 60 s, as with Java's metrics.sample.window.ms and
metrics.num.samples. An average or maximum of nothing is NaN. A topic's counts are of batches that have ended;
Java counts them when they are sent. Source: SenderMetricsRegistry, KafkaProducerMetrics, SampledStat,
Kafka 4.3.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, TypeVar

from client_core import events as e
from client_core.error_codes import Errors
from client_core.record.record_batch import HEADER_SIZE

if TYPE_CHECKING:
    from client_core.clock import Clock
    from client_core.events import Event, EventSink
    from client_core.producer.results.status import ClientStatus

_Name = TypeVar("_Name", int, str)

_WINDOW_MS: Final = 30_000
_WINDOWS: Final = 2
#: Topics and nodes with their own values; the one that was idle longest is removed first.
MOST_NAMED: Final = 1_000
_NS_PER_MS: Final = 1_000_000


class _Sampled:
    """Values of the last two windows: their sum, number and maximum. The total is of all time."""

    __slots__ = ("total", "windows")

    def __init__(self) -> None:
        self.total = 0.0
        #: Start in ms, number, sum and maximum of each.
        self.windows: deque[list[float]] = deque(maxlen=_WINDOWS)

    def _recent(self, now_ms: int) -> list[list[float]]:
        return [window for window in self.windows if now_ms - window[0] < _WINDOW_MS * _WINDOWS]

    def average(self, now_ms: int) -> float:
        recent = self._recent(now_ms)
        count = sum(window[1] for window in recent)
        return sum(window[2] for window in recent) / count if count else math.nan

    def maximum(self, now_ms: int) -> float:
        return max((window[3] for window in self._recent(now_ms)), default=math.nan)

    def per_s(self, now_ms: int) -> float:
        """Returns the rate over at least one whole window: a first value makes no high rate (Java's Rate)."""
        recent = self._recent(now_ms)
        since_ms = max(now_ms - recent[0][0], _WINDOW_MS) if recent else _WINDOW_MS
        return sum(window[2] for window in recent) * 1_000 / since_ms


class _Group:
    """The values of one group, by name without -total, -rate, -avg or -max."""

    __slots__ = ("sampled",)

    def __init__(self) -> None:
        self.sampled: dict[str, _Sampled] = {}

    def add(self, now_ms: int, *values: tuple[str, float]) -> None:
        """Adds values by name. One call per event: this runs for every request."""
        for name, value in values:
            sampled = self.sampled.get(name)
            if sampled is None:
                sampled = self.sampled[name] = _Sampled()
            sampled.total += value
            windows = sampled.windows
            if not windows or now_ms - windows[-1][0] >= _WINDOW_MS:
                windows.append([now_ms, 1, value, value])
                continue
            window = windows[-1]
            window[1] += 1
            window[2] += value
            if value > window[3]:
                window[3] = value

    def read(self, counted: tuple[str, ...], measured: tuple[str, ...], now_ms: int) -> dict[str, float]:
        """Returns totals and rates of `counted`, averages and maxima of `measured`."""
        values: dict[str, float] = {}
        for name in counted:
            sampled = self.sampled.get(name, _NONE)
            values[f"{name}-total"] = sampled.total
            values[f"{name}-rate"] = sampled.per_s(now_ms)
        for name in measured:
            sampled = self.sampled.get(name, _NONE)
            values[f"{name}-avg"] = sampled.average(now_ms)
            values[f"{name}-max"] = sampled.maximum(now_ms)
        return values


_NONE: Final = _Sampled()

_COUNTED: Final = (
    *("record-send", "record-retry", "record-error", "batch-split", "request", "response"),
    *("outgoing-byte", "incoming-byte", "connection-creation", "connection-close", "buffer-exhausted"),
)
_MEASURED: Final = ("batch-size", "record-queue-time", "request-latency", "produce-throttle-time")
#: Java has these as totals of nanoseconds.
_WAITS: Final = {"metadata": "metadata-wait", "buffer": "bufferpool-wait", "flush": "flush"}
_OF_NODES: Final = ("request", "response", "outgoing-byte", "incoming-byte")
_OF_TOPICS: Final = ("record-send", "record-retry", "record-error", "byte")


class ProducerMetrics:
    """An EventSink that counts events and passes them on. Any thread; one short lock."""

    def __init__(self, clock: Clock, sink: EventSink) -> None:
        self._clock = clock
        self._sink = sink
        self._lock = threading.Lock()
        self._all = _Group()
        self._nodes: OrderedDict[int, _Group] = OrderedDict()
        self._topics: OrderedDict[str, _Group] = OrderedDict()

    def emit(self, event: Event, /) -> None:
        """See EventSink."""
        with self._lock:
            self._count(event, self._clock.now_ms())
        if self._sink is not e.NO_EVENTS:
            self._sink.emit(event)

    def records_failed(self, topic: str, records: int) -> None:
        """Counts records whose callers know that they failed, in a batch or before one."""
        failed, now_ms = ("record-error", records), self._clock.now_ms()
        with self._lock:
            self._all.add(now_ms, failed)
            _named(self._topics, topic).add(now_ms, failed)

    def _count(self, event: Event, now_ms: int) -> None:
        add = self._all.add
        match event:
            case e.BatchSent():
                sent = ("record-send", event.records), ("batch-size", event.batch_bytes)
                add(now_ms, *sent, ("record-queue-time", event.queue_ms))
                packed_bytes, raw_bytes = event.batch_bytes - HEADER_SIZE, event.raw_bytes - HEADER_SIZE
                if raw_bytes > 0:  # of the records: a batch's header is never compressed
                    add(now_ms, ("compression", packed_bytes / raw_bytes))
            case e.RequestCompleted():
                values = [("request", 1), ("outgoing-byte", event.sent_bytes)]
                if event.received_bytes:
                    values += ("response", 1), ("incoming-byte", event.received_bytes)
                    self._all.add(now_ms, ("produce-throttle-time", event.throttle_ms))
                    if event.api == "Produce":
                        values.append(("request-latency", event.latency_ms))
                add(now_ms, *values)
                _named(self._nodes, event.node_id).add(now_ms, *values)
            case e.ProduceFinished() if event.error is Errors.NONE:
                topic = _named(self._topics, event.topic)
                topic.add(now_ms, ("record-send", event.records), ("byte", event.batch_bytes))
            case e.BatchRetried():
                add(now_ms, ("record-retry", event.records))
                _named(self._topics, event.topic).add(now_ms, ("record-retry", event.records))
            case e.BatchSplit():
                add(now_ms, ("batch-split", 1))
            case e.NodeReady():
                add(now_ms, ("connection-creation", 1))
            case e.NodeDisconnected():
                add(now_ms, ("connection-close", 1))
            case e.WaitFinished():
                add(now_ms, (_WAITS[event.phase], event.waited_ms))
                if event.phase == "buffer" and event.outcome == "timeout":
                    add(now_ms, ("buffer-exhausted", 1))
            case _:
                pass

    def read(self, status: ClientStatus, io_time_ms: int) -> dict[str, dict[str, float]]:
        """Returns the values by group and name. Any thread."""
        now_ms = self._clock.now_ms()
        with self._lock:
            values = self._all.read(_COUNTED, _MEASURED, now_ms)
            for name in _WAITS.values():
                waited = self._all.sampled.get(name, _NONE)
                values[f"{name}-time-ns-total"] = waited.total * _NS_PER_MS
            values["compression-rate-avg"] = self._all.sampled.get("compression", _NONE).average(now_ms)
            groups = {"producer-metrics": values}
            for node_id, node in self._nodes.items():
                groups[f"producer-node-metrics.node-{node_id}"] = node.read(
                    _OF_NODES, ("request-latency",), now_ms
                )
            for topic, group in self._topics.items():
                groups[f"producer-topic-metrics.{topic}"] = group.read(_OF_TOPICS, (), now_ms)
        age_ms = status.metadata.age_ms
        values |= {
            "buffer-total-bytes": status.buffer.total_bytes,
            "buffer-available-bytes": status.buffer.available_bytes,
            "waiting-threads": status.buffer.waiters,
            "connection-count": sum(node.state == "ready" for node in status.nodes),
            "requests-in-flight": sum(node.in_flight_requests for node in status.nodes),
            "metadata-age": math.nan if age_ms is None else age_ms / 1_000,
            "io-time-ns-total": io_time_ms * _NS_PER_MS,
        }
        return groups


def _named(groups: OrderedDict[_Name, _Group], name: _Name) -> _Group:
    """Returns the group of a node or a topic, which is now the last to be removed."""
    group = groups.get(name)
    if group is None:
        group = groups[name] = _Group()
        if len(groups) > MOST_NAMED:
            groups.popitem(last=False)
    else:
        groups.move_to_end(name)  # not a new key: it may be the string of a caller's record
    return group
