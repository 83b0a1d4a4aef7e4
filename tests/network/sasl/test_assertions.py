"""Assertions: those that are signed here are verified with the public key, those in files are read again.

After DefaultAssertionCreatorTest, LayeredAssertionJwtTemplateTest and FileAssertionCreatorTest (Kafka 4.3).
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1

from client_core.errors import ConfigError
from client_core.events import SecretReloaded
from client_core.network.sasl.assertions import FileAssertions, SignedAssertions, assertions
from client_core.network.secret import SecretSource
from client_core.network.security_config import AssertionConfig
from tests.network.sasl.jwts import base64url, jwt_of
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents
from tests.support.signing_keys import ec_key, pem, rsa_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

KEY_FILE: Final = "sasl.oauthbearer.assertion.private.key.file"
PASSPHRASE: Final = "sasl.oauthbearer.assertion.private.key.passphrase"
TEMPLATE_FILE: Final = "sasl.oauthbearer.assertion.template.file"
FILE: Final = "sasl.oauthbearer.assertion.file"
#: In no message, whatever happens.
SECRET: Final = "jabberwocky-2Vm"

KEYS: Final[dict[str, Callable[[], RSAPrivateKey | EllipticCurvePrivateKey]]] = {
    "RS256": rsa_key,
    "ES256": ec_key,
}


def source(name: str, path: Path) -> SecretSource:
    return SecretSource(name, path=str(path))


class Files:
    """The files of an assertion."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.events = RecordedEvents()
        self.clock = MockClock()

    def write(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(text)
        return path

    def signed(
        self,
        key: str,
        *,
        passphrase: str | None = None,
        template: str | None = None,
        **settings: Any,
    ) -> SignedAssertions:
        config = AssertionConfig(
            private_key=source(KEY_FILE, self.write("key.pem", key)),
            passphrase=None if passphrase is None else SecretSource(PASSPHRASE, text=passphrase),
            template=None if template is None else source(TEMPLATE_FILE, self.write("template", template)),
            **settings,
        )
        return SignedAssertions(config, self.clock, self.events)

    def failures(self) -> list[str]:
        return [event.failure for event in self.events.of(SecretReloaded) if event.failure is not None]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def verified(assertion: str, algorithm: str = "RS256", number: int = 0) -> dict[str, Any]:
    """The claims, if the signature is the key's. The clock of these tests is not the wall's."""
    public = (rsa_key(number) if algorithm == "RS256" else ec_key()).public_key()
    return jwt.decode(
        assertion,
        public,
        [algorithm],
        options={"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False},
    )


# -- signed here ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize("passphrase", [None, SECRET])
def test_an_assertion_is_signed_by_the_key(files: Files, algorithm: str, passphrase: str | None) -> None:
    key = pem(KEYS[algorithm](), passphrase)
    made = files.signed(key, passphrase=passphrase, algorithm=algorithm, issuer="pilot")
    assertion, now_s = made.assertion(), files.clock.wall_ms() // 1000
    assert jwt.get_unverified_header(assertion) == {"alg": algorithm, "typ": "JWT"}
    claims = verified(assertion, algorithm)
    assert claims == {"iss": "pilot", "iat": now_s, "exp": now_s + 300, "nbf": now_s - 60}


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_key_may_be_in_openssls_older_form(files: Files, algorithm: str) -> None:
    made = files.signed(pem(KEYS[algorithm](), traditional=True), algorithm=algorithm)
    verified(made.assertion(), algorithm)


def test_a_comment_about_encryption_makes_no_key_an_encrypted_one(files: Files) -> None:
    verified(files.signed(f"the ENCRYPTED one is kept elsewhere\n{pem(rsa_key())}").assertion())


def test_claims_of_the_settings_and_their_times(files: Files) -> None:
    made = files.signed(
        pem(rsa_key()), audience="https://idp", subject="me", lifetime_s=7, not_before_s=0, has_jti=True
    )
    before = verified(made.assertion())
    files.clock.advance(10_000)
    claims = verified(made.assertion())
    now_s = files.clock.wall_ms() // 1000
    assert before.pop("jti") != claims.pop("jti")
    assert claims == {"aud": "https://idp", "sub": "me", "iat": now_s, "exp": now_s + 7, "nbf": now_s}
    assert before["iat"] == now_s - 10


@pytest.mark.behaviour("CRED-02")
def test_a_template_goes_before_the_settings_and_behind_what_is_made_for_each_assertion(files: Files) -> None:
    template = {
        "header": {"kid": "key-1", "alg": "none", "typ": "other", "x5t": "thumb"},
        "payload": {"iss": "template", "exp": 1, "iat": 1, "nbf": 1, "jti": "id", "tenant": {"a": [1, None]}},
        "other": "ignored",
    }
    made = files.signed(pem(rsa_key()), template=json.dumps(template), issuer="settings", audience="aud")
    assertion, now_s = made.assertion(), files.clock.wall_ms() // 1000
    assert jwt.get_unverified_header(assertion) == {
        "kid": "key-1",
        "alg": "RS256",
        "typ": "JWT",
        "x5t": "thumb",
    }
    assert verified(assertion) == {
        "iss": "template",
        "aud": "aud",
        "tenant": {"a": [1, None]},
        "jti": "id",
        "iat": now_s,
        "exp": now_s + 300,
        "nbf": now_s - 60,
    }


def test_an_empty_template_adds_nothing(files: Files) -> None:
    assert set(verified(files.signed(pem(rsa_key()), template="{}").assertion())) == {"iat", "exp", "nbf"}


def test_key_and_template_are_read_again_and_what_is_useless_changes_nothing(files: Files) -> None:
    made = files.signed(pem(rsa_key()), template='{"payload": {"sub": "one"}}')
    assert verified(made.assertion())["sub"] == "one"
    files.write("key.pem", pem(rsa_key(1)))
    files.write("template", '{"payload": {"sub": "two"}}')
    assert verified(made.assertion(), number=1)["sub"] == "two"
    files.write("key.pem", SECRET)
    files.write("template", f"{{{SECRET}")
    for _ in range(2):
        assert verified(made.assertion(), number=1)["sub"] == "two"
    assert files.failures() == [f"{TEMPLATE_FILE}: the file holds no JSON"]
    files.write("template", '{"payload": {"sub": "three"}}')
    assert verified(made.assertion(), number=1)["sub"] == "two"
    assert files.failures()[1:] == [f"{KEY_FILE}: the file holds no private key in PEM"]
    files.write("key.pem", pem(rsa_key()))
    assert verified(made.assertion())["sub"] == "three"


def test_a_passphrase_is_read_again_with_its_key(files: Files) -> None:
    passphrase = files.write("passphrase", "first")
    key = files.write("key.pem", pem(rsa_key(), "first"))
    config = AssertionConfig(private_key=source(KEY_FILE, key), passphrase=source(PASSPHRASE, passphrase))
    made = SignedAssertions(config, files.clock, files.events)
    files.write("key.pem", pem(rsa_key(1), "second"))
    verified(made.assertion())
    files.write("passphrase", "second")
    verified(made.assertion(), number=1)
    assert files.failures() == [f"{KEY_FILE}: the file holds a key that {PASSPHRASE} does not decrypt"]


BAD_KEYS: Final[dict[str, tuple[Callable[[], dict[str, Any]], str]]] = {
    "nonsense": (lambda: {"key": SECRET}, "holds no private key in PEM"),
    "cut": (lambda: {"key": pem(rsa_key())[:300]}, "holds no private key in PEM"),
    "a certificate's label": (
        lambda: {"key": pem(rsa_key()).replace("PRIVATE KEY", "CERTIFICATE")},
        "holds no private key in PEM",
    ),
    "encrypted": (lambda: {"key": pem(rsa_key(), SECRET)}, f"holds an encrypted key; set {PASSPHRASE}.file"),
    "the older form encrypted": (
        lambda: {"key": pem(rsa_key(), SECRET, traditional=True)},
        f"holds an encrypted key; set {PASSPHRASE}.file",
    ),
    "another passphrase": (
        lambda: {"key": pem(rsa_key(), SECRET), "passphrase": f"{SECRET}\ud800"},
        f"holds a key that {PASSPHRASE} does not decrypt",
    ),
    "not encrypted": (
        lambda: {"key": pem(rsa_key()), "passphrase": SECRET},
        f"holds a key that is not encrypted; remove {PASSPHRASE}",
    ),
    "short": (
        lambda: {"key": pem(rsa_key(bits=1_024))},
        "holds a key of 1024 bits; RS256 needs 2048 at least",
    ),
    "an EC key": (lambda: {"key": pem(ec_key())}, "holds no RSA key, which RS256 needs"),
    "an RSA key": (
        lambda: {"key": pem(rsa_key()), "algorithm": "ES256"},
        "holds no key on the curve P-256, which ES256 needs",
    ),
    "another curve": (
        lambda: {"key": pem(ec_key(SECP384R1)), "algorithm": "ES256"},
        "holds no key on the curve P-256, which ES256 needs",
    ),
}


@pytest.mark.parametrize("case", BAD_KEYS)
def test_a_key_that_can_not_be_used_is_a_config_error_that_does_not_show_it(files: Files, case: str) -> None:
    given, said = BAD_KEYS[case]
    with pytest.raises(ConfigError) as caught:
        files.signed(**given())
    assert (caught.value.name, caught.value.message) == (KEY_FILE, f"{KEY_FILE}: the file {said}")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (SECRET, "holds no JSON"),
        ('{"payload": {"a": NaN}}', "holds no JSON"),
        ("[" * 100_000, "holds no JSON"),
        (f'["{SECRET}"]', "holds no JSON object"),
        (f'{{"header": "{SECRET}"}}', 'has a "header" or "payload" that is no JSON object'),
        ('{"payload": null}', 'has a "header" or "payload" that is no JSON object'),
        ('{"header": {"b64": false}}', "has the header b64, which is not supported"),
    ],
)
def test_a_template_that_can_not_be_read_is_a_config_error(files: Files, template: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        files.signed(pem(rsa_key()), template=template)
    assert caught.value.name == TEMPLATE_FILE
    assert caught.value.message.startswith(f"{TEMPLATE_FILE}: the file {said}")


@pytest.mark.parametrize("template", [{"header": {"kid": 7}}, {"header": {"kid": None}}])
def test_a_template_that_can_not_be_signed_is_a_config_error(
    files: Files, template: dict[str, object]
) -> None:
    with pytest.raises(ConfigError, match="no assertion can have these headers and claims") as caught:
        files.signed(pem(rsa_key()), template=json.dumps(template))
    assert caught.value.name == TEMPLATE_FILE


def test_files_that_are_missing_are_config_errors(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    for config, setting, said in (
        (AssertionConfig(), KEY_FILE, f"is missing: an assertion is signed with it; or set {FILE}"),
        (AssertionConfig(private_key=source(KEY_FILE, key)), KEY_FILE, "can't read"),
        (AssertionConfig(source(FILE, key)), FILE, "can't read"),
    ):
        with pytest.raises(ConfigError, match=said) as caught:
            assertions(config, MockClock(), RecordedEvents())
        assert caught.value.name == setting


@pytest.mark.parametrize("module", ["jwt", "cryptography"])
def test_without_the_extra_it_is_a_config_error_that_says_what_to_install(
    files: Files, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError) as caught:
        files.signed(pem(rsa_key()))
    assert caught.value.message == (
        f"{KEY_FILE} needs PyJWT and cryptography ({module} is not installed): install this package with its"
        " extra oauth, as pip install 'dist/NAME.whl[oauth]'"
    )


def test_repr_shows_no_key(files: Files) -> None:
    made = files.signed(pem(rsa_key(), SECRET), passphrase=SECRET)
    assert repr(made) == "<SignedAssertions RS256>"
    assert SECRET not in repr(made._signer)


# -- ready, in a file ----------------------------------------------------------------------------------------


def test_a_ready_assertion_is_read_again_needs_no_extra_and_ignores_the_rest(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    first, second = jwt_of("one", expires_ms=1_000), jwt_of("two", expires_ms=1_000)
    file = files.write("assertion", f" {first}\n")
    config = AssertionConfig(source(FILE, file), private_key=SecretSource(KEY_FILE, path="/not/there"))
    made = assertions(config, files.clock, files.events)
    assert made.assertion() == first
    assert repr(made) == f"<FileAssertions {file}>"
    file.write_text(second)
    assert made.assertion() == second
    file.write_text(SECRET)
    for _ in range(2):
        assert made.assertion() == second
    assert len(files.failures()) == 1
    assert SECRET not in files.failures()[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SECRET, "Malformed JWT provided; expected three sections"),
        (f"{SECRET}.{SECRET}.", "Malformed JWT provided; expected three sections"),
        (f"é.{SECRET}.c", "Malformed JWT provided; it has invalid characters"),
        (f"{base64url(b'{}')}.{SECRET}.c", "malformed"),
        (f"{base64url(b'[]')}.{base64url(b'{}')}.c", "its claims are not a JSON object"),
        (f"{base64url(b'{')}.{base64url(b'{}')}.c", "malformed JSON"),
    ],
)
def test_a_file_without_an_assertion_is_a_config_error_that_does_not_show_it(
    files: Files, text: str, said: str
) -> None:
    file = files.write("assertion", text)
    with pytest.raises(ConfigError) as caught:
        FileAssertions(source(FILE, file), files.events)
    assert caught.value.name == FILE
    assert caught.value.message.startswith(f"{FILE}: {file} holds no assertion: ")
    assert said in caught.value.message
    assert SECRET not in str(caught.value)
