"""The data source as Spark sees it: a name, a schema for each table, a reader, two writers.

Spark makes one of these on the driver for each read or write and pickles it by its module's name, so this
package must be importable wherever a task runs. Everything that can be wrong without asking anyone is said
in `schema`, `reader` and `writer`, before a job runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSource

from pipeline.datasource.errors import InvalidOptionError
from pipeline.datasource.options import read_options, write_options
from pipeline.datasource.reader import TableReader
from pipeline.datasource.tables import SCHEMAS
from pipeline.datasource.writer import RecordsWriter, StreamedRecordsWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType


class PilotfishSource(DataSource):
    """`format("pilotfish")`."""

    @classmethod
    def name(cls) -> str:
        return "pilotfish"

    def schema(self) -> StructType:
        """That of the option table. Raises InvalidOptionError."""
        return SCHEMAS[read_options(self.options).table]

    def reader(self, schema: StructType) -> TableReader:
        options = read_options(self.options)
        if schema != SCHEMAS[options.table]:
            raise InvalidOptionError(
                f"table {options.table} has a schema of its own ({SCHEMAS[options.table].simpleString()}); "
                "give none, and select what you need"
            )
        return TableReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> RecordsWriter:
        return RecordsWriter(write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        # What Spark calls is there; see writer.py for why it is an Arrow writer all the same.
        writer = StreamedRecordsWriter(write_options(self.options), schema, overwrite)
        return cast("DataSourceStreamWriter", writer)
