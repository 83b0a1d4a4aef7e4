"""Authentication and re-authentication over loopback: the real Selector, a broker's side of SASL, and TLS.

Twins of SaslAuthenticatorTest (Kafka 4.3), by name. Its server echoes, and so does ours. Java's test reads
the server's metrics; here the fields of SaslServer have the same figures.
"""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING, Final

import pytest

from client_core.error_codes import Errors
from client_core.errors import (
    ConfigError,
    CorrelationIdMismatchError,
    DisconnectError,
    IllegalSaslStateError,
    SaslAuthenticationError,
    SchemaError,
    UnsupportedSaslMechanismError,
)
from client_core.network.sasl.sasl_client import PlainSaslClient
from client_core.network.sasl.sasl_client_authenticator import (
    MAX_RESERVED_CORRELATION_ID,
    MIN_RESERVED_CORRELATION_ID,
    SaslClientAuthenticator,
    is_reserved,
)
from client_core.network.sasl.scram_sasl_client import ScramMechanism
from client_core.network.secret import SecretSource
from client_core.network.security_config import OAuthBearerConfig, SaslConfig
from client_core.network.selectable import ChannelStateName
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_request_header, decode_response_header, encode_request_header
from client_core.protocol.messages.api_versions_request import ApiVersionsRequest
from client_core.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from client_core.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.network.sasl.jwts import jwt_of
from tests.network.sasl.sasl_rig import (
    CLIENT_ID,
    NODE,
    PASSWORD,
    SESSION_MS,
    USERNAME,
    SaslRig,
    password_config,
    wait_for_channel_close,
    wait_for_channel_ready,
)
from tests.network.tls_selector import PATIENCE_MS
from tests.support.sasl_server import WITHOUT_SASL_AUTHENTICATE, Fault

if TYPE_CHECKING:
    from pathlib import Path

    from client_core.network.authenticator import Authenticator
    from client_core.network.selectable import ChannelState
    from client_core.network.selector import Selector

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM_256: Final = "SCRAM-SHA-256"
SCRAM_512: Final = "SCRAM-SHA-512"

INVALID_CREDENTIALS: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
)

LEFT_OUT: Final = {
    "SaslAuthenticatorTest.ReauthenticateWithLargeReauthValue": "Java counts the session's end in"
    " nanoseconds, which overflow, and closes the channel for it; here they are milliseconds without a bound,"
    " and test_a_session_of_two_hundred_million_years_is_one_without_an_end shows that the connection stays",
}


def over(security: str, *mechanisms: str) -> SaslRig:
    return SaslRig(*mechanisms, tls=security == "SASL_SSL")


def refusal_of(state: ChannelState) -> SaslAuthenticationError:
    """The error of a channel that the broker refused."""
    assert state.name is ChannelStateName.AUTHENTICATION_FAILED
    assert isinstance(state.error, SaslAuthenticationError)
    return state.error


def counts(rig: SaslRig) -> tuple[int, int, int, int]:
    """Authentications, those that failed, re-authentications, those that failed."""
    server = rig.server
    good, bad = server.authentications, server.failed_authentications
    return good, bad, server.reauthentications, server.failed_reauthentications


def check_authentication_and_reauthentication(rig: SaslRig, selector: Selector) -> None:
    """Connects, lets the session run out, and goes on: the first send then renews it."""
    rig.server.session_lifetime_ms = SESSION_MS
    rig.connect_and_check(selector)
    assert counts(rig) == (1, 0, 0, 0)
    rig.let_the_session_run_out()
    rig.check_client_connection(selector)
    assert counts(rig) == (1, 0, 1, 0)


# -- good credentials ----------------------------------------------------------------------------------------


@pytest.mark.behaviour("SASL-01", "SASL-04", "SASL-05", "SASL-06")
@pytest.mark.java(
    "SaslAuthenticatorTest.ValidSaslPlainOverSsl",
    "SaslAuthenticatorTest.ValidSaslPlainOverPlaintext",
    "SaslAuthenticatorTest.ValidSaslScramSha256",
)
@pytest.mark.parametrize(
    ("security", "mechanism"), [("SASL_SSL", PLAIN), ("SASL_PLAINTEXT", PLAIN), ("SASL_SSL", SCRAM_256)]
)
def test_valid_credentials(security: str, mechanism: str) -> None:
    with over(security, mechanism) as rig:
        check_authentication_and_reauthentication(rig, rig.client(mechanism))


