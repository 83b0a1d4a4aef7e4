"""Tokens of AWS IAM: by a stand-in for AWS's signer, which test_distributions_installed.py runs itself."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import ConfigError, DisconnectError
from client_core.network.sasl.client_jwt_validator import OAuthBearerToken
from client_core.network.sasl.provider_jwt_retriever import ProviderJwtRetriever
from client_core.network.security_config import TokenProvider

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE: Final = "client_core.msk_iam:token"
SETTING: Final = "sasl.oauthbearer.token.provider"
EXPIRES_MS: Final = 1_780_000_000_000


class Signer:
    """What the signer's module has, as far as we use it, and botocore's session."""

    def __init__(self) -> None:
        self.regions: list[str] = []
        self.credentials: object | None = None
        self.signs: Callable[[str], tuple[str, int]] = lambda region: (f"signed-for_{region}", EXPIRES_MS)

    def generate_auth_token(self, region: str, aws_debug_creds: bool = False) -> tuple[str, int]:
        self.regions.append(region)
        return self.signs(region)

    def get_credentials(self) -> object | None:
        return self.credentials


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> Signer:
    stand_in, module = Signer(), ModuleType("aws_msk_iam_sasl_signer")
    module.MSKAuthTokenProvider = stand_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    session = ModuleType("botocore.session")
    session.Session = lambda: stand_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "botocore", ModuleType("botocore"))
    monkeypatch.setitem(sys.modules, session.__name__, session)
    monkeypatch.delitem(sys.modules, "client_core.msk_iam", raising=False)
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    return stand_in


def test_a_token_is_signed_for_the_region_of_the_environment(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever = ProviderJwtRetriever(TokenProvider(PLACE))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    expected = OAuthBearerToken("signed-for_eu-north-1", frozenset(), EXPIRES_MS, PLACE, None)
    assert retriever.retrieve() == expected
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    retriever.retrieve()
    assert signer.regions == ["eu-north-1", "ap-south-1"]


def test_what_is_missing_is_named_by_the_type_of_the_exception(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_credentials(region: str) -> tuple[str, int]:
        raise AttributeError("'NoneType' object has no attribute 'access_key'")

    signer.signs = without_credentials
    retriever = ProviderJwtRetriever(TokenProvider(PLACE))
    with pytest.raises(DisconnectError, match=f"{SETTING} {PLACE} raised AwsRegionMissing"):
        retriever.retrieve()
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    with pytest.raises(DisconnectError, match=f"{SETTING} {PLACE} raised AwsCredentialsMissing"):
        retriever.retrieve()


def test_another_attribute_error_of_the_signer_is_not_taken_for_missing_credentials(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_a_bug(region: str) -> tuple[str, int]:
        raise AttributeError("module 'botocore' has no attribute 'auth'")

    signer.signs, signer.credentials = with_a_bug, object()
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    with pytest.raises(DisconnectError, match=f"{SETTING} {PLACE} raised AttributeError"):
        ProviderJwtRetriever(TokenProvider(PLACE)).retrieve()


def test_without_the_extra_it_is_a_config_error_that_says_what_to_install(
    signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError) as caught:
        ProviderJwtRetriever(TokenProvider(PLACE))
    assert caught.value.message == (
        f"{SETTING}={PLACE}: client_core.msk_iam needs the module aws_msk_iam_sasl_signer, which is not"
        " installed; install this package with its extra msk-iam, as pip install 'dist/NAME.whl[msk-iam]'"
    )
