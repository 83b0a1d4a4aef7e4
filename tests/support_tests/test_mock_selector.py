"""MockSelector does what Selector does, as far as a test can tell, and only when the test says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.clock import FOREVER_MS
from client_core.errors import IllegalArgumentError, IllegalStateError, SaslAuthenticationError
from client_core.network.selectable import ChannelStateName, CompletedReceive, CompletedSend
from tests.support.mock_clock import MockClock
from tests.support.mock_selector import Attempt, MockSelector, Sent

if TYPE_CHECKING:
    from client_core.network.selectable import Selectable

ADDRESS = ("10.0.0.1", 9092)


@pytest.fixture
def clock() -> MockClock:
    return MockClock()


@pytest.fixture
def selector(clock: MockClock) -> MockSelector:
    return MockSelector(clock)


def connect(selector: MockSelector, node_id: int) -> None:
    selector.connect(node_id, "broker", ADDRESS, -1, -1)


def connected(selector: MockSelector, node_id: int) -> None:
    connect(selector, node_id)
    selector.poll(0)


def test_it_is_a_selectable(selector: MockSelector) -> None:
    selectable: Selectable = selector
    assert selectable.poll(0) == 0


def test_a_connect_is_told_by_the_next_poll_alone(selector: MockSelector) -> None:
    connect(selector, 1)
    assert not selector.connected
    selector.poll(0)
    assert selector.connected == [1]
    assert selector.is_channel_ready(1)
    assert selector.attempts == [Attempt(1, "broker", ADDRESS)]
    selector.poll(0)
    assert not selector.connected


def test_an_address_that_does_not_answer_is_refused_by_the_next_poll(clock: MockClock) -> None:
    selector = MockSelector(clock, can_connect=lambda address: address != ADDRESS)
    connect(selector, 1)
    selector.poll(0)
    state = selector.disconnected[1]
    assert state.name is ChannelStateName.NOT_CONNECTED
    assert state.detail == "connection refused"
    assert state.remote_address == "10.0.0.1:9092"
    assert not selector.is_open(1)


def test_a_held_connect_hangs_until_it_is_finished_or_refused(selector: MockSelector) -> None:
    for node_id in (1, 2):
        selector.hold_connect(node_id)
        connected(selector, node_id)
        assert not selector.connected
        assert not selector.is_channel_ready(node_id)
    selector.finish_connect(1)
    selector.refuse(2)
    selector.poll(0)
    assert selector.connected == [1]
    assert list(selector.disconnected) == [2]


def test_sends_are_taken_by_the_next_poll_and_recorded(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.send(1, [b"ab", b"c"])
    assert selector.sent == []
    selector.poll(0)
    assert selector.completed_sends == [CompletedSend(1, 7)]
    assert selector.sent == [Sent(1, b"abc")]
    assert selector.sent_to(1) == [b"abc"]
    assert selector.sent_to(2) == []


def test_held_sends_stay_under_way_until_they_are_released(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.hold_sends(1)
    selector.send(1, [b"x"])
    selector.poll(10)
    assert not selector.completed_sends
    selector.release_sends(1)
    selector.poll(0)
    assert selector.completed_sends == [CompletedSend(1, 5)]


def test_wrong_calls_are_illegal_as_in_the_real_one(selector: MockSelector) -> None:
    with pytest.raises(IllegalStateError, match="no connection"):
        selector.send(1, [b"x"])
    connected(selector, 1)
    with pytest.raises(IllegalStateError, match="already a connection for id 1"):
        connect(selector, 1)
    with pytest.raises(IllegalArgumentError, match="timeout should be >= 0"):
        selector.poll(-1)
    selector.send(1, [b"x"])
    with pytest.raises(IllegalStateError, match="prior send operation still in progress"):
        selector.send(1, [b"y"])
    selector.poll(0)
    assert selector.disconnected[1].name is ChannelStateName.FAILED_SEND


def test_one_frame_of_a_node_a_poll(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.receive(1, b"one")
    selector.receive(1, b"two")
    selector.poll(FOREVER_MS)
    assert selector.completed_receives == [CompletedReceive(1, b"one")]
    selector.poll(FOREVER_MS)
    assert selector.completed_receives == [CompletedReceive(1, b"two")]


def test_an_answer_comes_with_the_send_it_answers(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.answer(1, b"first")
    selector.answer(1, b"second")
    selector.poll(0)
    assert not selector.completed_receives
    for answer in (b"first", b"second"):
        selector.send(1, [b"?"])
        selector.poll(0)
        assert selector.completed_receives == [CompletedReceive(1, answer)]


def test_a_muted_node_is_not_read(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.receive(1, b"x")
    selector.mute(1)
    selector.poll(0)
    assert not selector.completed_receives
    selector.unmute(1)
    selector.poll(0)
    assert selector.completed_receives == [CompletedReceive(1, b"x")]


def test_a_poll_with_nothing_ready_advances_the_clock_by_its_timeout(
    selector: MockSelector, clock: MockClock
) -> None:
    assert selector.poll(250) == 250
    assert clock.now_ms() == 250
    assert selector.polls == [250]


def test_a_poll_with_something_ready_takes_no_time(selector: MockSelector, clock: MockClock) -> None:
    connect(selector, 1)
    assert selector.poll(250) == 0
    assert clock.now_ms() == 0


def test_a_poll_waits_until_what_is_scheduled_and_no_longer(selector: MockSelector, clock: MockClock) -> None:
    connected(selector, 1)
    selector.after(40, lambda: selector.receive(1, b"x"))
    selector.after(30, lambda: None)
    selector.poll(20)
    assert not selector.completed_receives
    assert selector.poll(1000) == 40
    assert selector.completed_receives == [CompletedReceive(1, b"x")]


def test_what_became_due_while_the_test_turned_the_clock_happens_at_once(
    selector: MockSelector, clock: MockClock
) -> None:
    connected(selector, 1)
    selector.after(40, lambda: selector.disconnect(1))
    clock.advance(100)
    selector.poll(0)
    assert list(selector.disconnected) == [1]


def test_a_wakeup_ends_one_poll_without_time(selector: MockSelector) -> None:
    selector.wakeup()
    assert selector.poll(100) == 0
    assert selector.poll(100) == 100


def test_a_poll_that_would_never_end_fails(selector: MockSelector) -> None:
    with pytest.raises(AssertionError, match="would never end"):
        selector.poll(FOREVER_MS)


def test_a_disconnect_is_told_by_the_next_poll_and_the_id_is_free(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.send(1, [b"x"])
    selector.disconnect(1)
    assert not selector.is_channel_ready(1)
    selector.poll(0)
    assert selector.disconnected[1].name is ChannelStateName.READY
    assert not selector.completed_sends
    connected(selector, 1)
    assert selector.connected == [1]


def test_a_connection_that_connects_and_ends_before_a_poll_has_only_ended(selector: MockSelector) -> None:
    connect(selector, 1)
    selector.disconnect(1)
    selector.poll(0)
    assert not selector.connected
    assert list(selector.disconnected) == [1]


def test_closing_a_connection_is_not_told(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.receive(1, b"x")
    selector.close_connection(1)
    selector.close_connection(1)
    selector.poll(0)
    assert not selector.disconnected
    assert not selector.completed_receives


def test_authentication_that_fails_or_never_ends(selector: MockSelector) -> None:
    selector.never_ready(1)
    connected(selector, 1)
    assert selector.connected == [1]
    assert not selector.is_channel_ready(1)
    selector.fail_authentication(1)
    selector.poll(0)
    state = selector.disconnected[1]
    assert state.name is ChannelStateName.AUTHENTICATION_FAILED
    assert isinstance(state.error, SaslAuthenticationError)

    connected(selector, 1)
    selector.become_ready(1)
    assert selector.is_channel_ready(1)


def test_a_drop_during_authentication_says_so(selector: MockSelector) -> None:
    selector.never_ready(1)
    connected(selector, 1)
    selector.disconnect(1)
    selector.poll(0)
    assert selector.disconnected[1].name is ChannelStateName.AUTHENTICATE


def test_an_idle_connection_expires(selector: MockSelector) -> None:
    connected(selector, 1)
    selector.expire(1)
    selector.poll(0)
    assert selector.disconnected[1].name is ChannelStateName.EXPIRED


def test_ending_what_is_not_there_is_the_tests_mistake(selector: MockSelector) -> None:
    with pytest.raises(AssertionError, match="no connection to node 1"):
        selector.disconnect(1)
    with pytest.raises(AssertionError, match="was not asked to connect"):
        selector.finish_connect(1)


def test_close_closes_every_connection(selector: MockSelector) -> None:
    connected(selector, 1)
    connect(selector, 2)
    selector.close()
    assert selector.is_closed
    assert not selector.is_open(1)
    assert not selector.is_open(2)
