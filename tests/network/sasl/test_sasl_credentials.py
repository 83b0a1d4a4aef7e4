"""Names, passwords and the parameters of a token endpoint, from every source; and JAAS's grammar.

After JaasContextTest and ConfigOrJaasTest (Kafka 4.3), and what StreamTokenizer does beyond it.
"""

from __future__ import annotations

import base64
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import ConfigError
from client_core.events import NO_EVENTS, SecretReloaded
from client_core.network.sasl.jaas_config import JaasConfig
from client_core.network.sasl.oauth_credentials import ClientCredentials, OAuthCredentials
from client_core.network.sasl.sasl_credentials import PasswordLogin
from client_core.network.sasl.token_requests import ClientSecretRequestFormatter
from client_core.network.secret import SecretSource
from client_core.network.security_config import OAuthBearerConfig, SaslConfig
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from pathlib import Path

    from client_core.events import EventSink

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


def test_name_and_password_are_taken_from_settings_or_the_jaas_config() -> None:
    logins = {
        in_settings("alice", "secret"): ("alice", "secret", {}),
        in_jaas(f'{PLAIN_MODULE} required username="alice" password="secret";'): ("alice", "secret", {}),
        in_jaas(f"shaded.{SCRAM_MODULE} required username=a password=b;", "SCRAM-SHA-512"): ("a", "b", {}),
        in_jaas(  # a delegation token
            f'{SCRAM_MODULE} required username="id" password="hmac" tokenauth="true";', "SCRAM-SHA-256"
        ): ("id", "hmac", {"tokenauth": "true"}),
    }
    for login, expected in logins.items():
        read = login.read()
        assert (read.username, read.password, read.extensions) == expected


def test_another_mechanisms_module_is_refused_with_the_remedy() -> None:
    for mechanism, module, needed in (
        ("PLAIN", SCRAM_MODULE, PLAIN_MODULE),
        ("SCRAM-SHA-256", PLAIN_MODULE, SCRAM_MODULE),
        ("SCRAM-SHA-512", "com.sun.security.auth.module.Krb5LoginModule", SCRAM_MODULE),
    ):
        with pytest.raises(ConfigError) as caught:
            in_jaas(f"{module} required username=alice password=secret;", mechanism)
        assert str(caught.value) == (
            f"sasl.jaas.config names {module} as login module, but sasl.mechanism={mechanism} needs {needed};"
            " change one of them"
        )
        assert caught.value.name == "sasl.jaas.config"
    with pytest.raises(ConfigError, match="names something else as login module") as caught:
        in_jaas("hunter2 required username=alice password=secret;")
    assert "hunter2" not in str(caught.value)


