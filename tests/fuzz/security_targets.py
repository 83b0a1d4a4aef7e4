"""Messages of brokers and token endpoints in an authentication, and the texts of our own credentials."""

from __future__ import annotations

import base64
import json
import string
import struct
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final

from client_core.client.bootstrap_addresses import parse_and_validate_addresses
from client_core.errors import (
    ApiError,
    AuthenticationError,
    ConfigError,
    ProtocolError,
    SaslAuthenticationError,
)
from client_core.events import NO_EVENTS
from client_core.network import ssl_pem
from client_core.network.certificate_expiry import certificate_expires_at_s
from client_core.network.sasl.client_jwt_validator import ClientJwtValidator
from client_core.network.sasl.http_jwt_retriever import HttpJwtRetriever
from client_core.network.sasl.jaas_config import JaasConfig
from client_core.network.sasl.oauth_bearer_sasl_client import OAuthBearerSaslClient
from client_core.network.sasl.oauth_credentials import OAuthCredentials
from client_core.network.sasl.sasl_client import PlainSaslClient
from client_core.network.sasl.sasl_client_authenticator import (
    MIN_RESERVED_CORRELATION_ID,
    SaslClientAuthenticator,
)
from client_core.network.sasl.scram_messages import ServerFinalMessage, ServerFirstMessage
from client_core.network.sasl.scram_sasl_client import ScramMechanism, ScramSaslClient
from client_core.network.sasl.token_requests import ClientSecretRequestFormatter
from client_core.network.secret import SecretSource
from client_core.network.security_config import OAuthBearerConfig, SaslConfig
from client_core.producer.settings.config import ProducerConfig
from client_core.producer.settings.config_options import OPTIONS
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import encode_response_header
from client_core.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from client_core.protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from client_core.protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.fuzz.json_texts import spoilt, tree, written
from tests.fuzz.mutation import EXTREMES
from tests.fuzz.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZE: Final = struct.Struct(">i")
_NONCE: Final = "fuzz"
_SCRAM_TOKENS: Final = (b",", b"=", b"r=fuzz", b"i=0", b"i=4096", b"i=" + b"9" * 5_000, b"e=x", b"m=,", b"\0")
_JAAS_TOKENS: Final = (
    *(b'"', b"'", b"\\", b"=", b";", b"/*", b"*/", b"//", b"/", b"\n", b"required", b"1.5", b"\\777"),
)
_PEM_TOKENS: Final = (
    b"-----BEGIN CERTIFICATE-----",
    b"-----END CERTIFICATE-----",
    b"-----BEGIN A-----",
    b"\\n",
)
_CONFIG_TOKENS: Final = (
    *(b"9" * 5_000, b"-1", b"1e999", b"_", b",", b"nan", b"inf", b"\xd9\xa3", b"@", b"[", b" "),
)

#: One that nobody uses, DER in base64.
CERTIFICATE: Final = base64.b64decode(
    "MIIByjCCAW+gAwIBAgIUa6ufRsXeEBN+qFX+0gJjsq3BAmswCgYIKoZIzj0EAwIwQDEXMBUGA1UECgwOdHJ1c3RtZSB2MS4yLjEx"
    "JTAjBgNVBAsMHFRlc3RpbmcgQ0EgI25Tc3F4RU1rQnZxdmxTS3kwIBcNMDAwMTAxMDAwMDAwWhgPMzAwMDAxMDEwMDAwMDBaMEAx"
    "FzAVBgNVBAoMDnRydXN0bWUgdjEuMi4xMSUwIwYDVQQLDBxUZXN0aW5nIENBICNuU3NxeEVNa0J2cXZsU0t5MFkwEwYHKoZIzj0C"
    "AQYIKoZIzj0DAQcDQgAEIIBYe9LXPI4K9gpxYQI6FCDin4MzlP/tKZ4o6nZfSxYtrGPiwDYyGlN6vtJabWRYvw1YPx75BgdH3S68"
    "SadLi6NFMEMwHQYDVR0OBBYEFD2IlwsLiatI9XEguZhsqd2zTbtpMBIGA1UdEwEB/wQIMAYBAf8CAQkwDgYDVR0PAQH/BAQDAgGG"
    "MAoGCCqGSM49BAMCA0kAMEYCIQC6QvZqMXWeOZRDEiRwysACR50s2X1eXcC8OKB6MxM0PwIhAKYnvX26LycThlxKnnREqjknpqmO"
    "Lu7ly5ainx4dFSPX"
)


