"""REST Proxy v2 on real brokers: each record is read back by another client, each answer compared with one.

Black box: a sidecar in a process of its own, called over HTTP, and tables of requests and expected answers.
The tables have the contract of docs/rest-v2.md; a case's name is its claim.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from tests.support.other_consumers import read_by_aiokafka
from tests.support.shared_sidecar import SharedSidecar
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import httpx

    from tests.kafka.conftest import NewTopic
    from tests.support.kafka_admin import ReadRecord
    from tests.support.kraft import KraftCluster

V2: Final = "application/vnd.kafka.v2+json"
JSON: Final = "application/vnd.kafka.json.v2+json"
TEXT: Final = "application/vnd.kafka.text.v2+json"
BINARY: Final = "application/vnd.kafka.binary.v2+json"
ONE: Final = '{"records":[{"value":"v"}]}'

#: What the sidecar takes at most, and what Kafka does by default.
MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_REQUEST_BYTES: Final = 1_048_576

SOON: Final = {"metadata.max.age.ms": "1000"}
LIMITS: Final = {"listing_max_age_ms": 0, "topic_configs_wait_ms": 30_000}


@pytest.fixture(scope="module")
def shared_sidecar(
    kafka_of_the_session: KraftCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedSidecar]:
    flags = ("--max-body-bytes", str(MAX_BODY_BYTES))
    folder = tmp_path_factory.mktemp("rest_v2")
    with SharedSidecar(folder, kafka_of_the_session, settings=SOON, flags=flags, limits=LIMITS) as shared:
        yield shared


@pytest.fixture
def sidecar(kafka: KraftCluster, shared_sidecar: SharedSidecar) -> Sidecar:
    return shared_sidecar.running()


@pytest.fixture
def hasty_sidecar(kafka: KraftCluster, tmp_path: Path) -> Iterator[Sidecar]:
    """One of the test's own, which gives records up soon."""
    settings = {**SOON, "delivery.timeout.ms": "4000", "request.timeout.ms": "2000"}
    servers = kafka.bootstrap_servers
    with Sidecar(tmp_path, bootstrap_servers=servers, kafka=settings, limits=LIMITS) as running:
        yield running


def post(
    sidecar: Sidecar, path: str, body: str | bytes, content_type: str | None = JSON, **headers: str
) -> httpx.Response:
    if content_type is not None:
        headers["content-type"] = content_type
    return sidecar.api.post(path, content=body, headers=headers)


def records(*records: Mapping[str, object]) -> str:
    return json.dumps({"records": records})


def by_place(read: Sequence[ReadRecord]) -> dict[tuple[int, int], ReadRecord]:
    return {(record.partition, record.offset): record for record in read}


# -- refusals ------------------------------------------------------------------------------------------------


class Refused(NamedTuple):
    """A request that ends without a record. `{t}` is a topic of three partitions, `{no}` none at all."""

    claim: str
    method: str
    path: str
    status: int
    code: int
    body: str = ONE


#: What only brokers know, or no limit of the sidecar's; what HTTP itself refuses is in tests/service.
REFUSED: Final = (
    Refused("a topic that is not there can't be produced to", "POST", "/topics/{no}", 404, 40401),
    Refused("nor one of its partitions", "POST", "/topics/{no}/partitions/0", 404, 40401),
    Refused("a partition that is not there neither", "POST", "/topics/{t}/partitions/3", 404, 40402),
    Refused("nor a record's own", "POST", "/topics/{t}", 404, 40402, records({"partition": 99})),
    Refused("a topic that is looked up must be there", "GET", "/topics/{no}", 404, 40403),
    Refused("also for its partitions", "GET", "/topics/{no}/partitions", 404, 40403),
    Refused("and for one of them", "GET", "/topics/{no}/partitions/0", 404, 40403),
    Refused("a partition that is looked up too", "GET", "/topics/{t}/partitions/3", 404, 40402),
    Refused(
        "a record has a size", "POST", "/topics/{t}", 413, 413, records({"value": "x" * MAX_REQUEST_BYTES})
    ),
    Refused("so has a body", "POST", "/topics/{t}", 413, 413, records({"value": "x" * MAX_BODY_BYTES})),
)


def test_every_refusal_has_its_status_its_code_and_writes_nothing(
    kafka: KraftCluster, new_topic: NewTopic, topic_name: Callable[[], str], sidecar: Sidecar
) -> None:
    topic, missing = new_topic(partitions=3), topic_name()
    sidecar.wait_until_it_knows(topic)
    wrong: list[str] = []
    for case in REFUSED:
        answer = sidecar.api.request(
            case.method,
            case.path.format(t=topic, no=missing),
            content=case.body if case.method == "POST" else None,
            headers={"content-type": JSON} if case.method == "POST" else {},
        )
        reported = answer.json() if answer.headers.get("content-type") == V2 else {}
        seen = (answer.status_code, reported.get("error_code"), set(reported))
        if seen != (case.status, case.code, {"error_code", "message"}) or not reported["message"]:
            wrong.append(f"{case.claim}: {answer.status_code} {answer.text[:200]}")
    assert wrong == []
    assert kafka.read_back(topic) == []
    assert missing not in kafka.admin.topics()


