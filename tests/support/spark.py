"""The one Spark session of a test process: two cores, one gigabyte, with the Kafka and Delta jars.

`tests/pipeline` and `tests/kafka` make a fixture of it. A start takes about ten seconds; nothing is skipped:
where Java or the jars can't be had, the tests fail and say what to install.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.jars.connector_jars import default_folder, ensure_connector_jars
from pipeline.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

#: For tests with Spark: pyspark leaves the socket of a collect() to the garbage collector, which warns.
LEFT_SOCKETS: Final = "ignore:unclosed <socket:ResourceWarning"
_ROOT: Final = Path(__file__).resolve().parents[2]
#: No web page, and few partitions to shuffle: jobs of tests are small, and the start is their cost.
_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:-UsePerfData",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextlib.contextmanager
def spark_of_the_session(scratch: Path, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session whose tables and temporary files lie in the scratch folder; it ends with the block."""
    jars = ensure_connector_jars(default_folder(_ROOT))
    places = {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    spark = spark_session(
        "pilotfish-tests",
        master="local[2]",
        jars=jars,
        shuffle_partitions=2,
        driver_memory="1g",
        is_short=True,
        settings=_SETTINGS | places | dict(settings or {}),
    )
    try:
        yield spark
    finally:
        spark.stop()