def targets() -> Iterator[Target]:
    """All of them."""
    refused = (SaslAuthenticationError,)
    outcomes = (ApiError, ProtocolError)
    yield Target("SCRAM server-first", _server_first, ServerFirstMessage.parse, refused, _SCRAM_TOKENS)
    yield Target("SCRAM server-final", _server_final, ServerFinalMessage.parse, refused, _SCRAM_TOKENS)
    yield Target("SCRAM exchange", _server_first, _scram, (AuthenticationError,), _SCRAM_TOKENS)
    yield Target("OAUTHBEARER exchange", _oauth_said, _oauth_exchange, (AuthenticationError,))
    yield Target("SASL conversation", _conversation, _converse, outcomes, EXTREMES)
    yield Target("JWT", _jwt, _validate, refused, (b".", b"=", b"-", b"_"), _spoilt_jwt)
    yield Target("token endpoint's answer", _token_answer, _ENDPOINT.token, refused, (), _spoilt_token_answer)
    yield Target("token endpoint's refusal", _refusal, _ENDPOINT.refusal, refused, (), _spoilt_refusal)
    # A character of it may be a token, which is an object that knows its place.
    yield Target("JAAS config", _jaas, _read_jaas, (ConfigError,), _JAAS_TOKENS, bytes_per_byte=500)
    yield Target("PEM", _pem, _read_pem, (ConfigError,), _PEM_TOKENS)
    yield Target(
        "DER of a certificate", lambda _: CERTIFICATE, certificate_expires_at_s, (ValueError,), EXTREMES
    )
    yield Target("bootstrap.servers", _servers, _addresses, (ConfigError,), _CONFIG_TOKENS, is_reported=False)
    yield Target(
        "producer settings", _settings, _configure, (ConfigError,), _CONFIG_TOKENS, is_reported=False
    )


def _text(data: bytes) -> str:
    """Any text, lone surrogates among it: what the environment may hold."""
    return data.decode(errors="surrogateescape")


# -- SCRAM, OAUTHBEARER --------------------------------------------------------------------------------------


def _server_first(random: Random) -> bytes:
    salt = base64.b64encode(random.randbytes(random.choice((1, 16)))).decode()
    iterations = random.choice((1, 4_096, 4_096, 100_001, 2**31))
    end = random.choice(("", ",ext=val", ",a=b,c=d"))
    return f"{random.choice(('', 'm=x,'))}r={_NONCE}{random.random()},s={salt},i={iterations}{end}".encode()


def _server_final(random: Random) -> bytes:
    signature = base64.b64encode(random.randbytes(32)).decode()
    return random.choice((f"v={signature}", f"v={signature},a=b", "e=invalid-proof")).encode()


def _scram(data: bytes) -> None:
    client = ScramSaslClient(ScramMechanism.SCRAM_SHA_256, "alice", "wonder", {}, _NONCE)
    client.evaluate_challenge(b"")
    client.evaluate_challenge(data)
    with suppress(SaslAuthenticationError):  # nobody guesses the signature
        client.evaluate_challenge(b"v=" + base64.b64encode(data))
        raise AssertionError("a signature that is none was taken")


def _oauth_said(random: Random) -> bytes:
    return written(tree({"status": "invalid_token", "scope": "", "openid-configuration": "x"}), random)


def _oauth_exchange(data: bytes) -> None:
    client = OAuthBearerSaslClient("token", {})
    client.evaluate_challenge(b"")
    client.evaluate_challenge(data)


# -- the conversation ----------------------------------------------------------------------------------------


