"""The console's forms and its modules one by one: who leads, a test record, a refresh; words, judgements."""

from __future__ import annotations

import base64
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from client_core.error_codes import Errors

if TYPE_CHECKING:
    from client_core.testing import FakeCluster
    from tests.console.console_page import ConsolePage
    from tests.support.sidecar import Sidecar


@pytest.fixture
def topic(shared_cluster: FakeCluster, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own with six partitions, which the sidecar does not know yet."""
    name: str = request.node.name
    shared_cluster.create_topic(name, partitions=6)
    return name


@pytest.fixture
def console(shared_console: ConsolePage) -> ConsolePage:
    return shared_console


def test_a_leader_is_looked_up_as_the_api_would(console: ConsolePage, shared_sidecar: Sidecar) -> None:
    console.fill(lookup_topic="orders")
    for by, value, query in (
        ("text", "customer-7 é", {"key": "customer-7 é"}),
        ("json", '{"id": 1.50}', {"key": '{"id": 1.50}', "key_format": "json"}),
        ("base64", "AAEC", {"key": "AAEC", "key_format": "base64"}),
        ("partition", "4", {"partition": "4"}),
    ):
        found = shared_sidecar.api.get("/v1/topics/orders/leader", params=query).json()
        console.fill(lookup_by=by, lookup_value=value)
        console.run("document.getElementById('lookup-result').replaceChildren()")  # what was found before
        console.press("Look up")
        expected = f"orders, partition {found['partition']}: broker {found['leader']['id']}"
        console.until(partial(_begins, console, "lookup-result", expected))


def _begins(console: ConsolePage, element_id: str, words: str) -> bool:
    return console.text(element_id).startswith(words)


def test_a_look_up_that_makes_no_sense_is_answered_in_words(console: ConsolePage) -> None:
    said = {
        ("partition", "99"): "topic orders has no partition 99; it has 6 partitions",
        ("partition", "-1"): "A partition is a whole number from 0 on.",
        ("json", "{"): "That is not JSON",
        ("base64", "*"): "base64",
    }
    console.fill(lookup_topic="orders")
    for (by, value), sentence in said.items():
        console.fill(lookup_by=by, lookup_value=value)
        console.press("Look up")
        console.until_says("lookup-result", sentence)


def test_a_look_up_of_a_topic_that_is_not_there_says_what_kafka_says(console: ConsolePage) -> None:
    console.fill(lookup_topic="nope", lookup_value="a")
    console.press("Look up")
    console.until_says("lookup-result", "UNKNOWN_TOPIC_OR_PARTITION (3)")


def test_markup_in_what_comes_back_stays_text(console: ConsolePage) -> None:
    console.fill(lookup_topic="<img src=x onerror=alert(1)>", lookup_value="a")
    console.press("Look up")
    console.until(lambda: console.text("lookup-result") not in ("", "Asking …"))
    assert console.run("return document.querySelectorAll('main img, main script').length") == 0


def test_a_test_record_is_written_as_it_was_typed(
    console: ConsolePage, shared_cluster: FakeCluster, topic: str
) -> None:
    console.fill(send_topic=topic, send_partition="3", send_key="k é", send_value_format="json")
    console.fill(send_value='{"total": 12.50, "id": 90071992547409931}')
    console.press("Send")
    console.until(lambda: "Written: partition 3, offset 0" in console.text("send-result"))
    (record,) = shared_cluster.records(topic)
    assert (record.key, record.value) == ("k é".encode(), b'{"total":12.50,"id":90071992547409931}')
    console.until(lambda: "keeps the offsets 0 to 0. 0 records came after it." in console.text("send-result"))
    console.run("document.querySelector('#send-result a').click()")
    console.until(lambda: console.text("detail-title") == f"Partitions of {topic}")
    console.until(lambda: re.search(r"^[1-9]\d* since the start", console.text("plot-rate"), re.MULTILINE))


def test_a_record_without_a_key_has_none_and_base64_is_bytes(
    console: ConsolePage, shared_cluster: FakeCluster, topic: str
) -> None:
    console.fill(send_topic=topic, send_value_format="base64")
    console.fill(send_value=base64.b64encode(b"\x00\xff").decode())
    console.press("Send")
    console.until(lambda: "Written: partition" in console.text("send-result"))
    (record,) = shared_cluster.records(topic)
    assert (record.key, record.value) == (None, b"\x00\xff")


def test_a_text_that_looks_like_two_values_is_not_sent_as_two_records(
    console: ConsolePage, shared_cluster: FakeCluster, topic: str
) -> None:
    console.fill(send_topic=topic, send_value_format="json", send_value='1},{"value":2')
    console.press("Send")
    console.until(lambda: "Value: That is not JSON" in console.text("send-result"))
    assert shared_cluster.records(topic) == []


def test_a_record_that_the_broker_refuses_shows_the_problems_words(
    console: ConsolePage, shared_cluster: FakeCluster, topic: str
) -> None:
    shared_cluster.fail_next_produces(Errors.INVALID_RECORD, times=1)
    console.fill(send_topic=topic, send_value="x")
    console.press("Send")
    console.until(lambda: "INVALID_RECORD (87)" in console.text("send-result"))
    assert "Nothing was written." in console.text("send-result")


def test_a_topic_that_is_not_followed_is_listed_opened_and_followed_from_then_on(
    console: ConsolePage, topic: str
) -> None:
    assert topic not in console.topics
    console.press("List the whole cluster")
    console.until(lambda: console.topics.get(topic, {}).get("State") == "not followed")
    assert console.topics[topic]["Partitions"] == "6"
    console.press(topic)
    assert console.focused == "detail-title"
    console.until(lambda: list(console.partitions) == ["0", "1", "2", "3", "4", "5"])
    console.until(lambda: console.topics[topic]["State"] == "in order")
    console.press("Use in the forms")
    assert console.focused == "lookup-value"
    console.type("k", "\n")
    console.until(lambda: console.text("lookup-result").startswith(f"{topic}, partition"))


def test_topics_are_found_by_part_of_a_name_by_leader_and_by_state(
    console: ConsolePage, shared_cluster: FakeCluster
) -> None:
    shared_cluster.create_topic("found-by-leader", assignment=[[3]])
    console.press("List the whole cluster")
    console.fill(topic_search="Y-LEAD")
    console.until(lambda: list(console.topics) == ["found-by-leader"])
    console.press("found-by-leader")
    console.until(lambda: console.topics["found-by-leader"]["State"] == "in order")
    console.fill(topic_leader="2")
    console.until(lambda: console.text("topics-empty") == "No topic is like that.")
    console.fill(topic_leader="3")
    console.until(lambda: list(console.topics) == ["found-by-leader"])
    console.fill(topic_show="trouble")
    console.until(lambda: console.text("topics-empty") == "No topic is like that.")


def test_what_a_broker_leads_is_a_press_away(console: ConsolePage) -> None:
    console.press("Broker 3 leads")
    console.until(lambda: console.run("return document.getElementById('topic-leader').value") == "3")
    assert "orders" in console.topics


def test_a_refresh_is_asked_for_and_shown(console: ConsolePage) -> None:
    console.press("Refresh now")
    console.until(lambda: console.text("refresh-said").startswith("Refreshed in"))


# -- the modules one by one: streams cut anywhere, words, judgements -----------------------------------------


def evaluated(console: ConsolePage, module: str, expression: str, *arguments: object) -> Any:
    """An expression over a module's exports `m`, and over `args`."""
    script = f"const args = arguments; return import('/console/{module}').then((m) => {expression});"
    return console.run(script, *arguments)


STREAM = (
    ": hello\r\n\r\nevent: snapshot\r\nid: b-1\r\ndata: {\r\ndata: }\r\n\r\n"
    "data:plain\n\nevent: nothing\n\rdata: é\rid: b-2\r\r"
)
EVENTS = [
    {"event": "snapshot", "data": "{\n}", "id": "b-1"},
    {"event": "message", "data": "plain", "id": "b-1"},
    {"event": "message", "data": "é", "id": "b-2"},
]


def test_a_stream_gives_the_same_events_wherever_it_is_cut_and_none_without_data(
    console: ConsolePage,
) -> None:
    cut = """[...args[0]].map((_, at) => {
        const parser = new m.EventStreamParser();
        const pieces = [args[0].slice(0, at), args[0].slice(at), ":\\n"];
        return pieces.flatMap((piece) => parser.take(piece));
    })"""
    for at, events in enumerate(evaluated(console, "sse.js", cut, STREAM)):
        assert events == EVENTS, f"cut at {at}"
    parsed = 'new m.EventStreamParser().take("event: end\\n\\ndata: half")'
    assert evaluated(console, "sse.js", parsed) == []


WORDS = {
    "duration(999)": "0 s",
    "duration(12.345, true)": "12.3 ms",
    "duration(61000)": "1 min 1 s",
    "duration(3600000)": "1 h",
    "duration(90000000)": "1 d 1 h",
    "count(1234567)": "1,234,567",
    "counted(1, 'topic')": "1 topic",
    "bytes(33554432)": "33.6 MB",
    "bytes(999)": "999 B",
    "listed(['a', 'b', 'c'])": "a, b and c",
}


def test_numbers_and_times_read_as_people_write_them(console: ConsolePage) -> None:
    words = evaluated(console, "format.js", f"[{', '.join(f'm.{call}' for call in WORDS)}]")
    assert dict(zip(WORDS, words, strict=True)) == WORDS


NODE = {"state": "disconnected", "last_error": None, "last_error_age_ms": None, "waiting": {"records": 0}}
REFUSED = {"last_error": "Connection refused", "last_error_age_ms": 900}
CLOSED = {"last_error": "closed: by the peer", "last_error_age_ms": 900}
#: What a node is besides NODE, and how it is judged.
JUDGED: list[tuple[dict[str, object], list[str]]] = [
    ({}, ["idle", "not needed so far"]),
    ({"state": "ready", **REFUSED}, ["good", "connected"]),
    ({"state": "connecting"}, ["warn", "connecting"]),
    ({"state": "connecting", **REFUSED}, ["bad", "down"]),
    ({**REFUSED}, ["bad", "down"]),
    ({**REFUSED, "last_error_age_ms": 60_000}, ["warn", "last try failed"]),
    ({**CLOSED}, ["idle", "not connected"]),
    ({**CLOSED, "waiting": {"records": 3}}, ["bad", "down"]),
    ({"state": "authentication_failed"}, ["bad", "refused: authentication"]),
]


def test_a_connection_is_down_only_where_that_matters(console: ConsolePage) -> None:
    nodes = [{**NODE, **changed} for changed, _ in JUDGED]
    assert evaluated(console, "health.js", "args[0].map((node) => m.connectionOf(node))", nodes) == [
        judged for _, judged in JUDGED
    ]


def test_two_findings_of_one_kind_are_both_shown(console: ConsolePage) -> None:
    status = {
        "draining": False,
        "state": "running",
        "slow": [
            {"node": None, "phase": "metadata", "detail": "a"},
            {"node": None, "phase": "metadata", "detail": "b"},
            {"node": 2, "phase": "queue", "detail": "c"},
        ],
    }
    model = {"totals": {"leaderless": 0, "under": 0}, "status": status}
    titles = "m.findingsOf(args[0]).map(({title, text}) => [title, text])"
    assert evaluated(console, "health.js", titles, model) == [
        ["Metadata", "a"],
        ["Metadata", "b"],
        ["Broker 2: records wait", "c"],
    ]
    shown = """(() => {
        const list = document.createElement("ul");
        const items = ["a", "a", "b"];
        m.keyed(list, items, (_, index) => index, () => m.make("li"), (item, text) => item.append(text));
        return list.textContent;
    })()"""
    assert evaluated(console, "dom.js", shown) == "aab"


def test_children_that_stay_are_the_same_and_in_order(console: ConsolePage) -> None:
    script = """(() => {
        const list = document.createElement("ul");
        const draw = (keys) => m.keyed(list, keys, (key) => key, (key) => m.make("li", "", key), () => {});
        draw(["a", "b", "c"]);
        const [a, , c] = list.children;
        draw(["c", "x", "a"]);
        return [list.textContent, list.children[0] === c, list.children[2] === a];
    })()"""
    assert evaluated(console, "dom.js", script) == ["cxa", True, True]


def test_a_change_reported_by_watch_and_status_is_shown_once(console: ConsolePage) -> None:
    script = """(() => {
        const model = new m.Model();
        const at = "2026-01-31T09:27:01.002Z";
        const before = "2026-01-31T09:00:00Z";
        const partition = {partition: 0, leader: 1, leader_epoch: 4, replicas: [1], isr: [1]};
        model.apply("snapshot", {cluster_id: "c", brokers: [], errors: [],
            topics: [{name: "t", internal: false, partitions: [partition]}]}, 0);
        model.apply("leader", {topic: "t", at,
            partitions: [{...partition, leader: 2, leader_epoch: 5, previous_leader: 1}]}, 0);
        model.apply("status", {leader_changes: [
            {at, topic: "t", partition: 0, old_leader: 1, new_leader: 2, leader_epoch: 5},
            {at: before, topic: "t", partition: 0, old_leader: 3, new_leader: 1, leader_epoch: 4},
        ]}, 0);
        return model.changes.map(({text}) => text);
    })()"""
    assert evaluated(console, "model.js", script) == ["broker 1 → broker 2", "broker 3 → broker 1"]
