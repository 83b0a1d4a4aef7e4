"""The console shows what is, and what changes while one looks: leaders, brokers, the sidecar itself."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.console.conftest import sidecar_over
from tests.console.console_page import ConsolePage
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver import Chrome

    from tests.support.fake_cluster import FakeCluster
    from tests.support.sidecar import Sidecar

IN_ORDER = "Everything is in order"


def connect_to_all(sidecar: Sidecar) -> None:
    """A record for each partition: until then the sidecar needs no connection to most brokers."""
    records = [{"value": "x", "partition": partition} for partition in range(6)]
    assert sidecar.produce("orders", records).status_code == 200


def test_the_page_fills_with_brokers_topics_and_figures(console: ConsolePage, cluster: FakeCluster) -> None:
    console.until(lambda: console.headline == IN_ORDER)
    assert list(console.brokers) == ["1", "2", "3"]
    assert ":".join(map(str, cluster.address(2))) in console.brokers["2"]["Broker"]
    assert {broker: row["Leads"] for broker, row in console.brokers.items()} == {"1": "2", "2": "2", "3": "2"}
    assert console.topics == {
        "orders": {"Topic": "orders", "Partitions": "6", "Leaders": "1: 2, 2: 2, 3: 2", "State": "in order"}
    }
    assert cluster.cluster_id in console.text("cluster")
    assert console.facts("figures")["Without a leader"] == "0"
    assert console.facts("metadata")["Follows"] == "1 topics, 6 partitions"
    assert console.faults() == []


def test_a_leader_that_moves_moves_in_the_row_and_among_the_changes(
    console: ConsolePage, cluster: FakeCluster
) -> None:
    console.press("orders")
    console.until(lambda: console.partitions["0"]["Leader"].startswith("1\n"))
    cluster.move_leader("orders", 0, 3)
    console.until(lambda: console.partitions["0"]["Leader"].startswith("3\n"))
    console.until(lambda: "orders, partition 0" in console.text("changes"))
    assert "broker 1 → broker 3" in console.text("changes")
    assert console.topics["orders"]["Leaders"] == "1: 1, 2: 2, 3: 3"


def test_a_partition_without_a_leader_and_one_short_of_replicas_stand_out(
    console: ConsolePage, cluster: FakeCluster
) -> None:
    cluster.move_leader("orders", 1, None)
    cluster.set_isr("orders", 2, [3])
    console.until(lambda: "1 partition without a leader" in console.text("findings"))
    console.until(lambda: "1 partition under-replicated" in console.text("findings"))
    assert console.topics["orders"]["State"] == "1 without a leader, 1 under-replicated"
    console.press("orders")
    console.until(lambda: console.partitions["2"]["State"] == "under-replicated")
    assert console.partitions["2"]["Replicas in sync"] == "3\nmissing: 1, 2"
    assert console.partitions["1"]["Leader"] == "none"
    console.fill(topic_show="leaderless")
    assert list(console.topics) == ["orders"]


def test_a_broker_that_is_stopped_is_shown_with_its_error(
    console: ConsolePage, cluster: FakeCluster, sidecar: Sidecar
) -> None:
    connect_to_all(sidecar)
    console.until(lambda: all(row["Connection"] == "connected" for row in console.brokers.values()))
    cluster.kill(2, elect=False)
    assert sidecar.produce("orders", [{"value": "x", "partition": 1}], timeout_ms=1_000).is_error
    console.until(lambda: console.brokers["2"]["Connection"].startswith("down"))
    console.until(lambda: console.headline == "1 of 3 brokers cannot be reached")
    assert "refused" in console.brokers["2"]["Last error"]
    cluster.revive(2)
    connect_to_all(sidecar)
    console.until(lambda: console.headline == IN_ORDER)


def test_with_every_broker_gone_the_page_says_so_and_keeps_the_leaders(
    console: ConsolePage, cluster: FakeCluster
) -> None:
    console.until(lambda: console.headline == IN_ORDER)
    for broker in cluster.broker_ids:
        cluster.kill(broker, elect=False)
    console.until(lambda: console.headline == "No broker can be reached; leaders are from memory")
    assert console.topics["orders"]["Leaders"] == "1: 2, 2: 2, 3: 2"
    assert console.link == "Live"


def test_a_sidecar_that_dies_leaves_a_banner_and_greyed_data_until_it_is_back(
    console: ConsolePage, sidecar: Sidecar
) -> None:
    console.until(lambda: console.headline == IN_ORDER)
    sidecar.process.kill()
    sidecar.process.wait(timeout=10)
    console.until(lambda: "has not answered since" in console.banner)
    assert console.headline == "Not known. Last heard: everything is in order"
    assert "ago" in console.text("brokers-title")
    console.until(lambda: console.browser.title.startswith("Not reachable"))
    console.press("Try now")
    assert "has not answered since" in console.banner
    sidecar.start()
    console.until(lambda: console.link == "Live" and console.headline == IN_ORDER)
    assert console.banner == ""
    assert "was started anew" in console.text("changes")


def test_a_sidecar_that_hangs_counts_as_gone_though_its_connection_stands(
    console: ConsolePage, sidecar: Sidecar
) -> None:
    sidecar.process.send_signal(signal.SIGSTOP)
    try:
        console.until(lambda: "has not answered since" in console.banner)
    finally:
        sidecar.process.send_signal(signal.SIGCONT)
    console.until(lambda: console.link == "Live")


def test_a_sidecar_that_is_stopped_in_order_says_goodbye(console: ConsolePage, sidecar: Sidecar) -> None:
    assert sidecar.terminate() == 0
    console.until(lambda: "It said goodbye" in console.banner)


def test_where_tokens_are_in_use_the_page_asks_for_one(
    browser: Chrome, cluster: FakeCluster, tmp_path: Path
) -> None:
    tokens = TokensFile(tmp_path, operator={"read": ["*"], "produce": []})
    flags = ("--warm-topics", "orders", "--tokens-file", tokens.setting)
    guarded = sidecar_over(cluster, tmp_path, *flags)
    guarded.api.headers.update(tokens.of("operator"))
    with guarded as sidecar:
        browser.get(sidecar.api_url)
        console = ConsolePage(browser)
        console.until(lambda: "wants a token" in console.text("token"))
        assert console.focused == "token-value"
        console.fill(token_value="not-that-one-0123456789")
        console.press("Use it")
        console.until(lambda: "was not taken" in console.text("token-said"))
        console.fill(token_value=tokens.token("operator"))
        console.press("Use it")
        console.until(lambda: console.headline == IN_ORDER)
        assert console.text("token") == ""
        console.fill(send_topic="orders", send_value="x")
        console.press("Send")
        console.until(lambda: "TOPIC_AUTHORIZATION_FAILED" in console.text("send-result"))
        stored = browser.execute_script(
            "return localStorage.length + sessionStorage.length + document.cookie.length"
        )
        assert stored == 0
