"""When metadata is requested, from which node, how a request ends, and what is reported.

UPD-01 to UPD-15, and NetworkClientTest.
"""

from __future__ import annotations

import logging
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.client.kafka_client import ClientResponse, LeastLoadedNode
from client_core.client.metadata_updater import (
    DefaultMetadataUpdater,
    ManualMetadataUpdater,
    MetadataUpdater,
    RefreshFailure,
)
from client_core.client.network_client_config import MetadataRecoveryStrategy
from client_core.client.refresh_log_limiter import RefreshLogLimiter
from client_core.clock import FOREVER_MS
from client_core.cluster import Node
from client_core.errors import IllegalStateError, SaslAuthenticationError, UnsupportedVersionError
from client_core.events import MetadataRefreshed, MetadataRefreshFailed, Rebootstrapped
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.protocol.api_keys import ApiKey
from tests.client.client_builders import (
    NODE,
    NODE_1,
    TEST_CONFIG,
    Bench,
    RecordingSink,
    api_versions_response,
    counting_metadata,
    make_in_flight,
)
from tests.support.metadata_responses import metadata_message, partition, read, topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.protocol.request import RequestBuilder

    Reported = Callable[[], list[tuple[str, str]]]

BACKOFF_MS = 50
BROKERS = (NODE, NODE_1)


def make_metadata(*, bootstrap: bool = True, max_age_ms: int = 5_000) -> Metadata:
    metadata = Metadata(MetadataConfig(BACKOFF_MS, BACKOFF_MS, max_age_ms), Random(0))
    if bootstrap:
        metadata.bootstrap([("bootstrap", 9999)])
    return metadata


def known_metadata(now_ms: int = 1_000_000, *, max_age_ms: int = 5_000) -> Metadata:
    """Metadata that has just learned of two brokers."""
    metadata = make_metadata(max_age_ms=max_age_ms)
    metadata.update(metadata.request_version, read(BROKERS), False, now_ms)
    return metadata


class OneClient:
    """A MetadataClient that does what the test says, and records its requests."""

    def __init__(self, *, node: Node | None = NODE, any_ready: bool = False) -> None:
        self.node = node
        self.any_ready = any_ready
        self.can_send = False
        self.connectable = False
        self.connecting = False
        self.sent: list[tuple[int, int]] = []
        self.connects: list[int] = []
        self.choices = 0
        self.avoided: int | None = None

    def least_loaded_node(self, now_ms: int, avoid: int | None = None) -> LeastLoadedNode:
        self.choices += 1
        self.avoided = avoid
        return LeastLoadedNode(self.node, self.any_ready or self.node is not None)

    def can_send_request(self, node_id: int, now_ms: int) -> bool:
        return self.can_send

    def can_connect(self, node: Node, now_ms: int) -> bool:
        return self.connectable

    def is_any_node_connecting(self) -> bool:
        return self.connecting

    def initiate_connect(self, node: Node, now_ms: int) -> None:
        self.connects.append(node.id)

    def send_internal_metadata_request(self, builder: RequestBuilder, node_id: int, now_ms: int) -> None:
        self.sent.append((node_id, now_ms))


@pytest.mark.behaviour("UPD-01", "UPD-02", "UPD-04")
def test_it_waits_until_an_update_is_due_and_for_the_answer_of_the_request_under_way() -> None:
    updater, client = DefaultMetadataUpdater(known_metadata(now_ms=0), TEST_CONFIG), OneClient()
    assert not updater.is_update_due(1_000)
    assert updater.maybe_update(1_000, client) == 4_000
    assert updater.maybe_update(4_999, client) == 1
    assert client.choices == 0
    assert updater.is_update_due(5_000)
    updater, client = DefaultMetadataUpdater(make_metadata(), TEST_CONFIG), OneClient()
    client.can_send = True
    assert updater.is_update_due(7)
    assert updater.maybe_update(7, client) == TEST_CONFIG.request_timeout_ms
    assert client.sent == [(NODE.id, 7)]
    assert updater.is_in_progress
    assert not updater.is_update_due(8)
    assert updater.maybe_update(8, client) == TEST_CONFIG.request_timeout_ms
    assert len(client.sent) == 1


