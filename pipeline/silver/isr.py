"""The states of a partition's replicas, each time that one was told.

Unlike its leader, a partition's ISR may change within an epoch (Kafka from metadata version 3.6 on bumps no
epoch when the ISR shrinks, KAFKA-15021), so that nothing but the sidecars' clocks orders these; and so each
is kept, with the boot that told it, whose clock may turn out to be wrong. Should a boot have told two states
at one microsecond, the lesser one is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.event_v1 import PARTITION
from pipeline.silver.columns import BOOT_KEY, NO_EPOCH, NOBODY, PARTITION_KEY, cluster_id, of_type, topic_key
from pipeline.silver.silver_table import Merge, SilverTable
from pipeline.tables import SILVER_ISR_OBS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _states(events: DataFrame) -> DataFrame:
    state = f.struct(
        f.coalesce("leader", f.lit(NOBODY)).alias("leader"),
        f.array_sort("isr").alias("isr"),
        f.array_sort("replicas").alias("replicas"),
    )
    return of_type(events, PARTITION).select(
        cluster_id(),
        topic_key(),
        "partition",
        f.coalesce("leader_epoch", f.lit(NO_EPOCH)).alias("leader_epoch"),
        "observed_at",
        *BOOT_KEY,
        "topic",
        state.alias("state"),
    )


ISR_OBS: Final = SilverTable(
    SILVER_ISR_OBS,
    keys=(*PARTITION_KEY, "leader_epoch", "observed_at", *BOOT_KEY),
    rows=_states,
    merges={"topic": Merge.MIN, "state": Merge.MIN},
)
