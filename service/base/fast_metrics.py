"""Counters and histograms that are cheap to update, for hot paths.

client_python takes a lock and scans its buckets at each observation, which is too slow for a look-up. Each
counter here has one writer: the event loop, or the holder of its owner's lock. A collector turns them into
metric families at scrape time. A scrape may come between the updates of a histogram's bucket and of its sum.
It is then off by one value, and the next scrape is right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from time import time
from typing import Final, Generic, NamedTuple, TypeVar

from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, HistogramMetricFamily

#: 0.5 ms to 120 s, with max.block.ms (60 s) and delivery.timeout.ms (120 s) among them.
SECONDS: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
)
BYTES: Final = tuple(float(2**n) for n in range(7, 25, 2))
RECORDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
RATIOS: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

Labels = tuple[str, ...]

#: A bucket's upper bound as text, its cumulative count, and its exemplar if it has one.
Bucket = tuple[str, float] | tuple[str, float, Exemplar]
_T = TypeVar("_T")


class Counter:
    """A number that grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        self.value += amount


class Trace(NamedTuple):
    """The ids of a recorded request, from W3C Trace Context."""

    trace_id: str
    span_id: str


class Histogram:
    """Counts of values by bucket. A bucket may have its last traced value as an exemplar."""

    __slots__ = ("_bounds", "_counts", "_exemplars", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        # By bucket index. None until the first traced value, so that it costs nothing without traces.
        self._exemplars: dict[int, Exemplar] | None = None

    def observe(self, value: float, trace: Trace | None = None) -> None:
        """Counts a value. With a trace it is the exemplar of its bucket until the next traced one."""
        at = bisect_left(self._bounds, value)
        self._counts[at] += 1
        self.sum += value
        if trace is not None:
            # A new dict, as in Family: a scrape may be reading the old one.
            exemplar = Exemplar(trace._asdict(), value, time())
            self._exemplars = {**(self._exemplars or {}), at: exemplar}

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[Bucket]:
        """Returns cumulative counts, as the exposition format needs them, with the exemplars."""
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        plain = [(name, float(total)) for name, total in zip(names, accumulate(self._counts), strict=True)]
        exemplars = self._exemplars
        if exemplars is None:
            return list(plain)
        return [(*pair, exemplars[at]) if at in exemplars else pair for at, pair in enumerate(plain)]


class Family(Generic[_T]):
    """The children of one metric by their label values. A child is created on first use."""

    def __init__(self, make: Callable[[], _T], name: str, help_text: str, labels: Labels = ()) -> None:
        self.name = name
        self.help_text = help_text
        self.labels = labels
        self._make = make
        self._children: dict[Labels, _T] = {}

    def child(self, *values: str) -> _T:
        """Returns the child with these label values."""
        found = self._children.get(values)
        if found is None:
            # A new dict: a scrape on another thread may be iterating over the old one.
            found = self._make()
            self._children = {**self._children, values: found}
        return found

    def forget(self, label: str, value: str) -> None:
        """Drops every child whose label has that value."""
        at = self.labels.index(label)
        self._children = {values: child for values, child in self._children.items() if values[at] != value}

    def items(self) -> Iterator[tuple[Labels, _T]]:
        return iter(self._children.items())


def counters(name: str, help_text: str, *labels: str) -> Family[Counter]:
    """Returns a family of counters; `name` is without `_total`."""
    return Family(Counter, name, help_text, labels)


def histograms(name: str, help_text: str, bounds: Sequence[float], *labels: str) -> Family[Histogram]:
    return Family(lambda: Histogram(bounds), name, help_text, labels)


def gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    """Returns a gauge without labels; `name` is without "pilotfish_"."""
    return GaugeMetricFamily(f"pilotfish_{name}", help_text, value=value)


def counter_family(family: Family[Counter]) -> CounterMetricFamily:
    metric = CounterMetricFamily(family.name, family.help_text, labels=family.labels)
    for values, counter in family.items():
        metric.add_metric(values, counter.value)
    return metric


def histogram_family(family: Family[Histogram]) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(family.name, family.help_text, labels=family.labels)
    for values, histogram in family.items():
        metric.add_metric(values, buckets=histogram.buckets(), sum_value=histogram.sum)
    return metric