@pytest.mark.behaviour("UPD-03")
def test_without_a_usable_node_it_asks_again_after_the_reconnect_backoff() -> None:
    updater = DefaultMetadataUpdater(make_metadata(), TEST_CONFIG)
    assert updater.maybe_update(7, OneClient(node=None)) == TEST_CONFIG.reconnect_backoff_ms
    assert updater.is_update_due(7)


@pytest.mark.behaviour("UPD-05", "UPD-06", "UPD-07")
def test_it_connects_where_there_is_no_connection_and_waits_for_the_network_where_there_is() -> None:
    for connecting, connectable, waits_ms, connects in (
        (True, True, TEST_CONFIG.reconnect_backoff_ms, []),  # one is being set up
        (False, True, TEST_CONFIG.reconnect_backoff_ms, [NODE.id]),
        (False, False, FOREVER_MS, []),  # connected, but busy
    ):
        updater, client = DefaultMetadataUpdater(make_metadata(), TEST_CONFIG), OneClient()
        client.connecting, client.connectable = connecting, connectable
        assert updater.maybe_update(7, client) == waits_ms
        assert client.connects == connects


@pytest.mark.behaviour("UPD-11")
def test_no_node_and_no_connection_begin_again_with_bootstrap_servers_and_busy_ones_do_not() -> None:
    metadata, sink = known_metadata(now_ms=0), RecordingSink()
    updater = DefaultMetadataUpdater(metadata, TEST_CONFIG, sink)
    assert updater.maybe_update(5_000, OneClient(node=None, any_ready=True)) == 10_000
    assert not metadata.fetch().is_bootstrap_configured
    metadata, sink, client = known_metadata(now_ms=0), RecordingSink(), OneClient(node=None)
    updater = DefaultMetadataUpdater(metadata, TEST_CONFIG, sink)
    updater.maybe_update(5_000, client)
    assert metadata.fetch().is_bootstrap_configured
    assert client.choices == 2
    assert sink.of(Rebootstrapped) == [Rebootstrapped()]
    updater.maybe_update(5_050, client)
    assert sink.of(Rebootstrapped) == [Rebootstrapped()]  # there is nothing left to forget
    assert len(sink.of(MetadataRefreshFailed)) == 1  # "no node" is reported once


@pytest.mark.behaviour("UPD-14")
def test_without_a_recovery_strategy_it_never_begins_again() -> None:
    bench = Bench(metadata=known_metadata(), metadata_recovery_strategy=MetadataRecoveryStrategy.NONE)
    updater = bench.updater
    updater.maybe_update(bench.now_ms + 5_000, OneClient(node=None))
    assert not updater.needs_rebootstrap(bench.now_ms + 500_000)
    assert len(updater.fetch_nodes()) == 2
    metadata = counting_metadata()
    bench = Bench(metadata=metadata, metadata_recovery_strategy=MetadataRecoveryStrategy.NONE)
    node_id = bring_up(bench)
    bench.answer(node_id, metadata_message((), error_code=129))  # as a broker asks for it
    bench.poll()
    assert metadata.rebootstraps == 0
    assert metadata.time_to_next_update(bench.now_ms) == BACKOFF_MS


def test_a_request_that_fails_while_it_is_sent_leaves_none_under_way() -> None:
    """Java marks the request as under way after sending it: if that failed at once, it waits for ever."""
    metadata = make_metadata()
    updater = DefaultMetadataUpdater(metadata, TEST_CONFIG)

    class Refusing(OneClient):
        def send_internal_metadata_request(self, builder: RequestBuilder, node_id: int, now_ms: int) -> None:
            refusal = UnsupportedVersionError("too old")
            updater.handle_failed_request(now_ms, RefreshFailure("error", "too old", refusal))

    client = Refusing()
    client.can_send = True
    updater.maybe_update(7, client)
    assert not updater.is_in_progress
    with pytest.raises(UnsupportedVersionError):
        metadata.maybe_throw_any_exception()


