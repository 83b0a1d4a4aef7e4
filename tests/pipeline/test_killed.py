"""A driver that is killed with SIGKILL and started again leaves the tables of one that never was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.stores.store import KINDS, PARQUET
from tests.pipeline.kept_tables import differences, kept_tables
from tests.pipeline.killed_chain import run_killed_at, write_events
from tests.pipeline.killed_job import FEW, job_on

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

#: Parquet with half a batch in bronze, Delta with half a batch in silver, which it has made before that.
#: All points and tables: `make test-pipeline-killed`.
_MOST_TELLING = ("bronze_events:2,silver_leader_epochs:2",)


@pytest.mark.timeout(600)
def test_a_driver_killed_halfway_leaves_what_an_undisturbed_one_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    events, undisturbed, killed = tmp_path / "events", tmp_path / "undisturbed", tmp_path / "killed"
    write_events(events)
    job_on(spark, str(events), str(undisturbed), PARQUET, FEW).run()
    wanted = kept_tables(undisturbed)
    assert wanted["bronze_rejects"]
    assert wanted["gold_leader_history"]

    run_killed_at(_MOST_TELLING, events, killed, FEW)

    for kind in KINDS:
        assert differences(kept_tables(killed / kind), wanted) == {}, kind
