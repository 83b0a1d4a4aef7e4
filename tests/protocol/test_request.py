"""The throttle time of any response."""

from __future__ import annotations

from client_core.protocol.messages.produce_response import ProduceResponse
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from client_core.protocol.request import throttle_time_ms


def test_throttle_time_is_that_of_the_response() -> None:
    assert throttle_time_ms(ProduceResponse(throttle_time_ms=100)) == 100


def test_a_response_without_the_field_asks_for_no_pause() -> None:
    assert throttle_time_ms(SaslHandshakeResponse()) == 0
    assert throttle_time_ms(None) == 0
