"""How snapshots become events, and event v1 as it is written."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import events as e
from service.events.event_v1 import TYPE_NAMES, TYPES, Event, bucket_of, encode, time_text
from service.events.reported_metadata import PIECE
from service.events.schema import event_schema, schema_text
from tests.service.watch.test_watch_changes import described_topics
from tests.support.event_log_rig import EventLogRig
from tests.support.metadata_responses import node, partition, topic, topic_id_of

PARTITION = "metadata.partition"
TOPIC = "metadata.topic"
REFRESH = "metadata.refresh"


@pytest.fixture
def rig() -> EventLogRig:
    return EventLogRig()


def described(name: str, count: int = 1, *, which: int = 1, **of_each: Any) -> Any:
    partitions = [partition(n, **{"leader": 1, "replicas": (1, 2), **of_each}) for n in range(count)]
    return topic(name, partitions, topic_id=UUID(int=which))


def numbers(rig: EventLogRig) -> list[tuple[str, int]]:
    return [(event["topic"], event["partition"]) for event in rig.reported(PARTITION)]


def changes(rig: EventLogRig) -> list[tuple[str, str, int | None]]:
    return [(event["change"], event["topic"], event["partitions"]) for event in rig.reported(TOPIC)]


def test_a_topic_that_is_seen_first_is_written_in_full(rig: EventLogRig) -> None:
    rig.producer.set_topics([topic("orders", [partition(leader=2, epoch=7, isr=(2, 0), offline=(1,))])])
    rig.settle()
    (reported,) = rig.reported(PARTITION)
    version = rig.producer.cache.update_version
    assert reported == {
        "v": 1,
        "type": PARTITION,
        "cluster_id": "cluster",
        "sidecar_id": "pod-1",
        "service": "shop",
        "boot_id": 7,
        "seq": reported["seq"],
        "observed_at": "2023-11-14T22:13:20.000000Z",
        "topic": "orders",
        "topic_id": None,
        "partition": 0,
        "leader": 2,
        "leader_epoch": 7,
        "isr": [2, 0],
        "replicas": [0, 1, 2],
        "offline": [1],
        "metadata_version": version,
        "broker": None,
        "reason": "manual",
    }


def test_a_topic_is_written_before_its_partitions_and_the_refresh_after_them(rig: EventLogRig) -> None:
    rig.producer.set_topics({"orders": 2})
    rig.settle()
    assert [event["type"] for event in rig.reported()[1:]] == [TOPIC, PARTITION, PARTITION, REFRESH]
    assert changes(rig) == [("appeared", "orders", 2)]
    assert rig.reported(REFRESH)[0]["changed"] == 2
    before = len(rig.reported())
    rig.producer.set_topics({"orders": 2})
    rig.settle()
    (refresh,) = rig.reported()[before:]
    assert (refresh["type"], refresh["changed"], refresh["topics"]) == (REFRESH, 0, 1)


def test_of_a_topic_that_changed_only_the_changed_partitions_are_written(rig: EventLogRig) -> None:
    rig.producer.set_topics({"orders": 4})
    rig.settle()
    rig.kept.lines.clear()
    leaders = [1, 2, 2, 1]
    partitions = [partition(n, leader=leaders[n], epoch=n == 2, replicas=(1, 2, 3)) for n in range(4)]
    rig.producer.set_topics([topic("orders", partitions, topic_id=topic_id_of("orders"))])
    rig.settle()
    assert (numbers(rig), changes(rig)) == ([("orders", 2)], [])


def test_a_partition_is_written_whatever_of_it_changed_but_for_its_error() -> None:
    cases: list[tuple[dict[str, Any], int]] = [
        ({"leader": None}, 2),
        ({"epoch": 1}, 2),
        ({"isr": (1,)}, 2),
        ({"offline": (2,)}, 2),
        ({"replicas": (1, 3)}, 2),
        ({"error": 5}, 1),
    ]
    for changed, times in cases:
        rig = EventLogRig()
        for which in ({}, changed):
            rig.producer.set_topics([described("orders", **{"epoch": 0, **which})])
            rig.settle()
        assert numbers(rig) == [("orders", 0)] * times, changed


def test_a_leader_that_a_produce_answer_names_is_written_without_a_refresh(rig: EventLogRig) -> None:
    rig.producer.set_topics({"orders": 3})
    rig.settle()
    rig.kept.lines.clear()
    rig.clock.advance(5)
    rig.producer.name_leader("orders", 1, 3, 9)
    rig.clock.advance(700)
    rig.settle()
    (reported,) = rig.reported()
    assert (reported["type"], reported["reason"], reported["broker"]) == (PARTITION, "produce_answer", None)
    assert (reported["partition"], reported["leader"], reported["leader_epoch"]) == (1, 3, 9)
    # When it was named, not when it was compared.
    assert reported["observed_at"] == "2023-11-14T22:13:20.005000Z"


def test_the_answering_node_and_the_reason_are_written(rig: EventLogRig) -> None:
    rig.producer.events = e.NO_EVENTS
    rig.producer.set_topics({"orders": 1})
    rig.log.emit(e.MetadataRefreshed("leader_error", 2, 0, True, 17, 1, 1, 0, "cluster", 3))
    rig.settle()
    assert {(event["broker"], event["reason"]) for event in rig.reported()[2:]} == {(3, "leader_error")}
    (refresh,) = rig.reported(REFRESH)
    assert (refresh["duration_us"], refresh["outcome"]) == (17_000, "ok")


def test_what_a_partial_refresh_brought_has_its_own_time(rig: EventLogRig) -> None:
    rig.producer.set_topics({"orders": 1})
    rig.settle()
    rig.kept.lines.clear()
    rig.producer.events = e.NO_EVENTS
    rig.clock.advance(5)
    rig.producer.set_topics({"refunds": 1}, partial=True)
    version = rig.producer.cache.update_version
    rig.log.emit(e.MetadataRefreshed("topic_missing", version, 0, True, 1, 2, 2, 0, "cluster", 3))
    rig.settle()
    assert [event["topic"] for event in rig.reported(PARTITION)] == ["refunds"]
    assert {event["observed_at"] for event in rig.reported()} == {"2023-11-14T22:13:20.005000Z"}


def test_a_failed_refresh_is_reported_and_what_is_known_stays_in_it(rig: EventLogRig) -> None:
    rig.producer.set_topics({"orders": 3})
    rig.log.emit(e.MetadataRefreshFailed("expired", "timeout", "late", 30_000, 2))
    rig.settle()
    reported = rig.reported(REFRESH)[-1]
    assert (reported["outcome"], reported["duration_us"], reported["broker"]) == ("timeout", 30_000_000, 2)
    assert (reported["topics"], reported["partitions"], reported["changed"]) == (1, 3, 0)
    assert reported["metadata_version"] == rig.producer.cache.update_version


# -- changes of topics ---------------------------------------------------------------------------------------


def test_a_topic_that_grew_writes_its_new_partitions_and_one_of_which_some_are_missing_shrank(
    rig: EventLogRig,
) -> None:
    for count in (2, 4, 2):
        rig.producer.set_topics([described("orders", count)])
    rig.settle()
    assert changes(rig) == [("appeared", "orders", 2), ("grew", "orders", 4), ("shrank", "orders", 2)]
    assert [number for _, number in numbers(rig)] == [0, 1, 2, 3]


def test_a_topic_made_anew_ends_and_appears_with_all_of_its_partitions(rig: EventLogRig) -> None:
    rig.producer.set_topics([described("orders", 2, which=1)])
    rig.producer.set_topics([described("orders", 2, which=2)])
    rig.settle()
    reported = [
        (event["change"], event["topic_id"], event["partitions"]) for event in rig.reported(TOPIC)[1:]
    ]
    old, new = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"
    assert reported == [("recreated", old, None), ("appeared", new, 2)]
    assert [event["topic_id"] for event in rig.reported(PARTITION)] == [old, old, new, new]


def test_brokers_that_begin_to_tell_ids_made_no_topic_anew(rig: EventLogRig) -> None:
    rig.producer.set_topics([topic("orders", [partition()])])
    rig.producer.set_topics([topic("orders", [partition()], topic_id=UUID(int=1))])
    rig.settle()
    assert changes(rig) == [("appeared", "orders", 1)]
    assert [event["topic_id"] for event in rig.reported(PARTITION)] == [None, "AAAAAAAAAAAAAAAAAAAAAQ"]


def test_a_topic_that_brokers_deny_is_gone_and_an_unused_one_is_forgotten(rig: EventLogRig) -> None:
    rig.producer.set_topics({"orders": 1, "refunds": 2, "audit": 2})
    rig.producer.set_topics({"orders": 1, "audit": 2})
    rig.settle()
    assert changes(rig)[3:] == [("gone", "refunds", None)]
    assert rig.reported(TOPIC)[3]["topic_id"] is not None
    rig.forget({"orders": 1})
    rig.settle()
    assert changes(rig)[4:] == [("forgotten", "audit", None)]


def test_a_topic_that_may_not_be_seen_any_more_is_forgotten(rig: EventLogRig) -> None:
    rig.producer.set_topics({"orders": 1, "refunds": 2})
    rig.settle()
    rig.producer.events = e.NO_EVENTS
    rig.producer.set_topics({"orders": 1})
    cluster = replace(rig.producer.cache.cluster, unauthorized_topics=frozenset({"refunds"}))
    rig.producer.cache = replace(rig.producer.cache, cluster=cluster)
    rig.log.emit(e.PartitionCountChanged("refunds", 2, None))
    rig.log.emit(e.MetadataRefreshed("expired", 3, 0, False, 1, 1, 1, 0, "cluster"))
    rig.settle()
    assert changes(rig)[2:] == [("forgotten", "refunds", None)]


def test_a_topic_that_comes_back_is_written_in_full_again(rig: EventLogRig) -> None:
    for topics in ({"orders": 2}, {}, {"orders": 2}):
        rig.producer.set_topics(topics)
    rig.settle()
    assert [change for change, _, _ in changes(rig)] == ["appeared", "gone", "appeared"]
    assert len(numbers(rig)) == 4


def test_another_cluster_is_written_anew_and_the_topics_of_the_first_are_forgotten(rig: EventLogRig) -> None:
    rig.producer.set_topics({"orders": 2}, cluster_id="one")
    rig.producer.set_topics({"orders": 2}, cluster_id="other")
    rig.settle()
    assert [(event["cluster_id"], event["change"]) for event in rig.reported(TOPIC)] == [
        ("one", "appeared"),
        ("one", "forgotten"),
        ("other", "appeared"),
    ]
    assert [event["cluster_id"] for event in rig.reported(PARTITION)] == ["one", "one", "other", "other"]


def test_many_partitions_are_written_in_pieces_between_which_others_run() -> None:
    rig = EventLogRig()
    rig.producer.set_topics([described("orders", 4 * PIECE)])
    assert rig.settle() >= 4
    assert len(rig.reported(PARTITION)) == 4 * PIECE
    # So are many small topics, and none has a pause of its own.
    rig = EventLogRig()
    rig.producer.set_topics([described(f"t{n:03d}", 1, which=n + 1) for n in range(2 * PIECE)])
    assert 2 <= rig.settle() <= 8
    assert len(rig.reported(PARTITION)) == 2 * PIECE


# -- whatever becomes of a cluster ---------------------------------------------------------------------------

#: What a produce answer may say in between, and how many refreshes come before the log looks.
hint = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3), st.integers(1, 3), st.integers(4, 9))
steps = st.lists(st.tuples(described_topics, st.none() | hint, st.booleans()), min_size=1, max_size=6)


@given(steps)
def test_the_written_changes_add_up_to_the_snapshot(steps: Any) -> None:
    rig = EventLogRig()
    rig.producer.nodes = [node(n) for n in (1, 2, 3)]
    for cluster_topics, named, looks in steps:
        rig.producer.set_topics(
            [
                topic(name, [numbered(n, one) for n, one in enumerate(all_of_it)], topic_id=UUID(int=which))
                for name, (which, all_of_it) in cluster_topics.items()
            ]
        )
        if named is not None:
            name, number, leader, epoch = named
            table = rig.producer.cache.topics.get(name)
            if table is not None and number < table.partition_count:
                rig.producer.name_leader(name, number, leader, epoch)
        if looks:
            rig.settle()
    rig.settle()
    assert picture_of_events(rig.reported()) == picture_of_snapshot(rig)


def numbered(number: int, one: Any) -> Any:
    leader, epoch, replicas, in_sync, error = one
    isr = replicas[:in_sync]
    return partition(number, leader=leader, epoch=epoch, replicas=replicas, isr=isr, error=error)


def picture_of_events(events: list[dict[str, Any]]) -> dict[tuple[str, int], Any]:
    """The state of a reader after all events."""
    known: dict[tuple[str, int], Any] = {}
    counts: dict[str, int] = {}
    for event in events:
        if event["type"] == TOPIC:
            counts[event["topic"]] = event["partitions"] or 0
            left = counts[event["topic"]]
            known = {key: it for key, it in known.items() if key[0] != event["topic"] or key[1] < left}
        elif event["type"] == PARTITION:
            fields = ("topic_id", "leader", "leader_epoch", "isr", "replicas", "offline")
            known[event["topic"], event["partition"]] = [event[name] for name in fields]
    assert counts.items() >= {name: counts[name] for name, _ in known}.items()
    return known


def picture_of_snapshot(rig: EventLogRig) -> dict[tuple[str, int], Any]:
    ids = {1: "AAAAAAAAAAAAAAAAAAAAAQ", 2: "AAAAAAAAAAAAAAAAAAAAAg"}
    known = {}
    for name, table in rig.producer.cache.topics.items():
        for number in table.numbers:
            found = table.metadata(number)
            assert found is not None
            replicas = (found.in_sync_replica_ids, found.replica_ids, found.offline_replica_ids)
            topic_id = ids[table.topic_id.int] if table.topic_id else None
            known[name, number] = [topic_id, found.leader_id, found.leader_epoch, *map(list, replicas)]
    return known


ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"

COMMON = ("v", "type", "cluster_id", "sidecar_id", "service", "boot_id", "seq", "observed_at")
FIELDS = {
    "metadata.partition": (
        *("topic", "topic_id", "partition", "leader", "leader_epoch", "isr", "replicas", "offline"),
        *("metadata_version", "broker", "reason"),
    ),
    "metadata.topic": ("change", "topic", "topic_id", "partitions", "metadata_version"),
    "metadata.refresh": (
        *("duration_us", "broker", "topics", "partitions", "changed", "reason", "outcome"),
        "metadata_version",
    ),
    "produce.window": (
        *("started_at", "topic", "partition", "broker", "records", "batches", "bytes", "retries"),
        *("errors", "latency_us"),
    ),
    "connection": ("broker", "state", "reason"),
    "heartbeat": ("uptime_ms", "dropped", "topics", "partitions", "metadata_max_age_ms", "version"),
}
KINDS: dict[str, type[Event]] = dict(zip(TYPE_NAMES, TYPES, strict=True))


def samples() -> list[str]:
    """The lines of events that the documentation shows."""
    return re.findall(r"^\{\"v\":1.*\}$", (DOCS / "events.md").read_text(), re.MULTILINE)


def test_each_type_has_its_fields_in_their_order() -> None:
    assert {name: kind.__struct_fields__ for name, kind in KINDS.items()} == {
        name: (*COMMON, *fields) for name, fields in FIELDS.items()
    }


def test_the_schema_in_the_documentation_is_that_of_the_code() -> None:
    assert (DOCS / "event-v1.schema.json").read_text() == schema_text()


def test_a_sample_of_the_documentation_is_what_a_sidecar_writes_and_there_is_one_of_each_type() -> None:
    types = []
    for line in samples():
        event = json.loads(line)
        types.append(event["type"])
        assert jsonschema_rs.Draft202012Validator(event_schema()).is_valid(event), line
        assert encode(msgspec.json.decode(line, type=KINDS[event["type"]])).decode() == line
    assert sorted(types) == sorted(TYPE_NAMES)


def test_the_schema_refuses_what_no_sidecar_writes() -> None:
    (line,) = (line for line in samples() if '"metadata.partition"' in line)
    event = json.loads(line)
    validator = jsonschema_rs.Draft202012Validator(event_schema())
    at = "2026-11-21T10:00:00Z"
    for wrong in ({"v": 2}, {"seq": "1"}, {"observed_at": at}, {"type": "unheard.of"}, {"topic": None}):
        assert not validator.is_valid({**event, **wrong}), wrong
    assert not validator.is_valid({name: value for name, value in event.items() if name != "isr"})
    assert validator.is_valid({**event, "a_later_field": 1})


def test_a_time_has_six_digits_and_is_utc() -> None:
    assert [time_text(wall_ms) for wall_ms in (0, 1_795_255_200_123, 1_795_255_200_007)] == [
        "1970-01-01T00:00:00.000000Z",
        "2026-11-21T10:00:00.123000Z",
        "2026-11-21T10:00:00.007000Z",
    ]


def test_a_bucket_is_a_quarter_of_a_doubling() -> None:
    assert [bucket_of(us) for us in (-1, 0, 1, 3, 4, 7, 8, 9, 10, 16, 1_000, 60_000_000)] == [
        *(0, 0, 1, 3, 4, 7, 8, 8, 9, 12, 35, 99),
    ]