@pytest.mark.behaviour("SASL-06")
@pytest.mark.java("SaslAuthenticatorTest.RepeatedValidSaslPlainOverSsl")
def test_repeated_valid_sasl_plain_over_ssl() -> None:
    with over("SASL_SSL", PLAIN) as rig:
        lifetime_ms = rig.server.session_lifetime_ms = int(1.1 * 1000 / 0.85)
        selector = rig.client(PLAIN)
        rig.connect_and_check(selector)
        assert rig.server.reauthentications == 0
        for _ in range(5):
            rig.clock.advance(lifetime_ms)
            rig.check_client_connection(selector)
        assert counts(rig) == (1, 0, 5, 0)


@pytest.mark.behaviour("SASL-04")
@pytest.mark.java(
    "SaslAuthenticatorTest.ValidSaslScramMechanisms",
    "SaslAuthenticatorTest.ScramUsernameWithSpecialCharacters",
)
def test_valid_sasl_scram_mechanisms_and_user_names() -> None:
    mechanisms = [mechanism.mechanism_name for mechanism in ScramMechanism]
    username = "special user= test,scram"
    with over("SASL_SSL", *mechanisms) as rig:
        for mechanism in mechanisms:
            rig.connect_and_check(rig.client(mechanism))
        assert rig.server.authentications == len(mechanisms) == 2
        rig.server.passwords[username] = f"{username}-password"
        rig.connect_and_check(rig.client(SCRAM_256, username, f"{username}-password"))
        assert rig.server.authentications == 3


@pytest.mark.java("SaslAuthenticatorTest.MultipleServerMechanisms")
def test_multiple_server_mechanisms() -> None:
    """Java's third mechanism is DIGEST-MD5, which this client does not have."""
    with over("SASL_SSL", SCRAM_512, PLAIN, SCRAM_256) as rig:
        rig.server.session_lifetime_ms = SESSION_MS
        selectors = [rig.client(mechanism) for mechanism in (PLAIN, SCRAM_512, SCRAM_256)]
        for count, selector in enumerate(selectors, 1):
            rig.connect_and_check(selector)
            assert (rig.server.authentications, rig.server.failed_authentications) == (count, 0)
        rig.let_the_session_run_out()
        for count, selector in enumerate(selectors[1:], 1):
            rig.check_client_connection(selector)
            assert rig.server.reauthentications == count
        assert rig.server.failed_reauthentications == 0


# -- bad ones ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SASL-03")
@pytest.mark.java(
    "SaslAuthenticatorTest.InvalidPasswordSaslPlain",
    "SaslAuthenticatorTest.InvalidUsernameSaslPlain",
    "SaslAuthenticatorTest.InvalidPasswordSaslScram",
    "SaslAuthenticatorTest.UnknownUserSaslScram",
)
@pytest.mark.parametrize(
    ("mechanism", "message"),
    [(PLAIN, "Authentication failed: Invalid username or password"), (SCRAM_256, INVALID_CREDENTIALS)],
)
def test_invalid_credentials(mechanism: str, message: str) -> None:
    with over("SASL_SSL", mechanism) as rig:
        for failed, given in enumerate([(USERNAME, "invalidpassword"), ("invaliduser", PASSWORD)], 1):
            refusal = refusal_of(rig.connect_and_fail(rig.client(mechanism, *given)))
            assert refusal.message == message
            assert counts(rig) == (0, failed, 0, 0)


