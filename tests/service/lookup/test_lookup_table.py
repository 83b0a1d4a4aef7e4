"""Prepared answers: when they are kept, when they are made anew, and their age."""

from __future__ import annotations

import asyncio
import json

import pytest

from client_core.producer.accumulator.partitioner import partition_for_key
from service.lookup.lookup_table import IDLE_S, LONG_PARTITIONS, Entry, LookupTable
from service.wire.long_answers import Slices
from tests.support.fake_producer import FakeProducer
from tests.support.http_app import HttpApp
from tests.support.metadata_responses import node, partition, topic

TOPIC = b"/v1/topics/orders"


def table_over(**topics: int) -> tuple[FakeProducer, LookupTable]:
    producer = FakeProducer()
    if topics:
        producer.set_topics(topics)
    return producer, LookupTable(producer, "boot")


def found(table: LookupTable, key: bytes = TOPIC) -> Entry:
    entry = table.find(key)
    assert entry is not None
    return entry


def header(entry: Entry, name: bytes) -> bytes:
    return dict(entry.headers)[name]


def test_an_answer_is_made_once() -> None:
    _, table = table_over(orders=3)
    assert found(table) is found(table)
    assert len(table) == 1


def test_names_that_differ_by_case_are_different_topics() -> None:
    _, table = table_over(orders=3, Orders=1)
    bodies = [json.loads(found(table, b"/v1/topics/" + n).body) for n in (b"orders", b"Orders", b"orders")]
    sizes = [(body["name"], len(body["partitions"])) for body in bodies]
    assert sizes == [("orders", 3), ("Orders", 1), ("orders", 3)]


def test_a_topic_that_did_not_change_keeps_its_answer_over_refreshes() -> None:
    producer, table = table_over(orders=3, other=1)
    before = found(table)
    producer.set_topics({"orders": 3, "other": 2})
    assert found(table) is before
    assert header(before, b"pilotfish-metadata-version") == b"boot-2"


def test_a_topic_that_grew_gets_a_new_answer_and_a_new_etag() -> None:
    producer, table = table_over(orders=3)
    before = found(table)
    producer.set_topics({"orders": 4})
    after = found(table)
    assert after.etag != before.etag
    assert len(json.loads(after.body)["partitions"]) == 4


def test_a_broker_that_moved_changes_the_answers_that_name_it() -> None:
    producer, table = table_over(orders=3)
    before = found(table)
    producer.nodes = [node(1, host="elsewhere"), node(2), node(3)]
    producer.set_topics({"orders": 3})
    after = found(table)
    assert after.etag != before.etag
    assert json.loads(after.body)["partitions"][0]["leader"]["host"] == "elsewhere"


def test_an_overlaid_leader_changes_the_answer_and_a_topic_that_is_gone_has_none() -> None:
    producer, table = table_over(orders=3)
    before = found(table)
    producer.set_topics([topic("orders", [partition(0, leader=2, epoch=9), partition(1), partition(2)])])
    assert found(table).etag != before.etag
    producer.set_topics({"other": 1})
    assert (table.find(TOPIC), len(table)) == (None, 0)


def test_age_goes_up_by_the_second_and_headers_are_prepared_once_for_it() -> None:
    producer, table = table_over(orders=3)
    assert header(found(table), b"age") == b"0"
    refreshed_at = header(found(table), b"pilotfish-metadata-refreshed-at")
    producer.clock.advance(2_500)
    before = found(table).headers
    assert header(found(table), b"age") == b"2"
    producer.clock.advance(1)
    assert found(table).headers is before
    assert header(found(table), b"pilotfish-metadata-refreshed-at") == refreshed_at


def test_a_refresh_of_other_topics_leaves_the_age_of_this_one() -> None:
    producer, table = table_over(orders=3)
    producer.clock.advance(60_000)
    producer.set_topics({"other": 1}, partial=True)
    ages = [header(found(table, b"/v1/topics/" + name), b"age") for name in (b"orders", b"other")]
    assert ages == [b"60", b"0"]


