"""REST Proxy v3 on real brokers: each record is read back by another client, each resource compared with one.

Black box: a sidecar in a process of its own, called over HTTP. acks=all, replication factor 3 and
min.insync.replicas 2, unless a test says otherwise.
"""

from __future__ import annotations

import base64
import json
import socket
from typing import TYPE_CHECKING, Any, Final, Self

import pytest

from tests.support.shared_sidecar import SharedSidecar
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx

    from tests.kafka.conftest import NewTopic
    from tests.support.kafka_admin import ReadRecord
    from tests.support.kraft import KraftCluster
    from tests.support.sidecar import Sidecar

#: Kafka's default: a record may be no larger.
MAX_REQUEST_BYTES: Final = 1_048_576
PATIENCE_S: Final = patient(30.0)


@pytest.fixture(scope="module")
def shared_sidecar(
    kafka_of_the_session: KraftCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedSidecar]:
    settings, limits = {"metadata.max.age.ms": "1000"}, {"listing_max_age_ms": 0}
    folder = tmp_path_factory.mktemp("rest_v3")
    with SharedSidecar(folder, kafka_of_the_session, settings=settings, limits=limits) as shared:
        yield shared


@pytest.fixture
def sidecar(kafka: KraftCluster, shared_sidecar: SharedSidecar) -> Sidecar:
    return shared_sidecar.running()


@pytest.fixture
def root(kafka: KraftCluster) -> str:
    return f"/v3/clusters/{kafka.cluster_id}"


@pytest.fixture
def topic(new_topic: NewTopic, sidecar: Sidecar) -> str:
    topic = new_topic(partitions=3, replication_factor=3, min_insync_replicas=2)
    sidecar.wait_until_it_knows(topic)
    return topic


def get(sidecar: Sidecar, path: str) -> Any:
    answer = sidecar.api.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(sidecar: Sidecar, path: str, body: str | bytes) -> httpx.Response:
    return sidecar.api.post(path, content=body, headers={"content-type": "application/json"})


def reports(sidecar: Sidecar, path: str, *records: Mapping[str, object]) -> list[dict[str, Any]]:
    """The reports of records that are posted in one body of known length."""
    answer = post(sidecar, path, "\n".join(json.dumps(record) for record in records))
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def binary(data: bytes | None) -> dict[str, object]:
    return {"type": "BINARY", "data": b64(data)}


def by_place(kafka: KraftCluster, topic: str) -> dict[tuple[int, int], ReadRecord]:
    return {(record.partition, record.offset): record for record in kafka.read_back(topic)}


