"""Tokens for tests: three parts, with the claims of the test and a fake signature."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwt(claims: Mapping[str, object]) -> str:
    """A token with these claims."""
    header = base64url(b'{"alg":"RS256"}')
    return f"{header}.{base64url(json.dumps(claims).encode())}.{base64url(b'signature')}"


def jwt_of(subject: str, *, expires_ms: int, issued_ms: int | None = None) -> str:
    """A token of somebody's, valid until a wall time."""
    claims: dict[str, object] = {"sub": subject, "exp": expires_ms // 1000}
    if issued_ms is not None:
        claims["iat"] = issued_ms // 1000
    return jwt(claims)
