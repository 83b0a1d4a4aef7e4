"""The console's forms: who leads, a test record, topics that are not followed yet, a refresh."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

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


@pytest.mark.parametrize(
    ("by", "value", "query"),
    [
        ("text", "customer-7 é", {"key": "customer-7 é"}),
        ("json", '{"id": 1.50}', {"key": '{"id": 1.50}', "key_format": "json"}),
        ("base64", "AAEC", {"key": "AAEC", "key_format": "base64"}),
        ("partition", "4", {"partition": "4"}),
    ],
)
def test_a_leader_is_looked_up_as_the_api_would(
    console: ConsolePage, shared_sidecar: Sidecar, by: str, value: str, query: dict[str, str]
) -> None:
    found = shared_sidecar.api.get("/v1/topics/orders/leader", params=query).json()
    console.fill(lookup_topic="orders", lookup_by=by, lookup_value=value)
    console.press("Look up")
    expected = f"orders, partition {found['partition']}: broker {found['leader']['id']}"
    console.until(lambda: console.text("lookup-result").startswith(expected))


def test_a_look_up_that_makes_no_sense_is_answered_in_words(console: ConsolePage) -> None:
    said = {
        ("partition", "99"): "topic orders has no partition 99, it has 6",
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
    console.until(lambda: "UNKNOWN_TOPIC_OR_PARTITION (3)" in console.text("lookup-result"))


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


def test_what_looks_like_two_values_is_not_sent_as_two_records(
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


def test_a_refresh_is_asked_for_and_told(console: ConsolePage) -> None:
    console.press("Refresh now")
    console.until(lambda: console.text("refresh-said").startswith("Refreshed in"))