@pytest.mark.java(
    "SaslAuthenticatorTest.MissingUsernameSaslPlain", "SaslAuthenticatorTest.MissingPasswordSaslPlain"
)
def test_missing_credentials_sasl_plain() -> None:
    """Java fails when it connects, and makes no channel; here making the client fails."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    with over("SASL_SSL", PLAIN) as rig:
        for options, missing in (('password="mypassword"', "username"), ('username="myuser"', "password")):
            jaas = SecretSource("sasl.jaas.config", text=f"{module} required {options};")
            with pytest.raises(ConfigError, match=f"{missing} is missing") as caught:
                rig.authenticators(SaslConfig(PLAIN, jaas_config=jaas))
            assert caught.value.name == "sasl.jaas.config"


@pytest.mark.java("SaslAuthenticatorTest.UserCredentialsUnavailableForScramMechanism")
def test_user_credentials_unavailable_for_scram_mechanism() -> None:
    with over("SASL_SSL", SCRAM_256, SCRAM_512) as rig:
        rig.server.scram_passwords[SCRAM_256] = {}
        refusal = refusal_of(rig.connect_and_fail(rig.client(SCRAM_256)))
        assert refusal.message == INVALID_CREDENTIALS
        assert (rig.server.authentications, rig.server.failed_authentications) == (0, 1)
        rig.connect_and_check(rig.client(SCRAM_512))
        assert counts(rig) == (1, 1, 0, 0)


class _Unreachable(dict[str, str]):
    """Passwords in a database that does not answer."""

    def __contains__(self, name: object) -> bool:
        raise OSError("Could not connect to password database localhost:8000")


@pytest.mark.java("SaslAuthenticatorTest.ClientExceptionDoesNotContainSensitiveData")
def test_client_exception_does_not_contain_sensitive_data() -> None:
    with over("SASL_PLAINTEXT", SCRAM_256) as rig:
        rig.server.scram_passwords[SCRAM_256] = _Unreachable()
        assert refusal_of(rig.connect_and_fail(rig.client(SCRAM_256))).message == INVALID_CREDENTIALS

        rig.server.authenticate_error = (
            Errors.SASL_AUTHENTICATION_FAILED.code,
            "Credential verification failed",
        )
        refusal = refusal_of(rig.connect_and_fail(rig.client(SCRAM_256)))
        assert refusal.message == "Credential verification failed"


# -- mechanisms ----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SASL-02")
@pytest.mark.java("SaslAuthenticatorTest.DisabledMechanism")
def test_disabled_mechanism() -> None:
    with over("SASL_SSL", "DIGEST-MD5", "GSSAPI") as rig:
        state = rig.connect_and_fail(rig.client(PLAIN))
        assert state.name is ChannelStateName.AUTHENTICATION_FAILED
        assert isinstance(state.error, UnsupportedSaslMechanismError)
        assert state.error.message == (
            "Client SASL mechanism 'PLAIN' not enabled in the server, enabled mechanisms are"
            " [DIGEST-MD5, GSSAPI]"
        )
        assert counts(rig) == (0, 1, 0, 0)


@pytest.mark.java("SaslAuthenticatorTest.InvalidMechanism")
def test_invalid_mechanism() -> None:
    with over("SASL_SSL", PLAIN) as rig:
        with pytest.raises(ConfigError, match=r"sasl\.mechanism=INVALID is unknown"):
            rig.client("INVALID")
        assert (rig.server.authentications, rig.server.failed_authentications) == (0, 0)


@pytest.mark.java("SaslAuthenticatorTest.ForBrokenSaslHandshakeVersionBump")
def test_for_broken_sasl_handshake_version_bump() -> None:
    """Clients before Kafka 2.5 take the broker's word for its latest version (KAFKA-9577)."""
    assert ApiKey.SASL_HANDSHAKE.max_version == 1


@pytest.mark.behaviour("SASL-01")
@pytest.mark.java("SaslAuthenticatorTest.SaslUnsupportedClientVersions")
def test_sasl_unsupported_client_versions() -> None:
    with over("SASL_SSL", SCRAM_512) as rig:
        rig.server.versions = {
            ApiKey.API_VERSIONS.id: (0, 4),
            ApiKey.SASL_HANDSHAKE.id: (0, 100),
            ApiKey.SASL_AUTHENTICATE.id: (0, 100),
        }
        rig.connect_and_check(rig.client(SCRAM_512))
        assert rig.server.requests == [
            ("ApiVersions", 0),
            ("SaslHandshake", 1),
            ("SaslAuthenticate", 2),
            ("SaslAuthenticate", 2),
        ]


