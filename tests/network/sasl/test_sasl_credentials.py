"""User name and password, wherever they stand, read anew for each authentication."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import ConfigError
from client_core.events import NO_EVENTS, SecretReloaded
from client_core.network.sasl.sasl_credentials import PasswordLogin
from client_core.network.secret import SecretSource
from client_core.network.security_config import SaslConfig
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from pathlib import Path

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def in_jaas(text: str, mechanism: str = "PLAIN") -> PasswordLogin:
    source = SecretSource("sasl.jaas.config", text=text)
    return PasswordLogin(SaslConfig(mechanism, jaas_config=source), NO_EVENTS)


def in_settings(username: str | None, password: str | None) -> PasswordLogin:
    config = SaslConfig(
        "PLAIN",
        username=None if username is None else SecretSource("sasl.username", text=username),
        password=None if password is None else SecretSource("sasl.password", text=password),
    )
    return PasswordLogin(config, NO_EVENTS)


def test_name_and_password_from_settings() -> None:
    credentials = in_settings("alice", "secret").read()
    assert (credentials.username, credentials.password) == ("alice", "secret")
    assert credentials.extensions == {}


def test_name_and_password_from_the_jaas_config() -> None:
    credentials = in_jaas(f'{PLAIN_MODULE} required username="alice" password="secret";').read()
    assert (credentials.username, credentials.password) == ("alice", "secret")


def test_the_modules_package_does_not_matter() -> None:
    login = in_jaas(
        "shaded.org.apache.kafka.common.security.scram.ScramLoginModule required username=a password=b;",
        "SCRAM-SHA-512",
    )
    assert login.read().username == "a"


def test_a_delegation_token_is_told_apart_by_an_extension() -> None:
    text = f'{SCRAM_MODULE} required username="id" password="hmac" tokenauth="true";'
    assert in_jaas(text, "SCRAM-SHA-256").read().extensions == {"tokenauth": "true"}


@pytest.mark.parametrize(
    ("mechanism", "module", "needed"),
    [
        ("PLAIN", SCRAM_MODULE, PLAIN_MODULE),
        ("SCRAM-SHA-256", PLAIN_MODULE, SCRAM_MODULE),
        ("SCRAM-SHA-512", "com.sun.security.auth.module.Krb5LoginModule", SCRAM_MODULE),
    ],
)
def test_another_mechanisms_module_is_refused_with_the_remedy(
    mechanism: str, module: str, needed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        in_jaas(f"{module} required username=alice password=secret;", mechanism)
    assert str(caught.value) == (
        f"sasl.jaas.config names {module} as login module, but sasl.mechanism={mechanism} needs {needed};"
        " change one of them"
    )
    assert caught.value.name == "sasl.jaas.config"


def test_a_word_that_is_no_module_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="names something else as login module") as caught:
        in_jaas("hunter2 required username=alice password=secret;")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("username", "password", "setting", "said"),
    [
        (None, "secret", "sasl.username", "sasl.username is missing"),
        ("alice", None, "sasl.password", "sasl.password is missing"),
        ("hunter\0two", "secret", "sasl.username", "sasl.username holds a NUL character"),
        ("alice", "hunter\0two", "sasl.password", "sasl.password holds a NUL character"),
        ("alice", "hunter\ud800two", "sasl.password", "sasl.password is not Unicode text"),
    ],
)
def test_what_can_not_be_sent_is_a_config_error(
    username: str | None, password: str | None, setting: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        in_settings(username, password)
    assert caught.value.name == setting
    assert "hunter" not in str(caught.value)


def test_one_of_the_two_spellings_must_go() -> None:
    config = SaslConfig(
        "PLAIN",
        jaas_config=SecretSource("sasl.jaas.config", text=f"{PLAIN_MODULE} required;"),
        username=SecretSource("sasl.username", text="alice"),
    )
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config and sasl\.username are both set"):
        PasswordLogin(config, NO_EVENTS)


def test_a_password_file_that_changes_counts_for_the_next_authentication(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old\n")
    config = SaslConfig(
        "SCRAM-SHA-256",
        username=SecretSource("sasl.username", text="alice"),
        password=SecretSource("sasl.password", path=str(file)),
    )
    login = PasswordLogin(config, NO_EVENTS)
    assert login.read().password == "old"
    file.write_text("newer")
    assert login.read().password == "newer"


def test_a_jaas_file_that_makes_no_sense_any_more_is_told_once_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, events = tmp_path / "jaas.conf", RecordedEvents()
    file.write_text(f"{PLAIN_MODULE} required username=alice password=old;")
    source = SecretSource("sasl.jaas.config", path=str(file))
    login = PasswordLogin(SaslConfig("PLAIN", jaas_config=source), events)
    file.write_text(f"{PLAIN_MODULE} required username=alice password=new hunter2")
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            assert login.read().password == "old"
        file.write_text(f"{PLAIN_MODULE} required username=alice;")
        for _ in range(3):
            assert login.read().password == "old"
        file.write_text(f"{PLAIN_MODULE} required username=alice password=newest;")
        assert login.read().password == "newest"
    failures = [event.failure for event in events.of(SecretReloaded) if event.failure is not None]
    assert [failure.partition(";")[0] for failure in failures] == [
        "sasl.jaas.config: Value not specified for a key in JAAS config (character 94)",
        "sasl.jaas.config: password is missing: PLAIN needs it",
    ]
    assert "hunter2" not in caplog.text + str(events.events)
    assert "the earlier value stays in use" in caplog.text


def test_repr_shows_no_credentials() -> None:
    login = in_settings("alice", "secret")
    assert repr(login) == "<PasswordLogin PLAIN [hidden]>"
    assert repr(login.read()) == "<PasswordCredentials [hidden]>"
