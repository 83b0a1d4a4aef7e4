"""Cases of NetworkClientTest that tell a story of their own; the others are in `test_network_client.py`."""

from __future__ import annotations

from random import Random

import pytest

from client_core.client.metadata_updater import RefreshFailure
from client_core.clock import FOREVER_MS
from client_core.errors import KafkaError
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.protocol.messages.produce_response import ProduceResponse
from tests.client.client_builders import NODE, NODE_1, Bench, make_in_flight
from tests.support.metadata_responses import read


@pytest.mark.java("NetworkClientTest.SimpleRequestResponseWithStaticNodes")
def test_simple_request_response_with_static_nodes() -> None:
    bench = Bench(client_id="mock-static", reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
    bench.ready()
    request = bench.send()
    assert bench.client.in_flight_request_count() == 1
    bench.answer(NODE.id, ProduceResponse())
    [response] = bench.poll()
    assert response.body == ProduceResponse()
    assert response.request.correlation_id == request.correlation_id


@pytest.mark.behaviour("NET-18", "UPD-08")
@pytest.mark.java("NetworkClientTest.RequestTimeout", "NetworkClientTest.DefaultRequestTimeout")
@pytest.mark.parametrize("request_timeout_ms", [1_000, 6_000])
def test_request_timeout(request_timeout_ms: int) -> None:
    """A request that is answered asks for nothing; one that times out asks for metadata."""
    metadata = Metadata(MetadataConfig(50, 50, 300_000), Random(0))
    bench = Bench(metadata=metadata, discover_broker_versions=False, reconnect_backoff_max_ms=0)
    metadata.update(metadata.request_version, read((NODE, NODE_1)), False, bench.now_ms)
    bench.ready()
    bench.send(request_timeout_ms=request_timeout_ms)
    bench.answer(NODE.id, ProduceResponse())
    [response] = bench.poll()
    assert (response.destination, response.disconnected, response.timed_out) == (NODE.id, False, False)
    assert not metadata.update_requested

    bench.send(request_timeout_ms=request_timeout_ms)
    bench.clock.advance(request_timeout_ms + 1)
    [response] = bench.poll()
    assert (response.destination, response.disconnected, response.timed_out) == (NODE.id, True, True)
    assert metadata.update_requested


@pytest.mark.java("NetworkClientTest.ConnectionDelay", "NetworkClientTest.ConnectionDelayConnected")
def test_connection_delay_of_an_unknown_and_of_a_connected_node() -> None:
    bench = Bench(reconnect_backoff_max_ms=100_000)
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == 0
    bench.ready()
    assert bench.client.connection_delay_ms(NODE, bench.now_ms) == FOREVER_MS


class CountingMetadata(Metadata):
    """Counts how often it begins again."""

    rebootstraps = 0

    def rebootstrap(self) -> None:
        super().rebootstrap()
        self.rebootstraps += 1


@pytest.mark.behaviour("UPD-12", "UPD-13")
@pytest.mark.java("NetworkClientTest.Rebootstrap")
def test_rebootstrap() -> None:
    trigger_ms = 1_000
    metadata = CountingMetadata(MetadataConfig(50, 50, 5_000), Random(0))
    metadata.bootstrap([("localhost", 9999)])
    bench = Bench(
        metadata=metadata,
        discover_broker_versions=False,
        reconnect_backoff_max_ms=0,
        rebootstrap_trigger_ms=trigger_ms,
    )

    def rebootstraps_after(wait_ms: int) -> int:
        bench.clock.advance(wait_ms)
        bench.poll()
        return metadata.rebootstraps

    metadata.request_update(True)
    assert rebootstraps_after(0) == 0
    assert rebootstraps_after(trigger_ms + 1) == 1
    assert rebootstraps_after(1) == 1

    metadata.request_update(True)
    assert rebootstraps_after(0) == 1
    bench.updater.handle_failed_request(bench.now_ms, RefreshFailure("error", "failed", KafkaError("failed")))
    assert rebootstraps_after(0) == 1
    assert rebootstraps_after(trigger_ms) == 2

    metadata.request_update(True)
    assert rebootstraps_after(0) == 2
    bench.updater.handle_successful_response(bench.now_ms, make_in_flight(), read((), error_code=129))
    assert metadata.rebootstraps == 2
    assert rebootstraps_after(50) == 3
