"""Hundreds of secrets, and every way in which a text could leak: repr, error, log, event.

A broker's own message is passed on as it is, and not checked here.
"""

from __future__ import annotations

import base64
import json
import logging
import random
import traceback
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import KafkaError
from client_core.network.sasl.assertions import SignedAssertions
from client_core.network.sasl.client_jwt_validator import ClientJwtValidator
from client_core.network.sasl.jaas_config import JaasConfig
from client_core.network.sasl.provider_jwt_retriever import ProviderJwtRetriever
from client_core.network.sasl.sasl_authenticators import SaslAuthenticators
from client_core.network.secret import SecretSource
from client_core.network.security_config import (
    AssertionConfig,
    OAuthBearerConfig,
    SaslConfig,
    TokenProvider,
)
from client_core.protocol.api_keys import ApiKey
from tests.network.sasl.jwts import jwt_of
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents
from tests.support.sasl_server import Fault, SaslServer
from tests.support.signing_keys import ec_key, pem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from client_core.network.authenticator import Authenticator

#: Long enough not to be in a text by chance, with characters that are special in grammars and encodings.
SECRETS = st.text(st.sampled_from("kQzJ7_+/=\"'\\;,:% \u00fc\u65e5\n"), min_size=12, max_size=24).filter(
    lambda text: len(set(text)) > 4 and text.strip() == text
)

APIS = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)

A_HUNDRED = hypothesis.settings(
    max_examples=100, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)


