"""NetworkClient over SASL: versions are asked for after the log-in, and callers don't notice its renewal."""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from client_core.client.api_versions import ApiVersionsRequestBuilder
from client_core.client.metadata_updater import ManualMetadataUpdater
from client_core.client.network_client import NetworkClient
from client_core.cluster import Node
from client_core.errors import SaslAuthenticationError
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from tests.client.client_builders import TEST_CONFIG
from tests.network.sasl.sasl_rig import HOST, SESSION_MS, USERNAME, SaslRig
from tests.network.tls_selector import PATIENCE_MS
from tests.support.mock_resolver import MockResolver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from client_core.client.kafka_client import ClientResponse

PLAIN = "PLAIN"


class ClientRig:
    """A client of one broker with SASL."""

    def __init__(self, broker: SaslRig, password: str) -> None:
        self.node = Node(0, HOST, broker.port)
        self.clock = broker.clock
        self.client = NetworkClient(
            broker.client(PLAIN, USERNAME, password),
            ManualMetadataUpdater([self.node]),
            replace(
                TEST_CONFIG,
                request_timeout_ms=30_000,
                connection_setup_timeout_ms=10_000,
                connection_setup_timeout_max_ms=30_000,
            ),
            MockResolver("127.0.0.1"),
            random.Random(1),
        )

    def poll(self, timeout_ms: int = PATIENCE_MS) -> list[ClientResponse]:
        return list(self.client.poll(timeout_ms, self.clock.now_ms()))

    def wait_until_ready(self) -> None:
        while not self.client.ready(self.node, self.clock.now_ms()):
            self.poll()

    def send(self) -> None:
        """A request that the broker answers: which one does not matter."""
        now_ms = self.clock.now_ms()
        builder = ApiVersionsRequestBuilder("pilotfish", "1")
        self.client.send(
            self.client.new_client_request(self.node.id, builder, now_ms, expect_response=True), now_ms
        )

    def can_send(self) -> bool:
        return self.client.can_send_request(self.node.id, self.clock.now_ms())


@contextmanager
def rig(*, password: str = "mypassword", session_lifetime_ms: int = 0) -> Iterator[tuple[SaslRig, ClientRig]]:
    with SaslRig(PLAIN, tls=False) as broker:
        broker.server.session_lifetime_ms = session_lifetime_ms
        yield broker, ClientRig(broker, password)


@pytest.mark.behaviour("SASL-01", "NET-14")
def test_versions_are_asked_for_again_once_we_are_known() -> None:
    with rig() as (broker, it):
        it.wait_until_ready()
        assert broker.server.requests == [("ApiVersions", 0), ("SaslHandshake", 1), ("SaslAuthenticate", 2)]
        assert broker.server.authentications == 1
        it.send()
        [response] = it.poll() or it.poll()
        assert isinstance(response.body, ApiVersionsResponse)


@pytest.mark.behaviour("SASL-03")
def test_a_refusal_is_kept_as_the_nodes_error() -> None:
    with rig(password="wrong") as (_, it):
        it.client.ready(it.node, it.clock.now_ms())
        while not it.client.connection_failed(it.node):
            it.poll()
        error = it.client.authentication_error(it.node)
        assert isinstance(error, SaslAuthenticationError)
        assert error.message == "Authentication failed: Invalid username or password"


@pytest.mark.behaviour("SASL-06", "NET-04")
def test_a_request_that_waits_for_the_renewal_is_sent_and_no_other_one_with_it() -> None:
    with rig(session_lifetime_ms=SESSION_MS) as (broker, it):
        it.wait_until_ready()
        broker.let_the_session_run_out()
        it.send()
        turns = 0
        responses: list[ClientResponse] = []
        while not it.can_send():
            responses += it.poll()
            turns += 1
        assert turns > 1  # one to begin, one for the handshake's answer, one for the outcome
        assert broker.server.reauthentications == 1
        while not responses:
            responses = it.poll()
        assert isinstance(responses[0].body, ApiVersionsResponse)


@pytest.mark.behaviour("SASL-06")
def test_requests_in_flight_are_answered_in_their_order_through_a_renewal() -> None:
    with rig(session_lifetime_ms=SESSION_MS) as (broker, it):
        it.wait_until_ready()
        broker.server.holds_answers = True
        for _ in range(3):
            it.send()
            while not it.can_send():
                it.poll(0)  # what is written only: no answer comes
        broker.let_the_session_nearly_run_out()
        it.send()
        responses: list[ClientResponse] = []
        while len(responses) < 4:
            responses += it.poll()
        ids = [response.request.correlation_id for response in responses]
        assert ids == sorted(ids)
        assert not any(response.disconnected for response in responses)
        assert broker.server.reauthentications == 1


@pytest.mark.behaviour("SASL-06")
def test_a_renewal_that_fails_ends_the_connection_with_the_refusal() -> None:
    with rig(session_lifetime_ms=SESSION_MS) as (broker, it):
        it.wait_until_ready()
        broker.server.authenticate_error = (58, "your account was closed")
        broker.let_the_session_run_out()
        it.send()
        responses: list[ClientResponse] = []
        while not responses:
            responses = it.poll()
        assert responses[0].disconnected
        error = it.client.authentication_error(it.node)
        assert isinstance(error, SaslAuthenticationError)
        assert error.message == "your account was closed"
