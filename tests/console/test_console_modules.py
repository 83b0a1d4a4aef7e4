"""The console's modules one by one, in the browser: streams cut anywhere, words, judgements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.console.console_page import ConsolePage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

    from tests.support.sidecar import Sidecar


def evaluated(page: ConsolePage, module: str, expression: str, *arguments: object) -> Any:
    """An expression over a module's exports `m`, and over `args`."""
    script = f"const args = arguments; return import('/console/{module}').then((m) => {expression});"
    return page.run(script, *arguments)


@pytest.fixture(scope="module")
def page(browser_of_the_session: Chrome, shared_sidecar: Sidecar) -> Iterator[ConsolePage]:
    """One for all: nothing here touches what it shows."""
    yield ConsolePage.opened(browser_of_the_session, shared_sidecar.api_url)
    browser_of_the_session.get("about:blank")


STREAM = (
    ": hello\r\n\r\nevent: snapshot\r\nid: b-1\r\ndata: {\r\ndata: }\r\n\r\n"
    "data:plain\n\nevent: nothing\n\rdata: é\rid: b-2\r\r"
)
EVENTS = [
    {"event": "snapshot", "data": "{\n}", "id": "b-1"},
    {"event": "message", "data": "plain", "id": "b-1"},
    {"event": "message", "data": "é", "id": "b-2"},
]


def test_a_stream_gives_the_same_events_wherever_it_is_cut(page: ConsolePage) -> None:
    cut = """[...args[0]].map((_, at) => {
        const parser = new m.EventStreamParser();
        const pieces = [args[0].slice(0, at), args[0].slice(at), ":\\n"];
        return pieces.flatMap((piece) => parser.take(piece));
    })"""
    for at, events in enumerate(evaluated(page, "sse.js", cut, STREAM)):
        assert events == EVENTS, f"cut at {at}"


def test_an_event_without_data_is_none(page: ConsolePage) -> None:
    parsed = 'new m.EventStreamParser().take("event: end\\n\\ndata: half")'
    assert evaluated(page, "sse.js", parsed) == []


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("m.duration(999)", "0 s"),
        ("m.duration(12.345, true)", "12.3 ms"),
        ("m.duration(61000)", "1 min 1 s"),
        ("m.duration(3600000)", "1 h"),
        ("m.duration(90000000)", "1 d 1 h"),
        ("m.count(1234567)", "1,234,567"),
        ("m.counted(1, 'topic')", "1 topic"),
        ("m.bytes(33554432)", "33.6 MB"),
        ("m.bytes(999)", "999 B"),
        ("m.listed(['a', 'b', 'c'])", "a, b and c"),
    ],
)
def test_numbers_and_times_read_as_people_write_them(page: ConsolePage, expression: str, words: str) -> None:
    assert evaluated(page, "format.js", expression) == words


NODE = {
    "state": "disconnected",
    "last_error": None,
    "last_error_age_ms": None,
    "waiting": {"records": 0},
}
REFUSED = {"last_error": "Connection refused", "last_error_age_ms": 900}


@pytest.mark.parametrize(
    ("changed", "judged"),
    [
        ({}, ["idle", "not needed so far"]),
        ({"state": "ready", **REFUSED}, ["good", "connected"]),
        ({"state": "connecting"}, ["warn", "connecting"]),
        ({"state": "connecting", **REFUSED}, ["bad", "down"]),
        ({**REFUSED}, ["bad", "down"]),
        ({**REFUSED, "last_error_age_ms": 60_000}, ["warn", "last try failed"]),
        ({"last_error": "closed: by the peer", "last_error_age_ms": 900}, ["idle", "not connected"]),
        (
            {"last_error": "closed: by the peer", "last_error_age_ms": 900, "waiting": {"records": 3}},
            ["bad", "down"],
        ),
        ({"state": "authentication_failed"}, ["bad", "refused: authentication"]),
    ],
)
def test_a_connection_is_down_only_where_that_matters(
    page: ConsolePage, changed: dict[str, object], judged: list[str]
) -> None:
    assert evaluated(page, "health.js", "m.connectionOf(args[0])", {**NODE, **changed}) == judged


def test_two_findings_of_one_kind_are_both_shown(page: ConsolePage) -> None:
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
    assert evaluated(page, "health.js", titles, model) == [
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
    assert evaluated(page, "dom.js", shown) == "aab"


def test_children_that_stay_are_the_same_and_in_order(page: ConsolePage) -> None:
    script = """(() => {
        const list = document.createElement("ul");
        const draw = (keys) => m.keyed(list, keys, (key) => key, (key) => m.make("li", "", key), () => {});
        draw(["a", "b", "c"]);
        const [a, , c] = list.children;
        draw(["c", "x", "a"]);
        return [list.textContent, list.children[0] === c, list.children[2] === a];
    })()"""
    assert evaluated(page, "dom.js", script) == ["cxa", True, True]


def test_a_change_told_by_watch_and_status_is_shown_once(page: ConsolePage) -> None:
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
    assert evaluated(page, "model.js", script) == ["broker 1 → broker 2", "broker 3 → broker 1"]