#: How Java's tests of servers without SaslAuthenticate go: each way, each kind of mechanism.
OVER_OLD_SERVERS = pytest.mark.parametrize(
    ("security", "mechanism"), [*product(["SASL_PLAINTEXT", "SASL_SSL"], [PLAIN, SCRAM_256])]
)


@OVER_OLD_SERVERS
@pytest.mark.java(
    "SaslAuthenticatorTest.oldSaslPlainPlaintextServerWithoutSaslAuthenticateHeader",
    "SaslAuthenticatorTest.oldSaslScramPlaintextServerWithoutSaslAuthenticateHeader",
    "SaslAuthenticatorTest.oldSaslPlainSslServerWithoutSaslAuthenticateHeader",
    "SaslAuthenticatorTest.oldSaslScramSslServerWithoutSaslAuthenticateHeader",
    "SaslAuthenticatorTest.oldSaslPlainPlaintextServerWithoutSaslAuthenticateHeaderFailure",
    "SaslAuthenticatorTest.oldSaslScramPlaintextServerWithoutSaslAuthenticateHeaderFailure",
    "SaslAuthenticatorTest.oldSaslPlainSslServerWithoutSaslAuthenticateHeaderFailure",
    "SaslAuthenticatorTest.oldSaslScramSslServerWithoutSaslAuthenticateHeaderFailure",
)
@pytest.mark.behaviour("SASL-01")
def test_an_old_server_gets_raw_tokens_and_refuses_by_ending_the_connection(
    security: str, mechanism: str
) -> None:
    """The last state only hints that the connection ended during authentication."""
    with over(security, mechanism) as rig:
        rig.server.versions = WITHOUT_SASL_AUTHENTICATE
        rig.connect_and_check(rig.client(mechanism))
        assert rig.server.requests == [("ApiVersions", 0), ("SaslHandshake", 0)]
        assert rig.server.authentications == 1
        state = rig.connect_and_fail(rig.client(mechanism, USERNAME, "invalidpassword"))
        assert state.name is ChannelStateName.AUTHENTICATE


# -- by hand, with a client that knows no SASL ---------------------------------------------------------------


def ask(rig: SaslRig, selector: Selector, api: ApiKey, version: int, body: bytes) -> tuple[bytes, int]:
    """A request by hand; the answer's frame, and where its message begins."""
    frame = rig.exchange(selector, encode_request_header(api, version, 1, "someclient") + body)
    answered_as = 0 if version > api.max_version else version
    correlation_id, offset = decode_response_header(frame, api, answered_as)
    assert correlation_id == 1
    return frame, offset


def connect_by_hand(rig: SaslRig) -> Selector:
    selector = rig.client_without_sasl()
    rig.connect(selector)
    wait_for_channel_ready(selector)
    return selector


def shake_hands(rig: SaslRig, selector: Selector) -> None:
    body = SaslHandshakeRequest(PLAIN).encode(1)
    frame, offset = ask(rig, selector, ApiKey.SASL_HANDSHAKE, 1, body)
    assert SaslHandshakeResponse.decode(frame, 1, offset) == SaslHandshakeResponse(0, (PLAIN,))


def authenticate_by_hand(rig: SaslRig, selector: Selector) -> None:
    shake_hands(rig, selector)
    token = f"\0{USERNAME}\0{PASSWORD}".encode()
    frame, offset = ask(rig, selector, ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(token).encode(2))
    assert SaslAuthenticateResponse.decode(frame, 2, offset).error_code == 0
    rig.check_client_connection(selector)


def send_and_be_closed(selector: Selector, payload: bytes) -> None:
    selector.send(NODE, [payload])
    assert wait_for_channel_close(selector).name is ChannelStateName.READY


def api_versions_by_hand(rig: SaslRig, selector: Selector, version: int, body: bytes) -> ApiVersionsResponse:
    frame, offset = ask(rig, selector, ApiKey.API_VERSIONS, version, body)
    decoded_as = 0 if version > ApiKey.API_VERSIONS.max_version else version
    return ApiVersionsResponse.decode(frame, decoded_as, offset)