def _conversation(random: Random) -> bytes:
    """The broker's three frames, as it would send them."""
    top = random.choice((0, 1, 2))
    listed = tuple(ApiVersion(api.id, 0, top) for api in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
    handshake, authenticate = min(top, 1), top
    answers = (
        (ApiKey.API_VERSIONS, 0, ApiVersionsResponse(api_keys=listed).encode(0)),
        (
            ApiKey.SASL_HANDSHAKE,
            handshake,
            SaslHandshakeResponse(random.choice((0, 0, 0, 33, 34)), ("PLAIN",)).encode(handshake),
        ),
        (
            ApiKey.SASL_AUTHENTICATE,
            authenticate,
            SaslAuthenticateResponse(
                random.choice((0, 0, 58, 999)),
                random.choice((None, "no\nsuch user")),
                b"",
                random.choice((0, 0, 100)) if authenticate else 0,
            ).encode(authenticate),
        ),
    )
    frames = b""
    for number, (api, version, body) in enumerate(answers):
        frame = encode_response_header(api, version, MIN_RESERVED_CORRELATION_ID + number) + body
        frames += _SIZE.pack(len(frame)) + frame
    return frames


def _converse(data: bytes) -> None:
    authenticator = SaslClientAuthenticator(
        "PLAIN", lambda: PlainSaslClient("alice", "wonder"), "fuzz", Random(0)
    )
    authenticator.authenticate(None, 0)
    at = 0
    while at < len(data) and not authenticator.complete:
        size = int.from_bytes(data[at : at + 4]) % 65_536
        authenticator.authenticate(data[at + 4 : at + 4 + size], 0)
        at += 4 + size


# -- tokens --------------------------------------------------------------------------------------------------

_CLAIMS: Final = {"exp": 4_102_444_800, "iat": 1_600_000_000.5, "sub": "alice", "scope": ["a", "b"]}


def _as_jwt(claims: bytes) -> bytes:
    part = base64.urlsafe_b64encode(claims).rstrip(b"=")
    return b".".join((base64.urlsafe_b64encode(b'{"alg":"RS256"}').rstrip(b"="), part, b"c2ln"))


def _jwt(random: Random) -> bytes:
    claims = {name: value for name, value in _CLAIMS.items() if random.random() < 0.9}
    return _as_jwt(json.dumps(claims).encode())


def _spoilt_jwt(random: Random) -> bytes:
    return _as_jwt(written(spoilt(tree(dict(_CLAIMS)), random), random))


def _validate(data: bytes) -> object:
    return ClientJwtValidator().validate(_text(data))


class _Endpoint:
    """What an HttpJwtRetriever makes of an answer; it asks nobody."""

    def __init__(self) -> None:
        config = OAuthBearerConfig(
            "http://127.0.0.1:9/token", SecretSource("id", "alice"), SecretSource("secret", "wonder")
        )
        sasl = SaslConfig("OAUTHBEARER", oauth_bearer=config)
        credentials = OAuthCredentials(sasl, config, NO_EVENTS)
        requests = ClientSecretRequestFormatter(credentials, header_urlencode=False)
        self._request = requests.format()
        self._retriever = HttpJwtRetriever(config, requests)

    def token(self, data: bytes) -> str:
        return self._retriever._token(data, self._request)

    def refusal(self, data: bytes) -> None:
        said = str(self._retriever._refusal(400, data, self._request))
        said.encode()
        assert len(said) < 1_000
        assert said.isprintable(), said


_ENDPOINT: Final = _Endpoint()
_ANSWER: Final = {"access_token": "a.b.c", "expires_in": 300, "token_type": "Bearer", "id_token": "d.e.f"}
_REFUSAL: Final = {
    "error": "invalid_client",
    "error_description": "no\nsuch client: alice",
    "errorCode": "E1",
}


def _token_answer(random: Random) -> bytes:
    return written(tree(dict(_ANSWER)), random)


def _spoilt_token_answer(random: Random) -> bytes:
    return written(spoilt(tree(dict(_ANSWER)), random), random)


def _refusal(random: Random) -> bytes:
    return written(tree(dict(_REFUSAL)), random)


def _spoilt_refusal(random: Random) -> bytes:
    return written(spoilt(tree(dict(_REFUSAL)), random), random)


# -- texts of ours -------------------------------------------------------------------------------------------


def _jaas(random: Random) -> bytes:
    word = "".join(random.choices(string.printable, k=8)).replace('"', "")
    return (
        "org.apache.kafka.common.security.scram.ScramLoginModule /* a */ required\n"
        f'username="{word}" password=\'s\\"e\\101\' tokenauth=true; // end'
    ).encode()


def _read_jaas(data: bytes) -> None:
    repr(JaasConfig.parse(_text(data)))


def _pem(random: Random) -> bytes:
    key = ssl_pem.pem(random.randbytes(50)).replace("CERTIFICATE", "PRIVATE KEY")
    text = key + ssl_pem.pem(CERTIFICATE) * random.choice((1, 2))
    return (text.replace("\n", random.choice(("\n", " ", "\\n", "\r\n")))).encode()


def _read_pem(data: bytes) -> None:
    text = _text(data)
    for certificate in ssl_pem.certificates(text, "ssl.truststore.certificates"):
        assert ssl_pem.pem(certificate)
    assert ssl_pem.private_key(text, "ssl.keystore.key").text


def _servers(random: Random) -> bytes:
    hosts = ("broker-1", "[::1]", "10.0.0.1", "PLAINTEXT://a.b", "ü", "%eth0")
    return ",".join(f"{random.choice(hosts)}:{random.choice((1, 9_092, 65_535))}" for _ in range(3)).encode()


def _addresses(data: bytes) -> object:
    return parse_and_validate_addresses(_text(data).split(","))


def _settings(random: Random) -> bytes:
    lines = ["bootstrap.servers=localhost:9092"]
    for option in random.sample(OPTIONS, random.randint(1, 5)):
        value = random.choice((option.default or "", "true", "100", "-1", "all", "PLAIN", "SASL_SSL", "a,b"))
        lines.append(f"{option.name}={value}")
    return "\n".join(lines).encode()


def _configure(data: bytes) -> None:
    pairs = (line.partition("=") for line in _text(data).split("\n"))
    repr(ProducerConfig.from_mapping({name: value for name, _, value in pairs}))
