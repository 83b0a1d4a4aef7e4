"""gold_advice by rows made by hand: which topics, which interval, and from what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.gold.advice import LONGEST_MAX_AGE_MS, MOST_WARM_TOPICS, SHORTEST_MAX_AGE_MS, TTL_MS, advice
from pipeline.tables import (
    GOLD_DATA_QUALITY,
    GOLD_LEADER_HISTORY,
    GOLD_STALENESS,
    SILVER_EPOCH_SIGHTS,
    SILVER_PRODUCE_WINDOWS,
    SILVER_SIDECARS,
    SILVER_TOPIC_ENDS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
INTERVAL_MS = 300_000

WINDOW = (
    "struct<cluster_id:string,service:string,topic:string,"
    "started_at:timestamp,ended_at:timestamp,records:bigint>"
)
COLUMNS = {
    SILVER_SIDECARS: "cluster_id string, sidecar_id string, boot_id bigint, service string,"
    " first_event timestamp, last_event timestamp",
    SILVER_PRODUCE_WINDOWS: f"sidecar_id string, boot_id bigint, seq bigint, window {WINDOW}",
    SILVER_EPOCH_SIGHTS: "sidecar_id string, boot_id bigint, cluster_id string, service string, topic string,"
    " last_seen timestamp",
    SILVER_TOPIC_ENDS: "sidecar_id string, boot_id bigint, cluster_id string, topic string, change string,"
    " observed_at timestamp",
    GOLD_DATA_QUALITY: "sidecar_id string, boot_id bigint, is_left_out boolean, clock_shift_ms bigint,"
    " clock_shift_error_ms bigint",
    GOLD_LEADER_HISTORY: "cluster_id string, topic string, valid_from timestamp, is_leader_change boolean",
    GOLD_STALENESS: "cluster_id string, service string, fleet_first_seen timestamp, delay_ms bigint,"
    " is_censored boolean, metadata_max_age_ms bigint",
}


class Fleet:
    """Rows of the tables that advice reads."""

    def __init__(self) -> None:
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in COLUMNS}

    def boot(
        self, service: str, number: int = 0, *, cluster: str = "c", age: timedelta = DAY, last: datetime = NOW
    ) -> None:
        """A boot of a sidecar that began `age` before now, and was heard of until `last`."""
        self.rows[SILVER_SIDECARS].append((cluster, f"{service}-{number}", 7, service, NOW - age, last))

    def produced(
        self, service: str, topic: str, boots: Sequence[int], *, records: int = 1, at: datetime = NOW - HOUR
    ) -> None:
        for number in boots:
            window = ("c", service, topic, at, at + timedelta(seconds=10), records)
            seq = len(self.rows[SILVER_PRODUCE_WINDOWS])
            self.rows[SILVER_PRODUCE_WINDOWS].append((f"{service}-{number}", 7, seq, window))

    def ended(self, topic: str, change: str, at: datetime) -> None:
        self.rows[SILVER_TOPIC_ENDS].append(("z-0", 7, "c", topic, change, at))

    def follows(self, service: str, *topics: str, at: datetime = NOW) -> None:
        self.rows[SILVER_EPOCH_SIGHTS] += [(f"{service}-0", 7, "c", service, topic, at) for topic in topics]

    def moved(self, topic: str, *minutes_ago: float, is_change: bool = True) -> None:
        self.rows[GOLD_LEADER_HISTORY] += [
            ("c", topic, NOW - timedelta(minutes=minutes), is_change) for minutes in minutes_ago
        ]

    def saw(self, service: str, delay_ms: int, *, is_censored: bool = False, at: datetime = NOW) -> None:
        self.rows[GOLD_STALENESS].append(("c", service, at, delay_ms, is_censored, INTERVAL_MS))

    def advice(self, spark: SparkSession, *, backwards: bool = False) -> dict[str, dict[str, Any]]:
        """gold_advice by service. `backwards`: from the same rows in another order and other partitions."""

        def read(table: str) -> DataFrame:
            rows = self.rows[table]
            if backwards:
                return spark.createDataFrame(rows[::-1], COLUMNS[table]).repartition(3)
            return spark.createDataFrame(rows, COLUMNS[table]).coalesce(1)

        found = [row.asDict(recursive=True) for row in advice(read).collect()]
        assert len({(row["cluster_id"], row["service"]) for row in found}) == len(found)
        return {row["service"]: row for row in found}


def moving(service: str, moves: int, fleet: Fleet) -> None:
    """A service watched for an hour, whose topic's leaders moved in so many minutes of it."""
    fleet.boot(service, age=HOUR)
    fleet.follows(service, f"of-{service}")
    fleet.moved(f"of-{service}", *range(moves))


