"""Authenticates callers by their tokens, and ends long answers whose token is removed.

    no header, or another scheme      401  WWW-Authenticate: Bearer realm="pilotfish"
    unknown token                     401  … error="invalid_token"
    duplicate header                  400  … error="invalid_request"

Tokens are found by their SHA-256, so timing reveals nothing about them. The present content of the file
counts: a removed token is rejected from the next request on. Each answer has `Vary: Authorization`.

Long answers, such as streams and watches, end at their next output after their token was removed or its
rights changed. The caller can connect again, and is checked again. A look-up that waits at that time gets a
503 instead of its answer. The outcome of records is still reported. No more input is read from such a caller.
Event loop only. Source: RFC 6750, sections 2.1 and 3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from client_core import Event
from service.admission.caller import Caller
from service.admission.tokens_file import Tokens, digest_of, parse_tokens
from service.base.watched_file import WatchedFiles
from service.wire.asgi import ABORT, Message, Receive, Scope, Send, header_values
from service.wire.errors import Problem
from service.wire.waiting import CallerGoneError

_SCHEME: Final = b"bearer"

#: On these paths, Dapr's SDKs send the token in another header.
_DAPR_PATHS: Final = "/v1.0"
_DAPR_HEADER: Final = b"dapr-api-token"
_REALM: Final = b'Bearer realm="pilotfish"'

#: Caches must not return one caller's answer to another.
VARY: Final = (b"vary", b"Authorization")


_CHANGED: Final = Problem(
    503,
    "the caller's token was removed or its rights changed while this request waited",
    retriable=True,
    written="no",
    headers=(VARY,),
)

#: Look-ups, whose answers depend on what the caller may read: these methods, and a POST to this path.
_LOOK_UPS: Final = frozenset({"GET", "HEAD"})
_LOOK_UPS_BY_POST: Final = "/v1/leaders"

Refuse = Callable[[Scope, Send, Problem], Awaitable[None]]


class Admission:
    """The `receive` and `send` of one authenticated request, as the application gets them."""

    __slots__ = ("_access", "_caller", "_digest", "_is_refused", "_receive", "_refuse", "_scope", "_send")

    def __init__(
        self,
        access: Access,
        digest: bytes,
        caller: Caller,
        scope: Scope,
        receive: Receive,
        send: Send,
        refuse: Refuse,
    ) -> None:
        """`refuse` answers the request with a problem, instead of the application."""
        self._refuse = refuse
        self._is_refused = False
        self._access = access
        self._digest = digest
        self._caller = caller
        self._scope = scope
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        """Returns the next part of the request, or a disconnect if the token is no longer valid."""
        message = await self._receive()
        if message["type"] == "http.request" and not self._holds():
            self._abort()
            return {"type": "http.disconnect"}
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Sends a part of the answer. Raises CallerGoneError if more follows and the token is not valid."""
        if self._is_refused:
            return _nothing()
        if message["type"] == "http.response.start":
            if self._is_look_up() and not self._holds():
                self._is_refused = True
                message["status"] = _CHANGED.status  # for metrics, which count answers by route
                return self._refuse(self._scope, self._send, _CHANGED)
            # A new list: prepared answers share theirs.
            message["headers"] = [*message.get("headers", ()), VARY]
        elif message.get("more_body") and not self._holds():
            self._abort()
            raise CallerGoneError("the caller's token is no longer valid")
        return self._send(message)

    def _is_look_up(self) -> bool:
        return self._scope["method"] in _LOOK_UPS or self._scope["path"] == _LOOK_UPS_BY_POST

    def _holds(self) -> bool:
        return self._access.holds(self._digest, self._caller)

    def _abort(self) -> None:
        abort = self._scope.get(ABORT)
        if abort is not None:
            abort()


async def _nothing() -> None:
    """Discards what the application sends after a refusal."""


def _refusal(status: int, detail: str, error: bytes = b"") -> Problem:
    challenge = _REALM + (b', error="%s"' % error if error else b"")
    return Problem(status, detail, written="no", headers=((b"www-authenticate", challenge), VARY))


NO_TOKEN: Final = _refusal(401, "a token is needed, as in `Authorization: Bearer TOKEN`")
WRONG_TOKEN: Final = _refusal(401, "unknown token; it is not in tokens_file", b"invalid_token")
TWICE: Final = _refusal(400, "duplicate Authorization header; send one", b"invalid_request")


def authorizations_of(scope: Scope) -> list[bytes]:
    """Returns the Authorization headers, with each `dapr-api-token` on Dapr's paths as `Bearer …`."""
    given = header_values(scope, b"authorization")
    if scope["path"].startswith(_DAPR_PATHS):
        given += [b"Bearer " + token for token in header_values(scope, _DAPR_HEADER)]
    return given


class Access:
    """The tokens in force."""

    def __init__(self, tokens_file: str, reported: Callable[[Event], None]) -> None:
        """Reads the file. Raises FileFaultError. `reported` gets an event for each reload."""

        def make(contents: Sequence[bytes]) -> Tokens:
            return parse_tokens(tokens_file, contents[0])

        self._files: Final = WatchedFiles("tokens_file", [tokens_file], make, reported=reported)
        self.watch: Final = self._files.watch
        self.close: Final = self._files.close

    def judge(self, authorizations: Sequence[bytes]) -> tuple[bytes, Caller] | Problem:
        """Returns the token's digest and its caller for a request's Authorization headers, or the refusal."""
        if len(authorizations) != 1:
            return TWICE if authorizations else NO_TOKEN
        scheme, _, token = authorizations[0].partition(b" ")
        if scheme.lower() != _SCHEME:
            return NO_TOKEN
        digest = digest_of(token.strip(b" \t"))
        caller = self._files.in_force.get(digest)
        return WRONG_TOKEN if caller is None else (digest, caller)

    def holds(self, digest: bytes, caller: Caller) -> bool:
        """Returns whether the token still belongs to this caller, with the same rights."""
        now = self._files.in_force.get(digest)
        return now is caller or now == caller