# -- written records -----------------------------------------------------------------------------------------


class Written(NamedTuple):
    """One record as it is sent, and what another client must read."""

    claim: str
    content_type: str
    sent: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


WRITTEN: Final = (
    Written("an object, compacted", JSON, '{"value": { "b": 1, "a": [ 1, 2 ] }}', None, b'{"b":1,"a":[1,2]}'),
    Written("a string keeps its quotes", JSON, '{"key":"k","value":"v"}', b'"k"', b'"v"'),
    Written("null is a tombstone", JSON, '{"key":"k","value":null}', b'"k"', None),
    Written("0 is not null", JSON, '{"key":0,"value":0}', b"0", b"0"),
    Written("digits stay", JSON, '{"value":12345678901234567890.10}', None, b"12345678901234567890.10"),
    Written("text is its letters", TEXT, '{"key":"k","value":"é\\n"}', b"k", "é\n".encode()),
    Written("base64 is its bytes", BINARY, '{"key":"AP8=","value":"gYKD"}', b"\x00\xff", b"\x81\x82\x83"),
    Written(
        "a timestamp is kept",
        JSON,
        '{"value":1,"timestamp":1612535362000}',
        None,
        b"1",
        (),
        1_612_535_362_000,
    ),
    Written(
        "headers in order, names twice",
        JSON,
        '{"value":1,"headers":[{"key":"a","value":"MQ=="},{"key":"a","value":"Mg=="},{"key":"b","value":"/w=="}]}',
        None,
        b"1",
        (("a", b"1"), ("a", b"2"), ("b", b"\xff")),
    ),
    Written(
        "a header's value may be null or empty",
        TEXT,
        '{"value":"v","headers":[{"key":"n","value":null},{"key":"e","value":""},{"key":"ü","value":"dg=="}]}',
        None,
        b"v",
        (("n", None), ("e", b""), ("ü", b"v")),
    ),
)