class Duplex:
    """One chunked request over a socket of its own: it is written and answered at the same time."""

    def __init__(self, sidecar: Sidecar, path: str) -> None:
        self._connection = socket.create_connection(("127.0.0.1", sidecar.api_port), PATIENCE_S)
        self._answer = self._connection.makefile("rb")
        self._connection.sendall(
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._connection.close()

    def send(self, body: bytes) -> None:
        self._connection.sendall(b"%x\r\n%s\r\n" % (len(body), body))

    def end(self) -> None:
        self._connection.sendall(b"0\r\n\r\n")

    def head(self) -> str:
        """The status line; the headers are read and forgotten."""
        line = self._answer.readline().decode().rstrip()
        while self._answer.readline().strip():
            continue
        return line

    def report(self) -> dict[str, Any] | None:
        """The next object; None where the answer has ended."""
        while b"\n" not in self._rest:
            length = int(self._answer.readline(), 16)
            chunk = self._answer.read(length)
            self._answer.readline()
            if not length:
                assert not self._rest
                return None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


# -- metadata ------------------------------------------------------------------------------------------------


def test_the_cluster_and_its_brokers_are_those_that_another_client_sees(
    kafka: KraftCluster, sidecar: Sidecar, root: str
) -> None:
    (cluster,) = get(sidecar, "/v3/clusters")["data"]
    assert cluster == get(sidecar, root)
    assert cluster["cluster_id"] == kafka.cluster_id
    assert cluster["metadata"]["self"] == f"{sidecar.api_url}{root}"
    assert cluster["metadata"]["resource_name"] == f"crn:///kafka={kafka.cluster_id}"
    brokers = sidecar.api.get(cluster["brokers"]["related"]).json()["data"]
    assert {b["broker_id"]: (b["host"], b["port"]) for b in brokers} == kafka.admin.brokers()
    for broker in brokers:
        assert sidecar.api.get(broker["metadata"]["self"]).json() == broker
    controller = sidecar.api.get(cluster["controller"]["related"])
    assert controller.json()["broker_id"] in kafka.admin.brokers()


def test_topics_are_listed_as_another_client_sees_them_but_for_internal_ones(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar, root: str
) -> None:
    topic = new_topic(partitions=5, replication_factor=2)
    listed = {t["topic_name"]: t for t in get(sidecar, f"{root}/topics")["data"]}
    assert sorted(listed) == [name for name in kafka.admin.topics() if not name.startswith("__")]
    assert (listed[topic]["partitions_count"], listed[topic]["replication_factor"]) == (5, 2)
    assert sidecar.api.get(listed[topic]["metadata"]["self"]).json() == listed[topic]


def test_partitions_and_replicas_are_those_that_another_client_sees(
    kafka: KraftCluster, topic: str, sidecar: Sidecar, root: str
) -> None:
    seen = kafka.admin.partitions(topic)
    assert seen is not None
    reported = get(sidecar, f"{root}/topics/{topic}/partitions")["data"]
    assert [p["partition_id"] for p in reported] == [s.partition for s in seen]
    for partition, expected in zip(reported, seen, strict=True):
        assert sidecar.api.get(partition["metadata"]["self"]).json() == partition
        assert partition["leader"]["related"].endswith(f"/replicas/{expected.leader}")
        replicas = sidecar.api.get(partition["replicas"]["related"]).json()["data"]
        assert [r["broker_id"] for r in replicas] == list(expected.replicas)
        assert {r["broker_id"] for r in replicas if r["is_in_sync"]} == set(expected.isr)
        assert [r["broker_id"] for r in replicas if r["is_leader"]] == [expected.leader]
        leader = sidecar.api.get(partition["leader"]["related"]).json()
        assert leader in replicas
        assert sidecar.api.get(leader["broker"]["related"]).json()["broker_id"] == expected.leader


# -- records -------------------------------------------------------------------------------------------------


def test_records_are_read_back_as_they_were_sent(
    kafka: KraftCluster, topic: str, sidecar: Sidecar, root: str
) -> None:
    sent: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], str, int]] = [
        (b"key", b"value", (), "2023-11-14T22:13:20Z", 0),
        (None, b"no key", (("h", b"\x00\xff"),), "2023-11-14T22:13:20.001Z", 1),
        (b"tombstone", None, (("a", b"1"), ("a", b"2"), ("none", None)), "2020-09-13T12:26:40Z", 2),
        (b"", b"", (("", b""),), "1970-01-01T00:00:00Z", 0),
        (bytes(range(256)), bytes(range(255, -1, -1)), (), "2023-11-14T22:13:20.002Z", 1),
        ("ключ".encode(), b"x" * 500_000, (("ü", b"big"),), "2023-11-14T22:13:20.003Z", 2),
    ]
    reported = reports(
        sidecar,
        f"{root}/topics/{topic}/records",
        *(
            {
                "key": binary(key),
                "value": binary(value),
                "headers": [{"name": name, "value": b64(content)} for name, content in headers],
                "timestamp": timestamp,
                "partition_id": partition,
            }
            for key, value, headers, timestamp, partition in sent
        ),
    )
    read = by_place(kafka, topic)
    assert len(read) == len(sent)
    for (key, value, headers, timestamp, partition), report in zip(sent, reported, strict=True):
        assert (report["error_code"], report["cluster_id"]) == (200, kafka.cluster_id)
        assert (report["topic_name"], report["partition_id"]) == (topic, partition)
        assert report["timestamp"] == timestamp
        assert report["key"] == {"type": "BINARY", "size": -1 if key is None else len(key)}
        assert report["value"] == {"type": "BINARY", "size": -1 if value is None else len(value)}
        back = read[report["partition_id"], report["offset"]]
        assert (back.key, back.value, back.headers) == (key, value, headers)
        assert back.timestamp_type == "CreateTime"


