"""The JAAS config's grammar. After JaasContextTest (Kafka 4.3), and what StreamTokenizer does beyond it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import ConfigError
from client_core.network.sasl.jaas_config import JaasConfig

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


def test_a_module_without_options() -> None:
    parsed = JaasConfig.parse(f"{MODULE} required;")
    assert parsed.login_module == MODULE
    assert parsed.module_name == "PlainLoginModule"
    assert parsed.options == {}


@pytest.mark.parametrize("flag", ["required", "REQUIRED", "Requisite", "sufficient", "optional"])
def test_every_control_flag_will_do(flag: str) -> None:
    assert JaasConfig.parse(f"{MODULE} {flag} username=alice;").options == {"username": "alice"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("a=b  c = d\n\te=f", {"a": "b", "c": "d", "e": "f"}),
        ('username="alice" password="alice-secret"', {"username": "alice", "password": "alice-secret"}),
        ("password='single quoted'", {"password": "single quoted"}),
        ('"quoted name"="1"', {"quoted name": "1"}),
        ('a=b a="twice"', {"a": "twice"}),
        ("a=user_1$-x.y", {"a": "user_1$-x.y"}),
        ("a=größe", {"a": "größe"}),
        (r'a="quote \" and backslash \\ and comma,;"', {"a": 'quote " and backslash \\ and comma,;'}),
        (r'a="\t\n\101\0\7x\400"', {"a": "\t\nA\0\x07x\x200"}),
        (r'a="\a\b\f\n\r\t\v\q"', {"a": "\a\b\f\n\r\t\vq"}),
        ("a=b // a comment; c=d\n e=f", {"a": "b", "e": "f"}),
        ("a=b /* a\ncomment; */ e=f", {"a": "b", "e": "f"}),
        ('a="// no comment"', {"a": "// no comment"}),
    ],
)
def test_options(text: str, found: dict[str, str]) -> None:
    assert options(text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Login module not specified in JAAS config"),
        ("  // nothing\n", "Login module not specified in JAAS config"),
        ("7 required a=b;", "Login module not specified in JAAS config (character 1)"),
        (" = required a=b;", "Login module not specified in JAAS config (character 2)"),
        (MODULE, "Login module control flag not specified in JAAS config"),
        (f"{MODULE} {{ a=b;", "Login module control flag is not available in the JAAS config"),
        (f"{MODULE} required a=b", "JAAS config entry not terminated by semi-colon"),
        (f'{MODULE} required a="b;', "JAAS config entry not terminated by semi-colon"),
        (
            f"{MODULE} required; {MODULE} required;",
            "JAAS config property contains 2 login modules, should be 1 module",
        ),
    ],
)
def test_what_java_says_of_a_text_that_is_none(text: str, said: str) -> None:
    assert complaint(text) == said


def test_a_missing_flag_is_told_by_its_place() -> None:
    assert complaint("PlainLoginModule username=alice;") == (
        "Invalid login module control flag in JAAS config (character 18): write `required` after the"
        " module's name"
    )


@pytest.mark.parametrize("text", ["password", "password=", "password=;", "password 1", "password=123"])
def test_an_option_without_a_value_is_named_where_kafka_knows_it(text: str) -> None:
    assert complaint(f"PlainLoginModule required {text};") == (
        "Value not specified for key 'password' in JAAS config (character 27); put values in double quotes,"
        " a quote or backslash within them behind a backslash"
    )


@pytest.mark.parametrize(
    "text",
    [
        "PlainLoginModule required username=alice password=my hunter2;",
        "PlainLoginModule hunter2 required;",
        "PlainLoginModule required hunter2;",
        'PlainLoginModule required password="hunter" hunter2";',
        "hunter2",
        "hunter2 hunter2 hunter2;",
        "hunter2 required hunter2=hunter2",
    ],
)
def test_what_may_be_a_secret_is_not_shown(text: str) -> None:
    assert "hunter2" not in complaint(text)


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
