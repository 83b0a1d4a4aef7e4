"""Columns about time that several gold tables share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column


def ms_between(start: Column, end: Column) -> Column:
    """Whole milliseconds from the one time to the other, rounded down; negative if they are in disorder."""
    return f.floor((f.unix_micros(end) - f.unix_micros(start)) / 1000)


def hour_of(time: str) -> Column:
    """The full hour before this time, in UTC (the session's time zone)."""
    return f.date_trunc("hour", time).alias("hour")
