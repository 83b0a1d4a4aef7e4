"""The authentication on literal bytes: the order of messages, and the meaning of each answer."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING, Final

import pytest

from client_core.error_codes import Errors
from client_core.errors import (
    ApiError,
    DisconnectError,
    IllegalSaslStateError,
    IllegalStateError,
    SaslAuthenticationError,
    SchemaError,
    UnknownServerError,
    UnsupportedSaslMechanismError,
)
from client_core.network.sasl.sasl_client import PlainSaslClient
from client_core.network.sasl.sasl_client_authenticator import SaslClientAuthenticator
from client_core.network.sasl.scram_sasl_client import ScramMechanism, ScramSaslClient
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse

if TYPE_CHECKING:
    from client_core.network.sasl.sasl_client import SaslClient

#: 2147483640 and its followers.
ID_0, ID_1, ID_2 = (b"\x7f\xff\xff\xf8", b"\x7f\xff\xff\xf9", b"\x7f\xff\xff\xfa")

CLIENT_ID: Final = b"\x00\x02me"

#: ApiVersions v0, an answer with SaslHandshake 0-1 and SaslAuthenticate 0-2.
VERSIONS: Final = (
    b"\x00\x00"  # no error
    b"\x00\x00\x00\x02"
    b"\x00\x11\x00\x00\x00\x01"  # SaslHandshake
    b"\x00\x24\x00\x00\x00\x02"  # SaslAuthenticate
)
#: The same of a broker that knows SaslHandshake 0 only.
OLD_VERSIONS: Final = b"\x00\x00\x00\x00\x00\x01\x00\x11\x00\x00\x00\x00"

HANDSHAKE_OK: Final = SaslHandshakeResponse(0, ("PLAIN",)).encode(1)


def plain(seed: int = 1) -> SaslClientAuthenticator:
    return SaslClientAuthenticator(
        "PLAIN", lambda: PlainSaslClient("alice", "secret"), "me", random.Random(seed)
    )


def say(authenticator: SaslClientAuthenticator, received: bytes | None, now_ms: int = 0) -> bytes | None:
    """What it answers, in one piece."""
    pieces = authenticator.authenticate(received, now_ms)
    return None if pieces is None else b"".join(pieces)


def outcome(
    lifetime_ms: int = 0, error: int = 0, message: str | None = None, *, correlation_id: bytes = ID_2
) -> bytes:
    """SaslAuthenticate v2's answer."""
    return correlation_id + b"\x00" + SaslAuthenticateResponse(error, message, b"", lifetime_ms).encode(2)


def handshaken() -> SaslClientAuthenticator:
    """One that awaits the answer to its handshake."""
    authenticator = plain()
    say(authenticator, None)
    say(authenticator, ID_0 + VERSIONS)
    return authenticator


def awaiting_the_outcome() -> SaslClientAuthenticator:
    authenticator = handshaken()
    say(authenticator, ID_1 + HANDSHAKE_OK)
    return authenticator


def authenticated(lifetime_ms: int, seed: int = 1, now_ms: int = 0) -> SaslClientAuthenticator:
    authenticator = plain(seed)
    say(authenticator, None)
    say(authenticator, ID_0 + VERSIONS)
    say(authenticator, ID_1 + HANDSHAKE_OK)
    assert say(authenticator, outcome(lifetime_ms), now_ms) is None
    assert authenticator.complete
    return authenticator


@pytest.mark.behaviour("SASL-01", "SASL-05", "NET-24")
def test_plain_byte_for_byte() -> None:
    authenticator = plain()
    assert repr(authenticator) == "<SaslClientAuthenticator PLAIN SEND_API_VERSIONS_REQUEST>"
    assert say(authenticator, None) == (
        b"\x00\x12"  # ApiVersions
        b"\x00\x00"  # v0, always
        b"\x7f\xff\xff\xf8" + CLIENT_ID
    )
    assert say(authenticator, ID_0 + VERSIONS) == (
        b"\x00\x11"  # SaslHandshake
        b"\x00\x01"  # v1
        b"\x7f\xff\xff\xf9" + CLIENT_ID + b"\x00\x05PLAIN"
    )
    assert (
        say(authenticator, ID_1 + HANDSHAKE_OK)
        == (
            b"\x00\x24"  # SaslAuthenticate
            b"\x00\x02"  # v2
            b"\x7f\xff\xff\xfa" + CLIENT_ID + b"\x00"  # no tags
            b"\x0e\x00alice\x00secret"  # thirteen bytes
            b"\x00"  # no tags
        )
    )
    assert say(authenticator, outcome()) is None
    assert authenticator.complete
    assert authenticator.reauthenticates_at_ms is None
    assert repr(authenticator) == "<SaslClientAuthenticator PLAIN COMPLETE>"


