"""Real Kafka for tests: fixtures that give a running cluster, and what they guarantee.

Every test in this folder gets the mark `kafka`, and has 300 s before it counts as hung. Tests of a sidecar
(test_…_over_http.py) get `kafka_http` too, and have brokers of their own in `make test`. Nothing is skipped:
without Java or the jars the tests fail and say what to install. The first test pays for the start (about 7
s). All others share the brokers, which end with the last test of this folder. When a test fails, the end of
each broker's log is in its report.

    kafka                three brokers and a controller of its own; no topic creation by producers. A test may
                         kill, stop, pause, restart or move brokers: they are healed before the next test
                         gets them. Create topics with replication_factor=3 and
                         config={"min.insync.replicas": "2"} where it matters.
    auto_creating_kafka  one broker that makes missing topics, with three partitions, when a producer's
                         metadata request allows it: that of secured_kafka, by its plain listener.
    new_topic            new_topic(partitions=3, replication_factor=1, min_insync_replicas=None, on=None,
                         assignment=None, config=None) -> name; a topic of the test's own, led and in sync.
                         `assignment` places replicas: [[2, 3], [3, 1]] is two partitions led by brokers 2 and
                         3. `on` is another cluster than `kafka`.
    secured_kafka        one broker with a listener for each kind of security, which
                         tests/support/secured_kraft.py lists. Never killed: tests leave it as it was. Tests
                         with the mark kafka_http don't take it, so that in `make test` one process starts it.
    chaos_cluster        three brokers behind faulty proxies (tests/support/chaos_kraft.py).
    sidecar              a sidecar of `kafka` without settings. It is shared, and replaced after a test that
                         ended it or disturbed a broker. Modules that need settings have a fixture of this
                         name.
    topic_name           an unused name, for topics that shall be missing or are created later.
    spark                a session with Kafka's connector (tests/support/spark.py), shared.

Of a cluster (tests/support/kraft.py): `bootstrap_servers`, `broker_ids`, `address(id)`, `kill(id)`,
`stop(id)`, `pause(id)`, `resume(id)`, `restart(id, new_port=False)`, `move_all_brokers()`,
`wait_until_fenced(id)`, `read_back(topic)` (all records, by librdkafka), and `admin`
(tests/support/kafka_admin.py): `leader(topic, partition)`, `partitions(topic)`, `wait_until_in_sync(topic)`,
`wait_for_leader_other_than(...)`, `add_partitions`, `delete_topic`, `high_watermarks`.

broker.session.timeout.ms is Kafka's default of 9 s, as in production. After kill() it takes that long until a
new leader is elected, and until the same broker may join again. stop() hands leaders over at once.
"""

from __future__ import annotations

import gc
import itertools
import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from tests.support.chaos_kraft import ChaosCluster
from tests.support.class_archive import ensure_archive, sharing
from tests.support.kafka_home import KafkaHome, find_kafka_home
from tests.support.kraft import KraftCluster
from tests.support.secured_kraft import SecuredKraft
from tests.support.shared_sidecar import SharedSidecar
from tests.support.spark import LEFT_SOCKETS, spark_of_the_session

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from tests.support.sidecar import Sidecar

_HERE: Final = str(Path(__file__).parent) + os.sep
#: The clusters of this session, for the logs in a failed test's report.
_CLUSTERS: Final = pytest.StashKey[list[KraftCluster]]()


