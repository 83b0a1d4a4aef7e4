"""When a topic ended for a sidecar: the brokers had it no more, or it follows it no more.

gone        the brokers say that there is no such topic. Right after a topic was made, one of them may say
            so that has not heard of it yet: gold believes no end after which somebody told of the topic
recreated   there is another topic of this name; topic_key is the one that ended
forgotten   nobody asks this sidecar for the topic: it may live on
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from pipeline.event_v1 import TOPIC
from pipeline.silver.columns import BOOT_KEY, cluster_id, of_type, topic_key
from pipeline.silver.silver_table import Merge, SilverTable
from pipeline.tables import SILVER_TOPIC_ENDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GONE: Final = "gone"
RECREATED: Final = "recreated"
FORGOTTEN: Final = "forgotten"


def _ends(events: DataFrame) -> DataFrame:
    ended = of_type(events, TOPIC).where(f.col("change").isin(GONE, RECREATED, FORGOTTEN))
    return ended.select(cluster_id(), topic_key(), *BOOT_KEY, "change", "observed_at", "topic")


TOPIC_ENDS: Final = SilverTable(
    SILVER_TOPIC_ENDS,
    keys=("cluster_id", "topic_key", *BOOT_KEY, "change", "observed_at"),
    rows=_ends,
    merges={"topic": Merge.MIN},
)