@pytest.mark.behaviour("SASL-01")
def test_a_broker_before_kafka_1_0_gets_its_tokens_raw_and_one_may_know_first_versions_only() -> None:
    authenticator = plain()
    say(authenticator, None)
    handshake = say(authenticator, ID_0 + OLD_VERSIONS)
    assert handshake is not None
    assert handshake.startswith(b"\x00\x11\x00\x00")
    assert say(authenticator, ID_1 + HANDSHAKE_OK) == b"\x00alice\x00secret"
    assert say(authenticator, b"") is None
    assert authenticator.complete
    authenticator = plain()
    say(authenticator, None)
    first_versions = b"\x00\x00\x00\x00\x00\x02\x00\x11\x00\x00\x00\x00\x00\x24\x00\x00\x00\x00"
    say(authenticator, ID_0 + first_versions)
    assert say(authenticator, ID_1 + HANDSHAKE_OK) == (
        b"\x00\x24\x00\x00\x7f\xff\xff\xfa" + CLIENT_ID + b"\x00\x00\x00\x0d\x00alice\x00secret"
    )
    assert say(authenticator, ID_2 + SaslAuthenticateResponse(0, None).encode(0)) is None
    assert authenticator.complete


def test_credentials_are_asked_for_when_it_begins_and_may_be_missing() -> None:
    def none() -> SaslClient:
        raise DisconnectError("there is no OAUTHBEARER token yet")

    authenticator = SaslClientAuthenticator("OAUTHBEARER", none, "me", random.Random(1))
    with pytest.raises(DisconnectError, match="no OAUTHBEARER token yet"):
        authenticator.authenticate(None, 0)
    assert repr(authenticator) == "<SaslClientAuthenticator OAUTHBEARER FAILED>"
    with pytest.raises(IllegalStateError, match="SASL authentication is FAILED already"):
        authenticator.authenticate(None, 0)


@pytest.mark.behaviour("SASL-02")
def test_a_handshake_is_refused() -> None:
    enabled = "enabled mechanisms are [GSSAPI, SCRAM-SHA-256]"
    refusals: dict[int, tuple[type[ApiError], str]] = {
        33: (UnsupportedSaslMechanismError, "Client SASL mechanism 'PLAIN' not enabled in the server"),
        34: (IllegalSaslStateError, "Unexpected handshake request with client mechanism PLAIN"),
        -1: (IllegalSaslStateError, "Unknown error code UNKNOWN_SERVER_ERROR, client mechanism is PLAIN"),
    }
    for code, (kind, said) in refusals.items():
        response = SaslHandshakeResponse(code, ("GSSAPI", "SCRAM-SHA-256")).encode(1)
        with pytest.raises(kind) as caught:
            say(handshaken(), ID_1 + response)
        assert caught.value.message == f"{said}, {enabled}"


@pytest.mark.behaviour("SASL-03")
def test_an_authentication_is_refused() -> None:
    refusals: dict[tuple[int, str | None], tuple[type[ApiError], str]] = {
        (58, "the broker's own words"): (SaslAuthenticationError, "the broker's own words"),
        (58, None): (SaslAuthenticationError, Errors.SASL_AUTHENTICATION_FAILED.message),
        (34, "not now"): (IllegalSaslStateError, "not now"),
        (33, "not that one"): (UnsupportedSaslMechanismError, "not that one"),
        (-1, "oops"): (
            UnknownServerError,
            "the broker answered SaslAuthenticate with UNKNOWN_SERVER_ERROR: oops",
        ),
    }
    for (code, message), (kind, said) in refusals.items():
        authenticator = awaiting_the_outcome()
        with pytest.raises(kind) as caught:
            say(authenticator, outcome(0, code, message))
        assert (caught.value.message, caught.value.code) == (said, code)
        assert not authenticator.complete


def test_the_objection_of_a_mechanism_has_javas_words() -> None:
    authenticator = SaslClientAuthenticator(
        "SCRAM-SHA-256",
        lambda: ScramSaslClient(ScramMechanism.SCRAM_SHA_256, "alice", "secret", {}),
        "me",
        random.Random(1),
    )
    say(authenticator, None)
    say(authenticator, ID_0 + OLD_VERSIONS)
    say(authenticator, ID_1 + HANDSHAKE_OK)
    with pytest.raises(SaslAuthenticationError) as caught:
        say(authenticator, b"nonsense")
    assert caught.value.message == (
        "An error: (Invalid SCRAM server first message format: nonsense) occurred when evaluating SASL token"
        " received from the Kafka Broker. Kafka Client will go to AUTHENTICATION_FAILED state."
    )


