"""POST /quitquitquit: ends the sidecar as SIGTERM does, for Jobs whose kubelet sends none while it runs.

    Authorization: Bearer TOKEN       what stands in quit_token_file, one line
    200 {"shutting_down": true}       and again for as long as anybody listens: twice is once
    401                               without the token, or with another one

The token is one of its own and no caller's: who may write to a topic need not be able to end the sidecar, and
a Job that ends it need not be able to write. So a tokens file neither opens this path nor guards it, and
whoever has this token gets nowhere else with it. Plain ASGI, behind the guards of Host and Origin only: it is
answered during the drain, too.

Only the token's SHA-256 is kept, and compared in constant time. A rotated token holds from the moment when
the file has it: a Secret that is mounted into two containers of a pod changes in both at once, and the Job
would not wait for the next look. Event loop only. Source: cloud-sql-proxy's and Istio's path of that name.

Whether the sidecar is on its way out, for everyone who has to know: guards, probes, and open streams.

    serving ──ask──▶ announced: not ready, and serving (drain_delay_ms) ──begin──▶ begun: takes nothing on

`ask` is SIGTERM's way and that of POST /quitquitquit, so that both mean the same; whoever runs the app has
said by `when_asked` what is to be done then.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from client_core import Event
from service.admission.access import TWICE
from service.admission.tokens_file import digest_of
from service.base.watched_file import FileFaultError, Timers, WatchedFiles, read_file
from service.observe.http_metrics import HttpMetrics
from service.wire.asgi import Scope, Send, header_values, respond_with
from service.wire.errors import Problem

_log: Final = logging.getLogger(__name__)

PATH: Final = "/quitquitquit"

_SETTING: Final = "quit_token_file"
_JSON: Final = b"application/json"
_NO_STORE: Final = (b"cache-control", b"no-store")
_REALM: Final = b'Bearer realm="pilotfish quit"'

#: One line that can stand in a header.
_TOKEN: Final = re.compile(rb"[\x21-\x7e]+")


class Drain:
    """Set by the server on the event loop; the flags may be read by any thread."""

    def __init__(self) -> None:
        #: Somebody asked for the end: not ready any more, but serving (drain_delay_ms).
        self.announced = False
        #: Nothing new is taken on.
        self.begun = False
        self._listeners: set[Callable[[], None]] = set()
        self._end: Callable[[], None] = _nothing

    def when_asked(self, end: Callable[[], None]) -> None:
        """Has `end` called when somebody asks for the end, once. By whoever runs the app."""
        self._end = end

    def ask(self) -> bool:
        """Asks for the end; whether this is the first time, and not the same wish again. Event loop only."""
        if self.announced:
            return False
        self.announced = True
        self._end()
        return True

    def begin(self) -> None:
        """Takes on nothing new from here on; tells the listeners, each once."""
        self.begun = True
        while self._listeners:
            self._listeners.pop()()

    def listen(self, listener: Callable[[], None]) -> None:
        """Has `listener` called when the drain begins: at once, if it has. Event loop only."""
        if self.begun:
            listener()
        else:
            self._listeners.add(listener)

    def leave(self, listener: Callable[[], None]) -> None:
        """The listener need not be told any more."""
        self._listeners.discard(listener)


def _nothing() -> None:
    """Nobody runs the app as a process of its own: it is told to end some other way."""


def _refusal(detail: str, error: bytes = b"") -> Problem:
    return Problem(401, detail, written="no", headers=((b"www-authenticate", _REALM + error), _NO_STORE))


_NO_TOKEN: Final = _refusal(
    "a token is needed, as in `Authorization: Bearer TOKEN`; it is in quit_token_file"
)
_WRONG_TOKEN: Final = _refusal("this is not the token of quit_token_file", b', error="invalid_token"')
_ONLY_POST: Final = Problem(405, f"{PATH} takes POST only", written="no", headers=((b"allow", b"POST"),))

Refuse = Callable[[Scope, Send, Problem], Awaitable[None]]


class QuitToken:
    """The token of quit_token_file, as it is now."""

    def __init__(self, token_file: str, reported: Callable[[Event], None]) -> None:
        """Reads the file; raises FileFaultError. `told` hears of each time that it is read again."""
        self._path: Final = Path(token_file)
        self._files: Final = WatchedFiles(_SETTING, [token_file], self._digest_in, reported=reported)

    def fault_of(self, authorizations: Sequence[bytes]) -> Problem | None:
        """What is wrong with the Authorization headers of a request; None: the token is among them."""
        if len(authorizations) != 1:
            return TWICE if authorizations else _NO_TOKEN
        scheme, _, token = authorizations[0].partition(b" ")
        if scheme.lower() != b"bearer":
            return _NO_TOKEN
        digest = digest_of(token.strip(b" \t"))
        if hmac.compare_digest(digest, self._files.in_force) or self._has_just_come(digest):
            return None
        return _WRONG_TOKEN

    def look(self, now_ms: int) -> None:
        """Looks at the file once, as `watch` does again and again."""
        self._files.look(now_ms)

    def watch(self, loop: Timers) -> None:
        """Follows the file from now on, until `close`."""
        self._files.watch(loop)

    def close(self) -> None:
        """Follows the file no more. Idempotent."""
        self._files.close()

    def _has_just_come(self, digest: bytes) -> bool:
        """Whether the file holds that token by now, ahead of the next look at it."""
        try:
            return hmac.compare_digest(digest, self._digest_in([read_file(self._path)]))
        except FileFaultError:
            return False  # the next look tells of it

    def _digest_in(self, contents: Sequence[bytes]) -> bytes:
        token = contents[0].strip()
        if not _TOKEN.fullmatch(token):
            raise FileFaultError(
                f"{self._path} holds no token; it must be one line of printable ASCII without spaces"
            )
        return digest_of(token)


class Quit:
    """The path, where there is a token for it."""

    def __init__(self, token: QuitToken, drain: Drain, metrics: HttpMetrics) -> None:
        self._token: Final = token
        self._drain: Final = drain
        self._metrics: Final = metrics

    async def __call__(self, scope: Scope, send: Send, refuse: Refuse) -> None:
        """Answers a request for this path; `refuse` answers one with a problem, in its place."""
        is_post = scope["method"] == "POST"
        problem = self._token.fault_of(header_values(scope, b"authorization")) if is_post else _ONLY_POST
        if problem is not None:
            await refuse(scope, send, problem)
            return
        self._metrics.route_counters("POST", PATH, 200).add(0.0)
        await respond_with(send, 200, _JSON, b'{"shutting_down":true}', [_NO_STORE])
        if self._drain.ask():
            _log.info("POST %s: shutting down", PATH)
