"""What a client can tell of a token. After ClientJwtValidatorTest, ClaimValidationUtilsTest (Kafka 4.3)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import SaslAuthenticationError
from client_core.network.sasl.client_jwt_validator import ClientJwtValidator
from tests.network.sasl.jwts import base64url, jwt

CLAIMS = {"sub": "alice", "exp": 1_700_000_300, "iat": 1_700_000_000, "scope": "kafka"}


def complaint(token: str) -> str:
    with pytest.raises(SaslAuthenticationError) as caught:
        ClientJwtValidator().validate(token)
    assert token not in caught.value.message or not token
    assert caught.value.__cause__ is None
    return caught.value.message


def complaint_of(**claims: object) -> str:
    """What is said of a token with these claims changed; None takes a claim out."""
    return complaint(jwt({name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}))


def test_a_token_with_its_claims() -> None:
    text = jwt(CLAIMS)
    token = ClientJwtValidator().validate(f"  {text}\n")
    assert token.value == text
    assert token.principal_name == "alice"
    assert token.lifetime_ms == 1_700_000_300_000
    assert token.start_time_ms == 1_700_000_000_000
    assert token.scopes == {"kafka"}
    assert token.is_valid_at(1_700_000_299_999)
    assert not token.is_valid_at(1_700_000_300_000)


def test_claims_may_have_other_names() -> None:
    text = jwt({"upn": "alice", "exp": 1.5, "scp": ["a", " b "]})
    token = ClientJwtValidator("scp", "upn").validate(text)
    assert token.principal_name == "alice"
    assert token.scopes == {"a", "b"}
    assert token.lifetime_ms == 1_000
    assert token.start_time_ms is None


def test_a_scope_may_be_missing() -> None:
    assert ClientJwtValidator().validate(jwt({"sub": "alice", "exp": 1})).scopes == frozenset()


@pytest.mark.parametrize("token", ["", "  ", "a.b", "a.b.c.d", "a..c", ".b.", "a. .c", "hunter2"])
def test_a_token_has_three_sections(token: str) -> None:
    assert complaint(token) == (
        "Malformed JWT provided; expected three sections (header, payload, and signature)"
    )


@pytest.mark.parametrize("character", ["\x01", " ", "\r\n", "é", ","])
def test_a_token_that_would_end_its_field_is_refused(character: str) -> None:
    header, payload, signature = jwt(CLAIMS).split(".")
    said = complaint(f"{header}.{payload}.{signature[:3]}{character}{signature[3:]}")
    assert said == "Malformed JWT provided; it holds characters that no token has"


@pytest.mark.parametrize("payload", ["a+b/", "abcde"])
def test_claims_are_base64url(payload: str) -> None:
    assert complaint(f"e30.{payload}.c2ln") == (
        "Could not validate the access token: malformed Base64 URL encoded value"
    )


@pytest.mark.parametrize(
    "payload", [b"{", b"\xff\xfe\xfd", b'{"exp": NaN}', b'{"exp": Infinity}', b"[" * 100_000]
)
def test_claims_are_json(payload: bytes) -> None:
    said = complaint(f"e30.{base64url(payload)}.c2ln")
    assert said == "Could not validate the access token: malformed JSON"


def test_claims_are_an_object() -> None:
    said = complaint(f"e30.{base64url(b'[1]')}.c2ln")
    assert said == "Could not validate the access token: its claims are no JSON object"


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": None}, "exp value must be non-null"),
        ({"exp": -1}, 'exp value must be non-negative; value given was "-1000"'),
        ({"exp": "tomorrow"}, "exp value must be a number of seconds"),
        ({"exp": True}, "exp value must be a number of seconds"),
        ({"iat": -1}, 'iat value must be null or non-negative; value given was "-1000"'),
        ({"iat": "now"}, "iat value must be a number of seconds"),
        ({"sub": None}, "sub value must be non-null"),
        ({"sub": ""}, "sub value must be non-empty"),
        ({"sub": "  "}, "sub value must not contain only whitespace"),
        ({"sub": 7}, "sub value must be text"),
        ({"scope": ""}, "scope value must be non-empty"),
        ({"scope": ["a", "  "]}, "scope value must not contain only whitespace"),
        ({"scope": ["a", "b", " a"]}, "scope value must not contain duplicates"),
        ({"scope": ["a", None]}, "scope value must be non-null"),
    ],
)
def test_a_claim_that_makes_no_sense_is_named(claims: dict[str, object], said: str) -> None:
    assert complaint_of(**claims) == said


@pytest.mark.parametrize(
    "number", [b"1e999", b"9" * 4_300, b"-" + b"9" * 4_299, b"9223372036854776"], ids=range(4)
)
def test_a_number_beyond_all_bounds_is_no_time(number: bytes) -> None:
    """One of 4,300 digits is read, and a thousandfold it can't be spelled, not even in an error."""
    payload = base64url(b'{"sub":"a","exp":%s}' % number)
    assert complaint(f"e30.{payload}.c2ln") == "exp value must be a number of seconds"


@given(st.text(max_size=60))
def test_any_text_is_a_token_or_refused(text: str) -> None:
    with suppress(SaslAuthenticationError):
        ClientJwtValidator().validate(text)


@given(st.binary(max_size=60))
def test_any_payload_is_taken_or_refused(payload: bytes) -> None:
    with suppress(SaslAuthenticationError):
        ClientJwtValidator().validate(f"e30.{base64url(payload)}.c2ln")


def test_repr_shows_when_a_token_ends_and_not_what_it_is() -> None:
    token = ClientJwtValidator().validate(jwt(CLAIMS))
    assert repr(token) == "<OAuthBearerToken valid until 1700000300000>"
