"""Types, ranges and lists of settings, in Kafka's words."""

from __future__ import annotations

import pytest

from client_core.errors import ConfigError
from client_core.network.secret import HIDDEN
from client_core.producer.settings.config_def import (
    ANY_LIST,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    STRING,
    URL,
    Option,
    between,
    between_or,
)


def test_a_range_has_an_upper_end() -> None:
    option = Option("n", INT, None, between(1, 9), "A number.")
    assert option.read("9") == 9
    with pytest.raises(
        ConfigError, match="Invalid value 10 for configuration n: Value must be no more than 9"
    ):
        option.read("10")


def test_one_value_may_lie_beside_a_range() -> None:
    option = Option("n", INT, None, between_or(1, 9, -1), "A number.")
    assert option.valid is not None
    assert option.valid.text == "[1,...,9] or -1"
    assert [option.read(text) for text in ("-1", "1", "9")] == [-1, 1, 9]
    with pytest.raises(ConfigError, match="Value must be between 1 and 9 or equal to -1"):
        option.read("0")


def test_fractions_are_read_from_text_and_from_numbers() -> None:
    option = Option("x", DOUBLE, None, between(0.5, 1.0), "A fraction.")
    assert [option.read(value) for value in (" 0.75 ", "5e-1", 1, 0.5)] == [0.75, 0.5, 1.0, 0.5]


def test_a_list_may_be_empty_but_not_have_empty_or_double_entries() -> None:
    option = Option("names", LIST, "", ANY_LIST, "Names.")
    assert option.read("") == ()
    assert option.read("a, b") == ("a", "b")
    with pytest.raises(ConfigError, match="Configuration 'names' values must not be duplicated"):
        option.read("a,a")
    with pytest.raises(ConfigError, match="Configuration 'names' values must not be empty"):
        option.read("a,,b")


def test_a_secret_is_never_shown() -> None:
    option = Option("ssl.key.password", PASSWORD, None, None, "A secret.")
    assert option.show("s3cret") == HIDDEN
    with pytest.raises(ConfigError) as caught:
        option.read(31337)
    assert "31337" not in caught.value.message


def test_only_what_may_be_a_file_has_a_companion() -> None:
    assert (
        Option("sasl.password", PASSWORD, None, None, "", may_be_file=True).file_name == "sasl.password.file"
    )
    assert Option("client.id", STRING, "", None, "").file_name is None


@pytest.mark.parametrize(
    "value",
    ["9" * 5_000, "-" + "9" * 5_000, 10**400, -(10**400)],
    ids=["text", "negative text", "number", "negative number"],
)
def test_a_number_of_any_length_is_refused_by_its_name(value: object) -> None:
    """Python refuses to read text of thousands of digits, and to make a float of the like."""
    for kind in (INT, LONG):
        with pytest.raises(ConfigError, match="for configuration n: Not a number of type"):
            Option("n", kind, None, None, "A number.").read(value)
    with pytest.raises(ConfigError, match="for configuration x: "):
        Option("x", DOUBLE, None, between(0.5, 1.0), "A fraction.").read(value)


def test_zeros_in_front_do_not_make_a_number_too_long() -> None:
    assert Option("n", INT, None, None, "A number.").read("-" + "0" * 5_000 + "7") == -7


@pytest.mark.parametrize("url", ["https://[::1", "https://me:s3cret@idp.example/token"])
def test_a_url_that_is_none_or_holds_a_password_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="for configuration u: ") as caught:
        Option("u", URL, None, None, "An address.").read(url)
    assert url not in str(caught.value)
    assert "s3cret" not in str(caught.value)
