"""The console shows the present state and its changes: leaders, brokers, the sidecar itself."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from client_core.testing import FakeCluster
from tests.console.conftest import sidecar_over
from tests.console.console_page import ConsolePage
from tests.support.paused_process import pause_process
from tests.support.tokens import TokensFile
from tests.support.waiting import patient

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver import Chrome

    from tests.support.sidecar import Sidecar

IN_ORDER: Final = "Everything is in order"
GONE: Final = "has not answered since"


def connect_to_all(sidecar: Sidecar) -> None:
    """A record for each partition: until then the sidecar needs no connection to most brokers."""
    records = [{"value": "x", "partition": partition} for partition in range(6)]
    assert sidecar.produce("orders", records).status_code == 200


def test_the_page_fills_with_brokers_topics_and_figures(console: ConsolePage, cluster: FakeCluster) -> None:
    assert console.headline == IN_ORDER
    assert list(console.brokers) == ["1", "2", "3"]
    assert ":".join(map(str, cluster.address(2))) in console.brokers["2"]["Broker"]
    assert {broker: row["Leads"] for broker, row in console.brokers.items()} == {"1": "2", "2": "2", "3": "2"}
    assert console.topics == {
        "orders": {"Topic": "orders", "Partitions": "6", "Leaders": "1: 2, 2: 2, 3: 2", "State": "in order"}
    }
    assert cluster.cluster_id in console.text("cluster")
    assert console.facts("figures")["Without a leader"] == "0"
    assert console.facts("metadata")["Follows"] == "1 topic, 6 partitions"
    assert console.browser.title.startswith(IN_ORDER)
    assert console.faults() == []


def test_a_leader_that_moves_moves_in_the_row_and_among_the_changes(
    shared_console: ConsolePage, shared_cluster: FakeCluster
) -> None:
    console = shared_console
    shared_cluster.create_topic("moving", partitions=3, replication_factor=3)
    console.fill(lookup_topic="moving", lookup_value="a")
    console.press("Look up")
    console.until(lambda: "moving" in console.topics)
    console.press("moving")
    console.until(lambda: console.partitions["0"]["Leader"].startswith("1\n"))
    shared_cluster.move_leader("moving", 0, 3)
    console.until(lambda: console.partitions["0"]["Leader"].startswith("3\n"))
    console.until(lambda: "moving, partition 0\nbroker 1 → broker 3" in console.text("changes"))
    assert console.topics["moving"]["Leaders"] == "2: 1, 3: 2"


def test_a_partition_without_a_leader_and_one_short_of_replicas_are_highlighted(
    console: ConsolePage, cluster: FakeCluster
) -> None:
    cluster.move_leader("orders", 1, None)
    cluster.set_isr("orders", 2, [3])
    console.until(lambda: "1 partition without a leader" in console.text("findings"))
    console.until(lambda: "1 partition under-replicated" in console.text("findings"))
    assert console.headline == "2 things need attention"
    assert console.topics["orders"]["State"] == "1 without a leader, 1 under-replicated"
    console.press("orders")
    assert console.partitions["2"]["State"] == "under-replicated"
    assert console.partitions["2"]["Replicas in sync"] == "3\nmissing: 1, 2"
    assert console.partitions["1"]["Leader"] == "none"


def test_a_broker_that_is_stopped_is_shown_with_its_error_until_it_is_back(
    console: ConsolePage, cluster: FakeCluster, sidecar: Sidecar
) -> None:
    connect_to_all(sidecar)
    console.until(lambda: all(row["Connection"] == "connected" for row in console.brokers.values()))
    cluster.kill(2, elect=False)
    assert sidecar.produce("orders", [{"value": "x", "partition": 1}], timeout_ms=2_000).is_error
    console.until(lambda: console.brokers["2"]["Connection"].startswith("down"))
    console.until(lambda: console.headline == "1 of 3 brokers cannot be reached")
    # At first it is the end of the connection.
    console.until(lambda: "refused" in console.brokers["2"]["Last error"])
    console.until_says("failed", "at broker 2")
    assert "Cause: " in console.text("failed")
    cluster.revive(2)
    connect_to_all(sidecar)
    console.until(lambda: console.headline == IN_ORDER)


def test_with_every_broker_gone_the_page_says_so_and_keeps_the_leaders(
    console: ConsolePage, cluster: FakeCluster
) -> None:
    for broker in cluster.broker_ids:
        cluster.kill(broker, elect=False)
    console.until(lambda: console.headline == "No broker can be reached; leaders are from memory")
    assert console.topics["orders"]["Leaders"] == "1: 2, 2: 2, 3: 2"
    assert console.link == "Live"


def test_a_link_opens_a_topic_or_what_a_broker_leads(
    browser: Chrome, console: ConsolePage, sidecar: Sidecar
) -> None:
    browser.get("about:blank")
    ConsolePage.opened(browser, f"{sidecar.api_url}/#topic=orders")
    console.until(lambda: list(console.partitions) == ["0", "1", "2", "3", "4", "5"])
    assert console.text("detail-title") == "Partitions of orders"
    console.press("Close")
    assert console.run("return location.hash") == ""
    console.run("location.hash = '#broker=2'")
    console.until(lambda: console.run("return document.getElementById('topic-leader').value") == "2")
    assert list(console.topics) == ["orders"]
    console.run("location.hash = '#broker=x'")
    console.press("orders")
    assert console.run("return location.hash") == "#topic=orders"
    assert console.faults() == []


def test_an_open_topic_that_is_deleted_is_reported_as_missing(
    browser: Chrome, cluster: FakeCluster, sidecar: Sidecar
) -> None:
    cluster.create_topic("brief")
    console = ConsolePage.opened(browser, f"{sidecar.api_url}/#topic=brief")
    console.until(lambda: list(console.partitions) == ["0"])
    cluster.delete_topic("brief")
    console.until(lambda: "does not exist" in console.text("detail-said"))
    assert console.partitions == {}


def test_an_open_topic_is_followed_again_by_a_sidecar_that_was_restarted(
    browser: Chrome, sidecar: Sidecar
) -> None:
    console = ConsolePage.opened(browser, f"{sidecar.api_url}/#topic=audit")
    console.until(lambda: list(console.partitions) == ["0"])
    sidecar.process.kill()
    sidecar.process.wait(timeout=patient(30))
    console.until(lambda: GONE in console.banner)
    sidecar.start()
    console.until(lambda: "was started anew" in console.text("changes"))
    console.until(lambda: list(console.partitions) == ["0"])


def test_a_failed_request_names_its_topic_whatever_the_route_and_the_name(
    console: ConsolePage, sidecar: Sidecar
) -> None:
    assert sidecar.api.post("/v1.0/publish/pubsub/absent", json=1).status_code >= 400
    assert sidecar.api.get("/v1/topics/$&<b>/partitions/0").status_code == 400
    console.until(lambda: "POST /v1.0/publish/{pubsub}/absent" in console.text("failed"))
    console.until(lambda: "GET /v1/topics/$&<b>/partitions/{partition}" in console.text("failed"))
    assert console.faults() == []


def test_a_failed_request_is_listed_with_its_caller_phase_and_trace(
    console: ConsolePage, sidecar: Sidecar
) -> None:
    assert console.text("failed-empty") != ""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    for _ in range(2):
        answer = sidecar.api.post(
            "/v1/topics/absent/records?max_block_ms=3000",
            json={"records": [{"value": 1}]},
            headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"},
        )
        assert answer.status_code == 404
    console.until(lambda: "2 times" in console.text("failed"))
    listed = console.text("failed")
    assert "POST /v1/topics/absent/records" in listed
    assert "caller anyone" in listed
    assert "Waited for metadata" in listed
    assert f"Trace {trace}." in listed
    link = console.run("return document.querySelector('#failed a').getAttribute('href')")
    assert link == "/problems/unknown-topic"
    assert "Unknown topic" in sidecar.api.get(link).text
    assert console.faults() == []


def test_before_any_broker_has_answered_the_page_says_why(browser: Chrome, tmp_path: Path) -> None:
    nobody = FakeCluster(1)  # never started: its address refuses
    with sidecar_over(nobody, tmp_path, warm_topics=()) as sidecar:
        console = ConsolePage.opened(browser, sidecar.api_url, headline="No broker can be reached")
        console.until(lambda: "no broker of bootstrap.servers has answered yet" in console.text("findings"))
        assert list(console.brokers) == ["Bootstrap"]
        assert "follows no topic yet" in console.text("topics-empty")


def test_a_sidecar_that_dies_leaves_a_banner_and_greyed_data_until_it_is_back(
    console: ConsolePage, sidecar: Sidecar
) -> None:
    sidecar.process.kill()
    sidecar.process.wait(timeout=patient(30))
    console.until(lambda: GONE in console.banner)
    console.until(lambda: console.headline == "Not known. Last heard: everything is in order")
    assert "ago" in console.text("brokers-title")
    assert console.browser.title.startswith("Not reachable")
    console.fill(lookup_topic="orders", lookup_value="a")
    console.press("Look up")
    console.until(lambda: console.text("lookup-result") == "The sidecar does not answer.")
    console.press("Try now")
    assert GONE in console.banner
    sidecar.start()
    console.until(lambda: console.link == "Live" and console.headline == IN_ORDER)
    assert console.banner == ""
    assert "was started anew" in console.text("changes")


def test_a_sidecar_that_hangs_counts_as_gone_though_it_is_still_connected(
    console: ConsolePage, sidecar: Sidecar
) -> None:
    pause_process(sidecar.process.pid)
    try:
        console.until(lambda: GONE in console.banner)
    finally:
        sidecar.process.send_signal(signal.SIGCONT)
    console.until(lambda: console.link == "Live")
    assert sidecar.terminate() == 0
    console.until(lambda: "It announced its end" in console.banner)


def test_a_sidecar_that_has_watchers_enough_says_so(
    browser: Chrome, cluster: FakeCluster, tmp_path: Path
) -> None:
    with sidecar_over(cluster, tmp_path, "--max-watchers", "0") as sidecar:
        browser.get(sidecar.api_url)
        console = ConsolePage(browser)
        console.until_says("banner", "The sidecar refuses to be watched")
        assert "max_watchers" in console.banner


def test_a_hidden_page_closes_its_stream_and_opens_it_again_when_shown(
    shared_console: ConsolePage, shared_sidecar: Sidecar
) -> None:
    page, browser = shared_console, shared_console.browser
    own = browser.current_window_handle

    def watchers() -> int:
        return int(shared_sidecar.api.get("/v1/status").json()["watchers"])

    page.until(lambda: watchers() == 1)
    browser.switch_to.new_window("tab")
    page.until(lambda: watchers() == 0)
    browser.close()
    browser.switch_to.window(own)
    page.until(lambda: page.link == "Live" and watchers() == 1)
    browser.get("about:blank")
    page.until(lambda: watchers() == 0)


def test_where_tokens_are_in_use_the_page_asks_for_one_and_keeps_it_to_itself(
    browser: Chrome, cluster: FakeCluster, tmp_path: Path
) -> None:
    tokens = TokensFile(tmp_path, operator={"read": ["*"], "produce": []})
    guarded = sidecar_over(cluster, tmp_path, "--tokens-file", tokens.setting)
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
        kept = "return localStorage.length + sessionStorage.length + document.cookie.length"
        assert console.run(kept) == 0