class NewTopic(Protocol):
    """Makes a topic of the test's own; see the module's docstring."""

    def __call__(
        self,
        *,
        partitions: int = 3,
        replication_factor: int = 1,
        min_insync_replicas: int | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        on: KraftCluster | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str: ...


@pytest.hookimpl(tryfirst=True)  # the conftest above looks at the mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what lies in this folder, before `-m` chooses."""
    for item in items:
        if str(item.path).startswith(_HERE):
            item.add_marker(pytest.mark.kafka)
            if item.path.stem.endswith("_over_http"):
                item.add_marker(pytest.mark.kafka_http)
            if "spark" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.filterwarnings(LEFT_SOCKETS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Puts the end of each broker's log into the report of a test that failed."""
    report = yield
    if report.failed:
        for cluster in item.session.stash.get(_CLUSTERS, []):
            report.sections.extend((f"log of {name}", text) for name, text in cluster.logs().items())
    return report


@pytest.fixture(scope="session")
def kafka_home() -> KafkaHome:
    """Java and Kafka's jars. The errors of kafka_home say what to install."""
    home = find_kafka_home()
    return replace(home, java_options=(sharing(ensure_archive(home.java, home.jars)),))


@pytest.fixture(scope="package")
def kafka_of_the_session(
    kafka_home: KafkaHome, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[KraftCluster]:
    """The shared three brokers; tests take `kafka`."""
    folder = tmp_path_factory.mktemp("kafka") / "three"
    cluster = KraftCluster(
        kafka_home.java, kafka_home.jars, folder, brokers=3, java_options=kafka_home.java_options
    )
    with cluster, _logs_in_reports(cluster, request.session):
        yield cluster


@pytest.fixture
def kafka(kafka_of_the_session: KraftCluster) -> KraftCluster:
    """Three brokers, all of them serving, whatever the test before did to them."""
    kafka_of_the_session.heal()
    return kafka_of_the_session


@pytest.fixture
def auto_creating_kafka(secured_kafka: SecuredKraft) -> KraftCluster:
    """One broker that creates missing topics."""
    return secured_kafka.cluster


@pytest.fixture(scope="package")
def _sidecar_of_the_session(
    kafka_of_the_session: KraftCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedSidecar]:
    with SharedSidecar(tmp_path_factory.mktemp("sidecar"), kafka_of_the_session) as shared:
        yield shared


@pytest.fixture
def sidecar(kafka: KraftCluster, _sidecar_of_the_session: SharedSidecar) -> Sidecar:
    """A sidecar that runs, of the three brokers and with no settings but theirs."""
    return _sidecar_of_the_session.running()


@pytest.fixture(scope="package")
def secured_kafka(
    kafka_home: KafkaHome, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[SecuredKraft]:
    """One broker with every kind of security."""
    folder = tmp_path_factory.mktemp("kafka") / "secured"
    secured = SecuredKraft(kafka_home.java, kafka_home.jars, folder, kafka_home.java_options)
    with secured, _logs_in_reports(secured.cluster, request.session):
        yield secured


@pytest.fixture(scope="module")
def chaos_cluster(
    kafka_home: KafkaHome, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ChaosCluster]:
    """Three brokers behind faulty proxies; who takes them heals them first. A module's, as idle ones cost."""
    chaos = ChaosCluster(kafka_home, tmp_path_factory.mktemp("kafka") / "chaos")
    with chaos, _logs_in_reports(chaos.kafka, request.session):
        yield chaos


@pytest.fixture(scope="package")
def _spark_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_of_the_session(tmp_path_factory.mktemp("spark")) as session:
        yield session


@pytest.fixture
def spark(_spark_of_the_session: SparkSession) -> Iterator[SparkSession]:
    """The Spark session of this process; its first test pays for the start, ten seconds."""
    yield _spark_of_the_session
    gc.collect()  # the sockets that pyspark leaves behind, lest they be found in another test


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def topic_name(_numbers: Iterator[int]) -> Callable[[], str]:
    """Gives a name that no topic has had."""
    return lambda: f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def new_topic(topic_name: Callable[[], str], request: pytest.FixtureRequest) -> NewTopic:
    """Makes a topic and waits until it can be written to."""

    def make(
        *,
        partitions: int = 3,
        replication_factor: int = 1,
        min_insync_replicas: int | None = None,
        assignment: Sequence[Sequence[int]] | None = None,
        on: KraftCluster | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        cluster: KraftCluster = on if on is not None else request.getfixturevalue("kafka")
        topic = topic_name()
        wanted = dict(config or {})
        if min_insync_replicas is not None:
            wanted["min.insync.replicas"] = str(min_insync_replicas)
        cluster.admin.create_topic(
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            assignment=assignment,
            config=wanted,
        )
        return topic

    return make


@contextmanager
def _logs_in_reports(cluster: KraftCluster, session: pytest.Session) -> Iterator[None]:
    session.stash.setdefault(_CLUSTERS, []).append(cluster)
    try:
        yield
    finally:
        session.stash[_CLUSTERS].remove(cluster)