class Overheard:
    """Everything that was said while it listened."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.events = RecordedEvents()
        self._texts: list[str] = []

    def hear(self, thing: object) -> None:
        self._texts += [repr(thing), str(thing)]
        if isinstance(thing, BaseException):
            self._texts += traceback.format_exception(thing)
            self.hear_all(thing.args)
            if thing.__cause__ is not None:
                self.hear(thing.__cause__)

    def hear_all(self, things: tuple[object, ...]) -> None:
        for thing in things:
            self._texts.append(repr(thing))

    def attempt(self, what: Callable[[], object]) -> None:
        """Does it, and hears what becomes of it."""
        try:
            self.hear(what())
        except KafkaError as error:
            self.hear(error)

    def assert_without(self, *secrets: str) -> None:
        said = "\n".join([*self._texts, self._caplog.text, *map(repr, self.events.events)])
        for secret in secrets:
            for form in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], _base64(secret)):
                assert form not in said
        self._caplog.clear()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode().rstrip("=")


@pytest.fixture
def overheard(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], Overheard]]:
    with caplog.at_level(logging.DEBUG):
        yield lambda: Overheard(caplog)


def converse(authenticator: Authenticator, server: SaslServer, ear: Overheard) -> None:
    """A whole conversation, with a look at the authenticator after each step."""
    conversation = server.connect()
    received: bytes | None = None
    while not conversation.is_closed:
        sent = authenticator.authenticate(received, 0)
        ear.hear(authenticator)
        ear.hear_all(tuple(vars(authenticator).values()))
        if sent is None:
            return
        answers = conversation.receive(b"".join(sent))
        if not answers:
            return
        received = answers[0]


def password_config(mechanism: str, username: str, password: str, *, in_jaas: bool) -> SaslConfig:
    if not in_jaas:
        return SaslConfig(
            mechanism,
            username=SecretSource("sasl.username", text=username),
            password=SecretSource("sasl.password", text=password),
        )
    module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
    text = f"{module} required username={_quoted(username)} password={_quoted(password)};"
    return SaslConfig(mechanism, jaas_config=SecretSource("sasl.jaas.config", text=text))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@A_HUNDRED
@given(
    username=SECRETS,
    password=SECRETS,
    mechanism=st.sampled_from(["PLAIN", "SCRAM-SHA-256"]),
    in_jaas=st.booleans(),
    is_known=st.booleans(),
    fault=st.sampled_from([None, *Fault]),
    data=st.data(),
)
def test_user_names_and_passwords(
    overheard: Callable[[], Overheard],
    username: str,
    password: str,
    mechanism: str,
    in_jaas: bool,
    is_known: bool,
    fault: Fault | None,
    data: Any,
) -> None:
    ear = overheard()
    server = SaslServer(MockClock(), (mechanism,), passwords={username: password} if is_known else {})
    if fault is not None:
        server.faults[data.draw(st.sampled_from(APIS))] = fault
    config = password_config(mechanism, username, password, in_jaas=in_jaas)
    ear.hear(config)
    authenticators = SaslAuthenticators(
        config, client_id="me", clock=server.clock, random=random.Random(1), events=ear.events
    )
    ear.hear(authenticators)
    authenticator = authenticators.authenticator("localhost")
    ear.attempt(lambda: converse(authenticator, server, ear))
    ear.hear(authenticator)
    ear.assert_without(username, password)


@A_HUNDRED
@given(secret=SECRETS, before=st.text("Module required=;\"' ", max_size=12), data=st.data())
def test_a_jaas_config_that_can_not_be_read(
    overheard: Callable[[], Overheard], secret: str, before: str, data: Any
) -> None:
    """A JAAS config with any piece cut out and any text before it: the rest of the secret is not shown."""
    ear = overheard()
    whole = f"{before}PlainLoginModule required username=alice password={_quoted(secret)};"
    start = data.draw(st.integers(0, len(whole)))
    text = whole[:start] + whole[data.draw(st.integers(start, len(whole))) :]
    ear.attempt(lambda: JaasConfig.parse(text))
    source = SecretSource("sasl.jaas.config", text=text or "-")
    config = SaslConfig("SCRAM-SHA-256", jaas_config=source)
    ear.attempt(
        lambda: SaslAuthenticators(
            config, client_id="me", clock=MockClock(), random=random.Random(1), events=ear.events
        )
    )
    words = [word for word in secret.replace('"', " ").split() if len(word) > 6]
    ear.assert_without(secret, *words)


@A_HUNDRED
@given(secret=SECRETS, cut=st.integers(0, 200))
def test_a_token_in_a_file(overheard: Callable[[], Overheard], tmp_path: Path, secret: str, cut: int) -> None:
    ear, clock, file = overheard(), MockClock(), tmp_path / "token"
    whole = jwt_of(secret, expires_ms=clock.wall_ms() + 600_000)
    ear.attempt(lambda: ClientJwtValidator().validate(whole[cut:]))
    file.write_text(whole)
    config = SaslConfig("OAUTHBEARER", oauth_bearer=OAuthBearerConfig(file.as_uri()))
    authenticators = SaslAuthenticators(
        config, client_id="me", clock=clock, random=random.Random(1), events=ear.events
    )
    server = SaslServer(clock, ("OAUTHBEARER",))
    file.write_text(whole[cut:] or "-")
    ear.hear(authenticators)
    ear.attempt(lambda: converse(authenticators.authenticator("localhost"), server, ear))
    payload = whole.split(".")[1]
    ear.assert_without(secret, whole, payload)


def _raising(text: str) -> object:
    raise ValueError(text)


@A_HUNDRED
@given(secret=SECRETS, data=st.data())
def test_what_a_callable_returns_or_raises(
    overheard: Callable[[], Overheard], secret: str, data: Any
) -> None:
    ear = overheard()
    returned = data.draw(
        st.sampled_from(
            [secret.encode(), [secret], {secret: 1}, (secret, 1), (1, secret), (secret, 2**41, 7)]
        )
    )
    for function in (lambda: returned, lambda: _raising(secret)):
        provider = TokenProvider("a:b", function)
        retriever = ProviderJwtRetriever(provider)
        ear.hear_all((provider, retriever))
        ear.attempt(retriever.retrieve)
    ear.assert_without(secret)


@hypothesis.settings(A_HUNDRED, max_examples=10, deadline=None)
@given(secret=SECRETS, other=SECRETS, cut=st.integers(0, 300))
def test_a_passphrase_a_key_and_a_template(
    overheard: Callable[[], Overheard], tmp_path: Path, secret: str, other: str, cut: int
) -> None:
    """The key's file is whole, cut, or another one's; of a PEM's lines none is shown."""
    ear, key, template = overheard(), tmp_path / "key.pem", tmp_path / "template"
    whole = pem(ec_key(), secret)
    source = SecretSource("sasl.oauthbearer.assertion.private.key.passphrase", text=secret)
    config = AssertionConfig(
        private_key=SecretSource("key", path=str(key)),
        passphrase=source,
        template=SecretSource("template", path=str(template)),
        algorithm="ES256",
    )
    ear.hear(config)
    for text, headers in (
        (whole, json.dumps({"header": {"kid": [secret]}})),
        (whole[cut:] or "-", json.dumps({"payload": {"sub": "me"}})),
        (pem(ec_key(), other), secret),
        (secret, "{}"),
    ):
        key.write_text(text)
        template.write_text(headers)
        ear.attempt(lambda: SignedAssertions(config, MockClock(), ear.events))
    lines = [line for line in whole.splitlines() if not line.startswith("-")]
    ear.assert_without(secret, other, *lines)
