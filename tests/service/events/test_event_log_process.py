"""Events of a real client on a fake cluster, in a topic and in a folder; and a sidecar as a user runs it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final

import cramjam
from click.testing import CliRunner

from client_core import KafkaProducer, SystemClock
from client_core.testing.cluster import FakeCluster
from client_core.testing.partition_log import StoredBatch, StoredRecord, records_of
from service.__main__ import main
from service.base.settings import Settings
from service.events.event_log import make_event_log
from service.process.app import FanOut
from service.process.embedded import EmbeddedCluster
from tests.support.live_producer import PATIENCE_MS, QUICK, submit
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pytest

    from service.events.event_log import EventLog

TOPIC: Final = "pilotfish.events"
#: The size of a batch's header, and the codec in its attributes.
HEAD_BYTES: Final = 61
CODEC_MASK: Final = 0x07
ZSTD: Final = 4


@contextmanager
def logged_producer(cluster: FakeCluster, **given: Any) -> Iterator[tuple[KafkaProducer, EventLog]]:
    """A producer whose events go to the topic, as in a sidecar; closed as there, the log behind it."""
    kafka = {**QUICK, "bootstrap.servers": cluster.bootstrap_servers, "client.id": "pod-1"}
    settings = Settings(
        kafka={name: str(value) for name, value in kafka.items()},
        events_topic=TOPIC,
        sidecar_id="pod-1",
        service_name="shop",
        **given,
    )
    log = make_event_log(settings, SystemClock(), Random(0))
    producer = KafkaProducer(settings.producer_config(), events=FanOut(log))
    log.follow(producer)
    log.start()
    producer.start()
    try:
        yield producer, log
    finally:
        producer.close(PATIENCE_MS)
        log.close(PATIENCE_MS)


def records(cluster: FakeCluster, partitions: int = 1) -> list[StoredRecord]:
    """The records of events, unpacked: the fake cluster itself knows no zstd."""
    return [
        record
        for number in range(partitions)
        for batch in cluster.batches(TOPIC, number)
        for record in records_of(unpacked(batch), number)
    ]


def unpacked(batch: StoredBatch) -> StoredBatch:
    assert batch.codec == ZSTD
    head, body = batch.data[:HEAD_BYTES], batch.data[HEAD_BYTES:]
    data = head + bytes(cramjam.zstd.decompress(body))
    return batch._replace(attributes=batch.attributes & ~CODEC_MASK, data=data)


def of_type(reported: Sequence[StoredRecord], kind: str) -> list[dict[str, Any]]:
    return [event for event in events(reported) if event["type"] == kind]


def events(reported: Sequence[StoredRecord]) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in reported]


def test_the_events_of_a_client_are_in_the_topic_in_one_partition_and_in_order() -> None:
    with FakeCluster(brokers=3) as cluster:
        cluster.create_topic(TOPIC, partitions=4)
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        with logged_producer(cluster) as (producer, log):
            assert submit(producer, "orders", [b"a", b"b"], partition=0).offsets() == [0, 1]
            cluster.move_leader("orders", 0, 3)
            assert submit(producer, "orders", [b"c"], partition=0).offsets() == [2]
        found = records(cluster, 4)
        assert {(record.key, record.partition) for record in found} == {(b"pod-1", found[0].partition)}
        reported = events(found)
        assert [event["seq"] for event in reported] == list(range(1, sum(log.queued.values()) + 1))
        assert (reported[0]["type"], reported[-1]["type"]) == ("heartbeat", "heartbeat")
        assert {event["cluster_id"] for event in reported[-3:]} == {cluster.cluster_id}
        sights = [(e["leader"], e["leader_epoch"]) for e in of_type(found, "metadata.partition")]
        first = cluster.partition("orders", 0)
        assert sights[0] == (1, 0)
        assert (3, first.leader_epoch) in sights
        windows = of_type(found, "produce.window")
        assert sum(window["records"] for window in windows) == 3
        assert sum(sum(window["latency_us"].values()) for window in windows) == 3
        assert all(window["topic"] == "orders" for window in windows)  # its own records cause no events


def test_events_wait_for_a_topic_that_is_made_later(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with FakeCluster(brokers=1) as cluster, logged_producer(cluster) as (_, log):
        sink = log.channels[0].sink
        wait_until(lambda: sink.in_flight_bytes, what="events on their way", every_s=0.01)
        cluster.create_topic(TOPIC)
        wait_until(lambda: sink.written, what="an event that was acknowledged", every_s=0.01)
        assert events(records(cluster))[0]["seq"] == 1


def test_a_produce_is_acknowledged_while_the_brokers_answer_no_event() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        with logged_producer(cluster, drain_timeout_ms=0) as (producer, log):
            for _ in range(20):
                assert len(submit(producer, "orders", [b"a"], partition=0).offsets()) == 1
            assert log.channels[0].sink.written == 0
            log.close(0)
        assert log.dropped == sum(log.queued.values())


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_of_a_killed_sidecar_are_completed_by_the_next_and_that_one_ends_in_order(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "events"
    flags = ["--events-folder", str(folder), "--sidecar-id", "pod-1", "--service-name", "shop"]
    limits = {"events_window_ms": 1_000}
    with (
        EmbeddedCluster(topics=("orders",)) as cluster,
        Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, flags=flags, limits=limits) as sidecar,
    ):
        assert sidecar.produce("orders", [{"value": "x"}] * 3).status_code == 200
        wait_until(
            lambda: sidecar.metric("pilotfish_events_total", type="produce.window"),
            what="a window",
        )
        wait_until(lambda: not sidecar.metric("pilotfish_events_waiting_bytes"), what="an empty queue")
        (being_written,) = folder.iterdir()
        assert being_written.name.startswith(".events-pod-1-")
        sidecar.process.kill()
        sidecar.process.wait(timeout=patient(30))
        with being_written.open("a") as file:
            file.write('{"v":1,"type":"hear')
        sidecar.start()
        wait_until(lambda: not being_written.exists(), what="the first file to be finished")
        assert sidecar.produce("orders", [{"value": "x"}]).status_code == 200
        assert sidecar.terminate() == 0
    first, second = sorted(folder.iterdir())
    assert {"events", "pod", "1"} <= set(first.name.split("-"))
    windows = [event for event in lines(first) if event["type"] == "produce.window"]
    assert sum(window["records"] for window in windows) == 3
    assert {event["service"] for event in lines(first)} == {"shop"}
    reported = lines(second)
    assert [event["seq"] for event in reported] == list(range(1, len(reported) + 1))
    assert (reported[0]["type"], reported[-1]["type"]) == ("heartbeat", "heartbeat")
    assert sum(event["records"] for event in reported if event["type"] == "produce.window") == 1
    assert reported[0]["boot_id"] > lines(first)[0]["boot_id"]
    assert second.name == f"events-pod-1-{reported[0]['boot_id']:016x}-000001.jsonl"


def test_a_folder_that_can_not_be_used_ends_the_start_with_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "service", "serve", "--kafka", "bootstrap.servers=127.0.0.1:9"]
    command += ["--api-port", "0", "--admin-port", "0", "--events-folder", str(tmp_path / "file")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (ended.returncode, "events_folder: can't write files into" in ended.stderr) == (2, True)


def test_a_wrong_setting_of_events_is_named() -> None:
    for flag, value in (("events-topic", "a/b"), ("sidecar-id", "a b"), ("events-files", "0")):
        words = ["serve", "--kafka", "bootstrap.servers=broker:9092", f"--{flag}", value]
        ended = CliRunner().invoke(main, words)
        assert ended.exit_code == 2, flag
        assert f"pilotfish: {flag.replace('-', '_')}: " in ended.output
