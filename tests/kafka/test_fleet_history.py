"""Three sidecars on real brokers write events; the tables made of these agree with an independent observer.

A broker is killed and comes back, leaders are elected, topics are created, deleted and created again while
records are produced. One sidecar is paused (SIGSTOP) meanwhile. The observer is kafka-python, which polls the
brokers (tests/support/leadership_poller.py). The tables are read by pyarrow.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from pyarrow import parquet

from pipeline.jars.connector_jars import default_folder, ensure_connector_jars
from tests.support.leadership_poller import LeadershipPoller
from tests.support.paused_process import pause_process
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.kraft import KraftCluster

#: An event twice as late as this was held back: long for a slow machine, short compared with the pause.
REFRESH_MS: Final = 3_000
HELD_BACK: Final = "held-back"
SIDECARS: Final = {"first": "checkout", "second": "checkout", HELD_BACK: "billing"}
PARTITIONS: Final = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]]

_ROOT: Final = Path(__file__).resolve().parents[2]

Row = dict[str, Any]


class Fleet(NamedTuple):
    """What the test left behind: the poller's view, and the tables."""

    seen: dict[tuple[str, int], dict[int, int]]
    tables: Path
    #: The id that the topic had which was deleted and made again.
    deleted_id: str
    #: Elections while a sidecar was held back: (topic id, partition, epoch).
    elected_meanwhile: frozenset[tuple[str, int, int]]

    def rows(self, table: str) -> list[Row]:
        found: list[Row] = parquet.read_table(self.tables / table).to_pylist()
        return found


class _Load:
    """A record now and then through each sidecar to each topic, until the end; what fails, fails."""

    def __init__(self, sidecars: list[Sidecar], topics: set[str]) -> None:
        self.topics = topics
        self.acknowledged = 0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._produce, args=(sidecar,)) for sidecar in sidecars]

    def __enter__(self) -> _Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Sends no more, and waits for what is on its way. Idempotent."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self, sidecar: Sidecar) -> None:
        number = 0
        while not self._over.wait(0.05):
            for topic in sorted(self.topics):
                number += 1
                answer = sidecar.produce(
                    topic, [{"value": "v", "key": f"{number}"}], timeout_ms=20_000, max_block_ms=1_000
                )
                self.acknowledged += answer.status_code == 200


class _Stage(NamedTuple):
    """What a part of the story has at hand."""

    kafka: KraftCluster
    poller: LeadershipPoller
    topics: list[str]
    sidecars: dict[str, Sidecar]
    load: _Load

    def until_another_leads(self, topic: str, partition: int, than: int) -> None:
        self.kafka.admin.wait_for_leader_other_than(topic, partition, than)

    def epochs(self) -> set[tuple[str, int, int]]:
        """Every epoch that the poller has seen so far."""
        seen = self.poller.snapshot(*self.topics)
        return {(*key, epoch) for key, epochs in seen.items() for epoch in epochs}

    def until_refreshed(self, *names: str) -> None:
        """Waits until these sidecars have refreshed twice from now on: they know all that was true before."""
        before = {name: self._version(name) for name in names}
        wait_until(
            lambda: all(self._version(name) >= before[name] + 2 for name in names),
            what=f"two refreshes of {names}",
            last_seen=lambda: {name: self.sidecars[name].log()[-2_000:] for name in names},
        )

    def _version(self, name: str) -> float:
        return self.sidecars[name].metric("pilotfish_metadata_update_version") or 0


