"""Makes a sidecar a Spark data source: reads topics, partitions and brokers; writes rows as records.

    from pipeline.datasource import register

    register(spark)
    spark.read.format("pilotfish").option("table", "partitions").option("topics", "orders*").load()
    frame.write.format("pilotfish").option("topic", "orders").mode("append").save()
    frame.writeStream.format("pilotfish").option("topic", "orders").option("checkpointLocation", …).start()

    source ──▶ tables ──▶ sidecar_http                   source    what Spark calls; options, schemas, reads
           └─▶ writer ──▶ delivery ─▶ sidecar_http       delivery  a chunk until it has an outcome
                      └─▶ chunks      answers            answers   what an answer means, and when to retry

Executors import this package too: install it there, or send it with `--py-files`. It uses only HTTP and the
standard library. A write is delivered at least once; docs/pipeline-datasource.md says which duplicates the
idempotency keys prevent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.datasource.sidecar_http import (
    DeliveryFailedError,
    InvalidOptionError,
    PilotfishError,
    SidecarRefusedError,
    SidecarUnreachableError,
)
from pipeline.datasource.source import PilotfishSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DeliveryFailedError",
    "InvalidOptionError",
    "PilotfishError",
    "PilotfishSource",
    "SidecarRefusedError",
    "SidecarUnreachableError",
    "register",
]


def register(spark: SparkSession) -> None:
    """Registers the format `pilotfish` with a session. May be called repeatedly."""
    spark.dataSource.register(PilotfishSource)