def about(topic: str) -> list[str]:
    """All that an answer about one topic can be asked of."""
    v1, v2, v3 = f"/v1/topics/{topic}", f"/topics/{topic}", f"/v3/clusters/cluster/topics/{topic}"
    return [
        *(v1, f"{v1}/partitions/0", f"{v1}/leader?partition=0", f"{v1}/leader?key=a"),
        *(v2, f"{v2}/partitions", f"{v2}/partitions/0"),
        *(v3, f"{v3}/partitions", f"{v3}/partitions?page_size=2", f"{v3}/partitions/0"),
        *(f"{v3}/partitions/0/replicas", f"{v3}/partitions/0/replicas?page_size=1"),
        f"{v3}/partitions/0/replicas/1",
    ]


@pytest.mark.parametrize("partitions", [3, LONG_PARTITIONS + 1])
def test_each_answer_about_a_topic_is_as_old_as_what_is_known_of_it(partitions: int) -> None:
    app = HttpApp(dialects="rest-v2,rest-v3")
    app.producer.set_topics({"orders": partitions})
    app.producer.clock.advance(60_000)
    app.producer.set_topics({"other": partitions}, partial=True)
    for name, age_s in (("orders", "60"), ("other", "0")):
        answers = {path: app.get(path) for path in about(name)}
        by_number, by_key = {"topic": name, "partition": 0}, {"topic": name, "key": "a"}
        for lookups in ([by_number], [by_number, by_key]):
            answers[f"{lookups}"] = app.post("/v1/leaders", json={"lookups": lookups})
        assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(answers, 200)
        ages = {path: answer.headers["age"] for path, answer in answers.items()}
        assert ages == dict.fromkeys(answers, age_s)
    others = ("/v1/cluster", "/brokers", "/v3/clusters", "/v3/clusters/cluster/brokers?page_size=1")
    assert [app.get(path).headers["age"] for path in others] == ["0"] * 4


def test_a_refresh_makes_the_age_small_again_and_leaves_the_etag() -> None:
    producer, table = table_over(orders=3)
    producer.clock.advance(60_000)
    etag = found(table).etag
    producer.set_topics({"orders": 3})
    assert (header(found(table), b"age"), found(table).etag) == (b"0", etag)


def test_a_look_up_marks_the_topic_as_used() -> None:
    producer, table = table_over(orders=3)
    use = producer.cache.topics["orders"].use
    use.touched = False
    found(table)
    assert use.touched
    use.touched = False
    found(table)
    assert use.touched


def test_partitions_and_leaders_have_answers_of_their_own() -> None:
    _, table = table_over(orders=3)
    one = json.loads(found(table, b"/v1/topics/orders/partitions/1").body)
    assert (one["partition"], one["leader"]["id"], one["isr"], one["error"]) == (1, 2, [1, 2, 3], None)
    leader = json.loads(found(table, b"/v1/topics/orders/leader?partition=2").body)
    assert leader["leader"] == {"id": 3, "host": "localhost", "port": 9095, "rack": None}


def test_a_partition_without_leader_says_null_and_one_that_is_left_out_is_left_out() -> None:
    producer, table = table_over()
    producer.set_topics([topic("orders", [partition(0, leader=None, error=5), partition(2)])])
    body = json.loads(found(table, b"/v1/topics/orders/partitions/0").body)
    assert (body["leader"], body["error"]) == (None, "LEADER_NOT_AVAILABLE")
    assert [p["partition"] for p in json.loads(found(table).body)["partitions"]] == [0, 2]
    assert table.find(b"/v1/topics/orders/partitions/1") is None


