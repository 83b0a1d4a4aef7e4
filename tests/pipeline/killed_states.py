"""The state of the disk after each file-system call of five runs, and a run on each of these states.

    python -m tests.pipeline.killed_states [MOST [SEED]]   prints how many states there were, and the results

    first     into an empty folder          later     with one more file of events
    rebuild   silver and gold anew          forget    half of all events
    maintain  a day of which a few tables have the rows is closed and removed, in a store of its own

MOST: no more of the states of each store's runs than that, by chance.

During these runs Spark writes through a file system of ours (KeptStates.java). It copies the store's folder
after each call that changes it. A copy is the state that a SIGKILL after that call leaves, which is before
the next one, with half-written files. States that differ only in random parts of names count as one. A run on
a state costs 3 to 8 seconds of CPU, nearly all of it for Spark's planning of queries. So PROCESSES try them,
each with a Spark of its own: in one Spark, queries that resume from copies of one checkpoint would stop each
other.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipeline.commands.forget import forget_events
from pipeline.commands.maintain import maintain_store, times_of_events
from pipeline.progress import Progress
from pipeline.refresh import Refresh
from pipeline.stores.formats import open_store
from pipeline.stores.store import KINDS
from tests.pipeline.days import Days
from tests.pipeline.kept_tables import Tables, differences, kept_tables
from tests.pipeline.killed_job import FEW, GOLD_OF, ONE, SILVER_OF, job_on
from tests.pipeline.simulate import plan_for, write
from tests.support.spark import spark_of_the_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

FIRST: Final = "first"
LATER: Final = "later"
REBUILD: Final = "rebuild"
FORGET: Final = "forget"
MAINTAIN: Final = "maintain"
RUNS: Final = (FIRST, LATER, REBUILD, FORGET, MAINTAIN)
#: A day that is closed and removed, one that is closed, and one that is open.
_DAYS: Final = (0, 2, 12)
_KEEP_DAYS: Final = 11
#: In every batch.
_FORGOTTEN: Final = "seq % 2 = 0"
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


class _Kept(NamedTuple):
    """What was kept of a run: how many calls changed the disk, their states, and its tables in the end."""

    kind: str
    run: str
    calls: int
    states: list[Path]
    wanted: Tables


def run_on_each_state(
    events: Path,
    work: Path,
    most: int | None = None,
    *,
    kinds: Sequence[str] = KINDS,
    runs: Sequence[str] = RUNS,
    seed: int = 1,
) -> int:
    """How many states a run did not make of what an undisturbed one made: a file a batch, one table of each
    kind. `most`: so many states of each store's run, by chance, and the last one.
    """
    work.mkdir()
    first, second = sorted(events.iterdir())[:2]
    torn = 0
    (work / f"{MAINTAIN}-events").mkdir()
    Days(work / "day").write(work / f"{MAINTAIN}-events", _DAYS)
    with _processes(work, 1) as recorder:
        # A state of the first run is tried before the second file is there.
        for file, of_file in ((first, RUNS[:1]), (second, RUNS[1:])):
            kept = []
            for kind in kinds:
                (work / f"{kind}-events").mkdir(exist_ok=True)
                shutil.copy2(file, work / f"{kind}-events")
                needed = needed_for(runs, of_file)
                kept += [recorder.submit(_keep_states, work, kind, run).result() for run in needed]
            torn += _try([one for one in kept if one.run in runs], work, most, random.Random(seed))
    return torn


def needed_for(runs: Sequence[str], of_file: Sequence[str]) -> list[str]:
    """The runs over a file that make the asked ones possible: each continues with the store of the one
    before, but `maintain` has a store of its own.
    """
    last = max((RUNS.index(run) for run in runs if run != MAINTAIN), default=-1)
    return [run for run in of_file if (run in runs if run == MAINTAIN else RUNS.index(run) <= last)]


def _try(kept: Sequence[_Kept], work: Path, most: int | None, chance: random.Random) -> int:
    wrong = 0
    with _processes(work, PROCESSES) as processes:
        for one in kept:
            said = f"{one.kind}, {one.run} run"
            tried = one.states
            if most is not None and most < len(tried):
                at = {*chance.sample(range(len(tried) - 1), most - 1), len(tried) - 1}
                tried = [tried[number] for number in sorted(at)]
            print(f"{said}: {one.calls} calls, {len(one.states)} states", flush=True)
            found = processes.map(partial(_faults, work, one), tried)
            wrong_before = wrong
            for number, (state, faults) in enumerate(zip(tried, found, strict=True), start=1):
                if faults:
                    wrong += 1
                    print(f"{said}, state {state.name}: {faults}", flush=True)
                if number % _SHOWN_EVERY == 0 or number == len(tried):
                    print(f"{said}: a run on {number} of them, {wrong - wrong_before} wrong", flush=True)
    return wrong


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


def _keep_states(work: Path, kind: str, run: str) -> _Kept:
    """Copies of what each call of the run left that changed the disk, in their order."""
    out, states = work / (f"{kind}-{run}" if run == MAINTAIN else kind), work / f"{kind}-{run}-states"
    out.mkdir(exist_ok=True)
    java: Any = _spark._jvm
    classes = Path(_spark.conf.get("spark.driver.extraClassPath") or "")
    if not any(classes.iterdir()):
        _compile(java, classes)
        configuration: Any = _spark._jsc.hadoopConfiguration()
        for name, value in _FILE_SYSTEM.items():
            configuration.set(name, value)
    if run == MAINTAIN:
        _do(LATER, work, kind, out, FEW)
    java.killed.KeptStates.begin(str(out), str(states))
    _do(run, work, kind, out)
    calls = int(java.killed.KeptStates.end())
    kept = sorted(states.iterdir(), key=lambda state: int(state.name))
    wanted = kept_tables(out)
    assert kept_tables(kept[-1]) == wanted, "the last state is what the run left"
    return _Kept(kind, run, calls, kept, wanted)


def _do(run: str, work: Path, kind: str, out: Path, tables: str = ONE) -> None:
    """Such a run of the store in `out`."""
    if run in (FORGET, MAINTAIN):
        store = open_store(_spark, str(out), kind, to_write=True)
        progress = Progress(sys.stderr, lambda: 0.0, shows=False)
        names = FEW if run == MAINTAIN else ONE
        silver, gold = SILVER_OF[names], GOLD_OF[names]
        refresh = Refresh(_spark, store, progress, lambda _: None, silver=silver, gold=gold)
        if run == FORGET:
            forget_events(store, refresh, _FORGOTTEN)
        else:
            times = times_of_events(store)
            assert times is not None, "events"
            assert len([*maintain_store(store, refresh, *times, _KEEP_DAYS)]) == len(
                ("closed", "removed", "written together")
            )
        assert not refresh.failed, refresh.failed
        return
    of_events = MAINTAIN if tables == FEW else kind
    job = job_on(_spark, str(work / f"{of_events}-events"), str(out), kind, tables)
    failed = job.run(rebuilds=run == REBUILD).failed
    assert not failed, failed


def _compile(java: Any, classes: Path) -> None:
    """By Janino, the compiler that Spark has for its queries."""
    gateway: Any = _spark.sparkContext._gateway
    sources = gateway.new_array(java.java.io.File, 1)
    sources[0] = java.java.io.File(str(_SOURCE))
    compiler: Any = java.org.codehaus.janino.Compiler()
    compiler.setDestinationDirectory(java.java.io.File(str(classes)), False)
    assert compiler.compile(sources)


def _faults(work: Path, kept: _Kept, state: Path) -> dict[str, dict[str, list[str]]]:
    """What the next run on the state, which it may change, did not make of it."""
    try:
        _do(LATER, work, kept.kind, state, FEW if kept.run == MAINTAIN else ONE)
        if kept.run in (FORGET, MAINTAIN):
            # It was killed, so it is typed again.
            _do(kept.run, work, kept.kind, state)
        return differences(kept_tables(state), kept.wanted)
    except Exception as e:  # noqa: BLE001 - whatever it is, it is what a user would meet
        return {"the run": {"failed": [str(e).splitlines()[0]]}}
    finally:
        shutil.rmtree(state)


def main(most: int | None = None, seed: int = 1) -> int:
    """1 if a run can't resume from one of the states."""
    with tempfile.TemporaryDirectory() as name:
        events = Path(name, "events")
        write(plan_for(1_000, seed=7, broken=0.05), events, events.with_suffix(".truth.json"))
        return 1 if run_on_each_state(events, Path(name) / "states", most, seed=seed) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
