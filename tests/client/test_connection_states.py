"""Connections by node: backoff, set-up timeout, throttle, addresses. Twins of ClusterConnectionStatesTest."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.client.connection_states import ClusterConnectionStates
from client_core.client.disconnection import Disconnection
from client_core.client.node_connection_state import ConnectionState
from client_core.clock import FOREVER_MS
from client_core.errors import AuthenticationError, IllegalStateError
from tests.support.mock_resolver import MockResolver

BACKOFF_MS = 10_000
BACKOFF_MAX_MS = 60_000
SETUP_MS = 10_000
SETUP_MAX_MS = 127_000
JITTER = 0.2
NODE = 1001
OTHER = 2002
THIRD = 3003
HOST = "multiple.ip.address"
INITIAL = ("10.200.20.100", "10.200.20.101", "10.200.20.102")
CHANGED = ("10.200.20.103", "10.200.20.104", "10.200.20.105")


def make_states(resolver: MockResolver | None = None, seed: int = 5) -> ClusterConnectionStates:
    return ClusterConnectionStates.from_settings(
        BACKOFF_MS,
        BACKOFF_MAX_MS,
        SETUP_MS,
        SETUP_MAX_MS,
        resolver or MockResolver("127.0.0.1"),
        Random(seed),
    )


def exact_states(resolver: MockResolver) -> ClusterConnectionStates:
    """Without jitter: the maxima equal the initial values."""
    return ClusterConnectionStates.from_settings(50, 50, 1_000, 1_000, resolver, Random(0))


@pytest.mark.behaviour("CONN-01", "CONN-04")
@pytest.mark.java("ClusterConnectionStatesTest.ClusterConnectionStateChanges")
def test_a_connection_goes_from_unknown_over_ready_to_its_backoff() -> None:
    states = make_states()
    assert states.can_connect(NODE, 0)
    assert states.connection_delay_ms(NODE, 0) == 0

    states.connecting(NODE, 0, "localhost")
    assert states.connection_state(NODE) is ConnectionState.CONNECTING
    assert states.is_connecting(NODE)
    assert not states.is_ready(NODE, 0)
    assert not states.is_blacked_out(NODE, 0)
    assert not states.has_ready_nodes(0)
    assert states.connection_delay_ms(NODE, 0) == pytest.approx(SETUP_MS, rel=JITTER)

    states.ready(NODE)
    assert states.connection_state(NODE) is ConnectionState.READY
    assert states.is_ready(NODE, 100)
    assert states.has_ready_nodes(100)
    assert not states.is_connecting(NODE)
    assert not states.is_blacked_out(NODE, 100)
    assert states.connection_delay_ms(NODE, 100) == FOREVER_MS

    states.disconnected(NODE, 15_100)
    assert states.is_disconnected(NODE)
    assert states.is_blacked_out(NODE, 15_100)
    assert not states.is_connecting(NODE)
    assert not states.has_ready_nodes(15_100)
    assert not states.can_connect(NODE, 15_100)
    backoff_ms = states.connection_delay_ms(NODE, 15_100)
    assert backoff_ms == pytest.approx(BACKOFF_MS, rel=JITTER)
    assert states.can_connect(NODE, 15_100 + backoff_ms)  # CONN-01: at the very end, not one later


@pytest.mark.java("ClusterConnectionStatesTest.MultipleNodeConnectionStates")
def test_nodes_do_not_mind_each_other() -> None:
    states = make_states()
    states.connecting(OTHER, 0, "localhost")
    assert not states.has_ready_nodes(0)
    states.ready(OTHER)
    states.connecting(NODE, 1_000, "localhost")
    assert states.has_ready_nodes(1_000)
    states.ready(NODE)

    states.disconnected(OTHER, 12_000)
    assert states.has_ready_nodes(12_000)
    assert states.is_blacked_out(OTHER, 12_000)
    assert not states.is_blacked_out(NODE, 12_000)
    now_ms = 12_000 + states.connection_delay_ms(OTHER, 12_000)
    states.disconnected(NODE, now_ms)
    assert states.is_blacked_out(NODE, now_ms)
    assert not states.is_blacked_out(OTHER, now_ms)
    assert not states.has_ready_nodes(now_ms)


@pytest.mark.behaviour("CONN-12")
@pytest.mark.java("ClusterConnectionStatesTest.AuthorizationFailed")
def test_a_refusal_is_kept_until_the_node_is_ready() -> None:
    states = make_states()
    states.connecting(NODE, 0, "localhost")
    refusal = AuthenticationError("No path to CA for certificate!")
    states.authentication_failed(NODE, 100, refusal)
    assert states.connection_state(NODE) is ConnectionState.AUTHENTICATION_FAILED
    assert states.authentication_error(NODE) is refusal
    assert states.is_disconnected(NODE)
    assert not states.is_connecting(NODE)
    assert not states.can_connect(NODE, 1_100)

    now_ms = 100 + states.connection_delay_ms(NODE, 100)
    assert states.can_connect(NODE, now_ms)
    states.connecting(NODE, now_ms, "localhost")
    assert states.authentication_error(NODE) is refusal
    states.ready(NODE)
    assert states.authentication_error(NODE) is None


@pytest.mark.behaviour("CONN-12")
def test_a_refusal_grows_the_backoff_a_second_time_and_begins_it_anew() -> None:
    states = make_states()
    states.connecting(NODE, 0, "localhost")
    states.disconnected(NODE, 0)
    states.authentication_failed(NODE, 0, AuthenticationError())
    assert states.connection_delay_ms(NODE, 0) == pytest.approx(2 * BACKOFF_MS, rel=JITTER)
    refused_ms = 10 * BACKOFF_MS
    states.connecting(OTHER, 0, "localhost")
    states.authentication_failed(OTHER, refused_ms, AuthenticationError())
    assert states.connection_delay_ms(OTHER, refused_ms) == pytest.approx(BACKOFF_MS, rel=JITTER)


@pytest.mark.behaviour("CONN-13")
@pytest.mark.java("ClusterConnectionStatesTest.RemoveNode")
def test_a_removed_node_may_be_connected_to_at_once_and_has_no_set_up_timeout() -> None:
    states = make_states()
    states.connecting(NODE, 0, "localhost")
    states.ready(NODE)
    states.disconnected(NODE, 10_000)
    states.remove(NODE)
    assert states.can_connect(NODE, 10_000)
    assert not states.is_blacked_out(NODE, 10_000)
    assert states.connection_delay_ms(NODE, 10_000) == 0
    assert states.last_connect_attempt_ms(NODE) is None
    states.connecting(NODE, 0, "localhost")
    states.remove(NODE)
    assert list(states.nodes_with_connection_setup_timeout(10 * SETUP_MAX_MS)) == []


@pytest.mark.behaviour("CONN-02")
@pytest.mark.java("ClusterConnectionStatesTest.MaxReconnectBackoff")
def test_the_backoff_never_exceeds_its_maximum() -> None:
    states = make_states()
    now_ms = 0
    for _ in range(100):
        states.connecting(NODE, now_ms, "localhost")
        states.disconnected(NODE, now_ms + 10)
        backoff_ms = states.connection_delay_ms(NODE, now_ms + 10)
        assert backoff_ms <= BACKOFF_MAX_MS
        assert not states.can_connect(NODE, now_ms + 10)
        now_ms += 10 + backoff_ms
        assert states.can_connect(NODE, now_ms)


@pytest.mark.behaviour("CONN-02")
@pytest.mark.java("ClusterConnectionStatesTest.ExponentialReconnectBackoff")
@pytest.mark.parametrize("checks_versions", [False, True])
def test_the_backoff_doubles_until_the_node_is_ready(checks_versions: bool) -> None:
    states = make_states()
    for failures in range(10):
        states.connecting(NODE, 0, "localhost")
        if checks_versions:
            states.checking_api_versions(NODE)
        states.disconnected(NODE, 0)
        expected_ms = min(BACKOFF_MS * 2**failures, BACKOFF_MAX_MS)
        assert states.connection_delay_ms(NODE, 0) == pytest.approx(expected_ms, rel=JITTER)
    states.connecting(NODE, 0, "localhost")
    states.ready(NODE)
    states.disconnected(NODE, 0)
    assert states.connection_delay_ms(NODE, 0) == pytest.approx(BACKOFF_MS, rel=JITTER)


@pytest.mark.behaviour("CONN-05")
@pytest.mark.java("ClusterConnectionStatesTest.Throttled")
def test_a_throttled_node_is_not_ready_until_the_pause_is_over() -> None:
    states = make_states()
    states.connecting(NODE, 0, "localhost")
    states.ready(NODE)
    assert states.throttle_delay_ms(NODE, 11_000) == 0
    states.throttle(NODE, 11_100)
    assert states.throttle_delay_ms(NODE, 11_000) == 100
    assert not states.is_ready(NODE, 11_050)
    assert states.throttle_delay_ms(NODE, 11_050) == 50
    assert states.poll_delay_ms(NODE, 11_050) == 50
    assert states.is_ready(NODE, 11_100)
    assert states.throttle_delay_ms(NODE, 11_100) == 0
    assert states.poll_delay_ms(NODE, 11_100) == states.connection_delay_ms(NODE, 11_100) == FOREVER_MS


@pytest.mark.behaviour("CONN-05", "CONN-06")
def test_the_end_of_a_pause_never_comes_nearer_and_a_disconnected_node_waits_for_its_backoff() -> None:
    states = exact_states(MockResolver("127.0.0.1"))
    states.connecting(NODE, 0, "localhost")
    states.ready(NODE)
    states.throttle(NODE, 500)
    states.throttle(NODE, 200)
    assert states.throttle_delay_ms(NODE, 0) == 500
    states.throttle(OTHER, 500)
    assert states.throttle_delay_ms(OTHER, 0) == 0
    states.throttle(NODE, 5_000)
    states.disconnected(NODE, 0)
    assert states.poll_delay_ms(NODE, 0) == 50


def address_after_connecting(states: ClusterConnectionStates, now_ms: int, host: str = HOST) -> str | None:
    states.connecting(NODE, now_ms, host)
    return states.current_address(NODE)


@pytest.mark.behaviour("CONN-08")
@pytest.mark.java("ClusterConnectionStatesTest.SingleIP")
def test_a_single_address_is_used_again() -> None:
    resolver = MockResolver("127.0.0.1")
    states = exact_states(resolver)
    first = address_after_connecting(states, 0)
    states.disconnected(NODE, 0)
    assert address_after_connecting(states, 50) == first
    assert resolver.asked == [HOST, HOST]  # used up after one attempt
    states.ready(NODE)
    states.disconnected(NODE, 50)
    assert address_after_connecting(states, 100) == first  # although it was used last


@pytest.mark.behaviour("CONN-08")
@pytest.mark.java("ClusterConnectionStatesTest.MultipleIPs")
def test_every_attempt_uses_the_next_address_and_the_list_is_renewed_when_used_up() -> None:
    resolver = MockResolver(*INITIAL)
    states = exact_states(resolver)
    used = []
    for attempt in range(3):
        used.append(address_after_connecting(states, attempt))
        states.disconnected(NODE, attempt)
    assert used == list(INITIAL)
    assert resolver.asked == [HOST]
    resolver.addresses = CHANGED
    assert address_after_connecting(states, 3) == CHANGED[0]
    assert resolver.asked == [HOST, HOST]


@pytest.mark.behaviour("CONN-09")
def test_after_a_lost_connection_the_name_is_resolved_again_and_the_lost_address_skipped() -> None:
    resolver = MockResolver(*INITIAL)
    states = exact_states(resolver)
    assert address_after_connecting(states, 0) == INITIAL[0]
    states.checking_api_versions(NODE)
    states.disconnected(NODE, 0)
    assert address_after_connecting(states, 50) == INITIAL[1]
    assert resolver.asked == [HOST, HOST]


@pytest.mark.behaviour("CONN-09")
@pytest.mark.java("ClusterConnectionStatesTest.SkipLastAttemptedIp")
def test_skip_last_attempted_ip() -> None:
    """All attempts failed, or there was one: the name is resolved again, and answers as before."""
    resolver = MockResolver(*INITIAL[:2])
    states = exact_states(resolver)
    first = address_after_connecting(states, 0)
    states.disconnected(NODE, 0)
    second = address_after_connecting(states, 50)
    assert (first, second) == INITIAL[:2]
    states.ready(NODE)
    resolver.addresses = (INITIAL[1], INITIAL[0])
    states.disconnected(NODE, 100)
    assert address_after_connecting(states, 150) == first


@pytest.mark.behaviour("CONN-11")
@pytest.mark.java(
    "ClusterConnectionStatesTest.HostResolveChange", "ClusterConnectionStatesTest.NodeWithNewHostname"
)
def test_another_host_name_for_a_node_id_begins_afresh() -> None:
    resolver = MockResolver(hosts={"old": [INITIAL[0]], "new": [CHANGED[0]]})
    states = exact_states(resolver)
    assert address_after_connecting(states, 0, "old") == INITIAL[0]
    for now_ms in (0, 50, 100):
        states.disconnected(NODE, now_ms)
        states.connecting(NODE, now_ms + 50, "old")
    states.disconnected(NODE, 200)
    states.failed(NODE, 200, Disconnection("refused", "connection refused"))
    assert address_after_connecting(states, 250, "new") == CHANGED[0]
    state = states.get(NODE)
    assert state is not None
    assert (state.failed_attempts, state.failed_connect_attempts, state.last_error) == (0, 0, None)
    assert address_after_connecting(states, 250, "old") == INITIAL[0]  # as it connects still


def test_a_name_that_dns_does_not_know_is_an_oserror() -> None:
    with pytest.raises(OSError, match="badhost"):
        address_after_connecting(exact_states(MockResolver()), 0, "badhost")


@pytest.mark.java("ClusterConnectionStatesTest.IsPreparingConnection")
def test_connecting_and_checking_versions_are_preparing() -> None:
    states = make_states()
    assert not states.is_preparing_connection(NODE)
    states.connecting(NODE, 0, "localhost")
    assert states.is_preparing_connection(NODE)
    states.checking_api_versions(NODE)
    assert states.is_preparing_connection(NODE)
    states.disconnected(NODE, 0)
    assert not states.is_preparing_connection(NODE)


@pytest.mark.behaviour("CONN-03")
@pytest.mark.java("ClusterConnectionStatesTest.ExponentialConnectionSetupTimeout")
def test_the_set_up_timeout_doubles_while_connecting_fails_and_anything_better_resets_it() -> None:
    states = make_states()
    for failures in range(4):
        states.connecting(NODE, 0, "localhost")
        assert list(states.connecting_nodes) == [NODE]
        expected_ms = SETUP_MS * 2**failures
        assert states.connection_setup_timeout_ms(NODE) == pytest.approx(expected_ms, rel=JITTER)
        states.disconnected(NODE, 0)
        assert not states.connecting_nodes
    states.connecting(NODE, 0, "localhost")
    assert states.connection_setup_timeout_ms(NODE) == pytest.approx(SETUP_MAX_MS, rel=JITTER)

    states.ready(NODE)
    assert states.connection_setup_timeout_ms(NODE) == pytest.approx(SETUP_MS, rel=JITTER)
    assert not states.connecting_nodes
    states.disconnected(NODE, 0)
    for failures in range(2):
        states.connecting(NODE, 0, "localhost")
        expected_ms = SETUP_MS * 2**failures
        assert states.connection_setup_timeout_ms(NODE) == pytest.approx(expected_ms, rel=JITTER)
        assert list(states.connecting_nodes) == [NODE]
        states.disconnected(NODE, 0)


@pytest.mark.behaviour("CONN-07")
@pytest.mark.java("ClusterConnectionStatesTest.TimedOutConnections")
def test_only_those_that_have_been_connecting_for_too_long_have_timed_out() -> None:
    states = exact_states(MockResolver("127.0.0.1"))
    states.connecting(NODE, 0, "localhost")
    states.connecting(OTHER, 0, "localhost")
    assert list(states.nodes_with_connection_setup_timeout(1_000)) == []  # strict
    states.connecting(THIRD, 500, "localhost")
    assert sorted(states.nodes_with_connection_setup_timeout(1_001)) == [NODE, OTHER]
    states.disconnected(NODE, 1_001)
    states.disconnected(OTHER, 1_001)
    assert list(states.nodes_with_connection_setup_timeout(1_501)) == [THIRD]
    states.disconnected(THIRD, 1_501)
    assert list(states.nodes_with_connection_setup_timeout(99_999)) == []


def test_a_move_of_a_node_that_was_never_tried_is_a_bug() -> None:
    states = make_states()
    for move in (states.ready, states.checking_api_versions, lambda node_id: states.disconnected(node_id, 0)):
        with pytest.raises(IllegalStateError, match="No entry found for connection 1001"):
            move(NODE)


def test_moves_that_are_not_in_the_table_are_bugs() -> None:
    states = make_states()
    states.connecting(NODE, 0, "localhost")
    with pytest.raises(IllegalStateError, match="can't go from CONNECTING to CONNECTING"):
        states.connecting(NODE, 0, "localhost")
    states.ready(NODE)
    with pytest.raises(IllegalStateError, match="can't go from READY to CHECKING_API_VERSIONS"):
        states.checking_api_versions(NODE)
    states.disconnected(NODE, 0)
    with pytest.raises(IllegalStateError, match="can't go from DISCONNECTED to DISCONNECTED"):
        states.disconnected(NODE, 0)
    with pytest.raises(IllegalStateError, match="can't go from DISCONNECTED to READY"):
        states.ready(NODE)


@pytest.mark.behaviour("CONN-01", "CONN-04")
@given(failures=st.lists(st.booleans(), max_size=20), seed=st.integers())
def test_a_node_that_may_not_be_connected_to_says_when_it_may(failures: list[bool], seed: int) -> None:
    """Whatever came before: a delay of 0 while connecting is refused would make the sender spin."""
    states = make_states(seed=seed)
    now_ms = 0
    for was_connected in failures:
        states.connecting(NODE, now_ms, "localhost")
        assert states.connection_delay_ms(NODE, now_ms) > 0
        if was_connected:
            states.ready(NODE)
            assert states.connection_delay_ms(NODE, now_ms) > 0
        states.disconnected(NODE, now_ms)
        assert not states.can_connect(NODE, now_ms)
        delay_ms = states.connection_delay_ms(NODE, now_ms)
        assert delay_ms > 0
        assert not states.can_connect(NODE, now_ms + delay_ms - 1)
        now_ms += delay_ms
        assert states.can_connect(NODE, now_ms)


REFUSED = Disconnection("refused", "Connection refused")


def fail(states: ClusterConnectionStates, node_id: int, now_ms: int) -> None:
    states.connecting(node_id, now_ms, "localhost")
    states.disconnected(node_id, now_ms)
    states.failed(node_id, now_ms, REFUSED)


def run_of(states: ClusterConnectionStates, node_id: int) -> tuple[int, int]:
    node = states.get(node_id)
    assert node is not None
    assert node.failures is not None
    return node.failures.attempts, node.failures.since_ms


@pytest.mark.parametrize("is_reached", [False, True])
@pytest.mark.parametrize("idle_ms", [50, 51])
def test_a_run_of_failures_ends_when_others_were_ready_and_nobody_needed_the_node(
    is_reached: bool, idle_ms: int
) -> None:
    states = exact_states(MockResolver("127.0.0.1"))
    fail(states, NODE, 100)
    fail(states, NODE, 150)
    assert run_of(states, NODE) == (2, 100)
    if is_reached:
        states.connecting(OTHER, 160, "localhost")
        states.ready(OTHER)
    again_ms = 150 + 50 + idle_ms
    fail(states, NODE, again_ms)
    assert run_of(states, NODE) == ((1, again_ms) if is_reached and idle_ms > 50 else (3, 100))


def test_a_node_that_is_needed_all_the_time_has_one_run_of_failures_while_others_are_ready() -> None:
    states = exact_states(MockResolver("127.0.0.1"))
    for attempt in range(10):
        fail(states, NODE, attempt * 100)
        states.connecting(OTHER, attempt * 100 + 10, "localhost")
        states.ready(OTHER)
        states.disconnected(OTHER, attempt * 100 + 20)
    assert run_of(states, NODE) == (10, 0)
    states.connecting(NODE, 1_000, "localhost")
    states.ready(NODE)
    node = states.get(NODE)
    assert node is not None
    assert node.failures is None


def test_the_states_are_those_that_the_metric_s_users_know() -> None:
    metrics = (Path(__file__).parents[2] / "docs/metrics.md").read_text(encoding="utf-8")
    assert ", ".join(state.value for state in ConnectionState) in metrics
