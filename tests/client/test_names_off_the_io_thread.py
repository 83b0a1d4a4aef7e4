"""A client whose resolver is slow, hangs or knows nothing: its turns go on, and the name is tried again."""

from __future__ import annotations

import logging
from collections import deque
from random import Random
from typing import TYPE_CHECKING

import pytest

from client_core.client.host_resolver import BackgroundResolver
from client_core.client.node_connection_state import ConnectionState
from client_core.client.node_connections import USUAL_LOOK_UP_MS
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.protocol.api_keys import ApiKey
from tests.client.client_builders import NODE, NODE_1, TEST_CONFIG, Bench, api_versions_response
from tests.support.mock_resolver import MockResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core.cluster import Node


class Names:
    """A resolver off the I/O thread whose look-ups end when the test says so."""

    def __init__(self, *addresses: str) -> None:
        self.dns = MockResolver(*addresses)
        self._begun: deque[Callable[[], None]] = deque()
        self._background = BackgroundResolver(self.dns, lambda: None, start=self._begun.append)

    @property
    def threads(self) -> int:
        """Look-ups that have not ended."""
        return len(self._begun)

    def answer(self) -> None:
        """Ends the oldest look-up with what DNS says now."""
        self._begun.popleft()()

    def answer_newest(self) -> None:
        self._begun.pop()()

    def resolve(self, host: str) -> Sequence[str] | None:
        return self._background.resolve(host)

    def name_at(self, host: str, address: str) -> str:
        return self._background.name_at(host, address)

    def abandon(self, host: str) -> None:
        self._background.abandon(host)


def state(bench: Bench, node: Node = NODE) -> tuple[ConnectionState, str | None]:
    status = next(one for one in bench.client.node_statuses(bench.now_ms) if one.node_id == node.id)
    return status.state, status.last_error


def test_a_node_connects_when_its_name_has_been_looked_up() -> None:
    names = Names("10.0.0.1")
    bench = Bench(resolver=names)
    assert not bench.client.ready(NODE, bench.now_ms)
    bench.poll()
    assert state(bench) == (ConnectionState.CONNECTING, None)
    assert not bench.selector.attempts
    names.answer()
    bench.poll()
    (attempt,) = bench.selector.attempts
    assert (attempt.host, attempt.address) == (NODE.host, ("10.0.0.1", NODE.port))
    bench.ready()


def test_others_are_served_while_a_look_up_hangs() -> None:
    names = Names("10.0.0.1")
    bench = Bench(resolver=names)
    assert not bench.client.ready(NODE_1, bench.now_ms)
    names.answer()
    bench.poll()
    bench.ready(NODE_1)
    assert not bench.client.ready(NODE, bench.now_ms)  # whose look-up does not end
    bench.send(NODE_1)
    assert bench.client.in_flight_request_count(NODE_1.id) == 1
    assert state(bench)[0] is ConnectionState.CONNECTING


@pytest.mark.parametrize("hung", range(3))
def test_a_client_begins_with_the_bootstrap_servers_whose_names_are_known(hung: int) -> None:
    """It waits for none of those whose look-ups hang: the setup timeout of each is five seconds here."""
    names = Names("10.0.0.1")
    metadata = Metadata(MetadataConfig(100, 1_000, 300_000), Random(0))
    metadata.bootstrap([(f"host-{number}", 9092) for number in range(3)])
    bench = Bench(metadata=metadata, resolver=names, reconnect_backoff_ms=50, request_timeout_ms=30_000)
    began_ms = bench.now_ms
    while names.threads <= hung:
        bench.poll()
        bench.clock.advance(50)
    assert bench.now_ms - began_ms <= hung * USUAL_LOOK_UP_MS + 50
    names.answer_newest()
    bench.poll()
    (attempt,) = bench.selector.attempts
    bench.poll()
    bench.poll()
    bench.answer(attempt.node_id, api_versions_response())
    bench.poll()
    bench.poll()
    assert bench.headers(attempt.node_id)[-1].api is ApiKey.METADATA
    assert names.threads == hung
    assert len(bench.selector.attempts) == 1