@pytest.mark.java(
    "SaslAuthenticatorTest.ApiVersionsRequestWithServerUnsupportedVersion",
    "SaslAuthenticatorTest.InvalidApiVersionsRequest",
    "SaslAuthenticatorTest.ValidApiVersionsRequest",
)
def test_api_versions_requests_by_hand() -> None:
    for version, request, error in (
        (32767, ApiVersionsRequest("a", "1"), Errors.UNSUPPORTED_VERSION),
        (4, ApiVersionsRequest("  ", "   "), Errors.INVALID_REQUEST),
        (4, ApiVersionsRequest("pilotfish", "1"), Errors.NONE),
    ):
        with over("SASL_PLAINTEXT", PLAIN) as rig:
            selector = connect_by_hand(rig)
            response = api_versions_by_hand(rig, selector, version, request.encode(4))
            assert response.error_code == error.code
            if error is Errors.UNSUPPORTED_VERSION:
                ours = ApiVersion(ApiKey.API_VERSIONS.id, 0, ApiKey.API_VERSIONS.max_version)
                assert ours in response.api_keys
            if error is not Errors.NONE:
                assert api_versions_by_hand(rig, selector, 0, b"").error_code == 0
            authenticate_by_hand(rig, selector)


@pytest.mark.java("SaslAuthenticatorTest.SaslHandshakeRequestWithUnsupportedVersion")
def test_sasl_handshake_request_with_unsupported_version() -> None:
    with over("SASL_PLAINTEXT", PLAIN) as rig:
        header = encode_request_header(ApiKey.SASL_HANDSHAKE, 32767, 2, "someclient")
        send_and_be_closed(connect_by_hand(rig), header + SaslHandshakeRequest(PLAIN).encode(1))
        rig.connect_and_check(rig.client(PLAIN))


@pytest.mark.java("SaslAuthenticatorTest.InvalidSaslPacket")
def test_invalid_sasl_packet() -> None:
    noise = random.Random(7).randbytes(1024)
    with over("SASL_PLAINTEXT", PLAIN) as rig:
        after_the_handshake = connect_by_hand(rig)
        shake_hands(rig, after_the_handshake)
        send_and_be_closed(after_the_handshake, noise)
        rig.connect_and_check(rig.client(PLAIN))
        send_and_be_closed(connect_by_hand(rig), noise)
        rig.connect_and_check(rig.client(PLAIN))


@pytest.mark.java("SaslAuthenticatorTest.SaslAuthenticationMaxReceiveSize")
def test_sasl_authentication_max_receive_size() -> None:
    with over("SASL_PLAINTEXT", PLAIN) as rig:
        rig.server.max_receive_bytes = 1024
        check_authentication_and_reauthentication(rig, rig.client(PLAIN))
        header = encode_request_header(ApiKey.SASL_HANDSHAKE, 1, 1, "someclient")
        send_and_be_closed(connect_by_hand(rig), header + SaslHandshakeRequest("x" * 1024).encode(1))
        selector = connect_by_hand(rig)
        shake_hands(rig, selector)
        token = f"\0{USERNAME}\0{'x' * 1024}".encode()
        header = encode_request_header(ApiKey.SASL_AUTHENTICATE, 2, 1, "someclient")
        send_and_be_closed(selector, header + SaslAuthenticateRequest(token).encode(2))
        assert (rig.server.authentications, rig.server.failed_authentications) == (1, 2)


# -- correlation ids -----------------------------------------------------------------------------------------


class _Talkative:
    """A mechanism that never has enough."""

    complete = False

    def evaluate_challenge(self, challenge: bytes) -> bytes | None:
        return b"go on"


def answer(api: ApiKey, version: int, request: bytes, body: bytes) -> bytes:
    """The frame that answers a request."""
    return decode_request_header(request).correlation_id.to_bytes(4, "big") + body


