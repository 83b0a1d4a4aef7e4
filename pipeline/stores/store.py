"""Where tables are kept: what the job asks of a store, whichever format it writes.

Every write may be done again after a driver was killed in its midst, with the same result: a batch of bronze
is known by its name, a silver row by its key, and the other tables are replaced whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from pipeline.silver.silver_table import SilverTable

PARQUET: Final = "parquet"
DELTA: Final = "delta"
KINDS: Final = (PARQUET, DELTA)

#: Of the tables' columns and folders. Raised when a reader of the one can't read the other.
LAYOUT: Final = 1


class StoreError(PipelineError):
    """A folder that can't be read or written as the store that it was taken for. Names it, and the remedy."""


class BatchId(NamedTuple):
    """A batch of a streaming query: the query's name lives as long as its checkpoint, its numbers ascend."""

    query: str
    number: int

    def __str__(self) -> str:
        return f"{self.query}-{self.number}"


class Store(Protocol):
    """Tables below one folder, `<out>/<table>/`. One job writes; any number read."""

    @property
    def out(self) -> str:
        """The folder, as it was given: a path, or a URI that Hadoop knows (s3a://, hdfs://)."""
        ...

    @property
    def kind(self) -> str:
        """PARQUET or DELTA."""
        ...

    @property
    def merges_in_place(self) -> bool:
        """Whether `merge` writes only what it touches; else silver is best computed again from bronze."""
        ...

    def has(self, table: str) -> bool:
        """Whether the table is there, if only empty."""
        ...

    def read(self, table: str) -> DataFrame:
        """The table as it is now. Raises StoreError if it isn't there."""
        ...

    def create(self, table: str, schema: StructType) -> None:
        """An empty table, unless there is one."""
        ...

    def append(self, table: str, rows: DataFrame, batch: BatchId) -> None:
        """Adds the rows of a batch; a batch that was added before is not added twice."""
        ...

    def merge(self, table: SilverTable, rows: DataFrame) -> None:
        """Merges rows of a silver table into what is there, by the table's own rules."""
        ...

    def replace(self, table: str, rows: DataFrame) -> None:
        """The rows instead of what was there; readers see the one or the other."""
        ...
