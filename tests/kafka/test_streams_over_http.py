"""Streams of records, and repeated requests, against real brokers.

acks=all, replication factor 3, min.insync.replicas 2.
"""

from __future__ import annotations

import base64
import itertools
import json
import socket
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tests.support.stream_connection import StreamConnection
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster
    from tests.support.sidecar import Sidecar

RECORDS: Final = 100_000
KEYS: Final = 50
LINES_PER_SEND: Final = 1_000


def stream_to(sidecar: Sidecar, topic: str, query: str = "") -> StreamConnection:
    return StreamConnection("127.0.0.1", sidecar.api_port, f"/v1/topics/{topic}/records{query}")


class Sender:
    """Sends bodies on a thread of its own, while the test reads."""

    def __init__(self, stream: StreamConnection, bodies: Iterator[bytes]) -> None:
        self._stream = stream
        self._bodies = bodies
        self._thread = threading.Thread(target=self._send)
        self.sent = 0

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(patient(60))
        assert not self._thread.is_alive()

    def _send(self) -> None:
        for body in self._bodies:
            self._stream.send(body)
            self.sent += 1
        self._stream.end()


def test_a_hundred_thousand_records_in_one_stream_are_read_back_in_order(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=3, replication_factor=3, min_insync_replicas=2)
    lines = [b'{"key":"%d","value":%d}\n' % (number % KEYS, number) for number in range(RECORDS)]
    bodies = (b"".join(lines[start : start + LINES_PER_SEND]) for start in range(0, RECORDS, LINES_PER_SEND))
    with stream_to(sidecar, topic) as stream, Sender(stream, bodies):
        *reported, last = stream
    assert last == {
        "summary": {"records": RECORDS, "acknowledged": RECORDS, "failed": 0, "ended": "complete"}
    }
    assert [one["index"] for one in reported] == list(range(RECORDS))
    read = kafka.read_back(topic)
    assert {(r.partition, r.offset): r.value for r in read} == {
        (one["partition"], one["offset"]): b"%d" % one["index"] for one in reported
    }
    by_key: dict[bytes | None, list[int]] = defaultdict(list)
    for record in sorted(read, key=lambda r: (r.partition, r.offset)):
        by_key[record.key].append(int(record.value or b""))
    assert by_key == {b"%d" % key: list(range(key, RECORDS, KEYS)) for key in range(KEYS)}


def test_a_leader_killed_during_a_stream_loses_nothing_that_was_acknowledged(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=3, replication_factor=3, min_insync_replicas=2)
    victim = kafka.admin.leader(topic, 0)
    assert victim is not None
    enough = threading.Event()
    numbers = itertools.count()

    def bodies() -> Iterator[bytes]:
        while not enough.wait(0.005):
            yield b'{"key":"%d","value":%d}\n' % ((number := next(numbers)) % KEYS, number)

    acknowledged: set[int] = set()

    def read() -> None:
        for one in stream:
            if "index" in one:
                assert "error" not in one, "delivery.timeout.ms is far longer than an election"
                acknowledged.add(one["index"])
            else:
                last.append(one["summary"])

    last: list[dict[str, object]] = []
    with stream_to(sidecar, topic) as stream:
        reader = threading.Thread(target=read)
        reader.start()
        with Sender(stream, bodies()):
            wait_until(lambda: len(acknowledged) >= 200, what="the first records")
            kafka.kill(victim)
            kafka.admin.wait_for_leader_other_than(topic, 0, victim)
            before = max(acknowledged)
            wait_until(lambda: max(acknowledged) > before + 400, what="records after the election")
            enough.set()
        reader.join(patient(190))
    count = next(numbers)
    assert last == [{"records": count, "acknowledged": count, "failed": 0, "ended": "complete"}]
    read_back = [int(r.value or b"") for r in kafka.read_back(topic)]
    assert sorted(read_back) == list(range(count)), "none lost, and none twice"


def test_a_retry_after_a_cut_connection_writes_once(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    # So that metadata and connections are there, and the request is on its way as soon as it is posted.
    assert sidecar.produce(topic, [{"value": "first"}]).status_code == 200
    leader = kafka.admin.leader(topic, 0)
    assert leader is not None
    body = json.dumps({"records": [{"value": n} for n in range(10)]}).encode()
    head = (
        f"POST /v1/topics/{topic}/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f'Idempotency-Key: "cut"\r\nContent-Length: {len(body)}\r\n\r\n'
    )

    def waiting_requests() -> int:
        found: int = sidecar.api.get("/v1/status").json()["waiting_requests"]
        return found

    kafka.pause(leader)
    with socket.create_connection(("127.0.0.1", sidecar.api_port)) as caller:
        caller.sendall(head.encode() + body)
        wait_until(lambda: waiting_requests() == 1, what="the request, waiting for its acknowledgement")
    wait_until(lambda: waiting_requests() == 0, what="the caller's leaving, noticed")
    kafka.resume(leader)

    headers = {"content-type": "application/json", "idempotency-key": '"cut"'}
    answers = [
        sidecar.api.post(f"/v1/topics/{topic}/records", content=body, headers=headers) for _ in range(3)
    ]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert {answer.headers["pilotfish-replayed"] for answer in answers} == {"true"}
    assert len({answer.content for answer in answers}) == 1
    assert [r.value for r in kafka.read_back(topic)] == [b"first", *(b"%d" % n for n in range(10))]


def test_a_shutdown_ends_an_open_stream_with_all_that_was_accepted(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=3, replication_factor=3, min_insync_replicas=2)
    with stream_to(sidecar, topic, "?value_format=text") as stream:
        stream.send(b'{"value":"a"}\n' * 100)
        first = next(stream)
        exit_codes: list[int] = []
        ending = threading.Thread(target=lambda: exit_codes.append(sidecar.terminate()))
        ending.start()
        reported = [first, *stream]
        ending.join(patient(60))
    assert exit_codes == [0]
    assert reported[-1]["summary"] == {"records": 100, "acknowledged": 100, "failed": 0, "ended": "shutdown"}
    assert len(kafka.read_back(topic)) == 100


def test_the_bytes_of_a_body_are_read_back_as_a_record_with_its_key_and_headers(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=4, replication_factor=3, min_insync_replicas=2)
    value = bytes(range(256)) * 100

    def b64(data: bytes) -> str:
        return base64.b64encode(data).decode()

    answer = sidecar.api.post(
        f"/v1/topics/{topic}/records",
        params={"partition": "2", "timestamp": "1700000000000", "key_format": "base64"},
        content=value,
        headers={
            "content-type": "application/octet-stream",
            "pilotfish-key": b64(b"\0key"),
            "pilotfish-headers": f"{b64(b'h')}:{b64(b'x')},{b64(b'none')},{b64(b'empty')}:",
        },
    )
    assert answer.status_code == 200, answer.text
    [read] = kafka.read_back(topic)
    assert (read.key, read.value, read.partition) == (b"\0key", value, 2)
    assert read.headers == (("h", b"x"), ("none", None), ("empty", b""))
    assert (read.timestamp_ms, answer.json()["results"][0]["offset"]) == (1_700_000_000_000, read.offset)