def test_a_fatal_error_stays_to_be_raised_when_a_request_fails_thereafter() -> None:
    metadata = make_metadata()
    updater = DefaultMetadataUpdater(metadata, TEST_CONFIG)
    updater.handle_server_disconnect(7, NODE.id, SaslAuthenticationError("who?"))
    updater.handle_failed_request(8, RefreshFailure("error", "it is gone"))
    with pytest.raises(SaslAuthenticationError):
        metadata.maybe_throw_any_exception()


class _InDoubt(Metadata):
    """Metadata whose last answer may be false."""

    @property
    def is_in_doubt(self) -> bool:
        return True


def test_after_an_answer_in_doubt_another_broker_is_asked() -> None:
    """A bootstrap address, whose id is negative, may be any of the brokers."""
    for node_id, avoided in ((0, 0), (2, 2), (-1, None)):
        updater = DefaultMetadataUpdater(_InDoubt(MetadataConfig(0, 0, 0), Random(0)), TEST_CONFIG)
        client = OneClient(node=Node(node_id, "here", 9092))
        client.can_send = True
        updater.maybe_update(0, client)
        assert client.avoided is None
        updater.handle_successful_response(10, make_in_flight(), read(BROKERS))
        updater.maybe_update(20, client)
        assert client.avoided == avoided


def test_the_broker_of_an_answer_in_doubt_is_asked_again_when_another_can_not_be_reached() -> None:
    updater = DefaultMetadataUpdater(_InDoubt(MetadataConfig(0, 0, 0), Random(0)), TEST_CONFIG)
    client = OneClient()
    client.can_send = True
    updater.maybe_update(0, client)
    updater.handle_successful_response(10, make_in_flight(), read(BROKERS))
    updater.handle_server_disconnect(20, NODE_1.id, None)
    updater.maybe_update(20, client)
    assert (client.avoided, len(client.sent)) == (None, 2)


def test_an_answer_that_is_no_metadata_is_a_bug_and_an_unexpected_one_changes_nothing() -> None:
    metadata = known_metadata(now_ms=0)
    updater = DefaultMetadataUpdater(metadata, TEST_CONFIG)
    with pytest.raises(IllegalStateError, match="is no answer to a metadata request"):
        updater.handle_successful_response(0, make_in_flight(), b"")
    version = metadata.update_version
    updater.handle_successful_response(10, make_in_flight(), read(3))
    assert metadata.update_version == version


def bring_up(bench: Bench) -> int:
    """Polls until the bootstrap node was asked for metadata; returns its id."""
    node_id, sent = -1, len(bench.headers(-1))
    while len(bench.headers(node_id)) == sent:  # connect, then ask for versions
        bench.poll()
    bench.answer(node_id, api_versions_response())
    while bench.headers(node_id)[-1].api is not ApiKey.METADATA:
        bench.poll()
    return node_id


@pytest.mark.behaviour("UPD-04", "UPD-06", "UPD-10")
def test_from_bootstrap_to_the_first_metadata() -> None:
    metadata = make_metadata()
    bench = Bench(metadata=metadata)
    node_id = bring_up(bench)
    version = metadata.update_version
    bench.clock.advance(5)
    bench.answer(node_id, metadata_message(BROKERS, {"orders": 3}))
    assert bench.poll() == []  # only the updater gets it
    assert metadata.update_version == version + 1
    assert {node.id for node in bench.updater.fetch_nodes()} == {0, 1}
    assert not bench.updater.is_update_due(bench.now_ms)
    [event] = bench.sink.of(MetadataRefreshed)
    assert event == MetadataRefreshed(
        reason="initial",
        update_version=version + 1,
        request_version=0,
        is_partial=False,
        duration_ms=5,
        topics=1,
        partitions=3,
        leaderless_partitions=0,
        cluster_id="cluster",
        node_id=node_id,
    )