def test_a_bad_record_takes_no_other_with_it(
    kafka: KraftCluster, topic: str, sidecar: Sidecar, root: str
) -> None:
    too_large = {"value": {"type": "STRING", "data": "x" * (MAX_REQUEST_BYTES + 1)}}
    reported = reports(
        sidecar,
        f"{root}/topics/{topic}/records",
        {"value": {"type": "STRING", "data": "first"}, "partition_id": 0},
        {"value": {"type": "BINARY", "data": "fooba"}},
        {"value": {"type": "AVRO", "schema": '"string"', "data": "x"}},
        too_large,
        {"partition_id": -1},
        {"timestamp": "9999-01-01T00:00:00Z", "partition_id": 1},
        {"value": {"type": "STRING", "data": "last"}, "partition_id": 2},
    )
    assert [report["error_code"] for report in reported] == [200, 400, 415, 413, 40402, 422, 200]
    assert sorted(r.value or b"" for r in kafka.read_back(topic)) == [b"first", b"last"]


# -- streams -------------------------------------------------------------------------------------------------


def test_a_stream_is_answered_while_it_is_open(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar, root: str
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    sidecar.wait_until_it_knows(topic)
    with Duplex(sidecar, f"{root}/topics/{topic}/records") as stream:
        stream.send(b'{"value":{"type":"JSON","data":0}}')
        assert stream.head() == "HTTP/1.1 200 OK"
        first = stream.report()
        assert first is not None
        assert (first["error_code"], first["offset"]) == (200, 0)
        for n in range(1, 50):
            stream.send(b'{"value":{"type":"JSON",')
            stream.send(b'"data":%d}}' % n)
            report = stream.report()
            assert report is not None
            assert report["offset"] == n
        stream.send(b'{"value":{"type":"BINARY","data":"x"}}{"value":{"type":"JSON","data":50}}')
        bad, good = stream.report(), stream.report()
        assert bad is not None
        assert good is not None
        assert (bad["error_code"], good["error_code"], good["offset"]) == (400, 200, 50)
        stream.end()
        assert stream.report() is None
    assert [r.value for r in kafka.read_back(topic)] == [b"%d" % n for n in range(51)]


def test_an_open_stream_ends_in_good_order_when_the_sidecar_is_stopped(
    kafka: KraftCluster, topic: str, sidecar: Sidecar, root: str
) -> None:
    with Duplex(sidecar, f"{root}/topics/{topic}/records") as stream:
        stream.send(b'{"value":{"type":"STRING","data":"before"}}')
        assert stream.head() == "HTTP/1.1 200 OK"
        reported = stream.report()
        assert reported is not None
        assert reported["error_code"] == 200
        assert sidecar.terminate() == 0
        last = stream.report()
        assert last is not None
        assert last["error_code"] == 503
        assert stream.report() is None
    assert [r.value for r in kafka.read_back(topic)] == [b"before"]


# -- batches -------------------------------------------------------------------------------------------------


def test_a_batch_is_written_and_each_entry_is_answered_by_its_id(
    kafka: KraftCluster, topic: str, sidecar: Sidecar, root: str
) -> None:
    entries: list[dict[str, Any]] = [
        {"id": "a", "partition_id": 0, "key": binary(b"k"), "value": {"type": "JSON", "data": [1, 2]}},
        {"id": "b", "value": {"type": "STRING", "data": "x" * (MAX_REQUEST_BYTES + 1)}},
        {"id": "c", "value": {"type": "STRING", "data": 1}},
        {"id": "d", "partition_id": 2, "headers": [{"name": "h", "value": b64(b"v")}]},
    ]
    answer = post(sidecar, f"{root}/topics/{topic}/records:batch", json.dumps({"entries": entries}))
    assert answer.status_code == 207, answer.text
    found = answer.json()
    assert [(f["id"], f["error_code"]) for f in found["failures"]] == [("b", 413), ("c", 400)]
    read = by_place(kafka, topic)
    assert {s["id"]: read[s["partition_id"], s["offset"]].key for s in found["successes"]} == {
        "a": b"k",
        "d": None,
    }
    assert sorted((r.value, r.headers) for r in read.values() if r.value is not None) == [(b"[1,2]", ())]
