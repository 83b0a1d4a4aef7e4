"""Assertions: JWTs in place of a client secret (RFC 7523).

    header    alg, typ=JWT                          + the template's header
    payload   iat, exp, nbf and perhaps jti         + the template's payload + aud, iss, sub of the settings

Each part goes before those to its right, so a template may replace aud, iss and sub. An assertion may also
lie ready in a file, which another program renews. Key, passphrase, template and file are read again when they
have changed; after an invalid change the last ones stay in use (`secret.py`).

Signing needs PyJWT and cryptography, the extra `oauth`, which are imported for it only. Deviations: a key may
also be in PKCS#1 or SEC 1, and an RSA key has 2,048 bits at least (RFC 7518 section 3.3).

Built on the caller's thread, then used by the login's. Source: AssertionSupplierFactory,
DefaultAssertionCreator, FileAssertionCreator, LayeredAssertionJwtTemplate, AssertionUtils, Kafka 4.3;
KIP-1139, KIP-1258.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from client_core.errors import ConfigError, SaslAuthenticationError
from client_core.network.sasl.client_jwt_validator import validate_structure
from client_core.network.secret import HIDDEN, InForce, Secret, text
from client_core.network.ssl_pem import pem_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.network.secret import SecretSource
    from client_core.network.security_config import AssertionConfig

ASSERTION_FILE: Final = "sasl.oauthbearer.assertion.file"
PRIVATE_KEY_FILE: Final = "sasl.oauthbearer.assertion.private.key.file"
_PASSPHRASE: Final = "sasl.oauthbearer.assertion.private.key.passphrase"  # noqa: S105 - the name of a setting
_TEMPLATE_FILE: Final = "sasl.oauthbearer.assertion.template.file"

_RS256: Final = "RS256"
#: The curve of ES256.
_P_256: Final = "secp256r1"
_LEAST_RSA_BITS: Final = 2048


class Assertions(Protocol):
    """Gives an assertion for each token request. One owner thread."""

    def assertion(self) -> str:
        """Returns it. Never raises."""
        ...


def assertions(config: AssertionConfig, clock: Clock, events: EventSink) -> Assertions:
    """Returns those of a file, or else signed ones. Raises ConfigError naming the setting."""
    if config.file is not None:
        return FileAssertions(config.file, events)
    return SignedAssertions(config, clock, events)


class FileAssertions:
    """A ready assertion in a file."""

    def __init__(self, source: SecretSource, events: EventSink) -> None:
        """Raises ConfigError when the file is missing or holds no JWT."""
        self._path = source.path
        self._assertion = InForce(Secret(source, events).read, self._checked, events)

    def assertion(self) -> str:
        return self._assertion.now()

    def _checked(self, text: str) -> str:
        try:
            return validate_structure(text)
        except SaslAuthenticationError as error:
            raise ConfigError(
                f"{ASSERTION_FILE}: {self._path} holds no assertion: {error.message}", name=ASSERTION_FILE
            ) from None

    def __repr__(self) -> str:
        return f"<FileAssertions {self._path}>"


class _Texts(NamedTuple):
    """What the files hold. Never shown."""

    key: str
    passphrase: str | None
    template: str | None

    def __repr__(self) -> str:
        return f"<_Texts {HIDDEN}>"


class _Template(NamedTuple):
    """The parts of an assertion that do not change with time."""

    header: Mapping[str, object]
    payload: Mapping[str, object]


class _Signer(NamedTuple):
    """The key, and what it signs."""

    key: RSAPrivateKey | EllipticCurvePrivateKey
    template: _Template

    def __repr__(self) -> str:
        return f"<_Signer {HIDDEN}>"


class SignedAssertions:
    """Assertions that are made here."""

    def __init__(self, config: AssertionConfig, clock: Clock, events: EventSink) -> None:
        """Raises ConfigError when key or template can't be used, or the extra is not installed."""
        _ensure_installed()
        if config.private_key is None:
            raise ConfigError(
                f"{PRIVATE_KEY_FILE} is missing: an assertion is signed with it; or set {ASSERTION_FILE}",
                name=PRIVATE_KEY_FILE,
            )
        self._config = config
        self._clock = clock
        key = Secret(config.private_key, events)
        passphrase = None if config.passphrase is None else Secret(config.passphrase, events)
        template = None if config.template is None else Secret(config.template, events)
        self._signer = InForce(
            lambda: _Texts(key.read(), text(passphrase), text(template)), self._made, events
        )

    def assertion(self) -> str:
        return self._signed(self._signer.now())

    def _made(self, texts: _Texts) -> _Signer:
        config = self._config
        given = {"aud": config.audience, "iss": config.issuer, "sub": config.subject}
        template = _template(texts.template)
        claims = {name: value for name, value in given.items() if value is not None}
        signer = _Signer(
            _private_key(config.algorithm, texts), _Template(template.header, {**claims, **template.payload})
        )
        try:
            self._signed(signer)
        except (TypeError, ValueError, _jwt_error()):
            raise ConfigError(
                f"{_TEMPLATE_FILE}: no assertion can have these headers and claims: kid and iss must be text",
                name=_TEMPLATE_FILE,
            ) from None
        return signer

    def _signed(self, signer: _Signer) -> str:
        import jwt

        config, now_s = self._config, self._clock.wall_ms() // 1000
        payload = {
            **signer.template.payload,
            "iat": now_s,
            "exp": now_s + config.lifetime_s,
            "nbf": now_s - config.not_before_s,
        }
        if config.has_jti:
            payload["jti"] = str(uuid.uuid4())
        headers = {**signer.template.header, "alg": config.algorithm, "typ": "JWT"}
        return jwt.encode(payload, signer.key, config.algorithm, headers)

    def __repr__(self) -> str:
        return f"<SignedAssertions {self._config.algorithm}>"


