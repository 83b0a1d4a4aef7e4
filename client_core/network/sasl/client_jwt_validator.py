"""Validates a JWT's structure and claims; the broker checks its signature.

Errors name the claim and never show the token. Pure. OAuthBearerToken is immutable, any thread. Source:
ClientJwtValidator, ClaimValidationUtils, SerializedJwt, OAuthBearerUnsecuredJws.toMap, OAuthBearerToken,
Kafka 4.3.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.errors import SaslAuthenticationError

if TYPE_CHECKING:
    from collections.abc import Mapping


_EXPIRATION: Final = "exp"
_ISSUED_AT: Final = "iat"

#: A broker accepts only these characters in a token; others might end its field.
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_BASE64_URL: Final = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_SECTIONS: Final = 3
#: The most seconds whose milliseconds fit in Java's 64 bits.
_MOST_SECONDS: Final = (2**63 - 1) // 1000

_MALFORMED: Final = "Malformed JWT provided; expected three sections (header, payload, and signature)"


@dataclass(frozen=True, slots=True, repr=False)
class OAuthBearerToken:
    """`value` is the secret. Times are milliseconds since 1970, by the issuer's clock."""

    value: str
    scopes: frozenset[str]
    lifetime_ms: int  # its expiry; Java's name
    principal_name: str
    start_time_ms: int | None

    def is_valid_at(self, wall_ms: int) -> bool:
        return wall_ms < self.lifetime_ms

    def __repr__(self) -> str:
        return f"<OAuthBearerToken valid until {self.lifetime_ms}>"


class ClientJwtValidator:
    """Validates tokens. The names of two claims are settings."""

    def __init__(self, scope_claim_name: str = "scope", sub_claim_name: str = "sub") -> None:
        self._scope_claim_name = scope_claim_name
        self._sub_claim_name = sub_claim_name

    def validate(self, access_token: str) -> OAuthBearerToken:
        """Returns the token with its claims. Raises SaslAuthenticationError naming the defect."""
        token, sections = _sections(access_token)
        claims = _claims(sections[1])
        scopes = _scopes(self._scope_claim_name, claims.get(self._scope_claim_name))
        lifetime_ms = _time_ms(claims, _EXPIRATION)
        if lifetime_ms is None:
            raise SaslAuthenticationError(f"{_EXPIRATION} value must be non-null")
        subject = _text(self._sub_claim_name, claims.get(self._sub_claim_name))
        return OAuthBearerToken(token, scopes, lifetime_ms, subject, _time_ms(claims, _ISSUED_AT))

    def __repr__(self) -> str:
        return f"<ClientJwtValidator scope={self._scope_claim_name} sub={self._sub_claim_name}>"


def validate_structure(jwt: str) -> str:
    """Returns a JWT without blanks around it, if its header and payload are JSON objects.

    Raises SaslAuthenticationError naming the defect.
    """
    token, sections = _sections(jwt)
    for section in sections[:-1]:
        _claims(section)
    return token


def is_sendable(token: str) -> bool:
    """Returns whether a broker reads all of the token: it stops at any other character."""
    return _TOKEN.fullmatch(token) is not None


def _sections(jwt: str) -> tuple[str, list[str]]:
    """Returns the token without blanks around it, and its sections."""
    token = jwt.strip()
    sections = [section.strip() for section in token.split(".")]
    if len(sections) != _SECTIONS or not all(sections):
        raise SaslAuthenticationError(_MALFORMED)
    if not is_sendable(token):
        raise SaslAuthenticationError("Malformed JWT provided; it has invalid characters")
    return token, sections


def _claims(payload: str) -> Mapping[str, object]:
    said = "Could not validate the access token: "
    if not _BASE64_URL.fullmatch(payload):
        raise SaslAuthenticationError(f"{said}malformed Base64 URL encoded value")
    try:
        decoded = base64.urlsafe_b64decode(payload + "==")
    except binascii.Error:
        raise SaslAuthenticationError(f"{said}malformed Base64 URL encoded value") from None
    try:
        claims: object = json.loads(decoded, parse_constant=_no_number)
    except (ValueError, RecursionError):  # json's errors hold the text
        raise SaslAuthenticationError(f"{said}malformed JSON") from None
    if not isinstance(claims, dict):
        raise SaslAuthenticationError(f"{said}its claims are not a JSON object")
    return claims


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _scopes(claim_name: str, raw: object) -> frozenset[str]:
    """Returns the scopes: one text is one scope, including spaces, as in Java; a missing claim means none."""
    found: set[str] = set()
    for value in [raw] if isinstance(raw, str) else raw if isinstance(raw, list) else []:
        scope = _text(claim_name, value)
        if scope in found:
            raise SaslAuthenticationError(f"{claim_name} value must not contain duplicates")
        found.add(scope)
    return frozenset(found)


def _time_ms(claims: Mapping[str, object], claim_name: str) -> int | None:
    seconds = claims.get(claim_name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise SaslAuthenticationError(f"{claim_name} value must be a number of seconds")
    # Python reads 1e999 as infinite, and can't print 4,300 digits times 1000.
    if not -_MOST_SECONDS <= seconds <= _MOST_SECONDS:
        raise SaslAuthenticationError(f"{claim_name} value must be a number of seconds")
    time_ms = int(seconds) * 1000
    if time_ms < 0:
        null_or = "null or " if claim_name == _ISSUED_AT else ""
        raise SaslAuthenticationError(
            f'{claim_name} value must be {null_or}non-negative; value given was "{time_ms}"'
        )
    return time_ms


def _text(claim_name: str, value: object) -> str:
    if value is None:
        raise SaslAuthenticationError(f"{claim_name} value must be non-null")
    if not isinstance(value, str):
        raise SaslAuthenticationError(f"{claim_name} value must be text")
    if not value:
        raise SaslAuthenticationError(f"{claim_name} value must be non-empty")
    text = value.strip()
    if not text:
        raise SaslAuthenticationError(f"{claim_name} value must not contain only whitespace")
    return text