@pytest.mark.behaviour("NET-24", "SASL-01")
@pytest.mark.java("SaslAuthenticatorTest.CorrelationId")
def test_correlation_ids_are_the_reserved_ones_and_go_round() -> None:
    authenticator = SaslClientAuthenticator("TALK", _Talkative, CLIENT_ID, random.Random(1))
    versions = (ApiVersion(ApiKey.SASL_AUTHENTICATE.id, 0, 0),)
    bodies = [ApiVersionsResponse(0, versions).encode(0), SaslHandshakeResponse().encode(0)]
    count = (MAX_RESERVED_CORRELATION_ID - MIN_RESERVED_CORRELATION_ID) * 2
    bodies += [SaslAuthenticateResponse(auth_bytes=b"go on").encode(0)] * (count - len(bodies) - 1)
    ids = []
    received = None
    for body in [*bodies, b""]:
        sent = authenticator.authenticate(received, 0)
        assert sent is not None
        correlation_id = decode_request_header(b"".join(sent)).correlation_id
        ids.append(correlation_id)
        received = correlation_id.to_bytes(4, "big") + body
    assert len(ids) == count
    assert len(set(ids)) == MAX_RESERVED_CORRELATION_ID - MIN_RESERVED_CORRELATION_ID + 1
    assert all(is_reserved(one) and one <= MAX_RESERVED_CORRELATION_ID for one in ids)
    assert ids[:9] == [*range(MIN_RESERVED_CORRELATION_ID, MAX_RESERVED_CORRELATION_ID + 1), ids[0]]


#: An answer to ListOffsets v7 which, but for its correlation id, reads as one to SaslHandshake, too.
LIST_OFFSETS_RESPONSE: Final = (
    b"\x00\x00\x00\x00"  # correlation id 0
    b"\x00"  # no tags
    b"\x00\x00\x00\x00"  # throttle time
    b"\x02\x06topic"  # one topic
    b"\x02\x00\x00\x00\x00"  # one partition, 0
    b"\x00\x00"  # no error
    b"\x00\x00\x00\x00\x00\x00\x00\x00"  # timestamp
    b"\x00\x00\x00\x00\x00\x00\x00\x00"  # offset
    b"\xff\xff\xff\xff"  # leader epoch -1
    b"\x00\x00\x00"  # no tags of partition, topic, response
)


@pytest.mark.behaviour("NET-24")
@pytest.mark.java("SaslAuthenticatorTest.ConvertListOffsetResponseToSaslHandshakeResponse")
def test_an_answer_to_another_request_is_not_taken_for_the_handshakes() -> None:
    def in_handshake() -> SaslClientAuthenticator:
        authenticator = SaslClientAuthenticator("TALK", _Talkative, CLIENT_ID, random.Random(1))
        authenticator.authenticate(None, 0)
        api_versions = MIN_RESERVED_CORRELATION_ID.to_bytes(4, "big") + ApiVersionsResponse().encode(0)
        authenticator.authenticate(api_versions, 0)
        return authenticator

    with pytest.raises(IllegalSaslStateError) as caught:
        in_handshake().authenticate(LIST_OFFSETS_RESPONSE, 0)
    assert isinstance(caught.value.__cause__, SchemaError)
    another_reserved = MAX_RESERVED_CORRELATION_ID.to_bytes(4, "big") + LIST_OFFSETS_RESPONSE[4:]
    with pytest.raises(CorrelationIdMismatchError):
        in_handshake().authenticate(another_reserved, 0)


# -- re-authentication ---------------------------------------------------------------------------------------


class _ChangesItsMind(SaslClientAuthenticator):
    """SCRAM first, PLAIN thereafter, as Java's AlternateSaslChannelBuilder makes them."""

    def reauthenticate(self) -> None:
        super().reauthenticate()
        self._mechanism = PLAIN
        self._new_client = lambda: PlainSaslClient(USERNAME, PASSWORD)


class _ChangingAuthenticators:
    def __init__(self, first: SaslClientAuthenticator) -> None:
        self._first = first

    def authenticator(self, host: str) -> Authenticator:
        return self._first

    def close(self) -> None:
        """It holds nothing."""


def refusal_of_the_renewal(rig: SaslRig, selector: Selector) -> str:
    """The session runs out, and the renewal is refused."""
    rig.let_the_session_run_out()
    selector.send(NODE, [b"not delivered"])
    refusal = refusal_of(wait_for_channel_close(selector))
    assert counts(rig) == (1, 0, 0, 1)
    return refusal.message


