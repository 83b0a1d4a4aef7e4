"""Counters and histograms that cost next to nothing to feed, read when Prometheus asks.

client_python takes a lock and walks its buckets at each observation; a look-up has no time for that. These
have one writer each (the event loop, or whoever holds the lock of their owner) and are turned into metric
families by a collector at scrape time. A scrape may see a histogram between its sum and its bucket: off by
one, never wrong for good.
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

#: The upper bound of a range by its label, how many values are below it, and the one to show of the range.
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
    """A request of a caller who records what it does: the identities that W3C Trace Context gives it."""

    trace_id: str
    span_id: str


class Histogram:
    """How often a value fell into each of some ranges, and for some of them whose the last one was."""

    __slots__ = ("_bounds", "_counts", "_exemplars", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        # By the index of the range. None until somebody is traced: a sidecar without traces has no more
        # than this one word of them.
        self._exemplars: dict[int, Exemplar] | None = None

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def observe_traced(self, value: float, trace: Trace) -> None:
        """Counts a value, and keeps whose it was until the next one of its range comes."""
        self.observe(value)
        exemplar = Exemplar(trace._asdict(), value, time())
        # Replaced, not patched, as in Family: a scrape reads the old dict undisturbed.
        self._exemplars = {**(self._exemplars or {}), bisect_left(self._bounds, value): exemplar}

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[Bucket]:
        """Cumulative, as the exposition wants them; each with the exemplar of its range, where it has one."""
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        plain = [(name, float(total)) for name, total in zip(names, accumulate(self._counts), strict=True)]
        exemplars = self._exemplars
        if exemplars is None:
            return list(plain)
        return [(*pair, exemplars[at]) if at in exemplars else pair for at, pair in enumerate(plain)]

    @property
    def sum(self) -> float:
        return self._sum


class Family(Generic[_T]):
    """Tallies of one metric by their labels. Made on first use."""

    def __init__(self, make: Callable[[], _T], name: str, help_text: str, labels: Labels = ()) -> None:
        self.name = name
        self.help_text = help_text
        self.labels = labels
        self._make = make
        self._children: dict[Labels, _T] = {}

    def child(self, *values: str) -> _T:
        """The tally with these label values."""
        found = self._children.get(values)
        if found is None:
            # Replaced, not patched: a scrape on another thread iterates the old dict undisturbed.
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
    """A family of counters; `name` without `_total`."""
    return Family(Counter, name, help_text, labels)


def histograms(name: str, help_text: str, bounds: Sequence[float], *labels: str) -> Family[Histogram]:
    """A family of histograms."""
    return Family(lambda: Histogram(bounds), name, help_text, labels)


def gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    """A gauge without labels; `name` without "pilotfish_"."""
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
