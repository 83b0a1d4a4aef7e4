"""What a token endpoint is asked with an assertion, literally and by an endpoint that verifies it.

After ClientAssertionRequestFormatterTest and JwtBearerRequestFormatterTest (Kafka 4.3). Requests with a
client's secret are in test_http_jwt_retriever.py.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus

import pytest

from client_core.errors import ConfigError, SaslAuthenticationError
from client_core.events import NO_EVENTS
from client_core.network.sasl.assertions import assertions
from client_core.network.sasl.http_jwt_retriever import HttpJwtRetriever
from client_core.network.sasl.oauth_credentials import ClientIdentities, ClientIdentity
from client_core.network.sasl.token_requests import (
    ClientAssertionRequestFormatter,
    JwtBearerRequestFormatter,
)
from client_core.network.secret import SecretSource
from client_core.network.security_config import AssertionConfig, OAuthBearerConfig, SaslConfig
from tests.network.sasl.jwts import jwt
from tests.support.mock_clock import MockClock
from tests.support.oauth_endpoint import OAuthEndpoint
from tests.support.signing_keys import ec_key, pem, rsa_key

if TYPE_CHECKING:
    from pathlib import Path

    from client_core.network.sasl.token_requests import RequestFormatter

ID: Final = "sasl.oauthbearer.client.credentials.client.id"
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HEADERS: Final = {
    "Accept": "application/json",
    "Cache-Control": "no-cache",
    "Content-Type": "application/x-www-form-urlencoded",
}


class OneAssertion:
    """Always the same."""

    def __init__(self, assertion: str = "a.b.c") -> None:
        self._assertion = assertion

    def assertion(self) -> str:
        return self._assertion


def identities(
    *, client_id: SecretSource | None = None, jaas: str | None = None, scope: str | None = None
) -> ClientIdentities:
    config = OAuthBearerConfig("https://idp", client_id=client_id, scope=scope)
    jaas_config = (
        None if jaas is None else SecretSource("sasl.jaas.config", text=f"{MODULE} required {jaas};")
    )
    return ClientIdentities(SaslConfig("OAUTHBEARER", jaas_config, oauth_bearer=config), config, NO_EVENTS)


# -- literally -----------------------------------------------------------------------------------------------


def test_the_client_credentials_grant_by_an_assertion() -> None:
    begins = (
        "client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer"
        "&client_assertion=a.b.c%3D&grant_type=client_credentials"
    )
    for identity, ends in (
        (identities(), ""),
        (
            identities(client_id=SecretSource(ID, text=" pilot/1 "), scope=" a b "),
            "&client_id=pilot%2F1&scope=a+b",
        ),
        (identities(jaas='clientId="of jaas" scope="c"'), "&client_id=of+jaas&scope=c"),
        (identities(scope=" "), ""),
    ):
        request = ClientAssertionRequestFormatter(identity, OneAssertion("a.b.c=")).format()
        assert (request.body.decode(), request.headers) == (begins + ends, HEADERS)


def test_the_jwt_bearer_grant() -> None:
    begins = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=a.b.c"
    for scope, ends in ((None, ""), ("a b", "&scope=a+b"), ("", "")):
        request = JwtBearerRequestFormatter(scope, OneAssertion()).format()
        assert (request.body.decode(), request.headers) == (begins + ends, HEADERS)


def test_a_client_id_is_read_again_and_one_that_can_not_be_sent_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "id"
    file.write_text("one")
    changing = identities(client_id=SecretSource(ID, path=str(file)))
    assert changing.read() == ClientIdentity("one", None)
    file.write_text("two")
    assert changing.read() == ClientIdentity("two", None)
    file.write_text(" ")
    assert changing.read() == ClientIdentity("two", None)
    assert repr(changing) == "<ClientIdentities [hidden]>"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"client_id": SecretSource(ID, text=" ")}, f"{ID} is missing"),
        ({"client_id": SecretSource(ID, text="\ud800")}, f"{ID} is not Unicode text"),
        ({"jaas": 'clientId=""'}, f"{ID} is missing"),
        ({"scope": "é"}, "sasl.oauthbearer.scope must be ASCII"),
    ]
    for given, said in cases:
        with pytest.raises(ConfigError, match=said):
            identities(**given)


def test_an_assertion_and_its_parts_are_masked() -> None:
    assertion = jwt({"sub": "alice"})
    header, payload, signature = assertion.split(".")
    for formatter in (
        JwtBearerRequestFormatter(None, OneAssertion(assertion)),
        ClientAssertionRequestFormatter(identities(), OneAssertion(assertion)),
    ):
        sent = formatter.format()
        assert repr(sent) == "<TokenRequest [hidden]>"
        for said in (
            assertion,
            f"{header}.{payload}",
            payload,
            signature,
            assertion[:-1],
            quote_plus(assertion),
        ):
            assert sent.masked(f"not {said}!") == "not [hidden]!"


# -- by an endpoint ------------------------------------------------------------------------------------------


class Client:
    """A client whose key an endpoint knows as that of `pilot`."""

    def __init__(self, folder: Path, endpoint: OAuthEndpoint, **settings: Any) -> None:
        self.key_path = folder / "key.pem"
        self.clock = MockClock()
        self.clock.advance(int(time.time() * 1000) - self.clock.wall_ms())
        self._config = OAuthBearerConfig(endpoint.url)
        self._assertion: dict[str, Any] = {
            "private_key": SecretSource("key", path=str(self.key_path)),
            "audience": endpoint.url,
            "issuer": "pilot",
            "subject": "pilot",
            "has_jti": True,
        } | settings

    def _retriever(self, formatter: RequestFormatter) -> HttpJwtRetriever:
        return HttpJwtRetriever(self._config, formatter)

    def client_assertion(self, client_id: str | None = None) -> HttpJwtRetriever:
        source = None if client_id is None else SecretSource(ID, text=client_id)
        made = assertions(AssertionConfig(**self._assertion), self.clock, NO_EVENTS)
        return self._retriever(ClientAssertionRequestFormatter(identities(client_id=source), made))

    def jwt_bearer(self) -> HttpJwtRetriever:
        made = assertions(AssertionConfig(**self._assertion), self.clock, NO_EVENTS)
        return self._retriever(JwtBearerRequestFormatter("kafka", made))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.behaviour("CRED-02")
def test_an_endpoint_grants_a_token_for_each_assertion(tmp_path: Path, algorithm: str) -> None:
    key = rsa_key() if algorithm == "RS256" else ec_key()
    with OAuthEndpoint({}, keys={"pilot": key.public_key()}) as endpoint:
        client = Client(tmp_path, endpoint, algorithm=algorithm)
        client.key_path.write_text(pem(key))
        by = (client.client_assertion(), client.client_assertion("pilot"), client.jwt_bearer())
        tokens = [retriever.retrieve() for retriever in by for _ in range(2)]
    assert all(token.count(".") == 2 for token in tokens)
    assert [request.was_granted for request in endpoint.requests] == [True] * 6
    assert [request.form.get("client_id") for request in endpoint.requests[1:5]] == [
        None,
        "pilot",
        "pilot",
        None,
    ]
    assert {request.authorization for request in endpoint.requests} == {None}


def test_what_an_endpoint_does_not_believe_is_a_refusal_that_does_not_show_the_assertion(
    tmp_path: Path,
) -> None:
    with OAuthEndpoint({}, keys={"pilot": rsa_key().public_key()}) as endpoint:
        cases: list[tuple[dict[str, Any], str]] = [
            ({}, pem(rsa_key(1))),
            ({"audience": "https://elsewhere"}, pem(rsa_key())),
            ({"subject": "somebody"}, pem(rsa_key())),
            ({"issuer": "somebody"}, pem(rsa_key())),
            ({"lifetime_s": 0}, pem(rsa_key())),
        ]
        for settings, key in cases:
            client = Client(tmp_path, endpoint, **settings)
            client.key_path.write_text(key)
            for retriever in (client.client_assertion(), client.jwt_bearer()):
                with pytest.raises(SaslAuthenticationError) as caught:
                    retriever.retrieve()
                assert caught.value.message == (
                    f"{endpoint.url} answered 401 (invalid_client - Invalid client credentials)"
                )


def test_an_endpoint_that_repeats_the_assertion_is_masked_before_its_answer_is_shortened() -> None:
    """An assertion is longer than what is shown of an answer."""
    assertion = jwt({"sub": "alice", "groups": ["x" * 200]})
    sent = JwtBearerRequestFormatter(None, OneAssertion(assertion))
    retriever = HttpJwtRetriever(OAuthBearerConfig("https://idp/token"), sent)
    body = f'{{"error": "invalid_grant", "error_description": "not {assertion}"}}'
    error = retriever._refusal(400, body.encode(), sent.format())
    assert str(error) == "https://idp/token answered 400 (invalid_grant - not [hidden])"
