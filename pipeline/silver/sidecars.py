"""The silver tables of sidecars: their boots, the lines that arrived, and produce windows.

silver_sidecars           first and last time of a boot, and what it reported about itself. last_received is
                          when its last line was received, by another clock. began_lo and began_hi are its
                          start, each heartbeat's time less its uptime: equal if its clock is steady
silver_refreshes          when a boot looked at its partitions, changed or not, for clocks. A refresh for a
                          missing topic looks at that topic only
silver_seqs               a bit for each line that arrived. Lines are numbered from 1, so a missing one was
                          dropped by the sidecar, was lost, or has not arrived yet
silver_produce_windows    counts cannot be merged, so each window is kept once, by its boot and the number of
                          its line. Of two windows with one number (no sidecar does that) the lesser is kept
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.event_v1 import REFRESH, WINDOW
from pipeline.silver.silver_table import BOOT_KEY, NOBODY, Merge, SilverTable, cluster_id, of_type, service
from pipeline.tables import SILVER_PRODUCE_WINDOWS, SILVER_REFRESHES, SILVER_SEQS, SILVER_SIDECARS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame


#: Lines that share a row of silver_seqs: the bits of a BIGINT, which Spark can merge without sorting.
LINES_OF_A_BUCKET: Final = 64
_BITS_OF_A_BUCKET: Final = 6
#: Thirty years.
_LONGEST_UPTIME_MS: Final = 10**12
#: The reason of a refresh that asks for one topic.
_OF_ONE_TOPIC: Final = "topic_missing"

_NUMBERS: Final[Mapping[str, Merge]] = {
    "first_event": Merge.MIN,
    "last_event": Merge.MAX,
    "last_received": Merge.MAX,
    "max_seq": Merge.MAX,
    "dropped": Merge.MAX,
    "metadata_max_age_ms": Merge.MAX,
    "began_lo": Merge.MIN,
    "began_hi": Merge.MAX,
}
_SIDECAR_KEY: Final = ("cluster_id", *BOOT_KEY)


def _windows(events: DataFrame) -> DataFrame:
    window = f.struct(
        cluster_id(),
        service(),
        "topic",
        "partition",
        f.coalesce("broker", f.lit(NOBODY)).alias("broker"),
        "started_at",
        f.col("observed_at").alias("ended_at"),
        "records",
        "batches",
        "bytes",
        "retries",
        _pairs("errors", "error", "string").alias("errors"),
        _pairs("latency_us", "bucket", "int").alias("latency"),
    )
    return of_type(events, WINDOW).select(*BOOT_KEY, "seq", window.alias("window"))


def _pairs(counts: str, name: str, kind: str) -> Column:
    """Returns a map of counts as a sorted array of pairs, which has an order, so that MIN can be used."""
    # Bronze has checked that a bucket is a number.
    pairs = f.map_entries(counts).try_cast(f"array<struct<{name}:{kind},records:bigint>>")
    return f.sort_array(pairs)


PRODUCE_WINDOWS: Final = SilverTable(
    SILVER_PRODUCE_WINDOWS,
    keys=(*BOOT_KEY, "seq"),
    rows=_windows,
    merges={"window": Merge.MIN},
)


def _sidecars(events: DataFrame) -> DataFrame:
    """Groups by service and version too: Spark hashes for a minimum of numbers, but sorts for texts."""
    # Null beyond it: nothing is subtracted that could lead out of the range of times.
    uptime_us = f.when(f.col("uptime_ms").between(0, _LONGEST_UPTIME_MS), f.col("uptime_ms") * 1_000)
    began = f.timestamp_micros(f.unix_micros("observed_at") - uptime_us)
    reported = events.select(
        cluster_id(),
        *BOOT_KEY,
        service(),
        "version",
        f.col("observed_at").alias("first_event"),
        f.col("observed_at").alias("last_event"),
        f.col("received_at").alias("last_received"),
        f.col("seq").alias("max_seq"),
        "dropped",
        "metadata_max_age_ms",
        began.alias("began_lo"),
        began.alias("began_hi"),
    )
    numbers = [merge.aggregate(name).alias(name) for name, merge in _NUMBERS.items()]
    return reported.groupBy(*_SIDECAR_KEY, "service", "version").agg(*numbers)


def _refreshes(events: DataFrame) -> DataFrame:
    looked = of_type(events, REFRESH).where((f.col("outcome") == "ok") & (f.col("reason") != _OF_ONE_TOPIC))
    return looked.select(*BOOT_KEY, "observed_at", "duration_us")


def _lines(events: DataFrame) -> DataFrame:
    number = f.col("seq") - 1
    bit = number.bitwiseAND(LINES_OF_A_BUCKET - 1).cast("int")
    return events.where(f.col("seq") >= 1).select(
        *BOOT_KEY,
        f.shiftright(number, _BITS_OF_A_BUCKET).alias("bucket"),
        f.call_function("shiftleft", f.lit(1).cast("bigint"), bit).alias("bitmap"),
    )


SIDECARS: Final = SilverTable(
    SILVER_SIDECARS,
    keys=_SIDECAR_KEY,
    rows=_sidecars,
    merges={"service": Merge.MIN, "version": Merge.MAX, **_NUMBERS},
)

REFRESHES: Final = SilverTable(
    SILVER_REFRESHES,
    keys=(*BOOT_KEY, "observed_at"),
    rows=_refreshes,
    merges={"duration_us": Merge.MAX},
)

SEQS: Final = SilverTable(SILVER_SEQS, keys=(*BOOT_KEY, "bucket"), rows=_lines, merges={"bitmap": Merge.OR})
