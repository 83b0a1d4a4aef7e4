"""gold_produce_slo: counts that are counted once, and quantiles of histograms added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline import event_v1
from pipeline.gold.produce_slo import upper_bound_us
from pipeline.tables import GOLD_PRODUCE_SLO
from tests.pipeline.fleets import CLUSTER, TOPIC, Boot, at
from tests.pipeline.stories import Stories, assert_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.stories import Outcome, Story, Tale
    from tests.pipeline.whole_pipeline import Tables

story = Stories()


#: Of a latency of 1 ms.
_1_MS: Final = event_v1.upper_bound_us(event_v1.bucket_of(1_000))


@story
def windows_of_all_sidecars_and_partitions_are_added_up_by_hour_topic_and_broker() -> Story:
    a, b = Boot("a"), Boot("b")
    a.produces(10, latency={1_000: 2}, partition=0, retries=1)
    a.produces(20, latency={1_000: 3}, partition=1)
    b.produces(30, latency={1_000: 4}, broker=2)
    b.produces(1_205, latency={1_000: 5})  # began in the hour before
    b.produces(1_210, latency={1_000: 6})
    rows = yield a.events + b.events
    assert_table(
        rows(GOLD_PRODUCE_SLO),
        "cluster_id hour topic broker records batches bytes retries failed error_rate errors"
        " p50_us p95_us p99_us",
        (CLUSTER, at(-2_400), TOPIC, 1, 10, 3, 1_000, 1, 0, 0.0, [], _1_MS, _1_MS, _1_MS),
        (CLUSTER, at(-2_400), TOPIC, 2, 4, 1, 400, 0, 0, 0.0, [], _1_MS, _1_MS, _1_MS),
        (CLUSTER, at(1_200), TOPIC, 1, 6, 1, 600, 0, 0, 0.0, [], _1_MS, _1_MS, _1_MS),
    )


@story
def windows_of_a_clock_that_is_ahead_count_in_the_true_hour() -> Story:
    boots = [*(Boot(name) for name in "abc"), Boot("ahead", clock_s=900)]
    for boot in boots:
        for epoch in range(1, 6):
            boot.looks(epoch * 100 - 1)
            boot.sees(epoch * 100, epoch=epoch)
    boots[-1].produces(700, latency={1_000: 1})
    rows = yield [event for boot in boots for event in boot.events]
    assert_table(rows(GOLD_PRODUCE_SLO), "hour records", (at(-2_400), 1))


@story
def a_quantile_is_the_upper_bound_of_the_bucket_of_its_rank() -> Story:
    boot = Boot("a")
    boot.produces(10, latency={1_000: 50, 5_000: 45})
    boot.produces(20, latency={70_000: 4, 900_000: 1})
    rows = yield boot.events
    bounds = (event_v1.upper_bound_us(event_v1.bucket_of(us)) for us in (1_000, 5_000, 70_000))
    assert_table(rows(GOLD_PRODUCE_SLO), "p50_us p95_us p99_us", (*bounds,))


@story
def one_record_has_quantiles_and_an_error_rate() -> Story:
    boot = Boot("a")
    boot.produces(10, latency={3: 1}, broker=1)
    boot.produces(10, latency={1_000: 1}, broker=2)
    boot.produces(10, errors={"REQUEST_TIMED_OUT": 1}, broker=3)
    rows = yield boot.events
    assert_table(
        rows(GOLD_PRODUCE_SLO),
        "broker error_rate p50_us p95_us p99_us",
        (1, 0.0, 4, 4, 4),
        (2, 0.0, _1_MS, _1_MS, _1_MS),
        (3, 1.0, None, None, None),
    )


@story
def a_window_in_which_nothing_was_acknowledged_has_errors_and_no_latency() -> Story:
    boot = Boot("a")
    names = ["NETWORK_EXCEPTION", "INVALID_RECORD", "REQUEST_TIMED_OUT", "NOT_LEADER_OR_FOLLOWER", "Z", "A"]
    boot.produces(10, errors={name: len(name) for name in names}, broker=None)
    rows = yield boot.events
    errors = [{"error": name, "records": len(name)} for name in sorted(names)]
    columns = "broker failed error_rate p50_us errors"
    assert_table(rows(GOLD_PRODUCE_SLO), columns, (-1, sum(map(len, names)), 1.0, None, errors))


@story
def a_window_in_which_nothing_happened_to_a_record_has_no_error_rate() -> Story:
    boot = Boot("a")
    boot.produces(10)
    rows = yield boot.events
    assert_table(rows(GOLD_PRODUCE_SLO), "error_rate errors failed", (None, [], 0))


@story
def the_error_rate_is_of_records_not_of_batches() -> Story:
    boot = Boot("a")
    boot.produces(10, latency={1: 30}, errors={"MESSAGE_TOO_LARGE": 10}, batches=2)
    rows = yield boot.events
    assert_table(rows(GOLD_PRODUCE_SLO), "failed error_rate", (10, 0.25))


@story
def records_that_were_sent_again_and_acknowledged_have_not_failed() -> Story:
    boot = Boot("a")
    boot.produces(10, latency={1_000: 4}, retries=3)
    rows = yield boot.events
    assert_table(rows(GOLD_PRODUCE_SLO), "retries failed error_rate", (3, 0, 0.0))


@story
def of_two_windows_with_one_line_number_one_is_counted() -> Story:
    boot = Boot("a")
    boot.produces(10, latency={1_000: 7}, seq=5)
    boot.produces(10, latency={1_000: 4}, seq=5)
    rows = yield boot.events * 2
    assert_table(rows(GOLD_PRODUCE_SLO), "records", (4,))


@story
def counts_that_no_sum_can_hold_stop_nothing() -> Story:
    boot = Boot("a")
    for seconds in (10, 20):
        boot.produces(seconds, latency={1_000: 2**62}, bytes=2**63 - 1)
    rows = yield boot.events
    assert_table(rows(GOLD_PRODUCE_SLO), "bytes records batches p50_us", (None, None, 2, 1_024))


@story.test
def test_produce_slo(story: Tale, reported: Outcome, tables: Tables) -> None:
    reported.check(story, tables)


def test_a_buckets_bound_is_the_same_in_spark_and_python(spark: SparkSession) -> None:
    bounds = spark.range(244).select(upper_bound_us(f.col("id").cast("int")).alias("bound"), "id")
    assert [row["bound"] for row in bounds.orderBy("id").collect()] == [
        event_v1.upper_bound_us(bucket) for bucket in range(244)
    ]