@pytest.mark.behaviour("SASL-06")
@pytest.mark.java("SaslAuthenticatorTest.CannotReauthenticateWithDifferentMechanism")
def test_cannot_reauthenticate_with_different_mechanism() -> None:
    with over("SASL_SSL", SCRAM_256, PLAIN) as rig:
        rig.server.session_lifetime_ms = SESSION_MS
        scram = rig.authenticators(password_config(SCRAM_256))._clients()
        changing = _ChangesItsMind(SCRAM_256, scram, CLIENT_ID, random.Random(1))
        selector = rig.client_with(_ChangingAuthenticators(changing))
        rig.connect_and_check(selector)
        assert counts(rig) == (1, 0, 0, 0)
        said = refusal_of_the_renewal(rig, selector)
        assert "is not supported for re-authentication of mechanism 'SCRAM-SHA-256'" in said


@pytest.mark.behaviour("SASL-06")
@pytest.mark.java("SaslAuthenticatorTest.CannotReauthenticateWithDifferentPrincipal")
def test_cannot_reauthenticate_with_different_principal(tmp_path: Path) -> None:
    """Java's client sends the other user's token, and is refused; this one connects again with it."""
    file, expires_ms = tmp_path / "token", 2**42
    file.write_text(jwt_of("alice", expires_ms=expires_ms))
    oauth_bearer = OAuthBearerConfig(token_endpoint_url=file.as_uri())
    with over("SASL_SSL", OAUTHBEARER) as rig:
        rig.server.tokens = {jwt_of(name, expires_ms=expires_ms): name for name in ("alice", "bob")}
        rig.server.session_lifetime_ms = SESSION_MS
        selector = rig.client_with(rig.authenticators(SaslConfig(OAUTHBEARER, oauth_bearer=oauth_bearer)))
        rig.connect_and_check(selector)
        file.write_text(jwt_of("bob", expires_ms=expires_ms))
        rig.let_the_session_run_out()
        selector.send(NODE, [b"not delivered"])
        ended = wait_for_channel_close(selector)
        assert (ended.name, counts(rig)) == (ChannelStateName.AUTHENTICATE, (1, 0, 0, 0))
        assert ended.detail == "the new token is another principal's, which can't renew the session"
        rig.connect_and_check(selector)
        assert counts(rig) == (2, 0, 0, 0)


@pytest.mark.behaviour("SASL-06")
@pytest.mark.parametrize(
    "changed", [("somebodyelse", PASSWORD), (USERNAME, "not known yet")], ids=["user", "password"]
)
def test_a_session_is_renewed_with_the_credentials_of_its_connection(
    tmp_path: Path, changed: tuple[str, str]
) -> None:
    jaas = "PlainLoginModule required username={} password='{}';"
    file = tmp_path / "jaas.conf"
    file.write_text(jaas.format(USERNAME, PASSWORD))
    config = SaslConfig(PLAIN, jaas_config=SecretSource("sasl.jaas.config", path=str(file)))
    with over("SASL_SSL", PLAIN) as rig:
        rig.server.passwords["somebodyelse"] = PASSWORD
        rig.server.session_lifetime_ms = SESSION_MS
        selector = rig.client_with(rig.authenticators(config))
        rig.connect_and_check(selector)
        file.write_text(jaas.format(*changed))
        rig.let_the_session_run_out()
        rig.check_client_connection(selector)
        assert counts(rig) == (1, 0, 1, 0)


@pytest.mark.behaviour("SASL-06")
@pytest.mark.java("SaslAuthenticatorTest.CannotReauthenticateAgainFasterThanOneSecond")
def test_cannot_reauthenticate_again_faster_than_one_second() -> None:
    """Java's client tries to and gets its handshake echoed; this one does not begin too early."""
    with over("SASL_SSL", PLAIN) as rig:
        rig.server.session_lifetime_ms = SESSION_MS
        selector = rig.client(PLAIN)
        rig.connect_and_check(selector)
        assert (rig.server.authentications, rig.server.reauthentications) == (1, 0)
        rig.let_the_session_run_out()
        rig.check_client_connection(selector)
        assert (rig.server.authentications, rig.server.reauthentications) == (1, 1)
        rig.let_the_session_run_out()
        selector.send(NODE, [b"the session is over, and it is too early for another one"])
        assert wait_for_channel_close(selector).name is ChannelStateName.READY
        assert rig.server.expired_sessions == 1
        assert (rig.server.reauthentications, rig.server.failed_reauthentications) == (1, 0)


