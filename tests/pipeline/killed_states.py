"""The state of the disk after each file-system call of a first run, and a run on each of these states.

    python -m tests.pipeline.killed_states [MOST]   prints how many states there were, and the results

MOST: no more of each store's states than that, at even distances. There are about 370.

During the first run Spark writes through a file system of ours (KeptStates.java). It copies the store's
folder after each call that changes it. A copy is the state that a SIGKILL after that call leaves, with
half-written files. States that differ only in random parts of names count as one. A run on a state costs 3 to
8 seconds of CPU, nearly all of it for Spark's planning of queries. So PROCESSES try them, each with a Spark
of its own: in one Spark, queries that resume from copies of one checkpoint would stop each other.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.simulate import plan_for, write
from pipeline.stores.store import KINDS
from tests.pipeline.kept_tables import differences, kept_tables
from tests.pipeline.killed_job import ONE, job_on
from tests.support.spark import spark_of_the_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from tests.pipeline.kept_tables import Tables

#: Each needs a gigabyte.
PROCESSES: Final = min(4, os.cpu_count() or 1)
_SHOWN_EVERY: Final = 20
_SOURCE: Final = Path(__file__).with_name("KeptStates.java")
_FILE_SYSTEM: Final = {
    "fs.file.impl": "killed.KeptStates$Local",
    "fs.file.impl.disable.cache": "true",
    "fs.AbstractFileSystem.file.impl": "killed.KeptStates$LocalContext",
}
#: For as few rows, compiling a query takes longer than running it. No file is another one for it.
_NO_COMPILING: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

#: This process's own.
_spark: SparkSession


def run_on_each_state(events: Path, work: Path, most: int | None = None, kinds: Sequence[str] = KINDS) -> int:
    """How many states a run did not make of what the first run made: one batch, one table of each kind."""
    work.mkdir()
    few = work / "events"
    few.mkdir()
    shutil.copy2(min(events.iterdir()), few)
    torn = 0
    with _processes(work, 1) as one:
        kept = {kind: one.submit(_keep_states, few, work, kind).result() for kind in kinds}
    wanted = kept_tables(work / kinds[0])
    with _processes(work, PROCESSES) as processes:
        for kind, (calls, states) in kept.items():
            tried = states[:: math.ceil(len(states) / most)] if most else states
            print(f"{kind}: {calls} calls, {len(states)} states", flush=True)
            wrong = 0
            found = processes.map(partial(_faults, few, kind, wanted), tried)
            for number, (state, faults) in enumerate(zip(tried, found, strict=True), start=1):
                if faults:
                    wrong += 1
                    print(f"{kind}, state {state.name}: {faults}", flush=True)
                if number % _SHOWN_EVERY == 0 or number == len(tried):
                    print(f"{kind}: a run on {number} of them, {wrong} went wrong", flush=True)
            torn += wrong
    return torn


def _processes(work: Path, count: int) -> ProcessPoolExecutor:
    scratch = Path(tempfile.mkdtemp(prefix="spark-", dir=work))
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start_spark, (scratch,))


def _start_spark(scratch: Path) -> None:
    """In each process, before anything else."""
    global _spark
    own = scratch / str(os.getpid())
    (own / "classes").mkdir(parents=True)
    stack = ExitStack()
    settings = _NO_COMPILING | {"spark.driver.extraClassPath": str(own / "classes")}
    _spark = stack.enter_context(spark_of_the_session(own, settings))
    Finalize(None, stack.close, exitpriority=0)


def _keep_states(events: Path, work: Path, kind: str) -> tuple[int, list[Path]]:
    """How many calls of a first run changed the disk, and copies of what they left, in their order."""
    first, states = work / kind, work / f"{kind}-states"
    first.mkdir()
    java: Any = _spark._jvm
    configuration: Any = _spark._jsc.hadoopConfiguration()
    _compile(java, Path(_spark.conf.get("spark.driver.extraClassPath") or ""))
    for name, value in _FILE_SYSTEM.items():
        configuration.set(name, value)
    java.killed.KeptStates.begin(str(first), str(states))
    assert not job_on(_spark, str(events), str(first), kind, ONE).run().failed
    calls = int(java.killed.KeptStates.end())
    kept = sorted(states.iterdir(), key=lambda state: int(state.name))
    assert kept_tables(kept[-1]) == kept_tables(first), "the last state is what the run left"
    return calls, kept


def _compile(java: Any, classes: Path) -> None:
    """By Janino, the compiler that Spark has for its queries."""
    gateway: Any = _spark.sparkContext._gateway
    sources = gateway.new_array(java.java.io.File, 1)
    sources[0] = java.java.io.File(str(_SOURCE))
    compiler: Any = java.org.codehaus.janino.Compiler()
    compiler.setDestinationDirectory(java.java.io.File(str(classes)), False)
    assert compiler.compile(sources)


def _faults(events: Path, kind: str, wanted: Tables, state: Path) -> dict[str, dict[str, list[str]]]:
    """What a run on the state, which it may change, did not make of it."""
    try:
        job_on(_spark, str(events), str(state), kind, ONE).run()
        return differences(kept_tables(state), wanted)
    except Exception as e:  # noqa: BLE001 - whatever it is, it is what a user would meet
        return {"the run": {"failed": [str(e).splitlines()[0]]}}
    finally:
        shutil.rmtree(state)


def main(most: int | None = None) -> int:
    """1 if a run can't resume from one of the states."""
    with tempfile.TemporaryDirectory() as name:
        events = Path(name, "events")
        write(plan_for(1_000, seed=7, broken=0.05), events, events.with_suffix(".truth.json"))
        return 1 if run_on_each_state(events, Path(name) / "states", most) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
