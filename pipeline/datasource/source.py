"""The data source's interface to Spark: a name, a schema for each table, a reader and two writers.

Spark creates it on the driver for each read or write and pickles it by its module's name, so this package
must be importable wherever a task runs. `schema`, `reader` and `writer` make all checks that need no request
before a job runs.

The driver plans a read from the list of topics. Topics and brokers need one request each, so one task.
Partitions need a request per topic: they are spread over tasks of about a hundred topics each, because
starting a task costs as much as about a hundred look-ups.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from pipeline.datasource.answers import Patience, asked
from pipeline.datasource.options import read_options, write_options
from pipeline.datasource.sidecar_http import InvalidOptionError, SidecarConnection
from pipeline.datasource.tables import SCHEMAS, Sidecar
from pipeline.datasource.writer import RecordsWriter, StreamedRecordsWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType

    from pipeline.datasource.options import ReadOptions
    from pipeline.datasource.sidecar_http import Answer
    from pipeline.datasource.tables import Listed


#: A look-up over a kept-alive connection takes about 0.3 ms, a Spark task about 50 ms.
_TOPICS_PER_TASK: Final = 100


@dataclass
class TopicsSlice(InputPartition):
    """The topics that one task requests."""

    topics: tuple[str, ...]


class TableReader(DataSourceReader):
    """Reads one table; created on the driver, sent to each task."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Requests the topics on the driver. Raises SidecarRefusedError or SidecarUnreachableError."""
        options = self._options
        if options.table != "partitions":
            return [TopicsSlice(())]
        with SidecarConnection(options.access) as connection:
            listed = self._sidecar(connection).listed(options.topics, internal=options.internal)
        return [TopicsSlice(topics) for topics in slices_of(listed, options.splits)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, TopicsSlice)
        options = self._options
        with SidecarConnection(options.access) as connection:
            sidecar = self._sidecar(connection)
            if options.table == "topics":
                yield from sidecar.topics(options.topics, internal=options.internal)
            elif options.table == "brokers":
                yield from sidecar.brokers()
            else:
                yield from sidecar.partitions(partition.topics)

    def _sidecar(self, connection: SidecarConnection) -> Sidecar:
        random = Random()

        def ask(method: str, path: str, body: bytes | None) -> Answer:
            patience = Patience(self._options.access.retry_timeout_ms, random)
            return asked(lambda: connection.ask(method, path, body), patience)

        return Sidecar(str(connection.address), ask)


def slices_of(listed: Sequence[Listed], splits: int) -> list[tuple[str, ...]]:
    """Splits the topics into at most `splits` slices with about as many partitions each; at least one slice.

    Adds the largest topic first, always to the slice with the fewest partitions. Deterministic.
    """
    count = max(min(splits, -(-len(listed) // _TOPICS_PER_TASK)), 1)
    slices: list[list[str]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for topic in sorted(listed, key=lambda one: (-one.partitions, one.name)):
        load, index = heapq.heappop(loads)
        slices[index].append(topic.name)
        heapq.heappush(loads, (load + topic.partitions + 1, index))
    return [tuple(sorted(topics)) for topics in slices]


class PilotfishSource(DataSource):
    """Implements `format("pilotfish")`."""

    @classmethod
    def name(cls) -> str:
        return "pilotfish"

    def schema(self) -> StructType:
        """Returns the schema of the option table. Raises InvalidOptionError."""
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
        # It has the methods that Spark calls; writer.py says why it is an Arrow writer.
        writer = StreamedRecordsWriter(write_options(self.options), schema, overwrite)
        return cast("DataSourceStreamWriter", writer)
