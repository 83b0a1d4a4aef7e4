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
from typing import Final, Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

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
_T = TypeVar("_T")


class Counter:
    """A number that grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        self.value += amount


class Histogram:
    """How often a value fell into each of some ranges."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as the exposition wants them."""
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        return [(name, float(total)) for name, total in zip(names, accumulate(self._counts), strict=True)]

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
