"""The pipeline's tests: which of them need Spark, and the session that they share.

    spark    the session of this process (tests/support/spark.py): `local[2]`, UTC, two shuffle partitions,
             Kafka's connector and Delta on its class path. Its start is paid for by the first test that takes
             it. Leave it as it was: no setting changed, no view or cache left behind.
    whole_run    the whole job, run once by its command: over simulated events, in a folder whose bronze holds
                 the stories of all test modules that were collected already (stories.py).
    tables       what is in that folder.
    many_fleets  silver and gold of the stories and of 120 fleets that hypothesis draws, each both unchanged
                 and mangled, in memory (whole_pipeline.py).

A test that takes `spark`, itself or through a fixture, gets the mark `spark`; one that starts a Spark of its
own sets it. Either has 300 s before it counts as hung, and runs in the same process as all others of its
kind.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.pipeline.fleets import examples_of, fleets, numbered
from tests.pipeline.stories import Outcome
from tests.pipeline.whole_pipeline import ManyFleets, Tables, WholeRun
from tests.support.spark import LEFT_SOCKETS, spark_of_the_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

#: assertDataFrameEqual imports Spark's API of pandas, which warns about a setting that it then makes itself.
_PANDAS_SETTING: Final = "ignore:'PYARROW_IGNORE_TIMEZONE' environment variable was not set"
_HERE: Final = str(Path(__file__).parent) + os.sep


@pytest.hookimpl(tryfirst=True)  # the conftest above looks at the mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what takes a session, before `-m` chooses."""
    for item in items:
        if not str(item.path).startswith(_HERE):
            continue
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.filterwarnings(LEFT_SOCKETS, _PANDAS_SETTING))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that all tests of the process share; see the module's docstring."""
    with spark_of_the_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture(scope="session")
def reported() -> Outcome:
    """The stories of the modules that were collected; see the module's docstring."""
    return Outcome()


@pytest.fixture(scope="session")
def whole_run(spark: SparkSession, reported: Outcome, tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    """The whole job, run once; see the module's docstring."""
    events = [event for n, fleet in reported.events.items() for event in numbered(fleet, n)]
    return WholeRun(spark, tmp_path_factory.mktemp("whole"), events)


@pytest.fixture(scope="session")
def tables(whole_run: WholeRun) -> Tables:
    """What the job made of the stories."""
    return whole_run.tables


@pytest.fixture(scope="session")
def many_fleets(spark: SparkSession, reported: Outcome) -> ManyFleets:
    """Fleets that come in two ways; see the module's docstring."""
    drawn = examples_of(fleets(), 120)
    return ManyFleets(spark, {**dict(enumerate(drawn)), **reported.events})
