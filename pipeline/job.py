"""The job: new lines of a source into bronze, batch by batch, and silver and gold brought up to date.

    for each batch of the query (Structured Streaming's foreachBatch):
        bronze_events, bronze_rejects        the batch added, known by the query's name and its number
        silver                               if the store can: the batch merged in
        silver, gold                         with `every_s`: brought up to date after each batch
    afterwards: silver, gold                 if they lack anything that bronze has

Spark writes down which lines a batch has before it calls for it, and that it is done after; a driver killed
in between gets the same batch again, and every write may be done again (stores/store.py). What is left to do
beyond batches is told by a mark (refresh.py).

A query's name and what it reads are kept in its checkpoint, `<out>/_checkpoint/<source>/`: a checkpoint that
is thrown away gets another name, so that what is read again is not taken for what was read before. It is then
in bronze twice, which no other table shows.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException, StreamingQueryException

from pipeline import bronze
from pipeline.errors import PipelineError, first_line
from pipeline.gold import GOLD
from pipeline.refresh import Refresh
from pipeline.silver import SILVER
from pipeline.stores.folders import Folders
from pipeline.stores.store import BatchId
from pipeline.tables import BRONZE_EVENTS, BRONZE_REJECTS

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pipeline.gold.read import GoldTable
    from pipeline.progress import Progress
    from pipeline.silver.silver_table import SilverTable
    from pipeline.sources import Source
    from pipeline.stores.store import Store

_IDENTITY: Final = "_pilotfish.json"
_POLL_S: Final = 1


class JobError(PipelineError):
    """A run that can't begin: another input than the checkpoint's."""


class ReadingEndedError(JobError):
    """A source that is gone while it is read, or a disk that is full: what Spark said of it."""

    exit_code = 1


@dataclass(slots=True)
class Summary:
    """What a run did."""

    batches: int = 0
    lines: int = 0
    rejects: dict[str, int] = field(default_factory=dict)
    #: Rows of each table as it stands after the run, in the order in which they are made.
    rows: dict[str, int] = field(default_factory=dict)
    #: The tables that could not be made, and why: they are as they were before.
    failed: dict[str, str] = field(default_factory=dict)
    #: Whether it was asked to stop before it came to the end of what there was.
    is_cut_short: bool = False

    @property
    def events(self) -> int:
        """Lines that were events."""
        return self.lines - sum(self.rejects.values())


class _StopAskedError(Exception):
    """Ends a query between two batches: nothing of the batch that it ends in was done yet."""


class Job:
    """One run of one source into one store. `at` is called with the name of each thing that is done:
    `offsets` (a batch is known, and nothing of it done), a table's name when it is written, `batch`, `fresh`.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        store: Store,
        progress: Progress,
        *,
        stop: threading.Event,
        at: Callable[[str], None] = lambda _: None,
        silver: Sequence[SilverTable] = SILVER,
        gold: Mapping[str, GoldTable] = GOLD,
    ) -> None:
        self._spark = spark
        self._source = source
        self._store = store
        self._progress = progress
        self._stop = stop
        self._at = at
        self._refresh = Refresh(spark, store, progress, at, silver=silver, gold=gold)
        self._checkpoint = f"{store.out}/_checkpoint/{source.name}"
        self._query_name = ""
        #: What went wrong inside a batch: Spark passes on no more than its text.
        self._failure: BaseException | None = None
        self.summary = Summary()

    def run(self, every_s: float | None = None, *, rebuilds: bool = False) -> Summary:
        """Reads what there is and ends; with `every_s`, looks again that often until it is asked to stop.

        `rebuilds` makes silver and gold from all of bronze first, as after an upgrade that changed them.
        Blocks. Raises JobError, ReadingEndedError and StoreError, and what Spark raises of its own.
        """
        self._query_name = self._named_query()
        self._store.create(BRONZE_EVENTS, bronze.EVENTS_SCHEMA)
        self._store.create(BRONZE_REJECTS, bronze.REJECTS_SCHEMA)
        if rebuilds:
            self._refresh.begins()
            if self._store.merges_in_place:
                self._refresh.silver()
        elif self._store.merges_in_place:
            self._refresh.missing_silver()
        if every_s is not None and self._refresh.is_due():
            self._bring_up_to_date()
        self._stream(every_s)
        if self._stop.is_set() and every_s is None:
            self.summary.is_cut_short = True
        elif self._refresh.is_due():
            self._bring_up_to_date()
        self.summary.rows = self._refresh.rows_of_all()
        self.summary.failed = dict(self._refresh.failed)
        return self.summary

    def _named_query(self) -> str:
        """The name of this checkpoint's query. Raises JobError if it reads something else."""
        folders, path = Folders(self._spark), f"{self._checkpoint}/{_IDENTITY}"
        known = folders.read_json(path)
        if known is None:
            known = {"query": f"{self._source.name}-{uuid.uuid4().hex[:8]}", "reads": self._source.reads}
            folders.write_json(path, known)
        elif known.get("reads") != self._source.reads:
            raise JobError(
                f"{self._store.out} has read {known.get('reads')} so far, and not {self._source.reads}: give"
                f" that again, or another --out; or delete {self._checkpoint} to go on with the other one."
            )
        return str(known["query"])

    def _stream(self, every_s: float | None) -> None:
        """Runs the query until it has read all, or is asked to stop."""
        each = self._batch if every_s is None else self._batch_and_refresh
        # What is asked for after each batch; a hundred would be fetched one field at a time.
        self._spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "8")
        writer = (
            self._source.stream(self._spark)
            .writeStream.queryName(self._query_name)
            .option("checkpointLocation", self._checkpoint)
            .foreachBatch(self._guarded(each))
        )
        trigger = (
            {"availableNow": True}
            if every_s is None
            else {"processingTime": f"{round(every_s * 1000)} milliseconds"}
        )
        query = writer.trigger(**trigger).start()
        try:
            self._await(query)
        except StreamingQueryException as e:
            if isinstance(self._failure, _StopAskedError):
                return
            if self._failure is not None and not isinstance(self._failure, (PySparkException, Py4JError)):
                raise self._failure from e
            raise ReadingEndedError(
                f"Reading {self._source.reads} ended: {first_line(self._failure or e)}. The next run begins"
                " with the batch in which that was."
            ) from e
        finally:
            query.stop()
            self._progress.batches(query.recentProgress)

    def _await(self, query: StreamingQuery) -> None:
        while not query.awaitTermination(_POLL_S):
            if self._progress.awaits_batches:
                self._progress.batches(query.recentProgress)
            if self._stop.is_set() and not query.status["isTriggerActive"]:
                return

    def _guarded(self, batch: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        """The batch, with what it raises kept for `run`, and not begun at all when asked to stop."""

        def guarded(raw: DataFrame, number: int) -> None:
            try:
                if self._stop.is_set():
                    raise _StopAskedError
                batch(raw, number)
            except BaseException as e:
                self._failure = e
                raise

        return guarded

    def _batch(self, raw: DataFrame, number: int) -> None:
        """A batch into bronze, and into silver if the store merges in place."""
        self._at("offsets")
        self._progress.doing(f"batch {number}")
        self._refresh.begins()
        batch = BatchId(self._query_name, number)
        # Read once, used for both tables of bronze, the count, and all of silver.
        parsed = bronze.parse(raw).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts = _counts(parsed)
            events = bronze.events(parsed)
            self._store.append(BRONZE_EVENTS, events, batch)
            self._at(BRONZE_EVENTS)
            self._store.append(BRONZE_REJECTS, bronze.rejects(parsed), batch)
            self._at(BRONZE_REJECTS)
            if self._store.merges_in_place:
                self._refresh.merge_into_silver(events)
        finally:
            parsed.unpersist()
        self._add_up(number, counts)
        self._at("batch")

    def _batch_and_refresh(self, raw: DataFrame, number: int) -> None:
        self._batch(raw, number)
        self._bring_up_to_date()

    def _bring_up_to_date(self) -> None:
        if not self._store.merges_in_place:
            self._refresh.silver()
        self._refresh.gold()
        if not self._refresh.failed:
            self._progress.done("silver and gold are up to date")

    def _add_up(self, number: int, counts: dict[str | None, int]) -> None:
        self._progress.read(number, sum(counts.values()))
        self.summary.batches += 1
        self.summary.lines += sum(counts.values())
        for reason, lines in counts.items():
            if reason is not None:
                self.summary.rejects[reason] = self.summary.rejects.get(reason, 0) + lines


def _counts(parsed: DataFrame) -> dict[str | None, int]:
    """How many lines were rejected for which reason; under None, those that were not."""
    counted = parsed.groupBy(bronze.REJECT_REASON).count().collect()
    return {row[bronze.REJECT_REASON]: row["count"] for row in counted}