def test_a_key_has_the_answer_of_its_partition() -> None:
    _, table = table_over(orders=3, other=1)
    for path, key, number in ((TOPIC, b"", 0), (TOPIC, b"a", 0), (b"/v1/topics/other", b"a", 0)):
        number = partition_for_key(key, 3) if path == TOPIC else number
        entry = table.find_by_key(path + b"/leader", key)
        assert entry is found(table, b"%s/leader?partition=%d" % (path, number)), (path, key)
    for path in (TOPIC, b"/v1/topics/unknown/leader", b"/v2/topics/orders/leader", b"/orders/leader"):
        assert table.find_by_key(path, b"a") is None, path


def test_the_longest_topic_that_is_not_built_in_slices() -> None:
    _, table = table_over(short=500, long=501)
    assert not found(table, b"/v1/topics/short").needs_route
    assert table.find(b"/v1/topics/long") is None


def test_answers_that_must_be_computed_are_not_in_the_table() -> None:
    _, table = table_over(orders=3)
    for key in (
        b"",
        b"/",
        b"/v1/topics",
        b"/v1/topics/",
        b"/v1/topics/unknown",
        b"/v1/topics/%6frders",
        b"/v1/topics/orders/",
        b"/v1/topics/orders?max_age_ms=1",
        b"/v1/topics/orders/partitions/3",
        b"/v1/topics/orders/partitions/01",
        b"/v1/topics/orders/partitions/-1",
        b"/v1/topics/orders/partitions/1?x=1",
        b"/v1/topics/orders/leader",
        b"/v1/topics/orders/leader?partition=",
        b"/v1/topics/orders/leader?partition=1&max_age_ms=1",
        b"/v1/topics/\xff",
        b"/v1/status",
        b"/v2/cluster",
    ):
        assert table.find(key) is None, key


def test_before_the_first_answer_the_cluster_is_not_the_bootstrap_addresses() -> None:
    producer, table = table_over()
    assert table.find(b"/v1/cluster") is None
    producer.set_topics({})
    assert len(json.loads(found(table, b"/v1/cluster").body)["brokers"]) == 3


def test_unused_answers_are_dropped_after_a_while_and_used_ones_stay() -> None:
    producer, table = table_over(orders=3, other=1)
    found(table)
    producer.clock.advance(IDLE_S * 1000)
    before = found(table, b"/v1/topics/other")
    assert len(table) == 1
    for _ in range(2 * IDLE_S):
        producer.clock.advance(1_000)
        assert found(table, b"/v1/topics/other") is before


def test_unused_answers_are_looked_for_once_a_minute() -> None:
    producer, table = table_over(orders=3, other=1)
    kept = []
    for advance_s, path in (
        (0, TOPIC),
        (59, b"/v1/topics/other"),
        (1, TOPIC),
        (59, TOPIC),
        (1, TOPIC),
    ):
        producer.clock.advance(advance_s * 1_000)
        found(table, path)
        kept.append(len(table))
    assert kept == [1, 2, 2, 2, 1]


def leaders(table: LookupTable, *wanted: tuple[str, int]) -> list[bytes]:
    found = table.leaders(wanted)
    assert found is not None
    return found


def test_leaders_of_many_partitions_are_made_once_and_anew_if_they_changed() -> None:
    producer, table = table_over(orders=3, other=1)
    wanted = [("orders", 2), ("other", 0), ("orders", 2)]

    def asked() -> list[bytes]:
        for known in producer.cache.topics.values():
            known.use.touched = False
        made = leaders(table, *wanted)
        assert all(known.use.touched for known in producer.cache.topics.values())
        return made

    first = asked()
    made = [(one["topic"], one["partition"], one["leader"]["id"]) for one in map(json.loads, first)]
    assert made == [("orders", 2, 3), ("other", 0, 1), ("orders", 2, 3)]
    producer.clock.advance(1_000)
    producer.set_topics({"orders": 3, "other": 1})
    assert all(one is other for one, other in zip(first, asked(), strict=True))
    producer.name_leader("orders", 2, 1, epoch=9)
    assert [json.loads(one)["leader"]["id"] for one in asked()] == [1, 1, 1]
    producer.nodes = [node(1, host="elsewhere"), node(2), node(3)]
    producer.set_topics({"orders": 3, "other": 1})
    assert json.loads(asked()[1])["leader"]["host"] == "elsewhere"
    for unknown in (("orders", 3), ("nope", 0)):
        assert table.leaders([*wanted, unknown]) is None


