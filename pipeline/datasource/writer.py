"""Writes rows to topics: on executors for each task, on the driver after all tasks.

Both writers get Arrow batches, so pyspark does not create a Row object for each row
(measured in docs/pipeline-datasource.md). pyspark 4.0.0 also passes batches to a stream's writer if it is a
DataSourceArrowWriter; it checks the class and not whether the job streams.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pipeline.datasource.chunks import chunks_of, columns_of, records_of
from pipeline.datasource.delivery import Counts, Delivery, TaskKeys, patience_for
from pipeline.datasource.sidecar_http import InvalidOptionError, SidecarConnection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pipeline.datasource.chunks import Columns, Record
    from pipeline.datasource.options import WriteOptions

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Delivered(WriterCommitMessage):
    """A task's message to the driver."""

    counts: Counts


class RecordsWriter(DataSourceArrowWriter):
    """Writes rows to topics; created on the driver, sent to each task."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        """Raises InvalidOptionError."""
        if overwrite:
            raise InvalidOptionError("a topic can't be overwritten; write with mode append")
        self._options = options
        self._columns: Columns = columns_of(schema, options.topic)
        #: The same for all tasks of the job and all their attempts.
        self._write_id = options.write_id or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Delivered:
        """Writes the rows of one task. Raises DeliveryFailedError, InvalidOptionError."""
        context = TaskContext.get()
        assert context is not None, "write runs in a task"
        options = self._options
        with SidecarConnection(options.access) as sidecar:
            delivery = Delivery(
                sidecar,
                str(options.access.address),
                TaskKeys(self.write_id_in(context), context.partitionId()),
                self._columns,
                timeout_ms=options.access.timeout_ms,
                patience=patience_for(options.access.retry_timeout_ms),
            )
            for chunk in chunks_of(self._records(iterator), options.batch_records, options.batch_bytes):
                delivery.write(chunk)
        return Delivered(delivery.counts)

    def write_id_in(self, context: TaskContext) -> str:
        """Returns the prefix of this write's idempotency keys."""
        return self._write_id

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Logs the sums. All tasks are done: their records are already in the log."""
        logger.info("written: %s", reported_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Logs the failure. The records of finished tasks stay: they can't be removed from a log."""
        logger.warning("the write failed; what finished tasks wrote stays: %s", reported_of(messages))

    def _records(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Record]:
        rows = 0
        for batch in batches:
            yield from records_of(self._columns, self._options.topic, batch, rows)
            rows += batch.num_rows


class StreamedRecordsWriter(RecordsWriter):
    """Writes a query's micro-batches; the id and number of a batch are the same after a restart."""

    def write_id_in(self, context: TaskContext) -> str:
        query = self._options.write_id or context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return self._write_id if query is None or batch is None else f"{query}-{batch}"

    def commit(  # streams pass a batch number
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int | None = None,
    ) -> None:
        logger.info("batch %s written: %s", batchId, reported_of(messages))

    def abort(  # streams pass a batch number
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int | None = None,
    ) -> None:
        logger.warning("batch %s failed; what finished tasks wrote stays: %s", batchId, reported_of(messages))


def reported_of(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Returns the sums over all tasks, on one line."""
    sums: Counter[str] = Counter()
    done = [message for message in messages if isinstance(message, Delivered)]
    for message in done:
        sums.update(asdict(message.counts))
    reported: dict[str, Any] = {name: sums[name] for name in asdict(Counts())}
    return f"tasks={len(done)} " + " ".join(f"{name}={count}" for name, count in reported.items())
