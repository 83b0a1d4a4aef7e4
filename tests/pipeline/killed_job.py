"""A driver to be killed: the job into both stores, stopped at a named point in each until SIGKILL ends it.

    python -m tests.pipeline.killed_job INPUT OUT none|one|few|all [POINT]

INPUT is a folder of files, or kafka://SERVERS/TOPIC. All tables, a few of silver and gold, one of each, or
bronze alone, as each costs a second of every start. POINT is a name with which `Job` calls its `at`, and the
number of the call: `offsets:2` stops when the second batch is known. Two points, with a comma between, are
Parquet's and Delta's. Both jobs run in one Spark, each up to its point; then the whole process group, Java
included, is killed. Two jobs share a process, because the start of Spark is the cost of such a test. Without
POINT they run to their end. If one of them never comes to its point, the process ends with 3. There are two
special forms. `after:delta:250` runs the job into that store alone and kills it 250 ms after it began; if it
ended before that, the process ends with 3.
`first:delta` is the very first write into Delta, bronze_events, killed when the table has a log and no
commit.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.gold import GOLD
from pipeline.job import Job
from pipeline.progress import Progress
from pipeline.silver import SILVER
from pipeline.silver.partitions import EPOCH_SIGHTS, LEADER_EPOCHS, TOPIC_ENDS
from pipeline.silver.sidecars import REFRESHES, SEQS, SIDECARS
from pipeline.sources import FilesSource, KafkaSource
from pipeline.stores.formats import open_store
from pipeline.stores.store import DELTA, KINDS
from pipeline.tables import (
    BRONZE_EVENTS,
    GOLD_CURRENT_LEADER,
    GOLD_DATA_QUALITY,
    GOLD_LEADER_HISTORY,
    GOLD_REJECTS,
)
from tests.support.spark import spark_of_the_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

KAFKA: Final = "kafka://"
FILES_A_BATCH: Final = 2
RECORDS_A_BATCH: Final = 600
FEW: Final = "few"
ALL: Final = "all"
#: Bronze alone.
NONE: Final = "none"
ONE: Final = "one"
SILVER_OF: Final = {
    ALL: SILVER,
    NONE: (),
    ONE: (EPOCH_SIGHTS,),
    FEW: (EPOCH_SIGHTS, LEADER_EPOCHS, TOPIC_ENDS, SIDECARS, REFRESHES, SEQS),
}
GOLD_OF: Final = {
    ALL: GOLD,
    NONE: {},
    ONE: {GOLD_REJECTS: GOLD[GOLD_REJECTS]},
    FEW: {name: GOLD[name] for name in (GOLD_DATA_QUALITY, GOLD_LEADER_HISTORY, GOLD_CURRENT_LEADER)},
}
NEVER_CAME: Final = 3
FIRST_WRITE: Final = "first:delta"


class _Held:
    """Stops the thread that comes to the point, for good. `is_over` is set then, or at the job's end."""

    def __init__(self, point: str) -> None:
        self._name, _, count = point.partition(":")
        self._left = int(count or 1)
        self.is_over = threading.Event()
        self.is_at_point = False

    def __call__(self, name: str) -> None:
        if name != self._name:
            return
        self._left -= 1
        if self._left == 0:
            self.is_at_point = True
            self.is_over.set()
            threading.Event().wait()


def job_on(
    spark: SparkSession,
    source: str,
    out: str,
    kind: str,
    tables: str,
    at: Callable[[str], None] = lambda _: None,
) -> Job:
    """The job from a folder of files, or a topic, into a store of this kind."""
    servers, _, topic = source.removeprefix(KAFKA).partition("/")
    return Job(
        spark,
        KafkaSource(servers, topic, max_records_per_batch=RECORDS_A_BATCH)
        if source.startswith(KAFKA)
        else FilesSource(source, FILES_A_BATCH),
        open_store(spark, out, kind, to_write=True),
        Progress(sys.stderr, lambda: 0.0, shows=False),
        stop=threading.Event(),
        at=at,
        silver=SILVER_OF[tables],
        gold=GOLD_OF[tables],
    )


def main(source: str, out: str, tables: str, point: str = "") -> int:
    """Runs both jobs; is killed by itself when both are at the point."""
    holds = []
    with spark_of_the_session(Path(out) / "scratch") as spark:
        if point.startswith("after:"):
            _, kind, after_ms = point.split(":")
            _kill_after(int(after_ms))
            failed = job_on(spark, source, f"{out}/{kind}", kind, tables).run().failed
            assert not failed, failed
            return NEVER_CAME
        if point == FIRST_WRITE:
            _hold_the_first_write(spark, f"{out}/{DELTA}")
            return NEVER_CAME
        points = point.split(",")
        for kind, own_point in zip(KINDS, points * (len(KINDS) // len(points)), strict=True):
            held = _Held(own_point)
            holds.append(held)
            job = job_on(spark, source, f"{out}/{kind}", kind, tables, held)
            threading.Thread(target=_to_the_end, args=(job, held), daemon=True).start()
            held.is_over.wait()
        if all(held.is_at_point for held in holds):
            os.killpg(0, signal.SIGKILL)
    return NEVER_CAME if point else 0


def _hold_the_first_write(spark: SparkSession, out: str) -> None:
    """Writes a row that takes ten minutes; Delta makes a table's log before it asks for rows."""
    log = Path(out, BRONZE_EVENTS, "_delta_log")

    def kill_at_the_log() -> None:
        while not log.is_dir():
            threading.Event().wait(0.01)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=kill_at_the_log, daemon=True).start()
    held = spark.range(1).selectExpr("java_method('java.lang.Thread', 'sleep', 600000L) AS never")
    open_store(spark, out, DELTA, to_write=True).replace(BRONZE_EVENTS, held)


def _kill_after(after_ms: int) -> None:
    """SIGKILL for this process and its Java, from a thread of its own."""
    timer = threading.Timer(after_ms / 1_000, os.killpg, (0, signal.SIGKILL))
    timer.daemon = True
    timer.start()


def _to_the_end(job: Job, held: _Held) -> None:
    try:
        failed = job.run().failed
        assert not failed, failed
    except BaseException:  # noqa: BLE001 - a thread's outermost turn
        traceback.print_exc()
        os._exit(1)
    held.is_over.set()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
