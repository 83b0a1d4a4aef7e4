"""Shared by all gold tables: `Read`, which reads a table by its name, and columns about time.

Gold tables are pure functions of a Read. They build a plan and run nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column


#: Tables that have no time of their own are about so many days before the latest event. A week includes the
#: jobs of every weekday.
LOOK_BACK_DAYS: Final = 7
LOOK_BACK: Final = f"INTERVAL {LOOK_BACK_DAYS} DAYS"

Read: TypeAlias = Callable[[str], DataFrame]
GoldTable: TypeAlias = Callable[[Read], DataFrame]


def ms_between(start: Column, end: Column) -> Column:
    """Returns whole milliseconds from `start` to `end`, rounded down; negative if `end` is earlier."""
    return f.floor((f.unix_micros(end) - f.unix_micros(start)) / 1000)


def hour_of(time: str) -> Column:
    """Returns the time truncated to the hour, in UTC (the session's time zone)."""
    return f.date_trunc("hour", time).alias("hour")
