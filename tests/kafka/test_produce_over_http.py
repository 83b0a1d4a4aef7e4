"""What is produced over HTTP is what another client reads back.

acks=all, replication factor 3, min.insync.replicas 2, unless a test says otherwise.
"""

from __future__ import annotations

import base64
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster


def b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def test_keys_values_headers_timestamps_and_partitions_are_read_back_as_they_were_sent(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=4, replication_factor=3, min_insync_replicas=2)
    sent: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int, int]] = [
        (b"key", b"value", (), 1_700_000_000_000, 0),
        (None, b"no key", (("h", b"\x00\xff"),), 1_700_000_000_001, 1),
        (b"tombstone", None, (("a", b"1"), ("a", b"2"), ("none", None)), 1_600_000_000_000, 2),
        (b"", b"", (("", b""),), 0, 3),
        (bytes(range(256)), bytes(range(255, -1, -1)), (), 1_700_000_000_002, 0),
        ("ключ".encode(), b"x" * 100_000, (("ü", b"big"),), 1_700_000_000_003, 1),
    ]
    answer = sidecar.produce(
        topic,
        [
            {
                "key": b64(key),
                "value": b64(value),
                "headers": [{"key": name, "value": b64(content)} for name, content in headers],
                "timestamp": timestamp_ms,
                "partition": partition,
            }
            for key, value, headers, timestamp_ms, partition in sent
        ],
        key_format="base64",
        value_format="base64",
    )
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    read = {(r.partition, r.offset): r for r in kafka.read_back(topic)}
    assert len(read) == len(sent)
    for (key, value, headers, timestamp_ms, partition), result in zip(sent, results, strict=True):
        back = read[result["partition"], result["offset"]]
        assert (back.key, back.value, back.headers) == (key, value, headers)
        assert (back.timestamp_ms, back.timestamp_type) == (timestamp_ms, "CreateTime")
        assert back.partition == partition
        assert result["timestamp"] == timestamp_ms


def test_ten_thousand_records_arrive_none_lost_and_none_twice(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=6, replication_factor=3, min_insync_replicas=2)
    for request in range(20):
        answer = sidecar.produce(topic, [{"value": f"{request}-{n}"} for n in range(500)])
        assert answer.status_code == 200, answer.text
        assert all("offset" in result for result in answer.json()["results"])
    read = Counter(r.value for r in kafka.read_back(topic))
    assert read == Counter(f"{request}-{n}".encode() for request in range(20) for n in range(500))


def test_a_requests_records_without_key_stay_on_one_partition(new_topic: NewTopic, sidecar: Sidecar) -> None:
    topic = new_topic(partitions=6, replication_factor=3, min_insync_replicas=2)
    results = sidecar.produce(topic, [{"value": str(n)} for n in range(50)]).json()["results"]
    assert len({result["partition"] for result in results}) == 1
    offsets = [result["offset"] for result in results]
    assert offsets == sorted(offsets)


def test_keyed_records_go_where_java_puts_them(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar, golden: Callable[[str], Any]
) -> None:
    cases = golden("murmur2_partitions.json")
    counts = sorted(int(count) for count in cases[0]["partition"])
    count = next(c for c in counts if c > 2)
    topic = new_topic(partitions=count, replication_factor=3, min_insync_replicas=2)
    keys = {bytes.fromhex(case["key"]): case["partition"][str(count)] for case in cases}
    records = [{"key": b64(key), "value": ""} for key in keys]
    answer = sidecar.produce(topic, records, key_format="base64")
    assert answer.status_code == 200, answer.text
    assert [r["partition"] for r in answer.json()["results"]] == list(keys.values())
    assert {r.key: r.partition for r in kafka.read_back(topic)} == keys
    for key, partition in list(keys.items())[:20]:
        looked_up = sidecar.api.get(
            f"/v1/topics/{topic}/leader", params={"key": b64(key) or "", "key_format": "base64"}
        ).json()
        assert looked_up["partition"] == partition


def test_json_goes_on_the_wire_compacted_with_its_digits_kept(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    body = b'{"records": [{"value": {"a" : 1.10, "b":[ 1e3, "\xc3\xbc" ]}}, {"value": null}, {"value": 0}]}'
    answer = sidecar.api.post(
        f"/v1/topics/{topic}/records", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200, answer.text
    assert [r.value for r in kafka.read_back(topic)] == ['{"a":1.10,"b":[1e3,"ü"]}'.encode(), None, b"0"]


def test_a_record_that_the_broker_refuses_does_not_hide_those_it_took(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=2, replication_factor=3, min_insync_replicas=2)
    tomorrow_ms = 4_000_000_000_000
    answer = sidecar.produce(
        topic,
        [
            {"value": "good", "partition": 0},
            {"value": "from the future", "partition": 1, "timestamp": tomorrow_ms},
        ],
    )
    assert answer.status_code == 207, answer.text
    assert answer.headers["pilotfish-failed-records"] == "1"
    good, refused = answer.json()["results"]
    assert good["offset"] == 0
    assert refused["error"]["kafka_error"] == "INVALID_TIMESTAMP"
    assert [r.value for r in kafka.read_back(topic)] == [b"good"]


def test_an_unknown_topic_is_not_created_unless_the_setting_says_so(
    kafka: KraftCluster, topic_name: Callable[[], str], sidecar: Sidecar
) -> None:
    topic = topic_name()
    answer = sidecar.produce(topic, [{"value": "x"}], max_block_ms=3_000)
    assert answer.status_code == 404
    problem = answer.json()
    assert problem["phase"] == "metadata"
    assert problem["waited_ms"] >= 3_000
    assert problem["written"] == "no"
    assert topic not in kafka.admin.topics()


@pytest.mark.parametrize(("acks", "status", "has_offset"), [("1", 200, True), ("0", 202, False)])
def test_every_kind_of_acks_is_honoured(
    kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path, acks: str, status: int, has_offset: bool
) -> None:
    """The third kind, "all", is the default, by which all other tests here produce."""
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, kafka={"acks": acks}) as sidecar:
        answer = sidecar.produce(topic, [{"value": acks}])
        assert answer.status_code == status, answer.text
        assert (answer.json()["results"][0]["offset"] is not None) == has_offset
        assert sidecar.terminate() == 0
    assert [r.value for r in kafka.read_back(topic)] == [acks.encode()]
