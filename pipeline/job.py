"""Runs the job: writes new lines to bronze in batches, and updates silver and gold.

    for each batch of the query (Structured Streaming's foreachBatch):
        bronze_events, bronze_rejects        adds the batch, identified by the query's name and its number
        silver                               merges the batch, if the store can merge in place
        silver, gold                         with `every_s`: updated after each batch
    afterwards: silver, gold                 updated if they lack anything that bronze has

Spark records the lines of a batch before it calls for it, and its completion after. If a driver is killed in
between, it gets the same batch again; every write may be repeated (stores/store.py). A mark says whether
silver and gold are up to date (refresh.py).

A query's name and its source are kept in its checkpoint, `<out>/_checkpoint/<source>/`. If a checkpoint is
deleted, the new one gets another name, so its batches are not taken for the old ones. Lines read again are
then in bronze twice, which no other table shows.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException, StreamingQueryException

from pipeline import bronze
from pipeline.errors import PipelineError, cause_of, first_line
from pipeline.gold import GOLD
from pipeline.refresh import Refresh
from pipeline.session import evaluation_for
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
    """A run that can't begin: its input is not that of the checkpoint."""


class ReadingEndedError(JobError):
    """The source or a disk failed during the run; the message is Spark's."""

    exit_code = 1


@dataclass(slots=True)
class Summary:
    """The result of a run."""

    batches: int = 0
    lines: int = 0
    rejects: dict[str, int] = field(default_factory=dict)
    #: Rows of each table after the run, in the order in which they are made.
    rows: dict[str, int] = field(default_factory=dict)
    #: The tables that could not be made, and why: they are unchanged.
    failed: dict[str, str] = field(default_factory=dict)
    #: Whether it was stopped before all lines were read.
    is_cut_short: bool = False

    @property
    def events(self) -> int:
        """Returns the number of lines that were events."""
        return self.lines - sum(self.rejects.values())


class _StopAskedError(Exception):
    """Ends a query between two batches: nothing of its batch has been done yet."""


class Job:
    """One run of one source into one store. `at` is called with the name of each completed step:
    `offsets` (a batch is known but not started), a table's name when it is written, `batch`, `fresh`.
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
        #: The exception of a batch, kept because Spark passes on only its text.
        self._failure: BaseException | None = None
        self.summary = Summary()

    def run(self, every_s: float | None = None, *, rebuilds: bool = False) -> Summary:
        """Reads all new lines and ends; with `every_s`, repeats this at that interval until it is stopped.

        `rebuilds` first makes silver and gold from all of bronze, as after an upgrade that changed them.
        Blocks. Raises JobError, ReadingEndedError, StoreError, and errors of Spark.
        """
        self._query_name = self._named_query()
        self._store.create(BRONZE_EVENTS, bronze.EVENTS_SCHEMA)
        self._store.create(BRONZE_REJECTS, bronze.REJECTS_SCHEMA)
        if rebuilds:
            self._refresh.begins_anew()
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
        """Returns the name of this checkpoint's query. Raises JobError if it reads something else."""
        folders, path = Folders(self._spark), f"{self._checkpoint}/{_IDENTITY}"
        known = folders.read_json(path)
        if known is None:
            known = {"query": f"{self._source.name}-{uuid.uuid4().hex[:8]}", "reads": self._source.reads}
            folders.write_json(path, known)
        elif known.get("reads") != self._source.reads:
            raise JobError(
                f"{self._store.out} has read {known.get('reads')} so far, but this run reads"
                f" {self._source.reads}: give the earlier source again, or another --out. To continue with"
                f" the new source, delete {self._checkpoint}."
            )
        return str(known["query"])

    def _stream(self, every_s: float | None) -> None:
        """Runs the query until it has read all lines, or is stopped."""
        each = self._batch if every_s is None else self._batch_and_refresh
        # The progress is fetched after each batch, one field at a time: a hundred entries would be slow.
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
            failure = self._failure or e
            what = first_line(failure)
            cause = f" ({cause_of(failure)})" if cause_of(failure) else ""
            remedy = " Repair, rename or remove this file." if "FAILED_READ_FILE" in what else ""
            raise ReadingEndedError(
                f"Reading {self._source.reads} ended: {what}{cause}.{remedy} The next run reads this"
                " batch again."
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
        """Wraps a batch: keeps its exception for `run`, and does not begin if a stop is requested."""

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
        """Writes a batch to bronze, and to silver if the store merges in place."""
        self._at("offsets")
        self._progress.doing(f"batch {number}")
        self._refresh.begins()
        batch = BatchId(self._query_name, number)
        # Parsed once for both bronze tables, the counts, and all of silver.
        parsed = bronze.parse(raw).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            with evaluation_for(raw):
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
        self._refresh.bring_up_to_date()
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
    """Returns the number of rejected lines by reason; under None, the number of events."""
    counted = parsed.groupBy(bronze.REJECT_REASON).count().collect()
    return {row[bronze.REJECT_REASON]: row["count"] for row in counted}
