"""Clients over the real Selector and brokers over loopback, for tests of SASL, with and without TLS.

A `SaslRig` has one broker, any number of clients, and one clock for all. `check_client_connection` does what
Java's tests do with a connection: it sends, and expects the echo.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Final, Self

from client_core.network.channel_builder import (
    LayeredChannelBuilder,
    NoAuthentication,
    PlaintextTransports,
)
from client_core.network.sasl.sasl_authenticators import SaslAuthenticators
from client_core.network.secret import SecretSource
from client_core.network.security_config import SaslConfig, SslConfig
from client_core.network.selector import NetworkConfig, Selector
from client_core.network.ssl_context import SslContexts
from client_core.network.ssl_transport_layer import SslTransports
from tests.network.tls_selector import BUFFER_BYTES, PATIENCE_MS
from tests.support.certificates import Authority
from tests.support.mock_clock import MockClock
from tests.support.sasl_server import SaslServer, play
from tests.support.tcp_peers import ScriptedPeer
from tests.support.tls_peers import TlsPeer, server_context

if TYPE_CHECKING:
    from types import TracebackType

    from client_core.network.channel_builder import Authenticators, Transports
    from client_core.network.selectable import ChannelState

USERNAME: Final = "myuser"
PASSWORD: Final = "mypassword"

#: The session lifetime of Java's tests.
SESSION_MS: Final = 100

HOST: Final = "localhost"
NODE: Final = 0
CLIENT_ID: Final = "pilotfish"


@cache
def _authority() -> Authority:
    return Authority()


class SaslRig:
    """One broker; `tls` for both sides."""

    def __init__(self, *mechanisms: str, tls: bool) -> None:
        self.clock = MockClock()
        self.server = SaslServer(self.clock, mechanisms, passwords={USERNAME: PASSWORD})
        self._tls = tls
        self._closing = ExitStack()
        self._random = random.Random(4)

    def __enter__(self) -> Self:
        script = play(self.server)
        peer = (
            TlsPeer(server_context(_authority().issue(HOST)), script) if self._tls else ScriptedPeer(script)
        )
        self._peer = self._closing.enter_context(peer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing.close()

    # -- clients ---------------------------------------------------------------------------------------------

    def client(self, mechanism: str, username: str = USERNAME, password: str = PASSWORD) -> Selector:
        """A client with that mechanism; connected to nothing yet."""
        return self.client_with(self.authenticators(password_config(mechanism, username, password)))

    def client_with(self, authenticators: Authenticators) -> Selector:
        builder = LayeredChannelBuilder(self._transports(), authenticators)
        selector = Selector(NetworkConfig(), builder, self.clock)
        self._closing.callback(selector.close)
        return selector

    def client_without_sasl(self) -> Selector:
        """A client that a test authenticates by hand."""
        return self.client_with(NoAuthentication())

    def authenticators(self, config: SaslConfig) -> SaslAuthenticators:
        made = SaslAuthenticators(config, client_id=CLIENT_ID, clock=self.clock, random=random.Random(2))
        self._closing.callback(made.close)
        return made

    def _transports(self) -> Transports:
        if not self._tls:
            return PlaintextTransports()
        truststore = SecretSource("ssl.truststore.certificates", text=_authority().certificate)
        return SslTransports(SslContexts(SslConfig(truststore=truststore)))

    # -- connections -----------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        return self._peer.address[1]

    def connect(self, selector: Selector, node: int = NODE) -> None:
        selector.connect(node, HOST, self._peer.address, BUFFER_BYTES, BUFFER_BYTES)

    def connect_and_check(self, selector: Selector, node: int = NODE) -> None:
        self.connect(selector, node)
        wait_for_channel_ready(selector, node)
        self.check_client_connection(selector, node)

    def check_client_connection(
        self, selector: Selector, node: int = NODE, *, min_size: int = 100, messages: int = 10
    ) -> None:
        """Sends so many messages one after another, and has them all echoed in their order."""
        sent = [f"{i}-{'x' * (min_size + self._random.randrange(10))}".encode() for i in range(messages)]
        for message in sent:
            assert self.exchange(selector, message, node) == message

    def exchange(self, selector: Selector, message: bytes, node: int = NODE) -> bytes:
        """The next frame that comes after a message was sent."""
        selector.send(node, [message])
        while True:
            selector.poll(PATIENCE_MS)
            assert not selector.disconnected, selector.disconnected
            for receive in selector.completed_receives:
                return receive.payload

    def let_the_session_run_out(self) -> None:
        self.clock.advance(SESSION_MS + SESSION_MS // 10)

    def let_the_session_nearly_run_out(self) -> None:
        """A client then renews it, and the broker still takes requests that are on their way."""
        self.clock.advance(SESSION_MS - SESSION_MS // 25)

    def connect_and_fail(self, selector: Selector, node: int = NODE) -> ChannelState:
        """How the connection ended."""
        self.connect(selector, node)
        return wait_for_channel_close(selector, node)


def wait_for_channel_ready(selector: Selector, node: int = NODE) -> None:
    while not selector.is_channel_ready(node):
        selector.poll(PATIENCE_MS)
        assert node not in selector.disconnected, selector.disconnected


def wait_for_channel_close(selector: Selector, node: int = NODE) -> ChannelState:
    """The channel's last state."""
    while node not in selector.disconnected:
        selector.poll(PATIENCE_MS)
    return selector.disconnected[node]


def password_config(mechanism: str, username: str = USERNAME, password: str = PASSWORD) -> SaslConfig:
    return SaslConfig(
        mechanism,
        username=SecretSource("sasl.username", text=username),
        password=SecretSource("sasl.password", text=password),
    )