def _ensure_installed() -> None:
    try:
        import cryptography  # noqa: F401
        import jwt  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"{PRIVATE_KEY_FILE} needs PyJWT and cryptography ({error.name} is not installed):"
            " install this package with its extra oauth, as pip install 'dist/NAME.whl[oauth]'",
            name=PRIVATE_KEY_FILE,
        ) from None


def _jwt_error() -> type[Exception]:
    import jwt

    return jwt.PyJWTError


def _private_key(algorithm: str, texts: _Texts) -> RSAPrivateKey | EllipticCurvePrivateKey:
    """Raises ConfigError, which holds nothing of the key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    is_encrypted = any(block.is_encrypted for block in pem_blocks(texts.key))
    if is_encrypted and texts.passphrase is None:
        raise _unusable(f"holds an encrypted key; set {_PASSPHRASE}.file")
    if not is_encrypted and texts.passphrase is not None:
        raise _unusable(f"holds a key that is not encrypted; remove {_PASSPHRASE}")
    passphrase = None if texts.passphrase is None else texts.passphrase.encode(errors="surrogatepass")
    try:
        key = load_pem_private_key(texts.key.encode(), passphrase)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        if is_encrypted:
            raise _unusable(f"holds a key that {_PASSPHRASE} does not decrypt") from None
        raise _unusable("holds no private key in PEM") from None
    if algorithm == _RS256:
        if not isinstance(key, RSAPrivateKey):
            raise _unusable(f"holds no RSA key, which {_RS256} needs")
        if key.key_size < _LEAST_RSA_BITS:
            raise _unusable(f"holds a key of {key.key_size} bits; {_RS256} needs {_LEAST_RSA_BITS} at least")
        return key
    if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name != _P_256:
        raise _unusable(f"holds no key on the curve P-256, which {algorithm} needs")
    return key


def _unusable(what: str) -> ConfigError:
    return ConfigError(f"{PRIVATE_KEY_FILE}: the file {what}", name=PRIVATE_KEY_FILE)


def _template(text: str | None) -> _Template:
    """Returns the template's header and payload; both may be missing. Raises ConfigError."""
    if text is None:
        return _Template({}, {})
    try:
        parsed: object = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):  # json's errors hold the text
        raise _no_template("holds no JSON") from None
    if not isinstance(parsed, dict):
        raise _no_template("holds no JSON object")
    header, payload = parsed.get("header", {}), parsed.get("payload", {})
    if not isinstance(header, dict) or not isinstance(payload, dict):
        raise _no_template('has a "header" or "payload" that is no JSON object')
    if "b64" in header:
        raise _no_template("has the header b64, which is not supported: payloads are always encoded")
    return _Template(header, payload)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _no_template(what: str) -> ConfigError:
    return ConfigError(f"{_TEMPLATE_FILE}: the file {what}", name=_TEMPLATE_FILE)