def test_what_can_not_be_sent_is_a_config_error() -> None:
    for username, password, setting, said in (
        (None, "secret", "sasl.username", "sasl.username is missing"),
        ("alice", None, "sasl.password", "sasl.password is missing"),
        ("hunter\0two", "secret", "sasl.username", "sasl.username contains a NUL character"),
        ("alice", "hunter\0two", "sasl.password", "sasl.password contains a NUL character"),
        ("alice", "hunter\ud800two", "sasl.password", "sasl.password is not Unicode text"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            in_settings(username, password)
        assert caught.value.name == setting
        assert "hunter" not in str(caught.value)


def test_one_of_the_two_spellings_must_go() -> None:
    jaas = SecretSource("sasl.jaas.config", text=f"{PLAIN_MODULE} required;")
    username = SecretSource("sasl.username", text="alice")
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config and sasl\.username are both set"):
        PasswordLogin(SaslConfig("PLAIN", jaas_config=jaas, username=username), NO_EVENTS)


def test_a_password_file_that_changes_counts_for_the_next_authentication(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old\n")
    username = SecretSource("sasl.username", text="alice")
    password = SecretSource("sasl.password", path=str(file))
    login = PasswordLogin(SaslConfig("SCRAM-SHA-256", username=username, password=password), NO_EVENTS)
    assert login.read().password == "old"
    file.write_text("newer")
    assert login.read().password == "newer"


def test_a_jaas_file_that_becomes_invalid_is_reported_once_and_not_used(
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


# -- the JAAS config's grammar -------------------------------------------------------------------------------


MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def options(text: str) -> dict[str, str]:
    """The options of a module with that text behind its flag."""
    return dict(JaasConfig.parse(f"{MODULE} required {text};").options)


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        JaasConfig.parse(text)
    assert caught.value.name == "sasl.jaas.config"
    assert caught.value.message.startswith("sasl.jaas.config: ")
    return caught.value.message.removeprefix("sasl.jaas.config: ")


def test_a_module_has_any_control_flag_and_perhaps_options() -> None:
    parsed = JaasConfig.parse(f"{MODULE} required;")
    assert (parsed.login_module, parsed.module_name, parsed.options) == (MODULE, "PlainLoginModule", {})
    for flag in ("required", "REQUIRED", "Requisite", "sufficient", "optional"):
        assert JaasConfig.parse(f"{MODULE} {flag} username=alice;").options == {"username": "alice"}


def test_options() -> None:
    found: dict[str, dict[str, str]] = {
        "a=b": {"a": "b"},
        "a=b  c = d\n\te=f": {"a": "b", "c": "d", "e": "f"},
        'username="alice" password="alice-secret"': {"username": "alice", "password": "alice-secret"},
        "password='single quoted'": {"password": "single quoted"},
        '"quoted name"="1"': {"quoted name": "1"},
        'a=b a="twice"': {"a": "twice"},
        "a=user_1$-x.y": {"a": "user_1$-x.y"},
        "a=größe": {"a": "größe"},
        r'a="quote \" and backslash \\ and comma,;"': {"a": 'quote " and backslash \\ and comma,;'},
        r'a="\t\n\101\0\7x\400"': {"a": "\t\nA\0\x07x\x200"},
        r'a="\a\b\f\n\r\t\v\q"': {"a": "\a\b\f\n\r\t\vq"},
        "a=b // a comment; c=d\n e=f": {"a": "b", "e": "f"},
        "a=b /* a\ncomment; */ e=f": {"a": "b", "e": "f"},
        'a="// no comment"': {"a": "// no comment"},
    }
    assert {text: options(text) for text in found} == found


def test_what_is_said_of_a_text_that_is_none() -> None:
    value_missing = (
        "Value not specified for key 'password' in JAAS config (character 27); put values in double quotes,"
        " and a backslash before each quote or backslash in them"
    )
    said = {
        # in Java's words
        "": "Login module not specified in JAAS config",
        "  // nothing\n": "Login module not specified in JAAS config",
        "7 required a=b;": "Login module not specified in JAAS config (character 1)",
        " = required a=b;": "Login module not specified in JAAS config (character 2)",
        MODULE: "Login module control flag not specified in JAAS config",
        f"{MODULE} {{ a=b;": "Login module control flag is not available in the JAAS config",
        f"{MODULE} required a=b": "JAAS config entry not terminated by semi-colon",
        f'{MODULE} required a="b;': "JAAS config entry not terminated by semi-colon",
        f"{MODULE} required; {MODULE} required;": (
            "JAAS config property contains 2 login modules, should be 1 module"
        ),
        # by its place, and by its name where Kafka knows it
        "PlainLoginModule username=alice;": (
            "Invalid login module control flag in JAAS config (character 18): write `required` after the"
            " module's name"
        ),
    }
    for text in ("password", "password=", "password=;", "password 1", "password=123"):
        said[f"PlainLoginModule required {text};"] = value_missing
    assert {text: complaint(text) for text in said} == said


def test_what_may_be_a_secret_is_not_shown() -> None:
    for text in (
        "PlainLoginModule required username=alice password=my hunter2;",
        "PlainLoginModule hunter2 required;",
        "PlainLoginModule required hunter2;",
        'PlainLoginModule required password="hunter" hunter2";',
        "hunter2",
        "hunter2 hunter2 hunter2;",
        "hunter2 required hunter2=hunter2",
    ):
        assert "hunter2" not in complaint(text), text


def test_repr_shows_a_module_only_if_it_looks_like_one() -> None:
    assert repr(JaasConfig.parse(f"{MODULE} required password=hunter2;")) == f"<JaasConfig {MODULE}>"
    assert repr(JaasConfig.parse("hunter2 required;")) == "<JaasConfig something else>"


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ConfigError):
        JaasConfig.parse(text)


@given(st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), max_size=40))
def test_any_password_can_be_quoted(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert options(f'password="{quoted}"') == {"password": password}


# -- parameters of a token endpoint --------------------------------------------------------------------------


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
    jaas, secret = SecretSource("j", text=JAAS), SecretSource(SECRET, text="s3cret")
    for read, expected in (
        (credentials(client_id=" pilot ", secret=secret, jaas=jaas, scope="a"), ("pilot", "s3cret", "a")),
        (credentials(jaas=jaas), ("jaas", "fish", "from jaas")),
        (credentials(client_id="pilot", jaas=jaas, scope=" "), ("pilot", "fish", None)),
    ):
        assert read.read() == ClientCredentials(*expected)
    with pytest.raises(ConfigError, match=f"{ID} is missing"):
        credentials(client_id="  ", secret=secret)
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
    basic = base64.b64encode(b"pilot:f:sh").decode()
    encoded = base64.b64encode(b"pilot:f%3Ash").decode()
    for header_urlencode, text in (
        (False, f"{basic} is pilot with f:sh"),
        (True, f"{encoded} is pilot with f%3Ash"),
    ):
        ours = credentials(client_id="pilot", secret=SecretSource(SECRET, text="f:sh"))
        sent = ClientSecretRequestFormatter(ours, header_urlencode=header_urlencode).format()
        assert sent.masked(text) == "[hidden] is [hidden] with [hidden]"
        assert repr(sent) == "<TokenRequest [hidden]>"


def test_repr_shows_nothing_of_what_an_endpoint_is_asked_with() -> None:
    ours = credentials(client_id="pilot", secret=SecretSource(SECRET, text="s3cret"))
    assert repr(ours) == "<OAuthCredentials [hidden]>"
    assert repr(ours.read()) == "<ClientCredentials [hidden]>"
