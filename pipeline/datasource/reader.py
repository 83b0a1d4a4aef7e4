"""A read: planned on the driver by the list of topics, asked for in tasks.

Topics and brokers are one request, so one task. Partitions take a request for each topic: those are spread
over tasks by how many partitions they have, each task asking for some hundred or more, for starting a task
costs as much as some hundred look-ups.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pipeline.datasource.patience import Patience, asked
from pipeline.datasource.sidecar_http import SidecarConnection
from pipeline.datasource.tables import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pipeline.datasource.options import ReadOptions
    from pipeline.datasource.sidecar_http import Answer
    from pipeline.datasource.tables import Listed

#: A look-up over a kept connection takes some 0.3 ms, a task of Spark some 50 ms.
_TOPICS_PER_TASK: Final = 100


@dataclass
class TopicsSlice(InputPartition):
    """The topics that one task asks for."""

    topics: tuple[str, ...]


class TableReader(DataSourceReader):
    """Reads one table; made on the driver, sent to each task."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Raises SidecarRefusedError, SidecarUnreachableError: the driver asks for the list of topics."""
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
    """The topics in at most so many slices of about as many partitions each; never no slice.

    The largest topic first, each to the slice that has least so far. Deterministic.
    """
    count = max(min(splits, -(-len(listed) // _TOPICS_PER_TASK)), 1)
    slices: list[list[str]] = [[] for _ in range(count)]
    loads = [(0, index) for index in range(count)]
    for topic in sorted(listed, key=lambda one: (-one.partitions, one.name)):
        load, index = heapq.heappop(loads)
        slices[index].append(topic.name)
        heapq.heappush(loads, (load + topic.partitions + 1, index))
    return [tuple(sorted(topics)) for topics in slices]
