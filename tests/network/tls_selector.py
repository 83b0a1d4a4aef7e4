"""A Selector that speaks TLS to peers on loopback; shared by the tests of connections and of the selector."""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from client_core.network.channel_builder import LayeredChannelBuilder, NoAuthentication
from client_core.network.selector import NetworkConfig, Selector
from client_core.network.ssl_context import SslContexts
from client_core.network.ssl_transport_layer import SslTransports
from tests.support.mock_clock import MockClock
from tests.support.waiting import patient

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from client_core.network.channel_builder import ChannelBuilder, Transports
    from client_core.network.kafka_channel import KafkaChannel
    from client_core.network.network_receive import MemoryPool
    from client_core.network.security_config import SslConfig
    from client_core.network.selectable import ChannelState, ChannelStateName

MAX_IDLE_MS = 5_000
BUFFER_BYTES = 4 * 1024

#: Polls wait for the system, never longer than this; the test's own time limit ends what never comes.
PATIENCE_MS = patient(10_000)


class WatchedChannels(LayeredChannelBuilder):
    """Channels that a test may look at, by node."""

    def __init__(self, transports: Transports) -> None:
        super().__init__(transports, NoAuthentication())
        self._channels: dict[int, weakref.ref[KafkaChannel]] = {}

    def build_channel(
        self,
        node_id: int,
        host: str,
        connection: socket.socket,
        remote_address: str,
        max_receive_bytes: int | None,
        memory_pool: MemoryPool,
    ) -> KafkaChannel:
        made = super().build_channel(
            node_id, host, connection, remote_address, max_receive_bytes, memory_pool
        )
        self._channels[node_id] = weakref.ref(made)
        return made

    def channel(self, node_id: int) -> KafkaChannel:
        """The channel, which is there as long as the selector has it."""
        made = self._channels[node_id]()
        assert made is not None
        return made


@contextmanager
def selector_over(builder: ChannelBuilder, clock: MockClock | None = None) -> Iterator[Selector]:
    made = Selector(NetworkConfig(MAX_IDLE_MS, max_receive_bytes=None), builder, clock or MockClock())
    try:
        yield made
    finally:
        made.close()


def tls(config: SslConfig) -> WatchedChannels:
    """Channels with these settings."""
    return WatchedChannels(SslTransports(SslContexts(config)))


class HasAddress(Protocol):
    """Any peer on loopback."""

    @property
    def address(self) -> tuple[str, int]: ...


def connect(selector: Selector, node_id: int, peer: HasAddress, host: str = "localhost") -> None:
    selector.connect(node_id, host, peer.address, BUFFER_BYTES, BUFFER_BYTES)


def wait_until_ready(selector: Selector, node_id: int) -> None:
    while not selector.is_channel_ready(node_id):
        selector.poll(PATIENCE_MS)
        assert not selector.disconnected


def wait_for_end(selector: Selector, node_id: int, name: ChannelStateName) -> ChannelState:
    """Polls until the connection is gone; returns how it ended, which must be this."""
    while node_id not in selector.disconnected:
        selector.poll(PATIENCE_MS)
    state = selector.disconnected[node_id]
    assert state.name is name, state
    return state


def exchange(selector: Selector, node_id: int, payload: bytes) -> bytes:
    """Sends a frame; returns the frame that comes back."""
    selector.send(node_id, [payload])
    while True:
        selector.poll(PATIENCE_MS)
        assert not selector.disconnected
        for receive in selector.completed_receives:
            if receive.node_id == node_id:
                return receive.payload


def check_connection(selector: Selector, node_id: int, size: int = 100, count: int = 10) -> None:
    """Waits for the channel and has frames echoed."""
    wait_until_ready(selector, node_id)
    for number in range(count):
        payload = b"%0*d" % (size, number)
        assert exchange(selector, node_id, payload) == payload