def test_a_frame_that_is_no_answer_hints_at_another_protocol() -> None:
    for frame in (b"", b"\x7f", ID_1, ID_1 + b"\x00", b"\x00\x00\x00\x05" + HANDSHAKE_OK):
        authenticator = handshaken()
        assert authenticator.expects(frame)
        with pytest.raises(IllegalSaslStateError) as caught:
            say(authenticator, frame)
        assert caught.value.message == (
            "Invalid SASL mechanism response, server may be expecting a different protocol"
        )
        assert isinstance(caught.value.__cause__, SchemaError)


@pytest.mark.behaviour("SASL-06")
def test_a_session_is_renewed_after_85_to_95_per_cent_of_it_differently_from_connection_to_connection() -> (
    None
):
    moments_ms = []
    for seed in range(50):
        at_ms = authenticated(lifetime_ms=100_000, seed=seed, now_ms=7).reauthenticates_at_ms
        assert at_ms is not None
        assert 85_000 <= at_ms - 7 <= 95_000, seed
        moments_ms.append(at_ms)
    assert len(set(moments_ms[:20])) > 15
    assert authenticated(lifetime_ms=0).reauthenticates_at_ms is None
    assert authenticated(lifetime_ms=-1).reauthenticates_at_ms is None


@pytest.mark.behaviour("SASL-06")
def test_a_reauthentication_begins_with_the_handshake() -> None:
    authenticator = authenticated(lifetime_ms=10_000)
    authenticator.reauthenticate()
    assert repr(authenticator) == "<SaslClientAuthenticator PLAIN SEND_HANDSHAKE_REQUEST>"
    assert say(authenticator, None, 9_000) == (
        b"\x00\x11\x00\x01\x7f\xff\xff\xf8" + CLIENT_ID + b"\x00\x05PLAIN"
    )
    token = say(authenticator, ID_0 + HANDSHAKE_OK, 9_000)
    assert token is not None
    assert token.startswith(b"\x00\x24\x00\x02\x7f\xff\xff\xf9")
    assert say(authenticator, outcome(10_000, correlation_id=ID_1), 9_000) is None
    assert authenticator.complete
    at_ms = authenticator.reauthenticates_at_ms
    assert at_ms is not None
    assert at_ms >= 9_000 + 8_500


@pytest.mark.behaviour("SASL-06")
def test_a_renewed_session_may_have_no_end_and_is_renewed_again_after_a_second_at_least() -> None:
    for lifetime_ms, now_ms, next_lifetime_ms, next_ms in ((10_000, 9_000, 0, None), (10, 10, 10, 1_010)):
        authenticator = authenticated(lifetime_ms)
        if lifetime_ms == 10:
            assert authenticator.reauthenticates_at_ms in (8, 9)
        authenticator.reauthenticate()
        say(authenticator, None, now_ms)
        say(authenticator, ID_0 + HANDSHAKE_OK, now_ms)
        say(authenticator, outcome(next_lifetime_ms, correlation_id=ID_1), now_ms)
        assert authenticator.complete
        assert authenticator.reauthenticates_at_ms == next_ms


@pytest.mark.behaviour("SASL-06", "NET-24")
def test_only_reserved_ids_are_its_own_while_it_reauthenticates() -> None:
    authenticator = authenticated(lifetime_ms=10_000)
    authenticator.reauthenticate()
    say(authenticator, None)
    assert not authenticator.expects(b"\x00\x00\x00\x05an answer to Metadata")
    assert not authenticator.expects(b"\x80\x00\x00\x00an answer, much later")
    assert not authenticator.expects(b"\x7f\xff\xff\xf7the last id before the reserved ones")
    assert authenticator.expects(ID_0)
    assert authenticator.expects(b"\x7f")


def test_each_authentication_asks_for_the_credentials_anew() -> None:
    passwords = iter(["old", "new"])
    authenticator = SaslClientAuthenticator(
        "PLAIN", lambda: PlainSaslClient("alice", next(passwords)), "me", random.Random(1)
    )
    say(authenticator, None)
    say(authenticator, ID_0 + VERSIONS)
    assert b"\0alice\0old" in (say(authenticator, ID_1 + HANDSHAKE_OK) or b"")
    say(authenticator, outcome(10_000))
    authenticator.reauthenticate()
    say(authenticator, None)
    assert b"\0alice\0new" in (say(authenticator, ID_0 + HANDSHAKE_OK) or b"")


def test_a_broker_that_lists_versions_below_zero_is_refused() -> None:
    """Once they were taken for versions to ask in, and the error was about our own limits."""
    for version, api in product((-2, -1), (b"\x00\x11", b"\x00\x24")):
        authenticator = plain()
        say(authenticator, None)
        listed = api + b"\x00\x00" + version.to_bytes(2, "big", signed=True)
        said = rf"the broker lists Sasl[A-Za-z]+ up to version {version}"
        with pytest.raises(IllegalSaslStateError, match=said):
            say(authenticator, ID_0 + b"\x00\x00\x00\x00\x00\x01" + listed)
        assert not authenticator.complete
