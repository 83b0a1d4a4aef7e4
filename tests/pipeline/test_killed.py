"""A driver that is killed with SIGKILL and started again leaves the same tables as an undisturbed one."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from pipeline.stores.formats import open_store
from pipeline.stores.store import DELTA, KINDS, PARQUET
from tests.pipeline.kept_tables import differences, kept_tables
from tests.pipeline.killed_chain import driver, run_killed_at, write_events
from tests.pipeline.killed_job import FEW, FIRST_WRITE, NONE, SILVER_OF, job_on
from tests.pipeline.killed_states import (
    FIRST,
    FORGET,
    LATER,
    MAINTAIN,
    REBUILD,
    RUNS,
    needed_for,
    run_on_each_state,
)

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


def test_each_run_that_is_asked_for_is_tried_after_those_that_it_needs() -> None:
    of_files = RUNS[:1], RUNS[1:]
    assert [needed_for(RUNS, each) for each in of_files] == [[FIRST], [LATER, REBUILD, FORGET, MAINTAIN]]
    assert [needed_for((MAINTAIN,), each) for each in of_files] == [[], [MAINTAIN]]
    assert [needed_for((REBUILD,), each) for each in of_files] == [[FIRST], [LATER, REBUILD]]


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


def test_a_run_on_what_a_kill_before_any_call_leaves_makes_the_same_tables(
    events: Path, tmp_path: Path
) -> None:
    """A few of the states by chance, and each last one; all of them: `make test-pipeline-killed`."""
    assert run_on_each_state(events, tmp_path / "states", most=3, seed=24) == 0


def test_a_rebuild_that_was_killed_is_done_by_the_next_run(
    spark: SparkSession, events: Path, tmp_path: Path
) -> None:
    """Delta: the tables of silver that it did not reach are as old as before it."""
    folder = str(tmp_path / DELTA)
    job_on(spark, str(events), folder, DELTA, FEW).run()
    wanted = kept_tables(tmp_path / DELTA)
    store = open_store(spark, folder, DELTA, to_write=True)
    last = SILVER_OF[FEW][-1].name
    store.replace(last, store.read(last).where("bucket < 0"))

    def kill(point: str) -> None:
        if point == SILVER_OF[FEW][0].name:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        job_on(spark, str(events), folder, DELTA, FEW, kill).run(rebuilds=True)
    assert differences(kept_tables(tmp_path / DELTA), wanted) != {}

    job_on(spark, str(events), folder, DELTA, FEW).run()
    assert differences(kept_tables(tmp_path / DELTA), wanted) == {}