@pytest.mark.behaviour("UPD-10")
def test_a_response_without_brokers_is_a_failed_update() -> None:
    metadata = make_metadata()
    bench = Bench(metadata=metadata)
    node_id = bring_up(bench)
    bench.clock.advance(7)
    bench.answer(node_id, metadata_message(()))
    bench.poll()
    assert metadata.fetch().is_bootstrap_configured
    assert metadata.time_to_next_update(bench.now_ms) == BACKOFF_MS
    [event] = bench.sink.of(MetadataRefreshFailed)
    assert event == MetadataRefreshFailed("initial", "error", "the response lists no brokers", 7, node_id)


@pytest.mark.behaviour("UPD-08", "UPD-09")
def test_a_lost_metadata_request_backs_off_and_is_asked_again() -> None:
    metadata = make_metadata()
    bench = Bench(metadata=metadata, reconnect_backoff_ms=50, reconnect_backoff_max_ms=50)
    node_id = bring_up(bench)
    bench.selector.disconnect(node_id)
    assert bench.poll() == []
    assert metadata.time_to_next_update(bench.now_ms) == BACKOFF_MS
    [event] = bench.sink.of(MetadataRefreshFailed)
    assert isinstance(event, MetadataRefreshFailed)
    assert (event.reason, event.outcome) == ("initial", "error")
    bench.clock.advance(BACKOFF_MS)
    asked = len(bench.headers(node_id))
    bring_up(bench)
    assert len(bench.headers(node_id)) > asked


def test_a_metadata_request_that_is_not_answered_in_time_is_a_timeout() -> None:
    bench = Bench(metadata=make_metadata())
    node_id = bring_up(bench)
    late_ms = TEST_CONFIG.request_timeout_ms + 1
    bench.clock.advance(late_ms)
    bench.poll()
    [event] = bench.sink.of(MetadataRefreshFailed)
    assert isinstance(event, MetadataRefreshFailed)
    assert (event.outcome, event.node_id, event.duration_ms) == ("timeout", node_id, late_ms)


def test_an_unreadable_metadata_response_is_a_failed_update() -> None:
    metadata = make_metadata()
    bench = Bench(metadata=metadata)
    node_id = bring_up(bench)
    correlation_id = bench.headers(node_id)[-1].correlation_id
    bench.selector.receive(node_id, correlation_id.to_bytes(4, "big") + b"\0\0\0\0\0\xff")
    assert bench.poll() == []
    assert not bench.selector.is_open(node_id)
    assert metadata.time_to_next_update(bench.now_ms) == BACKOFF_MS


@pytest.mark.behaviour("UPD-08")
def test_a_lost_bootstrap_broker_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(metadata=make_metadata(), can_connect=lambda _: False)
    with caplog.at_level(logging.WARNING):
        bench.poll()
        bench.poll()
    assert "Bootstrap server bootstrap:9999: connecting failed (refused)" in caplog.text


@pytest.mark.behaviour("UPD-08")
def test_any_disconnection_asks_for_an_update() -> None:
    metadata = known_metadata()
    bench = Bench(metadata=metadata)
    bench.ready(NODE)
    assert not metadata.update_requested
    bench.selector.disconnect(NODE.id)
    bench.poll()
    assert metadata.update_requested


