"""One request that was let in: its answer says that it depends on the token, and ends with the token.

Most answers are over at once. Those that go on, streams and watches, are cut off as soon as they would say
more after their token was taken out of the file, or was given other rights: the caller comes again, and is
judged anew. So is one whose look-up waited that long for its answer; what became of records is told all the
same. Nothing more is read from such a caller either. Event loop only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from service.admission.access import VARY, Access
from service.admission.caller import Caller
from service.wire.asgi import ABORT, Message, Receive, Scope, Send
from service.wire.errors import Problem
from service.wire.waiting import CallerGoneError

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
