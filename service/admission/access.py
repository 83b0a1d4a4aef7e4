"""Who is let in: from the Authorization header of a request to its caller, or to the refusal it gets.

    no header, or another scheme      401  WWW-Authenticate: Bearer realm="pilotfish"
    a token that nobody has           401  … error="invalid_token"
    duplicate header           400  … error="invalid_request"

Tokens are found by their SHA-256, so that how long it takes tells nothing of any of them. What the file says
now is what counts: a token that was taken out of it is refused from the next request on, and answers that go
on for long are cut off (`admission.py`). Event loop only. Source: RFC 6750, sections 2.1 and 3.

One request that was let in: its answer says that it depends on the token, and ends with the token.

Most answers are over at once. Those that go on, streams and watches, are cut off as soon as they would say
more after their token was taken out of the file, or was given other rights: the caller comes again, and is
judged anew. So is one whose look-up waited that long for its answer; what became of records is told all the
same. Nothing more is read from such a caller either. Event loop only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from client_core import Event
from service.admission.caller import Caller
from service.admission.tokens_file import Tokens, digest_of, parse_tokens
from service.base.watched_file import Timers, WatchedFiles
from service.wire.asgi import ABORT, Message, Receive, Scope, Send, header_values
from service.wire.errors import Problem
from service.wire.waiting import CallerGoneError

_SCHEME: Final = b"bearer"

#: Under these paths Dapr's SDKs bring their token in a header of their own.
_DAPR_PATHS: Final = "/v1.0"
_DAPR_HEADER: Final = b"dapr-api-token"
_REALM: Final = b'Bearer realm="pilotfish"'

#: Caches between us and the caller must not hand one caller's answer to another.
VARY: Final = (b"vary", b"Authorization")


_CHANGED: Final = Problem(
    503,
    "the caller's token was taken out of the file, or was given other rights, while this request waited",
    retriable=True,
    written="no",
    headers=(VARY,),
)

#: Whose answers say what the caller may read: these methods, and the look-ups whose questions are a body.
_LOOK_UPS: Final = frozenset({"GET", "HEAD"})
_LOOK_UPS_BY_POST: Final = "/v1/leaders"

Refuse = Callable[[Scope, Send, Problem], Awaitable[None]]


class Admission:
    """The `receive` and `send` of one request, as the application gets them."""

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
        """`refuse` answers the request with a problem, in place of the application."""
        self._refuse = refuse
        self._is_refused = False
        self._access = access
        self._digest = digest
        self._caller = caller
        self._scope = scope
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        """The next part of the request; a caller whose token is gone has left."""
        message = await self._receive()
        if message["type"] == "http.request" and not self._holds():
            self._abort()
            return {"type": "http.disconnect"}
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Hands a part of the answer on. Raises CallerGoneError where it goes on and the token is gone."""
        if self._is_refused:
            return _nothing()
        if message["type"] == "http.response.start":
            if self._is_look_up() and not self._holds():
                self._is_refused = True
                return self._refuse(self._scope, self._send, _CHANGED)
            # A list of its own: prepared answers share theirs.
            message["headers"] = [*message.get("headers", ()), VARY]
        elif message.get("more_body") and not self._holds():
            self._abort()
            raise CallerGoneError("the caller's token is no longer in force")
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
    """What is sent behind a refusal."""


def _refusal(status: int, detail: str, error: bytes = b"") -> Problem:
    challenge = _REALM + (b', error="%s"' % error if error else b"")
    return Problem(status, detail, written="no", headers=((b"www-authenticate", challenge), VARY))


NO_TOKEN: Final = _refusal(401, "a token is needed, as in `Authorization: Bearer TOKEN`")
WRONG_TOKEN: Final = _refusal(
    401, "this token is not one that the sidecar knows (tokens_file)", b"invalid_token"
)
TWICE: Final = _refusal(400, "Authorization is given twice", b"invalid_request")


def authorizations_of(scope: Scope) -> list[bytes]:
    """The Authorization headers of a request; a `dapr-api-token` on Dapr's paths is one, with its scheme."""
    given = header_values(scope, b"authorization")
    if scope["path"].startswith(_DAPR_PATHS):
        given += [b"Bearer " + token for token in header_values(scope, _DAPR_HEADER)]
    return given


class Access:
    """The tokens that are in force."""

    def __init__(self, tokens_file: str, reported: Callable[[Event], None]) -> None:
        """Reads the file; raises FileFaultError. `told` hears of each time that it is read again."""

        def make(contents: Sequence[bytes]) -> Tokens:
            return parse_tokens(tokens_file, contents[0])

        self._files: Final = WatchedFiles("tokens_file", [tokens_file], make, reported=reported)

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