def test_a_name_that_is_the_only_one_is_waited_for() -> None:
    names = Names("10.0.0.1")
    bench = Bench(resolver=names)
    bench.client.ready(NODE, bench.now_ms)
    bench.clock.advance(USUAL_LOOK_UP_MS)
    chosen = bench.client.least_loaded_node(bench.now_ms)
    assert (chosen.node, chosen.has_node_available_or_connection_ready) == (NODE, True)


def test_a_look_up_that_hangs_ends_the_attempt_in_time_and_takes_no_second_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = Names("10.0.0.1")
    bench = Bench(resolver=names)
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            assert not bench.client.ready(NODE, bench.now_ms)
            bench.clock.advance(20_000)
            bench.poll()
            now, error = state(bench)
            assert now is ConnectionState.DISCONNECTED
            assert error is not None
            assert error.startswith(f"{NODE.host} was not resolved within ")
            bench.clock.advance(20_000)
    assert names.threads == 1
    assert caplog.text.count("was not resolved within") == 1
    # Who asks while it still hangs has its answer.
    assert not bench.client.ready(NODE, bench.now_ms)
    names.answer()
    bench.poll()
    assert len(bench.selector.attempts) == 1


def test_a_name_that_is_not_known_is_tried_again_after_the_backoff_and_used_within_two_seconds() -> None:
    """With Kafka's own backoffs, whenever it appears."""
    names = Names()
    bench = Bench(resolver=names, reconnect_backoff_ms=50, reconnect_backoff_max_ms=1_000)

    def attempt() -> None:
        bench.client.ready(NODE, bench.now_ms)
        if names.threads:
            names.answer()
        bench.poll()

    for _ in range(600):
        attempt()
        bench.clock.advance(100)
    asked = len(names.dns.asked)
    assert 50 <= asked <= 80  # a minute, about one a second
    assert state(bench)[1] == f"{NODE.host} can't be resolved: {NODE.host}: Name or service not known"
    names.dns.addresses = ("10.0.0.1",)
    appeared_ms = bench.now_ms
    while not bench.selector.attempts:
        attempt()
        bench.clock.advance(10)
    assert bench.now_ms - appeared_ms <= 1_500


def test_a_name_that_hangs_at_a_reconnect_does_not_hold_the_turn() -> None:
    names = Names("10.0.0.1")
    bench = Bench(resolver=names)
    bench.client.ready(NODE, bench.now_ms)
    names.answer()
    bench.poll()
    bench.ready()
    bench.selector.disconnect(NODE.id)
    bench.poll()
    bench.clock.advance(TEST_CONFIG.reconnect_backoff_max_ms * 2)
    assert not bench.client.ready(NODE, bench.now_ms)
    bench.poll()
    assert names.threads == 1
    assert state(bench)[0] is ConnectionState.CONNECTING


def test_a_node_that_is_forgotten_while_its_name_is_looked_up_is_not_connected_to() -> None:
    names = Names("10.0.0.1")
    bench = Bench(resolver=names)
    assert not bench.client.ready(NODE, bench.now_ms)
    bench.client.close_node(NODE.id)
    names.answer()
    bench.poll()
    assert not bench.selector.attempts


def test_a_client_that_is_closed_waits_for_no_look_up() -> None:
    names = Names("10.0.0.1")
    bench = Bench(resolver=names)
    assert not bench.client.ready(NODE, bench.now_ms)
    bench.client.close()
    names.answer()
    assert not bench.selector.attempts


def test_a_disconnect_that_is_asked_for_ends_the_look_up_too() -> None:
    names = Names("10.0.0.1")
    bench = Bench(resolver=names)
    assert not bench.client.ready(NODE, bench.now_ms)
    bench.client.disconnect(NODE.id)
    names.answer()
    bench.poll()
    assert not bench.selector.attempts
    assert state(bench)[0] is ConnectionState.DISCONNECTED