def test_every_record_is_read_back_as_it_was_meant(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    sidecar.wait_until_it_knows(topic)
    before_ms = time.time_ns() // 1_000_000
    for offset, case in enumerate(WRITTEN):
        path = f"/topics/{topic}" if offset % 2 else f"/topics/{topic}/partitions/0"
        answer = post(sidecar, path, f'{{"records":[{case.sent}]}}', case.content_type)
        assert answer.status_code == 200, (case.claim, answer.text)
        assert answer.headers["content-type"] == V2
        assert answer.json() == {
            "offsets": [{"partition": 0, "offset": offset, "error_code": None, "error": None}],
            "key_schema_id": None,
            "value_schema_id": None,
        }
    after_ms = time.time_ns() // 1_000_000
    by_librdkafka = kafka.read_back(topic)
    by_aiokafka = read_by_aiokafka(kafka.bootstrap_servers, topic, count=len(WRITTEN))
    assert by_librdkafka == by_aiokafka
    for case, read in zip(WRITTEN, by_librdkafka, strict=True):
        assert (read.key, read.value, read.headers) == (case.key, case.value, case.headers), case.claim
        assert read.timestamp_type == "CreateTime"
        if case.timestamp_ms is None:
            assert before_ms <= read.timestamp_ms <= after_ms, case.claim
        else:
            assert read.timestamp_ms == case.timestamp_ms, case.claim


# -- some fail, and how long that takes ----------------------------------------------------------------------


def test_a_partial_failure_is_200_and_the_others_are_written(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=3)
    sidecar.wait_until_it_knows(topic)
    answer = post(
        sidecar,
        f"/topics/{topic}",
        records({"value": 0, "partition": 500}, {"value": 1, "partition": 1}, {"value": 2, "partition": 501}),
    )
    assert answer.status_code == 200, answer.text
    first, second, third = answer.json()["offsets"]
    assert second == {"partition": 1, "offset": 0, "error_code": None, "error": None}
    for failed in (first, third):
        assert (failed["partition"], failed["offset"], failed["error_code"]) == (None, None, 40402)
        assert "partition" in failed["error"].lower()
        assert failed["error"] == failed["message"]
    assert [record.value for record in kafka.read_back(topic)] == [b"1"]


def test_a_record_that_the_broker_finds_too_large_is_413(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=2, config={"max.message.bytes": "2000"})
    sidecar.wait_until_it_knows(topic)
    large = {"value": "x" * 5_000, "partition": 0}
    alone = post(sidecar, f"/topics/{topic}", records(large))
    assert (alone.status_code, alone.json()["error_code"]) == (413, 413)
    mixed = post(sidecar, f"/topics/{topic}", records(large, {"value": "small", "partition": 1}))
    assert mixed.status_code == 200
    assert [offset["error_code"] for offset in mixed.json()["offsets"]] == [413, None]
    assert [record.value for record in kafka.read_back(topic)] == [b'"small"']


def test_a_topic_that_was_just_made_is_found(
    kafka: KraftCluster, topic_name: Callable[[], str], sidecar: Sidecar
) -> None:
    topic = topic_name()

    def is_found(path: str) -> bool:
        """404: a busy broker did not say so within the second that a caller waits for an unknown topic."""
        status = post(sidecar, path, ONE).status_code
        assert status in (200, 404)
        return status == 200

    assert post(sidecar, f"/topics/{topic}", ONE).status_code == 404
    kafka.admin.create_topic(topic, partitions=2)
    wait_until(lambda: is_found(f"/topics/{topic}"), what="a topic that is found")
    kafka.admin.add_partitions(topic, total=4)
    wait_until(lambda: is_found(f"/topics/{topic}/partitions/3"), what="a partition that is found")


# -- metadata of the cluster ---------------------------------------------------------------------------------


def test_metadata_is_what_an_admin_client_sees(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=6, replication_factor=2, config={"retention.ms": "86400001"})
    seen = kafka.admin.partitions(topic)
    assert seen is not None
    expected = [
        {
            "partition": p.partition,
            "leader": p.leader,
            "replicas": [
                {"broker": broker, "leader": broker == p.leader, "in_sync": broker in p.isr}
                for broker in p.replicas
            ],
        }
        for p in seen
    ]
    get = sidecar.api.get
    assert get(f"/topics/{topic}/partitions").json() == expected
    for number, partition in enumerate(expected):
        assert get(f"/topics/{topic}/partitions/{number}").json() == partition
    answer = get(f"/topics/{topic}")
    configs = kafka.admin.topic_configs(topic)
    assert configs["retention.ms"] == "86400001"
    assert answer.json() == {"name": topic, "configs": configs, "partitions": expected}
    assert answer.headers["content-type"] == V2
    assert {"etag", "age", "pilotfish-metadata-version"} <= set(answer.headers)
    assert get("/brokers").json() == {"brokers": sorted(kafka.admin.brokers())}


def test_a_partition_without_a_leader_is_answered_at_once_and_slows_nothing_else(
    kafka: KraftCluster, new_topic: NewTopic, hasty_sidecar: Sidecar
) -> None:
    sidecar = hasty_sidecar
    topic = new_topic(assignment=[[1], [2]])
    sidecar.wait_until_it_knows(topic)
    assert post(sidecar, f"/topics/{topic}", records({"value": 1, "partition": 1})).status_code == 200
    kafka.kill(2)
    kafka.wait_until_fenced(2)
    path = f"/topics/{topic}/partitions/1"
    wait_until(
        lambda: sidecar.api.get(path).json()["leader"] == -1,
        what="the sidecar says that partition 1 has no leader",
        last_seen=lambda: sidecar.api.get(path).text,
    )
    partition = sidecar.api.get(path).json()
    seen = (kafka.admin.partitions(topic) or ())[1]
    assert partition["replicas"] == [{"broker": 2, "leader": False, "in_sync": 2 in seen.isr}]
    assert sidecar.api.get("/brokers").json() == {"brokers": [1, 3]}

    began = time.monotonic()
    answer = post(
        sidecar, f"/topics/{topic}", records({"value": 2, "partition": 1}, {"value": 3, "partition": 0})
    )
    took_s = time.monotonic() - began
    assert answer.status_code == 200, answer.text
    failed, written = answer.json()["offsets"]
    assert failed["error_code"] == 50003
    assert (written["partition"], written["error_code"]) == (0, None)
    assert 3 < took_s < patient(30.0)  # delivery.timeout.ms is 4 s
    alone = post(sidecar, path, ONE)
    assert (alone.status_code, alone.json()["error_code"]) == (503, 50302)
    assert post(sidecar, f"/topics/{topic}/partitions/0", ONE).status_code == 200


def test_with_all_brokers_silent_look_ups_go_on_and_a_produce_ends_in_time(
    kafka: KraftCluster, new_topic: NewTopic, hasty_sidecar: Sidecar
) -> None:
    """With all of them dead look-ups go on likewise: test_failover.py."""
    sidecar = hasty_sidecar
    topic = new_topic(partitions=3)
    sidecar.wait_until_it_knows(topic)
    before = sidecar.api.get(f"/topics/{topic}/partitions").json()
    for broker_id in kafka.broker_ids:
        kafka.pause(broker_id)
    answer = sidecar.api.get(f"/topics/{topic}/partitions")
    assert answer.status_code == 200, answer.text
    assert answer.json() == before
    began = time.monotonic()
    answer = post(sidecar, f"/topics/{topic}", ONE)
    assert (answer.status_code, answer.json()["error_code"]) in ((503, 50302), (500, 50003))
    assert time.monotonic() - began < patient(30.0)