def whole_fleet() -> Fleet:
    """All cases in one: each costs a service, and all of them one job."""
    fleet = Fleet()
    twenty = range(20)
    for number in range(22):
        fleet.boot("billing", number)
    fleet.produced("billing", "orders", twenty)
    fleet.produced("billing", "orders", twenty, records=2)
    fleet.produced("billing", "b-refunds", twenty, records=2)
    fleet.produced("billing", "a-refunds", twenty, records=2)
    fleet.produced("billing", "a-tenth", (3, 4), records=1_000)
    fleet.produced("billing", "too-few", (3,))
    fleet.produced("billing", "only-failures", twenty, records=0)
    fleet.produced("billing", "long-ago", twenty, at=NOW - 8 * DAY)
    fleet.produced("billing", "gone", twenty)
    fleet.ended("gone", "gone", NOW)
    fleet.produced("billing", "back-again", (0, 1, 2))
    fleet.ended("back-again", "gone", NOW - DAY)
    fleet.produced("billing", "forgotten", (0, 1))
    fleet.ended("forgotten", "forgotten", NOW)

    fleet.boot("broad")
    for number in range(MOST_WARM_TOPICS + 5):
        fleet.produced("broad", f"t{number:03}", (0,))

    for moves in (0, 1, 2, 10, 40):
        moving(f"moves-{moves}", moves, fleet)
    fleet.moved("of-moves-2", 0.01, 0.02, 0.5)
    fleet.moved("of-moves-2", *range(5, 50), is_change=False)

    moving("waits", 2, fleet)
    fleet.saw("waits", 75_000)
    fleet.saw("waits", 0)
    fleet.saw("waits", 5_000, is_censored=True)
    fleet.saw("waits", 3_000_000, is_censored=True)
    moving("produces", 10, fleet)
    fleet.saw("produces", 3_000)
    moving("younger", 2, fleet)
    fleet.rows[SILVER_SIDECARS][-1] = ("c", "younger-0", 7, "younger", NOW - HOUR / 60, NOW)

    fleet.boot("silent", last=NOW - 8 * DAY, age=9 * DAY)
    fleet.boot("nowhere", cluster="")
    return fleet


@pytest.fixture(scope="module")
def advised(spark: SparkSession) -> dict[str, dict[str, Any]]:
    return whole_fleet().advice(spark)


def test_topics_that_a_tenth_of_the_producing_boots_used_are_warmed_most_used_first(
    advised: dict[str, dict[str, Any]],
) -> None:
    billing = advised["billing"]
    assert billing["warm_topics"] == [
        "orders",
        "a-refunds",
        "b-refunds",
        "back-again",
        "a-tenth",
        "forgotten",
    ]
    evidence = billing["evidence"]
    assert (evidence["boots"], evidence["boots_that_produced"], evidence["topics_produced_to"]) == (22, 20, 8)


def test_there_are_so_many_of_them_at_most_and_none_for_who_only_looks_up(
    advised: dict[str, dict[str, Any]],
) -> None:
    assert advised["broad"]["warm_topics"] == [f"t{number:03}" for number in range(MOST_WARM_TOPICS)]
    assert advised["moves-1"]["warm_topics"] == []


def test_the_interval_is_as_short_as_moves_and_staleness_ask_for(advised: dict[str, dict[str, Any]]) -> None:
    wanted = {
        "billing": LONGEST_MAX_AGE_MS,
        "moves-0": LONGEST_MAX_AGE_MS,
        "moves-1": LONGEST_MAX_AGE_MS,
        "moves-2": 180_000,
        "moves-10": 36_000,
        "moves-40": SHORTEST_MAX_AGE_MS,
        # A quarter of the interval and the whole of it: 625 thousandths on average.
        "waits": 144_000,
        "produces": LONGEST_MAX_AGE_MS,
        # Watched for a minute, which counts as an hour.
        "younger": 180_000,
    }
    assert {service: advised[service]["refresh_max_age_ms"] for service in wanted} == wanted


def test_the_evidence_is_what_was_counted(advised: dict[str, dict[str, Any]]) -> None:
    assert advised["waits"]["evidence"] == {
        "boots": 1,
        "boots_that_produced": 0,
        "topics_produced_to": 0,
        "topics_followed": 1,
        "minutes_with_moves": 2,
        "observed_ms": 3_600_000,
        "staleness_observations": 2,
        "staleness_permille": 625,
    }
    assert advised["moves-2"]["evidence"]["staleness_permille"] is None


def test_who_was_not_heard_of_lately_or_on_a_known_cluster_gets_none(
    advised: dict[str, dict[str, Any]],
) -> None:
    assert advised.keys().isdisjoint({"silent", "nowhere"})
    assert {row["ttl_ms"] for row in advised.values()} == {TTL_MS} == {7 * 86_400_000}
    assert len({row["computed_at"] for row in advised.values()}) == 1


def test_the_order_of_rows_can_not_be_seen(spark: SparkSession, advised: dict[str, dict[str, Any]]) -> None:
    assert whole_fleet().advice(spark, backwards=True) == advised