@pytest.mark.behaviour("UPD-08", "CONN-12", "META-20")
def test_a_refusal_reaches_callers_that_wait_for_metadata_and_is_tried_again() -> None:
    metadata = make_metadata()
    bench = Bench(metadata=metadata)
    bench.selector.never_ready(-1)
    bench.poll()
    bench.poll()
    refusal = SaslAuthenticationError("who are you")
    bench.selector.fail_authentication(-1, refusal)
    bench.poll()
    with pytest.raises(SaslAuthenticationError, match="who are you"):
        metadata.maybe_throw_any_exception()
    [bootstrap] = bench.updater.fetch_nodes()
    assert bench.client.authentication_error(bootstrap) is refusal
    assert bench.client.connection_delay_ms(bootstrap, bench.now_ms) == 10_000


def test_a_lost_connection_does_not_end_a_refusal_that_nobody_has_received_yet() -> None:
    metadata = make_metadata()
    updater = DefaultMetadataUpdater(metadata, TEST_CONFIG)
    updater.handle_server_disconnect(0, -1, SaslAuthenticationError("who are you"))
    updater.handle_server_disconnect(0, 7, None)
    with pytest.raises(SaslAuthenticationError, match="who are you"):
        metadata.maybe_throw_any_exception()


def test_that_no_node_is_available_is_an_event_once_and_again_after_one_was() -> None:
    sink, client = RecordingSink(), OneClient(node=None)
    updater = DefaultMetadataUpdater(make_metadata(), TEST_CONFIG, sink)
    for seen in (1, 2):
        for now_ms in (10_000 * seen, 10_000 * seen + 1):
            updater.maybe_update(now_ms, client)
        reported = [event for event in sink.events if isinstance(event, MetadataRefreshFailed)]
        assert [event.outcome for event in reported].count("no_node") == seen
        client.node, client.can_send = NODE, True
        updater.maybe_update(10_000 * seen + 2, client)
        assert len(client.sent) == seen
        updater.handle_failed_request(10_000 * seen + 3, RefreshFailure("error", "it is gone"))
        client.node = None


@pytest.mark.java("NetworkClientTest.AuthenticationFailureWithInFlightMetadataRequest")
def test_a_refusal_by_one_node_does_not_disturb_the_request_at_another() -> None:
    metadata = known_metadata()
    bench = Bench(metadata=metadata, discover_broker_versions=False)
    bench.ready(NODE)
    metadata.request_update(True)
    bench.clock.advance(BACKOFF_MS)
    bench.poll()
    assert bench.headers(NODE.id)[-1].api is ApiKey.METADATA
    bench.selector.never_ready(NODE_1.id)
    assert not bench.client.ready(NODE_1, bench.now_ms)
    bench.poll()
    bench.selector.fail_authentication(NODE_1.id)
    bench.poll()
    assert bench.client.authentication_error(NODE_1) is not None
    version = metadata.update_version
    bench.answer(NODE.id, metadata_message(BROKERS))
    bench.poll()
    assert metadata.update_version == version + 1


@pytest.mark.behaviour("UPD-13")
def test_a_broker_that_asks_to_begin_again_is_obeyed_in_the_same_poll() -> None:
    metadata = counting_metadata()
    bench = Bench(metadata=metadata, rebootstrap_trigger_ms=300_000)
    node_id = bring_up(bench)
    bench.answer(node_id, metadata_message(BROKERS, {"orders": 3}, error_code=129))
    bench.poll()
    assert metadata.rebootstraps == 1
    [failed] = [event for event in bench.sink.events if isinstance(event, MetadataRefreshFailed)]
    assert failed.detail == "the broker requested a restart from bootstrap.servers"
    assert metadata.fetch().is_bootstrap_configured
    assert not metadata.fetch().topics  # the body of such a response is not used
    assert not bench.selector.is_open(node_id)
    bench.poll()
    assert metadata.rebootstraps == 1


