"""Events of small fleets, as bronze has them: written by hand, or drawn by hypothesis.

    boot = Boot("a")                        a boot of sidecar a, on cluster "c"
    boot.sees(10, leader=1, epoch=4)        its event that partition 0 of "orders" is led by 1, at T0 + 10 s
    bronze(spark, boot.events + ...)        a DataFrame with the schema of bronze_events

    fleets()                                a strategy: random events of the right format. Few
                                            names, few epochs and few instants, so that they meet
    examples_of(fleets(), 100)              a hundred of them, each with a cluster_id of its own: Spark needs
                                            no longer for them than for one fleet of that size

Pure Python. T0 is 20 minutes before a full hour, so that a fleet's events fall into two hours.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pipeline import event_v1
from pipeline.bronze import EVENTS_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hypothesis.strategies import SearchStrategy
    from pyspark.sql import DataFrame, SparkSession

Event = dict[str, Any]
_T = TypeVar("_T")

T0: Final = datetime(2026, 11, 21, 9, 40, tzinfo=UTC)
CLUSTER: Final = "c"
TOPIC: Final = "orders"
#: Topic ids as Kafka writes them.
ID: Final = "5L6g3nShT-eMCtK--X86sw"
NEXT_ID: Final = "q7Q0Fq0eQ5m1r2v3w4x5yA"
INTERVAL_MS: Final = 60_000


def at(seconds: float) -> datetime:
    """T0 and so many seconds."""
    return T0 + timedelta(microseconds=round(seconds * 1_000_000))


class Boot:
    """A boot of a sidecar, which emits its events one after the other; its clock is `clock_s` ahead."""

    def __init__(
        self,
        sidecar: str,
        *,
        boot_id: int = 1,
        cluster: str | None = CLUSTER,
        service: str = "shop",
        clock_s: float = 0,
    ) -> None:
        self.events: list[Event] = []
        self.cluster = cluster
        self._common = {"sidecar_id": sidecar, "boot_id": boot_id, "service": service}
        self._clock_s = clock_s
        self._seq = 0

    def emits(self, seconds: float, kind: str, *, seq: int | None = None, **fields: Any) -> None:
        """Any event. `seq` is the next one, unless given."""
        self._seq = self._seq + 1 if seq is None else seq
        self.events.append(
            self._common
            | {"v": 1, "type": kind, "cluster_id": self.cluster, "seq": self._seq}
            | {"observed_at": at(seconds + self._clock_s)}
            | fields
        )

    def sees(
        self,
        seconds: float,
        *,
        leader: int | None = 1,
        epoch: int | None = 0,
        partition: int = 0,
        topic: str = TOPIC,
        topic_id: str | None = ID,
        isr: Sequence[int] = (1, 2, 3),
        replicas: Sequence[int] = (1, 2, 3),
    ) -> None:
        self.emits(
            seconds,
            event_v1.PARTITION,
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            leader=leader,
            leader_epoch=epoch,
            isr=[*isr],
            replicas=[*replicas],
            offline=[],
            metadata_version=1,
            reason="periodic",
        )

    def ends(self, seconds: float, change: str, *, topic: str = TOPIC, topic_id: str | None = ID) -> None:
        self.emits(seconds, event_v1.TOPIC, topic=topic, topic_id=topic_id, change=change, metadata_version=1)

    def looks(self, seconds: float, *, duration_s: float = 0, outcome: str = "ok") -> None:
        """A refresh of metadata that ended then."""
        self.emits(
            seconds,
            event_v1.REFRESH,
            duration_us=round(duration_s * 1_000_000),
            broker=1,
            topics=1,
            partitions=1,
            changed=0,
            reason="expired",
            outcome=outcome,
            metadata_version=1,
        )

    def beats(
        self,
        seconds: float,
        *,
        dropped: int = 0,
        max_age_ms: int = INTERVAL_MS,
        version: str = "1.0",
        uptime_s: float | None = None,
    ) -> None:
        """A heartbeat; its uptime is that of a process that began at T0, unless given."""
        self.emits(
            seconds,
            event_v1.HEARTBEAT,
            uptime_ms=round((seconds if uptime_s is None else uptime_s) * 1_000),
            dropped=dropped,
            topics=1,
            partitions=1,
            metadata_max_age_ms=max_age_ms,
            version=version,
        )

    def produces(
        self,
        seconds: float,
        *,
        latency: dict[int, int] | None = None,
        errors: dict[str, int] | None = None,
        broker: int | None = 1,
        topic: str = TOPIC,
        partition: int = 0,
        seq: int | None = None,
        **counts: int,
    ) -> None:
        """A window of ten seconds that ends then; latency: microseconds to records acknowledged."""
        buckets: dict[str, int] = {}
        for latency_us, records in (latency or {}).items():
            name = str(event_v1.bucket_of(latency_us))
            buckets[name] = buckets.get(name, 0) + records
        records = sum(buckets.values())
        self.emits(
            seconds,
            event_v1.WINDOW,
            seq=seq,
            topic=topic,
            partition=partition,
            broker=broker,
            started_at=at(seconds - 10 + self._clock_s),
            errors=errors or {},
            latency_us=buckets,
            **{"records": records, "batches": 1, "bytes": records * 100, "retries": 0} | counts,
        )


def bronze(spark: SparkSession, events: Iterable[Event]) -> DataFrame:
    """The events as bronze_events has them."""
    names = EVENTS_SCHEMA.names
    rows = [tuple(event.get(name) for name in names) for event in events]
    return spark.createDataFrame(rows, EVENTS_SCHEMA, verifySchema=False)


# -- fleets that hypothesis draws ----------------------------------------------------------------------------

#: Seconds after T0; with parts of a millisecond, to see what is rounded, and around the full hour.
_SECONDS: Final = st.one_of(
    st.sampled_from([0, 1, 1.0005, 60, 600.000001, 1200, 1199.999999]), st.integers(0, 2400)
)
_EPOCHS: Final = st.sampled_from([0, 1, 2, 3, 4, 4, 9, None])
_LEADERS: Final = st.sampled_from([1, 2, 3, None])
_TOPICS: Final = (("t", "id1"), ("t", "id2"), ("t", None), ("u", "id3"))
_CHANGES: Final = st.sampled_from(["gone", "forgotten", "recreated", "appeared", "grew"])
_ISRS: Final = st.sampled_from([(1, 2, 3), (1, 2, 3), (2, 1), (3,), ()])
_LATENCIES: Final = st.dictionaries(
    st.sampled_from([0, 3, 5, 900, 1_000, 70_000]), st.integers(0, 50), max_size=4
)
_ERRORS: Final = st.dictionaries(st.sampled_from(["NOT_LEADER", "REQUEST_TIMED_OUT"]), st.integers(1, 9))
_BROKERS: Final = st.sampled_from([1, 2, None])
_KINDS: Final = st.sampled_from(["sees"] * 8 + ["looks"] * 3 + ["ends", "produces", "beats", "stumbles"])
_SIDECARS: Final = (("a", 1, "s"), ("a", 2, "s"), ("b", 1, "s"), ("c", 7, "r"), ("d", 7, "r"))


@st.composite
def fleets(draw: st.DrawFn) -> list[Event]:
    """Up to 30 events of up to five boots, with line numbers that come twice.

    Half of the fleets watch one partition whose epochs rise with time, as they do; the others see anything.
    """
    is_orderly = draw(st.booleans())
    clocks = st.sampled_from([0, 0, 90, -400])
    boots = [
        Boot(name, boot_id=boot, service=service, clock_s=draw(clocks)) for name, boot, service in _SIDECARS
    ]
    topics = st.sampled_from(_TOPICS[:1] if is_orderly else _TOPICS)
    partitions = st.sampled_from([0] if is_orderly else [0, 1])
    moments = draw(st.lists(st.tuples(_SECONDS, _EPOCHS), min_size=1, max_size=30))
    if is_orderly:
        seconds = sorted(second for second, _ in moments)
        epochs = sorted((epoch for _, epoch in moments), key=lambda epoch: -1 if epoch is None else epoch)
        moments = list(zip(seconds, epochs, strict=True))
    for second, epoch in moments:
        boot = draw(st.sampled_from(boots))
        boot.cluster = draw(st.sampled_from([CLUSTER] * 7 + [None]))
        topic, topic_id = draw(topics)
        match draw(_KINDS):
            case "sees":
                boot.sees(
                    second,
                    leader=draw(_LEADERS),
                    epoch=epoch,
                    partition=draw(partitions),
                    topic=topic,
                    topic_id=topic_id,
                    isr=draw(_ISRS),
                )
            case "ends":
                boot.ends(second, draw(_CHANGES), topic=topic, topic_id=topic_id)
            case "produces":
                boot.produces(second, latency=draw(_LATENCIES), errors=draw(_ERRORS), broker=draw(_BROKERS))
            case "looks":
                boot.looks(second)
            case "beats":
                boot.beats(second, dropped=draw(st.integers(0, 3)), version=draw(st.sampled_from("12")))
            case _:  # a line number that is taken, with something else behind it
                boot.produces(second, latency=draw(_LATENCIES), seq=draw(st.integers(1, 3)))
    return [event for boot in boots for event in boot.events]


def examples_of(strategy: SearchStrategy[_T], count: int) -> list[_T]:
    """So many values of a strategy, the same ones each time."""
    drawn: list[_T] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        suppress_health_check=[*HealthCheck],
    )
    @given(strategy)
    def draw(value: _T) -> None:
        drawn.append(value)

    draw()
    return drawn


def numbered(events: Iterable[Event], number: int) -> list[Event]:
    """The events as a fleet of its own has them, all of whose names end with its number."""
    names = ("cluster_id", "sidecar_id", "topic", "topic_id")
    return [
        event | {name: f"{event[name]}#{number}" for name in names if event.get(name) is not None}
        for event in events
    ]


def number_of(row: Event) -> int | None:
    """The fleet of a row of any table; None if the row has no name of a fleet's own."""
    window = row.get("window") or {}
    names = (row.get("cluster_id"), row.get("sidecar_id"), row.get("topic"), window.get("topic"))
    return next((int(name.rpartition("#")[2]) for name in names if name and "#" in name), None)


def without_number(number: int, value: Any) -> Any:
    """A row with the names that it has in any fleet."""
    match value:
        case str():
            return value.removesuffix(f"#{number}")
        case dict():
            return {name: without_number(number, part) for name, part in value.items()}
        case list():
            return [without_number(number, part) for part in value]
        case _:
            return value


def mangled(events: Sequence[Event], seed: int) -> tuple[list[Event], list[Event]]:
    """The events shuffled, a third of them doubled, in two batches of which the second holds a third of the
    first one's.
    """
    chance = random.Random(f"mangled {seed}")
    everything = [*events, *chance.sample(events, len(events) // 3)]
    chance.shuffle(everything)
    cut = chance.randint(0, len(everything))
    first, second = everything[:cut], everything[cut:]
    return first, [*second, *chance.sample(first, len(first) // 3)]
