"""Who is let in: from the Authorization header of a request to its caller, or to the refusal it gets.

    no header, or another scheme      401  WWW-Authenticate: Bearer realm="pilotfish"
    a token that nobody has           401  … error="invalid_token"
    the header stands twice           400  … error="invalid_request"

Tokens are found by their SHA-256, so that how long it takes tells nothing of any of them. What the file says
now is what counts: a token that was taken out of it is refused from the next request on, and answers that go
on for long are cut off (`admission.py`). Event loop only. Source: RFC 6750, sections 2.1 and 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from client_core import Event
from service.admission.caller import Caller
from service.admission.tokens_file import Tokens, digest_of, parse_tokens
from service.base.watched_file import Timers, WatchedFiles
from service.wire.asgi import Scope, header_values
from service.wire.errors import Problem

_SCHEME: Final = b"bearer"

#: Under these paths Dapr's SDKs bring their token in a header of their own.
_DAPR_PATHS: Final = "/v1.0"
_DAPR_HEADER: Final = b"dapr-api-token"
_REALM: Final = b'Bearer realm="pilotfish"'

#: Caches between us and the caller must not hand one caller's answer to another.
VARY: Final = (b"vary", b"Authorization")


def _refusal(status: int, detail: str, error: bytes = b"") -> Problem:
    challenge = _REALM + (b', error="%s"' % error if error else b"")
    return Problem(status, detail, written="no", headers=((b"www-authenticate", challenge), VARY))


NO_TOKEN: Final = _refusal(401, "a token is needed, as in `Authorization: Bearer TOKEN`")
WRONG_TOKEN: Final = _refusal(
    401, "this token is not one that the sidecar knows (tokens_file)", b"invalid_token"
)
TWICE: Final = _refusal(400, "Authorization stands twice", b"invalid_request")


def authorizations_of(scope: Scope) -> list[bytes]:
    """The Authorization headers of a request; a `dapr-api-token` on Dapr's paths is one, with its scheme."""
    given = header_values(scope, b"authorization")
    if scope["path"].startswith(_DAPR_PATHS):
        given += [b"Bearer " + token for token in header_values(scope, _DAPR_HEADER)]
    return given


class Access:
    """The tokens that are in force."""

    def __init__(self, tokens_file: str, told: Callable[[Event], None]) -> None:
        """Reads the file; raises FileFaultError. `told` hears of each time that it is read again."""

        def make(contents: Sequence[bytes]) -> Tokens:
            return parse_tokens(tokens_file, contents[0])

        self._files: Final = WatchedFiles("tokens_file", [tokens_file], make, told=told)

    def judge(self, authorizations: Sequence[bytes]) -> tuple[bytes, Caller] | Problem:
        """The token's digest and its caller, from the Authorization headers of a request; or the refusal."""
        if len(authorizations) != 1:
            return TWICE if authorizations else NO_TOKEN
        scheme, _, token = authorizations[0].partition(b" ")
        if scheme.lower() != _SCHEME:
            return NO_TOKEN
        digest = digest_of(token.strip(b" \t"))
        caller = self._files.in_force.get(digest)
        return WRONG_TOKEN if caller is None else (digest, caller)

    def holds(self, digest: bytes, caller: Caller) -> bool:
        """Whether the token is still that of this caller, with the same rights."""
        now = self._files.in_force.get(digest)
        return now is caller or now == caller

    def look(self, now_ms: int) -> None:
        """Looks at the file once, as `watch` does again and again."""
        self._files.look(now_ms)

    def watch(self, loop: Timers) -> None:
        """Follows the file from now on, until `close`."""
        self._files.watch(loop)

    def close(self) -> None:
        """Follows the file no more. Idempotent."""
        self._files.close()