@pytest.mark.behaviour("UPD-12")
@pytest.mark.java("NetworkClientTest.InflightRequestsDuringRebootstrap")
def test_beginning_again_fails_the_requests_of_every_known_node() -> None:
    metadata = known_metadata()
    bench = Bench(
        metadata=metadata,
        discover_broker_versions=False,
        reconnect_backoff_max_ms=0,
        request_timeout_ms=5_000,
    )
    for node in BROKERS:
        bench.ready(node)
    produce = bench.send(NODE)
    metadata.request_update(True)
    bench.clock.advance(BACKOFF_MS)
    assert bench.poll() == []
    assert bench.client.in_flight_request_count() == 2
    bench.clock.advance(1_001)
    [response] = bench.poll()
    assert isinstance(response, ClientResponse)
    assert response.request is produce
    assert response.disconnected
    assert bench.client.in_flight_request_count() == 0
    assert all(bench.client.connection_failed(node) for node in BROKERS)


@pytest.mark.behaviour("UPD-12")
def test_success_ends_the_attempts_and_closing_the_client_closes_metadata() -> None:
    metadata = counting_metadata()
    bench = Bench(metadata=metadata, request_timeout_ms=60_000)
    node_id = bring_up(bench)
    bench.answer(node_id, metadata_message(BROKERS))
    bench.poll()
    bench.clock.advance(4_000)
    bench.poll()
    assert metadata.rebootstraps == 0
    bench.client.close()
    assert metadata.is_closed


def test_partitions_without_a_listener_and_failed_topics_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(metadata=make_metadata())
    node_id = bring_up(bench)
    partitions = [partition(number, leader=None, error=72 if number else 0) for number in range(13)]
    topics = [topic("orders", partitions), topic("payments", 0, error=29)]
    bench.answer(node_id, metadata_message(BROKERS, topics))
    with caplog.at_level(logging.WARNING):
        bench.poll()
    assert (
        "12 partitions have leader brokers without a matching listener, including ['orders-1'" in caplog.text
    )
    assert "orders-10" in caplog.text
    assert "orders-11" not in caplog.text
    assert "{'payments': 'TOPIC_AUTHORIZATION_FAILED'}" in caplog.text


def test_the_same_complaint_is_a_warning_once_and_again_after_it_was_mended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    updater = DefaultMetadataUpdater(make_metadata(), TEST_CONFIG)

    def warnings_after(now_ms: int, topics: dict[str, int], errors: dict[str, int]) -> int:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            updater.handle_successful_response(now_ms, make_in_flight(), read(3, topics, errors=errors))
        return len(caplog.records)

    forbidden = {"payments": 29}
    assert warnings_after(0, {}, {}) == 0
    assert warnings_after(0, {}, forbidden) == 1
    assert warnings_after(60_000, {}, forbidden) == 0
    assert warnings_after(70_000, {}, {}) == 0  # nobody asked for it
    assert warnings_after(80_000, {}, forbidden) == 0
    assert warnings_after(90_000, {"payments": 1}, {}) == 0
    assert warnings_after(100_000, {}, forbidden) == 1


@pytest.mark.behaviour("UPD-15")
def test_a_manual_updater_is_never_due_and_deaf_and_takes_other_nodes() -> None:
    manual = ManualMetadataUpdater([NODE])
    updater: MetadataUpdater = manual
    assert not updater.is_update_due(0)
    assert updater.maybe_update(0, OneClient()) == FOREVER_MS
    updater.handle_server_disconnect(0, NODE.id, SaslAuthenticationError())
    updater.handle_failed_request(0, RefreshFailure("error", ""))
    updater.handle_successful_response(0, make_in_flight(), read(1))
    updater.rebootstrap(0)
    updater.close()
    assert not updater.needs_rebootstrap(FOREVER_MS)
    assert list(updater.fetch_nodes()) == [NODE]
    manual.set_nodes([NODE_1])
    assert list(updater.fetch_nodes()) == [NODE_1]


# -- log lines about refreshes, and how often they come ------------------------------------------------------


UNKNOWN = 3
LISTENER_NOT_FOUND = 72