@pytest.fixture(scope="module")
def fleet(kafka_of_the_session: KraftCluster, tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """The story, played once for all tests of this file."""
    kafka, folder = kafka_of_the_session, tmp_path_factory.mktemp("fleet")
    kafka.heal()
    topics = [f"fleet-{name}-{folder.name}" for name in ("steady", "busy", "again")]
    steady, busy, again = topics
    events = f"events-{folder.name}"
    kafka.admin.create_topic(steady, assignment=PARTITIONS, config={"min.insync.replicas": "1"})
    kafka.admin.create_topic(busy, assignment=PARTITIONS[:2], config={"min.insync.replicas": "1"})
    kafka.admin.create_topic(
        events,
        partitions=3,
        replication_factor=3,
        config={"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "1"},
    )
    with ExitStack() as stack:
        poller = stack.enter_context(LeadershipPoller(kafka.bootstrap_servers, folder))
        sidecars = {
            name: stack.enter_context(_sidecar(kafka, folder, name, service, events, topics))
            for name, service in SIDECARS.items()
        }
        load = stack.enter_context(_Load(list(sidecars.values()), {steady, busy}))
        stage = _Stage(kafka, poller, topics, sidecars, load)
        wait_until(lambda: load.acknowledged >= 30, what="records")
        deleted_id = _a_topic_comes_and_goes_and_comes_again(stage, again)
        elected = _a_broker_dies_while_a_sidecar_is_held_back(stage, steady)
        _leaders_go_back_and_a_broker_is_stopped(stage, steady, busy)
        load.end()
        stage.until_refreshed(*SIDECARS)
        seen = poller.snapshot(*topics)
        for sidecar in sidecars.values():
            assert sidecar.terminate() == 0, sidecar.log()
    tables = folder / "tables"
    _run_the_pipeline(kafka, events, tables)
    return Fleet(seen, tables, deleted_id, elected)


def _sidecar(
    kafka: KraftCluster, folder: Path, name: str, service: str, events: str, topics: list[str]
) -> Sidecar:
    own = folder / name
    own.mkdir()
    return Sidecar(
        own,
        bootstrap_servers=kafka.bootstrap_servers,
        kafka={"metadata.max.age.ms": str(REFRESH_MS)},
        environment={
            "PILOTFISH_EVENTS_TOPIC": events,
            "PILOTFISH_SIDECAR_ID": name,
            "PILOTFISH_SERVICE_NAME": service,
            "PILOTFISH_WARM_TOPICS": ",".join(topics),
        },
        limits={"events_window_ms": 1_000, "events_heartbeat_ms": 1_000},
    )


def _a_topic_comes_and_goes_and_comes_again(stage: _Stage, topic: str) -> str:
    """Returns the id of the first."""
    kafka = stage.kafka
    kafka.admin.create_topic(topic, assignment=PARTITIONS[:2])
    stage.until_refreshed(*SIDECARS)
    first_id = wait_until(lambda: stage.poller.topic_ids(topic), what="a poll of the topic")[0]
    kafka.admin.delete_topic(topic)
    stage.until_refreshed(*SIDECARS)
    kafka.admin.create_topic(topic, assignment=PARTITIONS[2:])
    wait_until(lambda: len(stage.poller.topic_ids(topic)) == 2, what="a poll of the second topic")
    stage.until_refreshed(*SIDECARS)
    return first_id


def _a_broker_dies_while_a_sidecar_is_held_back(stage: _Stage, topic: str) -> frozenset[tuple[str, int, int]]:
    """Returns what was elected meanwhile."""
    before = stage.epochs()
    held = stage.sidecars[HELD_BACK].process
    pause_process(held.pid)
    try:
        stage.kafka.kill(1)
        stage.until_another_leads(topic, 0, than=1)
        # Twice, and each refresh may take its whole interval: held back for longer than is called late.
        for _ in range(2):
            stage.until_refreshed("first", "second")
        elected = stage.epochs() - before
    finally:
        held.send_signal(signal.SIGCONT)
    stage.until_refreshed(HELD_BACK)
    assert elected, "a broker that led partitions was killed"
    return frozenset(elected)


def _leaders_go_back_and_a_broker_is_stopped(stage: _Stage, steady: str, busy: str) -> None:
    kafka = stage.kafka
    kafka.restart(1)
    for topic in (steady, busy):
        kafka.admin.wait_until_in_sync(topic)
    stage.until_refreshed(*SIDECARS)
    kafka.stop(2)
    stage.until_another_leads(steady, 1, than=2)
    stage.until_refreshed(*SIDECARS)
    kafka.restart(2)
    kafka.admin.wait_until_in_sync(steady)
    stage.until_refreshed(*SIDECARS)
    last = stage.load.acknowledged
    wait_until(lambda: stage.load.acknowledged > last + 30, what="records at the end")


def _run_the_pipeline(kafka: KraftCluster, events: str, tables: Path) -> None:
    command = [
        *(sys.executable, "-m", "pipeline.cli", "run", "--source", "kafka", "--once", "--master", "local[2]"),
        *("--bootstrap-servers", kafka.bootstrap_servers, "--topic", events, "--out", str(tables)),
        *("--jars", str(default_folder(_ROOT))),
    ]
    ensure_connector_jars(default_folder(_ROOT))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


def test_the_history_holds_every_change_that_another_client_saw_in_its_order(fleet: Fleet) -> None:
    reported: dict[tuple[str, int], dict[int, Row]] = {}
    for row in fleet.rows("gold_leader_history"):
        reported.setdefault((row["topic_key"], row["partition"]), {})[row["leader_epoch"]] = row
    assert len(fleet.seen) == 4 + 2 + 2 + 2
    for key, epochs in fleet.seen.items():
        missing = {e: leader for e, leader in epochs.items() if e not in reported[key]}
        assert missing == {}, f"{key}: {missing}, reported {sorted(reported[key])}"
        assert {e: reported[key][e]["leader"] for e in epochs} == epochs, key
        # In order: with one clock for all, epochs rise with time.
        assert list(epochs) == sorted(epochs)
        times = [reported[key][e]["valid_from"] for e in sorted(reported[key])]
        assert times == sorted(times)


def test_the_history_says_nothing_that_contradicts_it(fleet: Fleet) -> None:
    rows = fleet.rows("gold_leader_history")
    followed = [row for row in rows if (row["topic_key"], row["partition"]) in fleet.seen]
    assert len(followed) == len(rows) - len(_partitions_of_events(fleet, rows))
    assert not any(row["is_conflict"] or row["is_clock_suspect"] for row in rows)
    for key, epochs in fleet.seen.items():
        own = {r["leader_epoch"]: r for r in followed if (r["topic_key"], r["partition"]) == key}
        # An epoch that only sidecars saw lies between those that the poller saw, or beside them.
        assert len(own) >= len(epochs)
        current = [e for e, row in own.items() if row["is_current"]]
        assert current == ([] if key[0] == fleet.deleted_id else [max(own)])


def _partitions_of_events(fleet: Fleet, rows: list[Row]) -> list[Row]:
    """The sidecars' own topic of events is none that the poller followed."""
    return [row for row in rows if (row["topic_key"], row["partition"]) not in fleet.seen]


def test_a_topic_that_was_made_again_is_another_one_and_the_first_has_an_end(fleet: Fleet) -> None:
    first = [row for row in fleet.rows("gold_leader_history") if row["topic_key"] == fleet.deleted_id]
    assert first
    assert {row["valid_to"] is None for row in first} == {False}
    again = [row for row in fleet.rows("gold_current_leader") if row["topic"] == first[0]["topic"]]
    assert {row["topic_key"] for row in again} != {fleet.deleted_id}
    assert len(again) == 2


def test_exactly_the_paused_sidecar_is_late_and_for_exactly_the_elections_of_that_time(fleet: Fleet) -> None:
    late = [row for row in fleet.rows("gold_staleness") if row["is_beyond_twice_the_interval"]]
    assert {row["sidecar_id"] for row in late} == {HELD_BACK}
    assert {(r["topic_key"], r["partition"], r["leader_epoch"]) for r in late} == fleet.elected_meanwhile
    assert not any(row["is_censored"] for row in late), "it went on, and saw them then"


def test_nothing_was_rejected_lost_or_silent(fleet: Fleet) -> None:
    assert fleet.rows("gold_rejects") == []
    quality = fleet.rows("gold_data_quality")
    assert {row["sidecar_id"] for row in quality} == set(SIDECARS)
    assert {row["missing"] for row in quality} == {0}
    assert {row["dropped_reported"] for row in quality} == {0}
