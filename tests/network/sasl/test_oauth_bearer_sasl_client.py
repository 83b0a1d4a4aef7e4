"""OAUTHBEARER on literal bytes. After OAuthBearerSaslClientTest and OAuthBearerClientInitialResponseTest."""

from __future__ import annotations

import pytest

from client_core.errors import ConfigError, IllegalSaslStateError, SaslAuthenticationError
from client_core.network.sasl.oauth_bearer_sasl_client import (
    OAuthBearerSaslClient,
    client_initial_response,
    validate_extensions,
)
from client_core.testing.sasl import OAuthBearerServer, Refused


def test_the_first_message_carries_the_token() -> None:
    assert client_initial_response("123.345.567", {}) == b"n,,\x01auth=Bearer 123.345.567\x01\x01"


def test_extensions_follow_the_token() -> None:
    assert client_initial_response("123.345.567", {"propA": "valueA1, valueA2", "propB": "valueB"}) == (
        b"n,,\x01auth=Bearer 123.345.567\x01propA=valueA1, valueA2\x01propB=valueB\x01\x01"
    )


def test_an_empty_answer_is_consent() -> None:
    client = OAuthBearerSaslClient("a.b.c", {})
    client.evaluate_challenge(b"")
    assert client.evaluate_challenge(b"") is None
    assert client.complete
    with pytest.raises(IllegalSaslStateError, match="Unexpected challenge in Sasl client state COMPLETE"):
        client.evaluate_challenge(b"")


def test_an_error_is_answered_with_one_byte_so_that_the_refusal_may_come() -> None:
    client = OAuthBearerSaslClient("a.b.c", {})
    client.evaluate_challenge(b"")
    assert client.evaluate_challenge(b'{"status":"invalid_token"}') == b"\x01"
    assert not client.complete
    with pytest.raises(IllegalSaslStateError, match="RECEIVE_SERVER_MESSAGE_AFTER_FAILURE"):
        client.evaluate_challenge(b"more")


def test_nothing_may_come_before_the_first_message() -> None:
    with pytest.raises(SaslAuthenticationError, match="Expected empty challenge"):
        OAuthBearerSaslClient("a.b.c", {}).evaluate_challenge(b"x")


def test_a_server_reads_token_and_extensions() -> None:
    server = OAuthBearerServer({"a.b.c": "alice"})
    client = OAuthBearerSaslClient("a.b.c", {"logicalCluster": "lkc-1"})
    first = client.evaluate_challenge(b"")
    assert first is not None
    assert client.evaluate_challenge(server.evaluate(first)) is None
    assert server.principal == "alice"
    assert server.extensions == {"logicalCluster": "lkc-1"}


def test_a_server_refuses_after_the_one_byte() -> None:
    server = OAuthBearerServer({})
    client = OAuthBearerSaslClient("a.b.c", {})
    first = client.evaluate_challenge(b"")
    assert first is not None
    second = client.evaluate_challenge(server.evaluate(first))
    assert second is not None
    with pytest.raises(Refused, match="a lone"):
        server.evaluate(second)


@pytest.mark.parametrize("name", ["auth", "", "propA1", "prop-A", "prop A"])
def test_names_that_no_extension_may_have(name: str) -> None:
    with pytest.raises(ConfigError, match=f"Extension name {name} is invalid"):
        validate_extensions({name: "value"}, "sasl.jaas.config")


@pytest.mark.parametrize("value", ["", "a\x01b", "naïve"])
def test_values_that_no_extension_may_have_are_not_shown(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_extensions({"traceId": value}, "sasl.jaas.config")
    assert str(caught.value) == (
        "sasl.jaas.config: Extension value for extension traceId is invalid: printable ASCII only"
    )


def test_repr_shows_no_token() -> None:
    assert repr(OAuthBearerSaslClient("a.b.c", {})) == "<OAuthBearerSaslClient SEND_CLIENT_FIRST_MESSAGE>"
