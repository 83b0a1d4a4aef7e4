"""The boots of the fleet's sidecars, and which lines of each have come.

silver_sidecars   when a boot was first and last heard of, and what it said of itself
silver_seqs       a bit for each line that came: its lines are numbered from 1 on, so that what is missing
                  was dropped by the sidecar, or was lost, or is still to come
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.silver.columns import BOOT_KEY, cluster_id, service
from pipeline.silver.silver_table import Merge, SilverTable
from pipeline.tables import SILVER_SEQS, SILVER_SIDECARS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

#: Lines that share a row of silver_seqs: the bits of a BIGINT, which Spark can merge without sorting.
LINES_OF_A_BUCKET: Final = 64
_BITS_OF_A_BUCKET: Final = 6

_NUMBERS: Final[Mapping[str, Merge]] = {
    "first_event": Merge.MIN,
    "last_event": Merge.MAX,
    "max_seq": Merge.MAX,
    "dropped": Merge.MAX,
    "metadata_max_age_ms": Merge.MAX,
}
_SIDECAR_KEY: Final = ("cluster_id", *BOOT_KEY)


def _sidecars(events: DataFrame) -> DataFrame:
    """Merged by service and version, too: Spark hashes for a least number, but sorts for a least text."""
    told = events.select(
        cluster_id(),
        *BOOT_KEY,
        service(),
        "version",
        f.col("observed_at").alias("first_event"),
        f.col("observed_at").alias("last_event"),
        f.col("seq").alias("max_seq"),
        "dropped",
        "metadata_max_age_ms",
    )
    numbers = [merge.aggregate(name).alias(name) for name, merge in _NUMBERS.items()]
    return told.groupBy(*_SIDECAR_KEY, "service", "version").agg(*numbers)


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

SEQS: Final = SilverTable(SILVER_SEQS, keys=(*BOOT_KEY, "bucket"), rows=_lines, merges={"bitmap": Merge.OR})
