"""gold_advice: which topics a service's sidecars should warm, and how often to refresh.

One row for each service and cluster with events in the last LOOK_BACK_DAYS before `as_of`, the time of the
latest event of all. docs/advice.md justifies the numbers.

    warm_topics         topics to which at least a tenth of the service's producing boots produced
    refresh_max_age_ms  short enough that some leader of a followed topic is out of date for at most a
                        twentieth of the time:

        share of time  =  moves / observed_ms  x  delay,     delay  =  staleness x refresh_max_age_ms

Moves are counted as minutes in which at least one leader moved: one refresh handles all moves that a broker's
restart causes within seconds. Staleness is the time that a sidecar took to see a new epoch, divided by its
refresh interval, on average. As a ratio it does not depend on the interval, which the advice changes. A
service that learns of moves from its produces long before the next refresh has a low staleness, and keeps
Kafka's default.

Boots whose clocks are known to be wrong do not determine `as_of`. Their events count, with corrected times
(clocks.py).

Pure: no clock, no action. Uses whole numbers only, so the order of rows does not change the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.gold.clocks import set_right
from pipeline.gold.read import LOOK_BACK, LOOK_BACK_DAYS
from pipeline.silver.partitions import GONE
from pipeline.tables import (
    GOLD_LEADER_HISTORY,
    GOLD_STALENESS,
    SILVER_EPOCH_SIGHTS,
    SILVER_PRODUCE_WINDOWS,
    SILVER_SIDECARS,
    SILVER_TOPIC_ENDS,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipeline.gold.read import Read

#: The least percentage of the producing boots that must have produced to a topic.
WARM_SHARE_PERCENT: Final = 10

#: A tenth of what a sidecar accepts (MAX_TOPICS in `service/process/advice_document.py`). The metadata
#: response for so many topics is still one piece.
MOST_WARM_TOPICS: Final = 100

#: How much of the time, in thousandths, some leader in a service's topics may be out of date.
OUT_OF_DATE_PERMILLE: Final = 50

#: The bounds of the interval; the upper one is Kafka's default of metadata.max.age.ms.
SHORTEST_MAX_AGE_MS: Final = 10_000
LONGEST_MAX_AGE_MS: Final = 300_000

#: Used if no second sidecar saw an epoch: on average an election comes in the middle of the interval.
_UNMEASURED_STALENESS_PERMILLE: Final = 500

#: The minimum observation time: two moves in a minute's data are not churn.
_LEAST_OBSERVED_MS: Final = 3_600_000

#: The same as the look-back: after this time, new advice would use none of the same events.
TTL_MS: Final = LOOK_BACK_DAYS * 24 * 3_600_000

_SERVICE: Final = ["cluster_id", "service"]
_BOOT: Final = ["sidecar_id", "boot_id"]


def advice(read: Read) -> DataFrame:
    """Returns gold_advice, from silver, leader history and staleness."""
    sidecars = set_right(read, read(SILVER_SIDECARS), "first_event", "last_event")
    # One row: the cross join is cheap, and no action is needed.
    as_of = f.broadcast(sidecars.where("is_time_believed").agg(f.max("last_event").alias("as_of")))

    def recent(rows: DataFrame, at: str) -> DataFrame:
        """Returns the rows of known clusters that are not too old."""
        since = f.col("as_of") - f.expr(LOOK_BACK)
        return rows.crossJoin(as_of).where((f.col("cluster_id") != "") & (f.col(at) >= since))

    services = _services(recent(sidecars, "last_event"))
    windows = set_right(read, _windows(read(SILVER_PRODUCE_WINDOWS)), "started_at", "ended_at")
    produced = _produced(recent(windows, "started_at"))
    sights = set_right(read, read(SILVER_EPOCH_SIGHTS), "last_seen")
    ends = set_right(read, read(SILVER_TOPIC_ENDS), "observed_at")
    followed = recent(sights, "last_seen").select(*_SERVICE, "topic").distinct()
    moves = recent(read(GOLD_LEADER_HISTORY).where("is_leader_change"), "valid_from")
    found = (
        services.join(_warm_topics(produced, ends), _SERVICE, "left")
        .join(_producing(produced), _SERVICE, "left")
        .join(_moves(followed, moves), _SERVICE, "left")
        .join(_staleness(recent(read(GOLD_STALENESS), "fleet_first_seen")), _SERVICE, "left")
    )
    return found.select(
        *_SERVICE,
        f.coalesce("warm_topics", f.array().cast("array<string>")).alias("warm_topics"),
        _refresh_max_age_ms().alias("refresh_max_age_ms"),
        f.col("as_of").alias("computed_at"),
        f.lit(TTL_MS).cast("bigint").alias("ttl_ms"),
        f.struct(
            "boots",
            _count("boots_that_produced"),
            _count("topics_produced_to"),
            _count("topics_followed"),
            _count("minutes_with_moves"),
            "observed_ms",
            _count("staleness_observations"),
            "staleness_permille",
        ).alias("evidence"),
    )


def _services(boots: DataFrame) -> DataFrame:
    """Returns each service with its number of boots and its observation time within the look-back."""
    since = f.col("as_of") - f.expr(LOOK_BACK)
    watched_ms = f.unix_millis("as_of") - f.unix_millis(f.min(f.greatest("first_event", since)))
    return boots.groupBy(*_SERVICE, "as_of").agg(
        f.count_distinct(*_BOOT).alias("boots"),
        f.greatest(watched_ms, f.lit(_LEAST_OBSERVED_MS)).alias("observed_ms"),
    )


# -- topics --------------------------------------------------------------------------------------------------


def _windows(windows: DataFrame) -> DataFrame:
    """Returns the windows in which records were acknowledged."""
    inner = [f.col(f"window.{name}") for name in (*_SERVICE, "topic", "started_at", "ended_at", "records")]
    return windows.select(*_BOOT, *inner).where(f.col("records") > 0)


def _produced(windows: DataFrame) -> DataFrame:
    """Returns a row for each boot and topic: the records, and the time of the last one."""
    return windows.groupBy(*_SERVICE, "topic", *_BOOT).agg(
        # A BIGINT may not hold the sum of two counts.
        f.sum(f.col("records").cast("decimal(38)")).alias("records"),
        f.max("ended_at").alias("last"),
    )


def _producing(produced: DataFrame) -> DataFrame:
    return produced.groupBy(*_SERVICE).agg(
        f.count_distinct(*_BOOT).alias("boots_that_produced"),
        f.count_distinct("topic").alias("topics_produced_to"),
    )


def _warm_topics(produced: DataFrame, ends: DataFrame) -> DataFrame:
    """Returns the topics of each service: most boots first, then most records, then by name."""
    gone = ends.where(f.col("change") == GONE).groupBy("cluster_id", "topic")
    topics = produced.groupBy(*_SERVICE, "topic").agg(
        f.count("*").alias("boots_of_topic"), f.sum("records").alias("records"), f.max("last").alias("last")
    )
    wanted = (
        topics.join(_producing(produced), _SERVICE)
        .where(f.col("boots_of_topic") * 100 >= f.col("boots_that_produced") * WARM_SHARE_PERCENT)
        .join(gone.agg(f.max("observed_at").alias("gone_at")), ["cluster_id", "topic"], "left")
        .where(f.col("gone_at").isNull() | (f.col("gone_at") <= f.col("last")))
    )
    rank = f.struct((-f.col("boots_of_topic")).alias("b"), (-f.col("records")).alias("r"), "topic")
    ranked = f.slice(f.sort_array(f.collect_list(rank)), 1, MOST_WARM_TOPICS)
    return wanted.groupBy(*_SERVICE).agg(ranked.getField("topic").alias("warm_topics"))


# -- the interval --------------------------------------------------------------------------------------------


def _moves(followed: DataFrame, moves: DataFrame) -> DataFrame:
    """Returns how many topics each service follows, and the minutes in which one of their leaders moved."""
    minute = f.date_trunc("minute", "valid_from").alias("minute")
    at = moves.select("cluster_id", "topic", minute).distinct()
    return (
        followed.join(at, ["cluster_id", "topic"], "left")
        .groupBy(*_SERVICE)
        .agg(
            f.count_distinct("topic").alias("topics_followed"),
            f.count_distinct("minute").alias("minutes_with_moves"),
        )
    )


def _staleness(rows: DataFrame) -> DataFrame:
    """Returns a sidecar's delay in seeing an epoch after the fleet's first, in thousandths of its interval.

    Ignores the sidecar that saw the epoch first, and waits that were cut off before the interval was over. A
    wait longer than the interval counts as one interval: a shorter interval would not shorten the rest.
    """
    delay_ms, interval_ms = f.col("delay_ms"), f.col("metadata_max_age_ms")
    is_first = ~f.col("is_censored") & (delay_ms <= 0)
    ended_early = f.col("is_censored") & (delay_ms < interval_ms)
    reported = rows.where((interval_ms > 0) & ~is_first & ~ended_early)
    permille = f.floor(f.least(delay_ms, interval_ms) * 1000 / interval_ms)
    return reported.groupBy(*_SERVICE).agg(
        f.count("*").alias("staleness_observations"),
        f.floor(f.sum(permille) / f.count("*")).alias("staleness_permille"),
    )


def _refresh_max_age_ms() -> Column:
    """Returns the interval, in whole seconds, that keeps to OUT_OF_DATE_PERMILLE, within its bounds."""
    staleness = f.coalesce("staleness_permille", f.lit(_UNMEASURED_STALENESS_PERMILLE))
    weight = f.coalesce("minutes_with_moves", f.lit(0)) * staleness
    exact_ms = OUT_OF_DATE_PERMILLE * f.col("observed_ms") / f.nullif(weight, f.lit(0))
    seconds = f.floor(exact_ms / 1000)
    # A weight of 0 gives null, which `least` skips.
    at_most = f.least(seconds * 1000, f.lit(LONGEST_MAX_AGE_MS))
    return f.greatest(at_most, f.lit(SHORTEST_MAX_AGE_MS)).cast("bigint")


def _count(name: str) -> Column:
    """Returns a count; 0 if there is none."""
    return f.coalesce(name, f.lit(0)).cast("bigint").alias(name)