@pytest.fixture
def reported(caplog: pytest.LogCaptureFixture) -> Reported:
    """The lines logged at INFO and above since the last call."""
    caplog.set_level(logging.INFO)

    def take() -> list[tuple[str, str]]:
        lines = [(record.levelname, record.getMessage()) for record in caplog.records]
        caplog.clear()
        return lines

    return take


def test_the_lack_of_a_node_to_ask_is_a_warning_once_until_a_refresh_works(reported: Reported) -> None:
    limiter = RefreshLogLimiter()
    for now_ms in range(1_000, 60_000, 50):
        limiter.no_node(now_ms)
    assert reported() == [("WARNING", "No broker is reachable; metadata is not refreshed until one is")]
    limiter.refreshed(61_000)
    limiter.refreshed(62_000)
    assert reported() == [("INFO", "Metadata is refreshed again, 60000 ms after that first failed")]
    limiter.no_node(63_000)
    assert [level for level, _ in reported()] == ["WARNING"]


def test_each_kind_of_failure_is_logged_once_and_only_a_few_of_them(reported: Reported) -> None:
    limiter = RefreshLogLimiter()
    for _ in range(3):
        limiter.failed("expired", "timeout", "no answer", 0)
        limiter.failed("expired", "error", "no brokers", 0)
    assert reported() == [
        ("INFO", "Metadata refresh (expired) failed: no answer"),
        ("INFO", "Metadata refresh (expired) failed: no brokers"),
    ]
    for n in range(100):
        limiter.failed("expired", "error", f"way {n}", 0)
    assert len(reported()) == 6
    limiter.refreshed(1_000)
    reported()
    limiter.failed("expired", "error", "way 99", 2_000)
    assert len(reported()) == 1


def test_topics_that_callers_make_up_are_a_line_in_ten_seconds_and_remembered_in_bounded_number(
    reported: Reported,
) -> None:
    limiter = RefreshLogLimiter()
    for n in range(901):  # the last one when it may be logged again
        limiter.response_came(read(3, errors={f"made-up-{n}": UNKNOWN}), n, now_ms=n * 100)
    assert len(reported()) == 10
    limiter = RefreshLogLimiter()
    limiter.response_came(read(3, errors={f"made-up-{n}": UNKNOWN for n in range(3_000)}), 1, now_ms=0)
    assert len(limiter._reported_topics) == 1_000


def test_a_failure_that_the_limiter_held_back_is_logged_when_it_is_met_again(reported: Reported) -> None:
    limiter = RefreshLogLimiter()
    limiter.response_came(read(3, errors={"a": UNKNOWN}), 1, now_ms=0)
    limiter.response_came(read(3, errors={"b": UNKNOWN}), 2, now_ms=1)
    assert len(reported()) == 1
    limiter.response_came(read(3, errors={"a": UNKNOWN}), 3, now_ms=20_000)
    assert reported() == []
    limiter.response_came(read(3, errors={"b": UNKNOWN}), 4, now_ms=20_000)
    ((level, line),) = reported()
    assert (level, "{'b': 'UNKNOWN_TOPIC_OR_PARTITION'}" in line) == ("WARNING", True)


def test_partitions_without_a_listener_are_counted_and_some_are_named(reported: Reported) -> None:
    limiter = RefreshLogLimiter()
    described = [partition(p, error=LISTENER_NOT_FOUND if p > 0 else 0) for p in range(13)]
    response = read(3, [topic("well", 1), topic("t", described)], errors={"gone": UNKNOWN})
    limiter.response_came(response, 1, now_ms=0)
    named = [f"t-{p}" for p in range(1, 11)]
    said = f"12 partitions have leader brokers without a matching listener, including {named}"
    assert reported()[0] == ("WARNING", said)
    limiter.response_came(response, 2, now_ms=1)
    assert reported() == []
    limiter.response_came(read(3, [topic("well", 1)]), 3, now_ms=2)
    assert reported() == []
    limiter.response_came(response, 4, now_ms=3)
    assert reported() == [("WARNING", said)]
