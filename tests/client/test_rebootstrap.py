"""Brokers that moved altogether are found again, by the names that bootstrap.servers holds (KIP-899)."""

from __future__ import annotations

from random import Random

import pytest

from client_core.cluster import Node
from client_core.events import MetadataRefreshFailed, Rebootstrapped
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.protocol.api_keys import ApiKey
from tests.client.client_builders import Bench, api_versions_response
from tests.support.metadata_responses import metadata_message
from tests.support.mock_resolver import MockResolver

OLD = (Node(0, "old-0", 9092), Node(1, "old-1", 9092))
NEW = (Node(0, "new-0", 9092), Node(1, "new-1", 9092))
HOSTS = {"bootstrap": ["10.0.0.1"], "old-0": ["10.0.1.0"], "old-1": ["10.0.1.1"], "new-0": ["10.0.2.0"]}


def play(bench: Bench, brokers: tuple[Node, ...], until_ms: int) -> None:
    """Polls, and answers whatever any node is asked, as a cluster of these brokers does."""
    answered = {node_id: len(bench.headers(node_id)) for node_id in (-1, 0, 1)}
    while bench.now_ms < until_ms:
        bench.poll(20)
        bench.clock.advance(1)
        for node_id, count in answered.items():
            for header in bench.headers(node_id)[count:]:
                is_metadata = header.api is ApiKey.METADATA
                message = metadata_message(brokers) if is_metadata else api_versions_response()
                if bench.selector.is_open(node_id):
                    bench.answer(node_id, message, request=answered[node_id])
                answered[node_id] += 1


@pytest.mark.behaviour("UPD-11", "META-23", "CONN-09", "CONN-11")
def test_brokers_that_moved_altogether_are_found_again() -> None:
    alive = {"10.0.0.1", "10.0.1.0", "10.0.1.1"}
    resolver = MockResolver(hosts=dict(HOSTS))
    metadata = Metadata(MetadataConfig(100, 1_000, 300_000), Random(0))
    metadata.bootstrap([("bootstrap", 9092)])
    bench = Bench(
        metadata=metadata,
        resolver=resolver,
        can_connect=lambda address: address[0] in alive,
        reconnect_backoff_ms=50,
        reconnect_backoff_max_ms=1_000,
        request_timeout_ms=30_000,
        rebootstrap_trigger_ms=300_000,
    )
    play(bench, OLD, bench.now_ms + 500)
    assert {node.host for node in metadata.fetch().nodes} == {"old-0", "old-1"}
    metadata.request_update(True)
    play(bench, OLD, bench.now_ms + 500)  # by now the bootstrap address is not needed any more

    alive.clear()
    alive.update({"10.0.0.9", "10.0.2.0"})
    resolver.hosts["bootstrap"] = ["10.0.0.9"]
    for node_id in (-1, 0, 1):
        if bench.selector.is_open(node_id):
            bench.selector.disconnect(node_id)
    play(bench, NEW, bench.now_ms + 5_000)
    assert {node.host for node in metadata.fetch().nodes} == {"new-0", "new-1"}
    assert bench.sink.of(Rebootstrapped) == [Rebootstrapped()]
    assert "10.0.0.9" in {attempt.address[0] for attempt in bench.selector.attempts}

    assert not bench.client.ready(NEW[0], bench.now_ms)
    play(bench, NEW, bench.now_ms + 200)
    assert bench.client.can_send_request(0, bench.now_ms)
    assert bench.selector.attempts[-1].host == "new-0"


def test_a_refresh_that_no_node_could_be_asked_for_is_told_with_its_reason() -> None:
    metadata = Metadata(MetadataConfig(100, 1_000, 300_000), Random(0))
    metadata.bootstrap([("bootstrap", 9092)])
    bench = Bench(metadata=metadata, can_connect=lambda _: False)
    for _ in range(3):
        bench.poll()
        bench.clock.advance(200)
    bench.poll()
    [event] = bench.sink.of(MetadataRefreshFailed)
    assert event == MetadataRefreshFailed("initial", "no_node", "no node is available")
