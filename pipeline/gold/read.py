"""What gold is made by: functions of what reads a table by its name. They are pure, and run nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pyspark.sql import DataFrame

Read: TypeAlias = Callable[[str], DataFrame]
GoldTable: TypeAlias = Callable[[Read], DataFrame]
