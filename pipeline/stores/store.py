"""Defines the interface of stores, whichever format they write.

Every write may be repeated after a driver was killed during it, with the same result. A batch of bronze is
identified by its name, a silver row by its key, and other tables are replaced as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from pipeline.silver.silver_table import SilverTable

PARQUET: Final = "parquet"
DELTA: Final = "delta"
KINDS: Final = (PARQUET, DELTA)

#: The version of columns and folders. Raised if readers of the old layout can't read the new one.
LAYOUT: Final = 1
#: That of tables with closed days (closing.py): an older version would make them from what silver keeps.
CLOSED_LAYOUT: Final = 2


class StoreError(PipelineError):
    """A folder that can't be read or written as this store. Names it, and the remedy."""


class BatchId(NamedTuple):
    """A batch of a streaming query: the query's name is that of its checkpoint, its numbers ascend."""

    query: str
    number: int

    def __str__(self) -> str:
        return f"{self.query}-{self.number}"


class Store(Protocol):
    """Tables below one folder, `<out>/<table>/`. One job writes; any number may read."""

    @property
    def out(self) -> str:
        """Returns the folder as given: a path, or a URI that Hadoop knows (s3a://, hdfs://)."""
        ...

    @property
    def kind(self) -> str:
        """Returns PARQUET or DELTA."""
        ...

    @property
    def merges_in_place(self) -> bool:
        """Returns whether `merge` writes only changed rows; if not, a run's batches are merged at once."""
        ...

    def has(self, table: str) -> bool:
        """Returns whether the table exists; it may be empty."""
        ...

    def read(self, table: str, closed: str = "") -> DataFrame:
        """Returns the current table. Raises StoreError if it does not exist.

        `closed` is SQL: rows for which it is true may be left out, so that they need not be read.
        """
        ...

    def create(self, table: str, schema: StructType) -> None:
        """Makes an empty table, unless the table exists."""
        ...

    def append(self, table: str, rows: DataFrame, batch: BatchId) -> None:
        """Adds the rows of a batch; a repeated batch is not added twice."""
        ...

    def merge(self, table: SilverTable, rows: DataFrame) -> None:
        """Merges rows into a silver table by the table's own rules."""
        ...

    def replace(self, table: str, rows: DataFrame, closed: str = "") -> None:
        """Replaces all rows, or all but those that `read` with this `closed` may leave out. Readers see the
        old rows or the new ones.
        """
        ...

    def close(self, table: str, closed: str, which: str) -> None:
        """Stores the rows for which the SQL `closed` is true apart from the others; drops those for which
        `which` is true.
        """
        ...

    def unmerged(self, table: str) -> DataFrame | None:
        """Returns the rows of batches that `note_merged` has not recorded; None if there are none."""
        ...

    def note_merged(self, table: str) -> None:
        """Records that all batches of bronze are merged into silver."""
        ...

    def compact(self, table: str) -> int:
        """Writes the small files of a table, or batches of bronze, together; returns how many these were.
        Silver has to have all batches.
        """
        ...

    def vacuum(self, tables: Iterable[str]) -> None:
        """Deletes files of these tables that are not needed any more: Delta's old versions of a week ago,
        and what a killed Parquet run left.
        """
        ...

    def remove(self, table: str, which: str) -> None:
        """Removes the rows for which this SQL is true from a table of bronze; the others are never lost."""
        ...
