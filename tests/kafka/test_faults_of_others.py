"""Faults that were seen in other HTTP bridges to Kafka and don't occur here, on real brokers.

The faults are: a producer for each HTTP connection; a look-up of a leaderless partition that is never
answered; an abandoned produce that blocks all callers and the health check; an unknown topic whose wait is
repeated for each record; a null that becomes the text "null", and false, 0, "", [] and {} that become
nothing; answers without an age. test_failover.py checks that nothing is ready when every broker is dead.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster
    from tests.support.sidecar import Sidecar

CLIENTS: Final = 50
REQUESTS_EACH: Final = 5

_ESTABLISHED: Final = "01"


def connections_to(sidecar: Sidecar, ports: set[int]) -> list[int]:
    """The brokers' ports that the sidecar's process has connections to, once for each connection."""
    own = set()
    for link in Path(f"/proc/{sidecar.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            own.add(link.readlink().name.removeprefix("socket:[").rstrip("]"))
    found = []
    for line in Path(f"/proc/{sidecar.process.pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        port = int(fields[2].split(":")[1], 16)
        if fields[3] == _ESTABLISHED and fields[9] in own and port in ports:
            found.append(port)
    return found


def test_fifty_clients_on_new_connections_share_one_connection_a_broker(
    sidecar: Sidecar, kafka: KraftCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=6, replication_factor=3)
    ports = {int(address.rsplit(":", 1)[1]) for address in kafka.bootstrap_servers.split(",")}

    def client(number: int) -> None:
        for n in range(REQUESTS_EACH):
            body = json.dumps({"records": [{"value": f"{number}-{n}", "partition": (number + n) % 6}]})
            connection = http.client.HTTPConnection("127.0.0.1", sidecar.api_port, timeout=patient(60))
            with contextlib.closing(connection):
                headers = {"Content-Type": "application/json"}
                connection.request("POST", f"/v1/topics/{topic}/records", body, headers)
                answer = connection.getresponse()
                assert answer.status == 200, answer.read()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    assert sorted(connections_to(sidecar, ports)) == sorted(ports)
    values = sorted(record.value or b"" for record in kafka.read_back(topic))
    assert values == sorted(b'"%d-%d"' % (c, n) for c in range(CLIENTS) for n in range(REQUESTS_EACH))


def leaders(sidecar: Sidecar, topic: str, cluster_id: str) -> tuple[object, object, object]:
    """Partition 0's leader natively, in REST Proxy v2 and in v3; each must answer within a second."""
    paths = (
        f"/v1/topics/{topic}/partitions/0",
        f"/topics/{topic}/partitions/0",
        f"/v3/clusters/{cluster_id}/topics/{topic}/partitions/0",
    )
    found = []
    for path in paths:
        answer = sidecar.api.get(path, timeout=5)
        assert answer.status_code == 200, answer.text
        assert int(answer.headers["age"]) >= 0
        found.append(answer.json()["leader"])
    return found[0], found[1], found[2]


def test_a_leaderless_partition_and_an_abandoned_produce_to_it_block_no_other_request(
    sidecar: Sidecar, kafka: KraftCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(assignment=[[2], [1]])
    cluster_id = sidecar.api.get("/v1/cluster").json()["cluster_id"]
    native, v2, v3 = leaders(sidecar, topic, cluster_id)
    assert isinstance(native, dict)
    assert native["id"] == v2 == 2
    assert v3 is not None
    kafka.kill(2)

    def leaderless() -> bool:
        assert sidecar.api.post("/v1/metadata/refresh").status_code == 200
        return leaders(sidecar, topic, cluster_id) == (None, -1, None)

    wait_until(leaderless, what="a partition without a leader")
    body = json.dumps({"records": [{"value": 1, "partition": 0}]})
    with socket.create_connection(("127.0.0.1", sidecar.api_port)) as abandoned:
        head = f"POST /v1/topics/{topic}/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        abandoned.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n{body}".encode())
        wait_until(
            lambda: sidecar.api.get("/v1/status").json()["waiting_requests"], what="a produce that waits"
        )
        began_s = time.monotonic()
        ended = sidecar.produce(topic, [{"value": "x", "partition": 0}], timeout_ms=3_000)
        assert ended.status_code == 503
        assert ended.json()["written"] == "no"
        assert 2.9 < time.monotonic() - began_s < patient(30.0)
        for _ in range(20):
            assert sidecar.produce(topic, [{"value": "y", "partition": 1}]).status_code == 200
            assert sidecar.api.get(f"/v1/topics/{topic}/leader?partition=1", timeout=5).status_code == 200
            assert sidecar.admin.get("/livez", timeout=5).status_code == 200


def test_an_unknown_topic_costs_one_wait_however_many_records_there_are(
    sidecar: Sidecar, topic_name: Callable[[], str]
) -> None:
    body = {"records": [{"value": n} for n in range(100)]}
    media_type = {"content-type": "application/vnd.kafka.json.v2+json"}
    began_s = time.monotonic()
    answer = sidecar.api.post(f"/topics/{topic_name()}", json=body, headers=media_type)
    assert time.monotonic() - began_s < patient(30.0)  # not 100
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)


def test_null_is_a_tombstone_and_what_is_false_is_not(
    sidecar: Sidecar, kafka: KraftCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=1)
    sidecar.wait_until_it_knows(topic)
    values: list[object] = [None, False, 0, "", [], {}]
    media_type = {"content-type": "application/vnd.kafka.json.v2+json"}
    body = {"records": [{"key": "k", "value": value} for value in values]}
    answer = sidecar.api.post(f"/topics/{topic}", json=body, headers=media_type)
    assert [one["offset"] for one in answer.json()["offsets"]] == list(range(6))
    written = [record.value for record in kafka.read_back(topic)]
    assert written == [None, b"false", b"0", b'""', b"[]", b"{}"]
