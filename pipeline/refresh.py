"""Silver and gold, brought up to date with bronze; and the mark that says whether they are.

    <out>/_fresh.json   {"version": …, "tables": […]}   there while silver and gold hold all that bronze does

The mark goes before a batch is added to bronze and comes back when the last gold table is written. So whoever
starts after a driver was killed, in whichever instant, sees that there is something left to do; and whoever
starts with nothing new, and the same tables to make, sees that there isn't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation
from pyspark.sql import functions as f

from pipeline.gold import GOLD
from pipeline.silver import SILVER
from pipeline.stores.folders import Folders
from pipeline.tables import BRONZE_EVENTS, BRONZE_REJECTS
from pipeline.version import pilotfish_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.gold.read import GoldTable
    from pipeline.progress import Progress
    from pipeline.silver.silver_table import SilverTable
    from pipeline.stores.store import Store

_MARK: Final = "_fresh.json"


class Refresh:
    """Silver and gold of a store. `at` is called with a table's name when it is written."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        progress: Progress,
        at: Callable[[str], None],
        *,
        silver: Sequence[SilverTable] = SILVER,
        gold: Mapping[str, GoldTable] = GOLD,
    ) -> None:
        self._store = store
        self._silver = silver
        self._gold = gold
        self._names = [*(table.name for table in silver), *gold]
        self._says = {"version": pilotfish_version(), "tables": self._names}
        self._folders = Folders(spark)
        self._mark = f"{store.out}/{_MARK}"
        self._progress = progress
        self._at = at
        #: How many rows each table got that was replaced.
        self._rows: dict[str, int] = {}

    def is_due(self) -> bool:
        """Whether silver and gold lack something that bronze has, or are of another version."""
        return self._folders.read_json(self._mark) != self._says

    def begins(self) -> None:
        """Bronze is about to change."""
        self._folders.delete(self._mark)

    def silver(self) -> None:
        """Every silver table, from all of bronze."""
        for table in self._silver:
            self._replace(table.name, table.of(self._store.read(table.source)))

    def missing_silver(self) -> None:
        """The silver tables that are not there yet, from all of bronze; batches are merged into them."""
        for table in self._silver:
            if not self._store.has(table.name):
                self._replace(table.name, table.of(self._store.read(table.source)))

    def merge_into_silver(self, events: DataFrame) -> None:
        """The bronze events of a batch, merged into every silver table."""
        sources = {BRONZE_EVENTS: events}
        for table in self._silver:
            self._progress.doing(table.name)
            sources[table.name] = table.of(sources[table.source])
            self._store.merge(table, sources[table.name])
            self._rows.pop(table.name, None)
            self._at(table.name)

    def gold(self) -> None:
        """Every gold table, from silver; then the mark."""
        for name, table in self._gold.items():
            self._replace(name, table(self._store.read))
        self._folders.write_json(self._mark, self._says)
        self._at("fresh")

    def rows_of_all(self) -> dict[str, int]:
        """How many rows each table has now, by its name, in the order in which they are made."""
        self._progress.doing("counting")
        return {
            name: self._rows[name] if name in self._rows else self._store.read(name).count()
            for name in (BRONZE_EVENTS, BRONZE_REJECTS, *self._names)
            if self._store.has(name)
        }

    def _replace(self, name: str, rows: DataFrame) -> None:
        self._progress.doing(name)
        observation = Observation()
        self._store.replace(name, rows.observe(observation, f.count(f.lit(1)).alias("rows")))
        self._rows[name] = observation.get["rows"]
        self._at(name)
