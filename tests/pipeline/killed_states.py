"""What lies on the disk at each moment of a first run, and a run on each of these states.

    python -m tests.pipeline.killed_states [MOST]   prints how many states there were, and what came of them

MOST: no more of each store's states than that, evenly far apart. A run takes seconds; there are about 90.

A thread looks at the store's folder as often as it can while a job fills it, and keeps a copy, by hard
links, whenever there is a file or folder that was not there before, or one is gone. Each copy is what a
driver that is killed there leaves, but for files that were half written. States that differ in nothing but
random parts of names are one. All runs share one Spark.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.simulate import plan_for, write
from pipeline.stores.store import KINDS
from tests.pipeline.kept_tables import differences, kept_tables
from tests.pipeline.killed_job import ONE, job_on
from tests.support.spark import spark_of_the_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.kept_tables import Tables

#: Random parts of names; and Hadoop's sums, which come and go with their files.
_RANDOM: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=[-_.])[0-9a-f]{8,}|\d{12,}")


class _Watching:
    """Keeps the states that a folder goes through, until `stop`."""

    def __init__(self, folder: Path, kept: Path) -> None:
        self.states: list[Path] = []
        self._folder = folder
        self._kept = kept
        self._seen: set[frozenset[str]] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.is_set():
            names = self._names()
            if names and names not in self._seen:
                self._seen.add(names)
                self.states.append(self._copy(len(self.states)))

    def _names(self) -> frozenset[str]:
        """What is there, by its path, without sums and random parts. `walk` passes by what vanishes."""
        found = [
            f"{parent}/{name}"
            for parent, folders, files in os.walk(self._folder)
            for name in (*folders, *files)
            if not name.endswith(".crc")
        ]
        return frozenset(_RANDOM.sub("#", path.removeprefix(str(self._folder))) for path in found)

    def _copy(self, number: int) -> Path:
        """What is renamed or deleted meanwhile is not in it, as it would not be a moment later."""
        copy = self._kept / str(number)
        copy.mkdir(parents=True)
        for parent, _, files in os.walk(self._folder):
            inside = copy / Path(parent).relative_to(self._folder)
            inside.mkdir(parents=True, exist_ok=True)
            for name in files:
                try:
                    os.link(Path(parent, name), inside / name)
                except FileNotFoundError:
                    continue
        return copy


def run_on_each_state(events: Path, work: Path, most: int | None = None) -> int:
    """How many states a run did not make of what the first run made: one batch, one table of each kind."""
    work.mkdir()
    few = work / "events"
    few.mkdir()
    shutil.copy2(min(events.iterdir()), few)
    torn = 0
    wanted: Tables = {}
    with spark_of_the_session(work / "scratch") as spark:
        for kind in KINDS:
            first = work / kind
            first.mkdir()
            watching = _Watching(first, work / f"{kind}-states")
            job_on(spark, str(few), str(first), kind, ONE).run()
            watching.stop()
            wanted = wanted or kept_tables(first)
            states = watching.states
            tried = states[:: math.ceil(len(states) / most)] if most else states
            wrong = [state for state in tried if _is_torn(spark, few, state, kind, wanted)]
            print(
                f"{kind}: a run on {len(tried)} of {len(states)} states, {len(wrong)} went wrong", flush=True
            )
            torn += len(wrong)
    return torn


def _is_torn(spark: SparkSession, events: Path, state: Path, kind: str, wanted: Tables) -> bool:
    # Not by links: what is written over would change in all of them.
    out = state.with_name(f"{state.name}-out")
    shutil.copytree(state, out)
    try:
        job_on(spark, str(events), str(out), kind, ONE).run()
        found = differences(kept_tables(out), wanted)
    except Exception as e:  # noqa: BLE001 - whatever it is, it is what a user would meet
        found = {"the run": {"failed": [str(e).splitlines()[0]]}}
    if found:
        print(f"{kind}, state {state.name}: {found}")
    shutil.rmtree(out)
    return bool(found)


def main(most: int | None = None) -> int:
    """1 if any state is one that a run can't go on from."""
    with tempfile.TemporaryDirectory() as name:
        events = Path(name, "events")
        write(plan_for(1_000, seed=7, broken=0.05), events, events.with_suffix(".truth.json"))
        return 1 if run_on_each_state(events, Path(name) / "states", most) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
