"""The embedded cluster: it runs at once, is controlled over HTTP and by the CLI, and may keep a folder."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import httpx
import pytest
from click.testing import CliRunner

from client_core import KafkaProducer, ProducerConfig, ProducerRecord
from service.__main__ import main
from service.process.embedded import EmbeddedCluster, EmbeddedClusterError
from tests.support.kafka_admin import KafkaAdmin
from tests.support.live_producer import PATIENCE_S
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVENTS_TOPIC: Final = "events-of-sidecars"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, topics=("orders", "payments")) as running:
        yield running


def send(cluster: EmbeddedCluster, topic: str, value: bytes) -> int:
    """Its offset."""
    config = {"bootstrap.servers": cluster.bootstrap_servers}
    with KafkaProducer(ProducerConfig.from_mapping(config)) as producer:
        return producer.send(ProducerRecord(topic, value, partition=0)).result(PATIENCE_S).offset or 0


def test_topics_exist_with_replicas_on_all_brokers_for_clients_of_any_make(cluster: EmbeddedCluster) -> None:
    admin = KafkaAdmin(cluster.bootstrap_servers)
    cluster.add_topic("refunds")
    cluster.add_topic("refunds")
    assert admin.topics() == ("orders", "payments", "refunds")
    for partition in admin.partitions("orders") or pytest.fail("orders is missing"):
        assert partition.leader is not None
        assert set(partition.replicas) == {1, 2, 3}


def test_a_partition_keeps_its_newest_records() -> None:
    with EmbeddedCluster(brokers=1, topics=("orders",)) as cluster:
        config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": "0"}
        with KafkaProducer(ProducerConfig.from_mapping(config)) as producer:
            for _ in range(20):
                producer.send(ProducerRecord("orders", bytes(1_000_000), partition=0)).result(PATIENCE_S)
        offsets = [record.offset for record in cluster.kafka.records("orders")]
    assert offsets == list(range(20 - len(offsets), 20))
    assert 15 <= len(offsets) <= 17


def test_its_records_and_topics_are_there_again_from_its_folder(tmp_path: Path) -> None:
    with EmbeddedCluster(topics=("orders",), folder=tmp_path / "kept") as cluster:
        assert send(cluster, "orders", b"first") == 0
        cluster_id, topic_id = cluster.kafka.cluster_id, cluster.kafka.topic_id("orders")
        epoch = cluster.kafka.partition("orders", 0).leader_epoch
    with EmbeddedCluster(brokers=2, folder=tmp_path / "kept") as cluster:
        assert (cluster.kafka.cluster_id, cluster.kafka.topic_id("orders")) == (cluster_id, topic_id)
        assert cluster.kafka.partition("orders", 0).leader_epoch > epoch
        assert cluster.kafka.partition("orders", 2).leader in {1, 2}
        assert send(cluster, "orders", b"second") == 1
        assert [record.value for record in cluster.kafka.records("orders")] == [b"first", b"second"]


def test_a_folder_that_holds_something_else_is_left_alone_and_named(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"version": 9, "topics": {}}', '{"version": 1, "topics": {"a": 1}}'):
        path = tmp_path / "cluster.json"
        path.write_text(text)
        with pytest.raises(
            EmbeddedClusterError, match=r"cluster\.json can't be read .* delete it, or choose"
        ):
            EmbeddedCluster(folder=tmp_path)
        assert path.read_text() == text, text


def test_a_taken_port_is_named_with_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cluster = EmbeddedCluster(brokers=1, first_port=taken.getsockname()[1])
        with pytest.raises(EmbeddedClusterError, match="choose another --embedded-port"):
            cluster.start()


def test_after_closing_nothing_listens() -> None:
    cluster = EmbeddedCluster(brokers=1)
    host, port = cluster.start().split(":")
    assert cluster.start() == cluster.bootstrap_servers
    cluster.close()
    cluster.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)
    with pytest.raises(EmbeddedClusterError, match="not running"):
        _ = cluster.bootstrap_servers


def test_a_cluster_without_brokers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one broker"):
        EmbeddedCluster(brokers=0)


# -- a sidecar on it, steered --------------------------------------------------------------------------------


class Tried:
    """`pilotfish serve --embedded` as a process, its command line, and the calls that it suggested."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.said = [next(process.stdout)]
        while "Ctrl-C" not in self.said[-1]:
            self.said.append(next(process.stdout))
        (self.status_url,) = [line.split()[-1] for line in self.said if line.endswith("/v1/status\n")]
        (line,) = [line for line in self.said if "embedded stop 1" in line]
        self.stop_command = line.partition("#")[0].split()
        admin_port = self.stop_command[-1]
        self.api, self.admin = (
            httpx.Client(base_url=url, trust_env=False, timeout=patient(30))
            for url in (self.status_url.removesuffix("/v1/status"), f"http://127.0.0.1:{admin_port}")
        )
        self.environment = {"PILOTFISH_ADMIN_PORT": admin_port}

    def __call__(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["embedded", *words], env=self.environment)
        assert done.exit_code == code, done.output
        return done.output

    def leader(self, partition: int) -> int | None:
        """As the sidecar knows it now."""
        (found,) = [
            p for p in self.api.get("/v1/topics/demo").json()["partitions"] if p["partition"] == partition
        ]
        return found["leader"]["id"] if found["leader"] else None


