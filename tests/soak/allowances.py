"""By how much each number of a soak may vary from one part of the rounds to the next, and why.

A container with a bound in the code may fill up to it, which takes longer than a warm-up: its allowance is
the bound. All other numbers are allowed the noise of a moment: a connection that is just being made, a batch
of events that waits for the next send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.client import refresh_log_limiter
from client_core.producer.results.producer_metrics import MOST_NAMED
from client_core.producer.sender.transaction_manager import MOST_LEFT
from service.observe.http_metrics import METHODS
from service.observe.slowness.collector import LEADER_CHANGES
from tests.soak.growth import Allowance, DeliveryOutcome, judge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MEGABYTE: Final = 1024 * 1024
_OURS: Final = ("client_core.", "service.")

#: Topics whose configs a sidecar keeps (lookup/topic_configs.py).
_MOST_CONFIGS: Final = 1_000

#: Of measures from outside, and of the sidecar's own metrics.
_OUTSIDE: Final[Mapping[str, Allowance]] = {
    # Arenas that are taken and not given back. See the self-test: a leak shows in objects long before.
    "anonymous_bytes": Allowance(2 * _MEGABYTE, 0.03),
    # The same, and pages of libraries that other processes of the machine load and let go of.
    "rss_bytes": Allowance(4 * _MEGABYTE, 0.05),
    "uss_bytes": Allowance(8 * _MEGABYTE, 0.1),
    # In use: texts and buffers that are kept, which no inventory of objects shows. A page of metrics, a
    # body, a batch, a compressor's state are some hundred kilobytes each for a moment; on a busy machine
    # several of them are there at once.
    "python_blocks": Allowance(10_000, 0.03),
    "c_heap_used_bytes": Allowance(2 * _MEGABYTE),
    "c_heap_bytes": Allowance(2 * _MEGABYTE, 0.1),
    # Two producers and three brokers each, of which connections idle away and come back.
    "descriptors": Allowance(6),
    "threads": Allowance(0),
    # A kind of error, or a status, that comes for the first time: 18 series at most are of one histogram.
    "metric_series": Allowance(18),
    "metrics_bytes": Allowance(4_000),
    # It lists the last leader changes and failures.
    "status_bytes": Allowance(16_000),
    "buffer_held_bytes": Allowance(0),
    # Sums, for people: as much as all that is bounded below may fill up together. Each part is judged alone.
    "our objects": Allowance(2_000),
    "our lengths": Allowance(5_000),
    "all objects": Allowance(4_000, 0.05),
}

#: Of types and containers with a bound, by the end of their names.
_BOUNDED: Final[Mapping[str, Allowance]] = {
    "RefreshLogLimiter._reported_topics": Allowance(refresh_log_limiter.MOST_TOPICS),
    # The metrics of topics, four each, of which each keeps two windows of four numbers.
    "producer_metrics.ProducerMetrics._topics": Allowance(MOST_NAMED),
    "producer_metrics._Group": Allowance(MOST_NAMED),
    "producer_metrics._Group.sampled": Allowance(4 * MOST_NAMED),
    "producer_metrics._Sampled": Allowance(4 * MOST_NAMED),
    "producer_metrics._Sampled.windows": Allowance(2 * 4 * MOST_NAMED),
    "events.LeaderChange": Allowance(LEADER_CHANGES),
    "collector.LeaderMove": Allowance(LEADER_CHANGES),
    "Slowness._leader_moves": Allowance(LEADER_CHANGES),
    # Partitions without further records, until a new epoch drops them.
    "TransactionManager._partitions": Allowance(MOST_LEFT),
    "TransactionManager._left": Allowance(MOST_LEFT),
    "partition_sequences.PartitionSequences": Allowance(MOST_LEFT),
    "cluster.TopicPartition": Allowance(MOST_LEFT),
    # A minute's times, in slots of some seconds: seven collections of them.
    "recent_times._Slot.counts": Allowance(7 * 12 * 60),
    "recent_times._Slot": Allowance(7 * 12),
    "recent_times.Second": Allowance(61),
    # Ids of topics: the last 1,024 of produce answers (quick_produce.py), and those of kept configs.
    "uuid.UUID": Allowance(1_024 + _MOST_CONFIGS),
    "ConfigsOfTopics._kept": Allowance(_MOST_CONFIGS),
    "topic_configs._Kept": Allowance(_MOST_CONFIGS),
    # Routes and statuses are met one by one.
    "http_metrics.RouteCounters": Allowance(20 * len(METHODS)),
    # The bytes of the last request's head, of each connection that is kept.
    "http_protocol.ApiProtocol._came": Allowance(4_000),
    # Events that wait for the next send to their topic, each record in some pieces.
    "MemoryRecordsBuilder._pieces": Allowance(8_000),
    "inbox.Inbox._notices": Allowance(1_000),
    "outbox.Line": Allowance(2_000),
    "outbox.Outbox._lines": Allowance(2_000),
}

#: Of our own types and containers: the variation between two moments.
_OUR_MOMENT: Final = Allowance(40, 0.05)
#: Of Python's and the libraries' types. A leak of one object a request is more, in two rounds of 200.
_ANY_MOMENT: Final = Allowance(150, 0.02)


def allowance_of(name: str) -> Allowance:
    """What a number may vary by, by the name that `measure` gave it."""
    if name in _OUTSIDE:
        return _OUTSIDE[name]
    _, _, thing = name.rpartition(" ")
    for ending, allowance in _BOUNDED.items():
        if thing == ending or thing.endswith(f".{ending}"):
            return allowance
    return _OUR_MOMENT if thing.startswith(_OURS) else _ANY_MOMENT


def judge_rounds(rounds: Sequence[Mapping[str, float]]) -> list[DeliveryOutcome]:
    """Judges every number of the rounds; where a round has none of a name, it had 0 of it."""
    names = sorted({name for measured in rounds for name in measured})
    return [judge(name, [measured.get(name, 0) for measured in rounds], allowance_of(name)) for name in names]


def growing(rounds: Sequence[Mapping[str, float]], *, least: float = 0) -> list[DeliveryOutcome]:
    """What grows, and by that much at least.

    Some nine hundred numbers are judged. In a soak of a few seconds one of them is sometimes measured in a
    rare moment; with `least` such a number must be large in proportion to the work done.
    """
    grown = [outcome for outcome in judge_rounds(rounds) if outcome.grows]
    return [outcome for outcome in grown if outcome.later - outcome.settled >= least]


def with_totals(measured: Mapping[str, float]) -> dict[str, float]:
    """The same with the sums by which people judge: all objects, our objects, what our containers hold."""
    objects = {name: n for name, n in measured.items() if name.startswith("objects ")}
    return {
        **measured,
        "all objects": sum(objects.values()),
        "our objects": sum(n for name, n in objects.items() if name.split(" ")[1].startswith(_OURS)),
        "our lengths": sum(n for name, n in measured.items() if name.startswith("length ")),
    }