def test_leaders_are_dropped_if_they_are_too_many_and_once_a_minute() -> None:
    producer, table = table_over(orders=20_001)
    for dropped_by, number, advance_ms in (
        ("nothing", 0, 1_000),
        ("their number", 20_000, 1_000),
        ("nothing", 0, 1_000),
        ("the time", 0, IDLE_S * 1_000),
    ):
        for each in (range(20_000), [number]):
            leaders(table, *(("orders", n) for n in each))
        (first,) = leaders(table, ("orders", 0))
        producer.clock.advance(advance_ms)
        (again,) = leaders(table, ("orders", 0))
        assert (again is first) == (dropped_by == "nothing"), dropped_by


def test_a_table_that_overflows_starts_anew() -> None:
    _, table = table_over(orders=20_001)
    for number in range(20_001):
        found(table, b"/v1/topics/orders/partitions/%d" % number)
    assert len(table) == 1


def test_a_table_of_too_many_bytes_starts_anew() -> None:
    _, table = table_over()
    of_a_mebibyte = Entry("/", bytes(1024 * 1024), None, {})
    entries = []
    for number in range(66):
        table._keep(b"%d" % number, of_a_mebibyte)
        entries.append(len(table))
    assert entries == [*range(1, 33), *range(1, 33), 1, 2]


def test_the_bytes_of_what_is_dropped_are_given_back() -> None:
    producer, table = table_over(orders=3, other=1)
    kept = found(table).length + found(table, b"/v1/topics/other").length
    assert table._body_bytes == kept
    producer.set_topics({"orders": 30, "other": 1})
    for idle_s in (0, IDLE_S - 1, IDLE_S):
        producer.clock.advance(idle_s * 1_000)
        found(table)
        assert table._body_bytes == sum(entry.length for entry in table._entries.values())
    assert list(table._entries) == [b"/v1/topics/orders"]
    producer.set_topics({"orders": 30}, cluster_id="another")
    cluster = found(table, b"/v1/cluster")
    assert (len(table), table._body_bytes) == (1, cluster.length)


async def test_a_long_topic_that_grew_is_built_anew() -> None:
    producer, table = table_over(long=LONG_PARTITIONS + 1)
    table = LookupTable(producer, "boot", slices := Slices())
    assert table._slices is slices
    for partitions in (LONG_PARTITIONS + 1, LONG_PARTITIONS + 2):
        producer.set_topics({"long": partitions})
        first, second = await asyncio.gather(table.topic("long"), table.topic("long"))
        assert first is second
        assert first is not None
        assert first.topic is not None
        assert first.topic.partition_count == partitions
        assert await table.topic("long") is first
        assert first.needs_route
    assert await table.topic("unknown") is None


@pytest.mark.parametrize("grows", [False, True])
async def test_who_joins_the_building_of_a_long_topic_gets_what_a_refresh_has_brought_since(
    grows: bool,
) -> None:
    producer, table = table_over(long=LONG_PARTITIONS + 1)
    first = asyncio.create_task(table.topic("long"))
    await asyncio.sleep(0)
    assert len(table._building) == 1
    producer.clock.advance(17_000)
    producer.set_topics({"long": LONG_PARTITIONS + 1 + grows})
    second = await table.topic("long")
    assert second is not None
    assert second.topic is producer.cache.topics["long"]
    assert (header(second, b"age"), header(second, b"pilotfish-metadata-version")) == (b"0", b"boot-2")
    answered = await first
    assert answered is not None
    if grows and answered is not second:  # complete before that, and as of one snapshot
        assert answered.topic is not second.topic
        assert header(answered, b"pilotfish-metadata-version") == b"boot-1"
    else:
        assert answered is second
    assert not table._building