@pytest.fixture(scope="module")
def tried() -> Iterator[Tried]:
    ports = ["--api-port", "0", "--admin-port", "0"]
    options = ["--log-level", "warning", "--events-topic", EVENTS_TOPIC]
    command = [sys.executable, "-m", "service", "serve", "--embedded", *options, *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            found = Tried(process)
            yield found
            found.api.close()
            found.admin.close()
        finally:
            process.terminate()
        assert process.wait(30) == 0


def produce(tried: Tried, value: str, partition: int) -> dict[str, object]:
    body = {"records": [{"value": value, "partition": partition}]}
    answer = tried.api.post("/v1/topics/demo/records", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["results"][0])


def test_the_suggested_calls_work(tried: Tried) -> None:
    assert httpx.get(tried.status_url, trust_env=False).json()["state"] == "running"
    *command, stop, broker, option, port = tried.stop_command
    assert (stop, broker) == ("stop", "1")
    status = subprocess.run([*command, "status", option, port], check=True, capture_output=True)
    assert b"127.0.0.1:" in status.stdout


def test_the_topic_for_events_is_there(tried: Tried) -> None:
    assert tried.api.get(f"/v1/topics/{EVENTS_TOPIC}").status_code == 200


def test_a_stopped_brokers_partitions_are_led_and_written_to_elsewhere(tried: Tried) -> None:
    (first,) = {p["leader"] for p in partitions(tried) if p["partition"] == 0}
    assert f"{first}  127.0.0.1:" in tried("stop", str(first))
    acknowledged = produce(tried, "after the stop", 0)
    (second,) = {p["leader"] for p in partitions(tried) if p["partition"] == 0}
    assert second not in {first, None}
    assert tried.leader(0) == second
    row = f'{0:>9}  {acknowledged["offset"]:>6}  -    "after the stop"'
    assert row in tried("records", "demo").splitlines()
    assert f"broker {first} is stopped and can't lead" in tried("move", "demo", "0", str(first), code=1)
    assert tried("start", str(first)) == tried("start", str(first))
    tried("move", "demo", "0", str(first))
    produce(tried, "after the move", 0)
    assert tried.leader(0) == first
    assert isinstance(acknowledged["timestamp"], int)


def test_delayed_records_are_stored_before_they_are_acknowledged(tried: Tried) -> None:
    tried("delay", "4000")
    body = {"records": [{"value": "delayed", "partition": 1}]}
    answer = tried.api.post("/v1/topics/demo/records", json=body, params={"timeout_ms": 2000})
    tried("delay", "0")
    assert (answer.status_code, answer.json()["written"]) == (504, "unknown")
    assert tried("records", "demo").count('"delayed"') == 1


def partitions(tried: Tried) -> list[dict[str, object]]:
    topics = {topic["name"]: topic for topic in tried.admin.get("/embedded").json()["topics"]}
    return list(topics["demo"]["partitions"])


def test_an_impossible_call_is_refused_with_the_possible_values(tried: Tried) -> None:
    for words, said in (
        (("stop", "9"), "there is no broker 9; there are 1 to 3"),
        (("move", "demo", "7", "2"), "topic demo has the partitions 0 to 3, not 7"),
        (("move", "12", "0", "2"), "there is no topic 12; there are: demo"),
        (("delay", "20001"), "a delay is at most 20000 ms, not 20001"),
        (("records", "other"), "there is no topic other; there are: demo"),
    ):
        assert f"Error: {said}" in tried(*words, code=1), words


def test_only_these_paths_and_methods_are_there_and_no_web_page_may_use_them(tried: Tried) -> None:
    assert tried.admin.get("/embedded/brokers/1/stop").status_code == 405
    assert tried.admin.post("/embedded/nothing").status_code == 404
    assert (
        tried.admin.post("/embedded/brokers/1/stop", headers={"Origin": "http://evil.example"}).status_code
        == 403
    )
    assert tried.admin.post("/metrics").status_code == 405
    assert all(broker["running"] for broker in json.loads(tried.admin.get("/embedded").text)["brokers"])


def test_without_an_embedded_cluster_the_command_says_how_to_have_one(tried: Tried) -> None:
    api_port = str(httpx.URL(str(tried.api.base_url)).port)
    done = CliRunner().invoke(main, ["embedded", "status", "--admin-port", api_port])
    assert done.exit_code == 1
    refused = CliRunner().invoke(main, ["serve", "--embedded-port", "9092"])
    assert (refused.exit_code, "need --embedded" in refused.output) == (2, True)
