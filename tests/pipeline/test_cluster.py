"""spark-submit on a standalone master with two workers, also while executors are killed with SIGKILL."""

from __future__ import annotations

import os
import random
import signal
import threading
from typing import TYPE_CHECKING, Final

import pytest

from pipeline.jars.connector_jars import default_folder
from pipeline.stores.store import KINDS, PARQUET
from requirements.distributions import build
from tests.pipeline.kept_tables import differences, kept_tables
from tests.pipeline.killed_chain import write_events
from tests.pipeline.killed_job import ALL, job_on
from tests.support.spark_cluster import SUBMITTED, SparkCluster

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.kept_tables import Tables

_WORKERS: Final = 2
#: A task that fails four times ends the job.
_MOST_KILLS: Final = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster")
    write_events(folder / "events")
    build(folder / "dist")
    return folder


@pytest.fixture(scope="module")
def wanted(spark: SparkSession, folder: Path) -> Tables:
    """The tables of a run on one machine."""
    job_on(spark, str(folder / "events"), str(folder / "wanted"), PARQUET, ALL).run()
    return kept_tables(folder / "wanted")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[SparkCluster]:
    with SparkCluster(folder / "spark", workers=_WORKERS) as cluster:
        yield cluster


class Executors(threading.Thread):
    """Sees which executors there are, and kills one of them now and then."""

    def __init__(self, cluster: SparkCluster, most_kills: int, seed: int = 24) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._left = most_kills
        self._random = random.Random(seed)
        self._is_over = threading.Event()
        self.seen: set[int] = set()
        self.killed: list[int] = []

    def run(self) -> None:
        while not self._is_over.wait(self._random.uniform(0.5, 25)):
            now = self._cluster.executors()
            self.seen.update(now)
            if len(now) == _WORKERS and self._left:
                self._left -= 1
                self.killed.append(self._random.choice(now))
                os.kill(self.killed[-1], signal.SIGKILL)

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def _run(cluster: SparkCluster, folder: Path, kind: str, out: Path) -> subprocess.CompletedProcess[str]:
    """As docs/pipeline-cluster.md has it."""
    (wheel,) = (folder / "dist").glob("pilotfish_pipeline-*.whl")
    jars = ",".join(str(path.resolve()) for path in sorted(default_folder().glob("*.jar")))
    words = ["run", "--source", "files", "--input", str(folder / "events"), "--out", str(out)]
    words += ["--store", kind, "--max-files-per-batch", "2", "--once"]
    return cluster.submit([SUBMITTED, *words], "--py-files", str(wheel), "--jars", jars)


@pytest.mark.parametrize("kind", KINDS)
def test_two_workers_make_the_tables_that_one_machine_does(
    cluster: SparkCluster, folder: Path, wanted: Tables, kind: str
) -> None:
    executors = Executors(cluster, most_kills=0)
    executors.start()
    done = _run(cluster, folder, kind, folder / f"calm-{kind}")
    executors.stop()

    assert done.returncode == 0, done.stderr
    assert len(executors.seen) == _WORKERS
    assert differences(kept_tables(folder / f"calm-{kind}"), wanted) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_executors_that_are_killed_change_no_table(
    cluster: SparkCluster, folder: Path, wanted: Tables, kind: str
) -> None:
    out = folder / f"killed-{kind}"
    executors = Executors(cluster, _MOST_KILLS)
    executors.start()
    done = _run(cluster, folder, kind, out)
    executors.stop()

    assert executors.killed
    assert done.returncode == 0, done.stderr
    assert differences(kept_tables(out), wanted) == {}
