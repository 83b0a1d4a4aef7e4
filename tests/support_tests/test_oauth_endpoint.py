"""The token endpoint gives tokens to those it knows, and only to them."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.oauth_endpoint import AUDIENCE, OAuthEndpoint, signed_token, write_jwks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GRANT: Final = {"grant_type": "client_credentials"}


@pytest.fixture
def endpoint() -> Iterator[OAuthEndpoint]:
    with OAuthEndpoint({"me": "its secret"}) as running:
        yield running


def _part(token: str, number: int) -> bytes:
    part = token.split(".")[number]
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _claims(token: str) -> Any:
    return json.loads(_part(token, 1))


def test_a_token_names_its_client_and_lives_as_long_as_told(endpoint: OAuthEndpoint) -> None:
    endpoint.lifetime_s = 7
    answer = httpx.post(endpoint.url, data=_GRANT, auth=("me", "its secret"))
    assert answer.status_code == 200
    assert answer.json()["expires_in"] == 7
    claims = _claims(answer.json()["access_token"])
    assert (claims["sub"], claims["aud"], claims["exp"] - claims["iat"]) == ("me", AUDIENCE, 7)
    assert endpoint.granted == 1


def test_credentials_may_stand_in_the_form(endpoint: OAuthEndpoint) -> None:
    form = {**_GRANT, "client_id": "me", "client_secret": "its secret"}
    assert httpx.post(endpoint.url, data=form).status_code == 200


@pytest.mark.parametrize("auth", [("me", "wrong"), ("you", "its secret"), None])
def test_a_stranger_gets_none(endpoint: OAuthEndpoint, auth: tuple[str, str] | None) -> None:
    answer = httpx.post(endpoint.url, data=_GRANT, auth=auth)
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    assert (len(endpoint.requests), endpoint.granted) == (1, 0)


def test_another_grant_is_refused(endpoint: OAuthEndpoint) -> None:
    answer = httpx.post(endpoint.url, data={"grant_type": "password"}, auth=("me", "its secret"))
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_grant_type")


def test_it_can_be_out_of_order_for_a_while(endpoint: OAuthEndpoint) -> None:
    endpoint.refuse_with = 503
    assert httpx.post(endpoint.url, data=_GRANT, auth=("me", "its secret")).status_code == 503
    endpoint.refuse_with = None
    assert httpx.post(endpoint.url, data=_GRANT, auth=("me", "its secret")).status_code == 200


def test_the_key_set_verifies_a_token_and_not_a_forged_one(tmp_path: Path) -> None:
    (key,) = json.loads(write_jwks(tmp_path / "jwks.json").read_text())["keys"]
    modulus, exponent = (
        int.from_bytes(base64.urlsafe_b64decode(key[name] + "=" * (-len(key[name]) % 4)), "big")
        for name in ("n", "e")
    )
    public = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    true, forged = signed_token("me"), signed_token("me", forged=True)
    public.verify(_part(true, 2), true.rpartition(".")[0].encode(), padding.PKCS1v15(), SHA256())
    with pytest.raises(InvalidSignature):
        public.verify(_part(forged, 2), forged.rpartition(".")[0].encode(), padding.PKCS1v15(), SHA256())
