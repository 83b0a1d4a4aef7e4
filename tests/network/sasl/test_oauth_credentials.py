"""What a token endpoint is asked with, wherever it stands. After ConfigOrJaasTest (Kafka 4.3)."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import ConfigError
from client_core.events import NO_EVENTS, SecretReloaded
from client_core.network.sasl.oauth_credentials import ClientCredentials, OAuthCredentials
from client_core.network.secret import SecretSource
from client_core.network.security_config import OAuthBearerConfig, SaslConfig
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from pathlib import Path

    from client_core.events import EventSink

ID: Final = "sasl.oauthbearer.client.credentials.client.id"
SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
JAAS: Final = 'OAuthBearerLoginModule required clientId="jaas" clientSecret="fish" scope="from jaas";'


def credentials(
    *,
    client_id: str | None = None,
    secret: SecretSource | None = None,
    jaas: SecretSource | None = None,
    scope: str | None = None,
    events: EventSink = NO_EVENTS,
) -> OAuthCredentials:
    config = OAuthBearerConfig(
        "https://idp",
        client_id=None if client_id is None else SecretSource(ID, text=client_id),
        client_secret=secret,
        scope=scope,
    )
    return OAuthCredentials(SaslConfig("OAUTHBEARER", jaas, oauth_bearer=config), config, events)


def test_settings_go_before_the_jaas_config() -> None:
    both = credentials(
        client_id=" pilot ",
        secret=SecretSource(SECRET, text="s3cret"),
        jaas=SecretSource("j", text=JAAS),
        scope="a",
    )
    assert both.read() == ClientCredentials("pilot", "s3cret", "a")
    assert credentials(jaas=SecretSource("j", text=JAAS)).read() == ClientCredentials(
        "jaas", "fish", "from jaas"
    )


def test_what_is_not_set_is_taken_from_the_jaas_config() -> None:
    some = credentials(client_id="pilot", jaas=SecretSource("j", text=JAAS), scope=" ")
    assert some.read() == ClientCredentials("pilot", "fish", None)


def test_a_blank_id_is_none() -> None:
    with pytest.raises(ConfigError, match=f"{ID} is missing"):
        credentials(client_id="  ", secret=SecretSource(SECRET, text="s3cret"))


def test_what_is_not_unicode_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match=f"{SECRET} is not Unicode text") as caught:
        credentials(client_id="pilot", secret=SecretSource(SECRET, text="hunter2\ud800"))
    assert "hunter2" not in str(caught.value)


def test_a_secret_file_that_changes_counts_for_the_next_token(tmp_path: Path) -> None:
    file, events = tmp_path / "secret", RecordedEvents()
    file.write_text("old")
    changing = credentials(client_id="pilot", secret=SecretSource(SECRET, path=str(file)), events=events)
    assert changing.read().client_secret == "old"
    file.write_text("newer")
    assert changing.read().client_secret == "newer"
    file.write_text("   ")  # is something, and nothing that could be sent
    for _ in range(2):
        assert changing.read().client_secret == "newer"
    said = [event.failure for event in events.of(SecretReloaded) if event.failure is not None]
    assert len(said) == 1
    assert said[0].startswith(f"{SECRET} is missing")


def test_a_text_is_masked_of_everything_that_was_sent() -> None:
    sent = ClientCredentials("pilot", "f:sh", None)
    basic = base64.b64encode(b"pilot:f:sh").decode()
    assert sent.masked(f"{basic} is pilot with f:sh") == "[hidden] is [hidden] with [hidden]"


def test_repr_shows_no_credentials() -> None:
    ours = credentials(client_id="pilot", secret=SecretSource(SECRET, text="s3cret"))
    assert repr(ours) == "<OAuthCredentials [hidden]>"
    assert repr(ours.read()) == "<ClientCredentials [hidden]>"