@pytest.mark.behaviour("SASL-06")
def test_a_session_of_two_hundred_million_years_is_one_without_an_end() -> None:
    with over("SASL_PLAINTEXT", PLAIN) as rig:
        rig.server.session_lifetime_ms = (1 << 63) - 1
        selector = rig.client(PLAIN)
        rig.connect_and_check(selector)
        rig.clock.advance(1_000_000_000)
        rig.check_client_connection(selector)
        assert (rig.server.authentications, rig.server.reauthentications) == (1, 0)


@pytest.mark.behaviour("SASL-06")
@pytest.mark.parametrize("security", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_answers_to_earlier_requests_are_delivered_during_a_reauthentication(security: str) -> None:
    with over(security, PLAIN) as rig:
        rig.server.session_lifetime_ms = SESSION_MS
        selector = rig.client(PLAIN)
        rig.connect_and_check(selector)
        rig.server.holds_answers = True
        earlier = [b"first of the earlier", b"second of the earlier"]
        for message in earlier:
            selector.send(NODE, [message])
            selector.poll(PATIENCE_MS)
            while not selector.completed_sends:
                selector.poll(PATIENCE_MS)
        rig.let_the_session_nearly_run_out()
        selector.send(NODE, [b"waits for the new session"])
        received: list[bytes] = []
        while len(received) < 2:
            selector.poll(PATIENCE_MS)
            assert not selector.disconnected
            assert len(selector.completed_receives) <= 1
            received.extend(receive.payload for receive in selector.completed_receives)
        assert received == earlier
        selector.poll(PATIENCE_MS)
        while not selector.completed_receives:
            selector.poll(PATIENCE_MS)
            assert not selector.disconnected
        assert selector.completed_receives[0].payload == b"waits for the new session"
        assert rig.server.reauthentications == 1


# -- brokers that do not keep to it --------------------------------------------------------------------------


@pytest.mark.parametrize("security", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("api", [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE])
def test_a_broker_that_hangs_up_leaves_a_hint_and_no_refusal(security: str, api: ApiKey) -> None:
    with over(security, PLAIN) as rig:
        rig.server.faults[api] = Fault.CLOSE
        state = rig.connect_and_fail(rig.client(PLAIN))
        assert state.name is ChannelStateName.AUTHENTICATE
        assert isinstance(state.error, DisconnectError)


def test_a_broker_that_sends_garbage_is_refused_and_one_that_answers_another_question_of_ours_is_not() -> (
    None
):
    for api in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        with over("SASL_PLAINTEXT", PLAIN) as rig:
            rig.server.faults[api] = Fault.GARBAGE
            state = rig.connect_and_fail(rig.client(PLAIN))
            assert state.name is ChannelStateName.AUTHENTICATION_FAILED
            assert isinstance(state.error, IllegalSaslStateError)
    with over("SASL_PLAINTEXT", PLAIN) as rig:
        rig.server.faults[ApiKey.SASL_HANDSHAKE] = Fault.WRONG_CORRELATION_ID
        state = rig.connect_and_fail(rig.client(PLAIN))
        assert state.name is ChannelStateName.AUTHENTICATE
        assert isinstance(state.error, CorrelationIdMismatchError)


def test_a_broker_that_says_nothing_is_waited_for_without_spinning() -> None:
    with over("SASL_PLAINTEXT", PLAIN) as rig:
        rig.server.faults[ApiKey.SASL_HANDSHAKE] = Fault.SILENCE
        selector = rig.client(PLAIN)
        rig.connect(selector)
        while ("SaslHandshake", 1) not in rig.server.requests:
            selector.poll(10)
        assert not selector.is_channel_ready(NODE)
        assert not selector.disconnected
        assert not selector._due


@pytest.mark.behaviour("SASL-04")
def test_a_broker_that_only_pretends_to_know_the_password_is_refused() -> None:
    with over("SASL_SSL", SCRAM_256) as rig:
        rig.server.forges_signature = True
        refusal = refusal_of(rig.connect_and_fail(rig.client(SCRAM_256)))
        assert "Invalid server signature in server final message" in refusal.message
