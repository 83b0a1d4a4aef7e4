from __future__ import annotations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_smoke(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
