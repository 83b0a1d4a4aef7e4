"""A driver that is killed with SIGKILL and started again leaves the same tables as an undisturbed one."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from pipeline.stores.store import DELTA, KINDS, PARQUET
from tests.pipeline.kept_tables import differences, kept_tables
from tests.pipeline.killed_chain import driver, run_killed_at, write_events
from tests.pipeline.killed_job import FEW, FIRST_WRITE, NONE, job_on

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.pipeline.kept_tables import Tables

#: Parquet with half a batch in bronze, Delta with half a batch in silver, which it has made before that.
#: All points and tables: `make test-pipeline-killed`.
_MOST_TELLING = ("bronze_events:2,silver_leader_epochs:2",)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed") / "events"
    write_events(folder)
    return folder


@pytest.fixture(scope="module")
def wanted(spark: SparkSession, events: Path) -> Tables:
    """The tables of a run that nobody disturbs."""
    undisturbed = events.with_name("undisturbed")
    job_on(spark, str(events), str(undisturbed), PARQUET, FEW).run()
    kept = kept_tables(undisturbed)
    assert kept["bronze_rejects"]
    assert kept["gold_leader_history"]
    return kept


def test_a_driver_killed_halfway_leaves_what_an_undisturbed_one_does(
    events: Path, wanted: Tables, tmp_path: Path
) -> None:
    run_killed_at(_MOST_TELLING, events, tmp_path, FEW)

    for kind in KINDS:
        assert differences(kept_tables(tmp_path / kind), wanted) == {}, kind


def test_a_driver_killed_in_its_first_write_to_delta_is_in_no_later_ones_way(
    spark: SparkSession, events: Path, wanted: Tables, tmp_path: Path
) -> None:
    killed = driver([str(events), str(tmp_path), NONE, FIRST_WRITE])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    log = tmp_path / DELTA / "bronze_events" / "_delta_log"
    assert log.is_dir()
    assert not [*log.glob("*.json")]

    assert job_on(spark, str(events), str(tmp_path / DELTA), DELTA, NONE).run().failed == {}

    bronze = {name: rows for name, rows in wanted.items() if name.startswith("bronze_")}
    assert differences(kept_tables(tmp_path / DELTA), bronze) == {}
