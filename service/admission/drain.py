"""Shuts the sidecar down: POST /quitquitquit, and the state of the shutdown.

    Authorization: Bearer TOKEN       the token in quit_token_file, one line
    200 {"shutting_down": true}       also for repeated requests, until the listener closes
    401                               without the token, or with another one

The path is for Jobs, whose kubelet sends no SIGTERM while the sidecar runs. Its token is not a caller's: a
producer need not be able to end the sidecar, and a Job that ends it need not be able to produce. So
tokens_file neither opens nor protects this path, and this token gives no other access. Plain ASGI, behind the
guards of Host and Origin only, so it is also answered during the drain.

Only the token's SHA-256 is kept, and compared in constant time. A rotated token is valid as soon as the file
has it: a Secret in two containers of a pod changes in both at once, and the Job does not wait for the next
check. Source: the paths of this name in cloud-sql-proxy and Istio.

`Drain` is the state of the shutdown, for guards, probes and open streams:

    serving ──ask──▶ announced: not ready, but serving (drain_delay_ms) ──begin──▶ begun: only look-ups

SIGTERM and POST /quitquitquit both call `ask`, so that they have the same effect. The server registers that
effect with `when_asked`. Event loop only.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from client_core import Event
from service.admission.access import TWICE
from service.admission.tokens_file import digest_of
from service.base.watched_file import FileFaultError, WatchedFiles, read_file
from service.observe.http_metrics import HttpMetrics
from service.wire.asgi import Scope, Send, header_values, respond_with
from service.wire.errors import Problem

_log: Final = logging.getLogger(__name__)

PATH: Final = "/quitquitquit"

QUIT_TOKEN_FILE: Final = "quit_token_file"  # noqa: S105 - the name of a setting
_JSON: Final = b"application/json"
_NO_STORE: Final = (b"cache-control", b"no-store")

#: One line that is valid in a header.
_TOKEN: Final = re.compile(rb"[\x21-\x7e]+")


class Drain:
    """The state of the shutdown. Set by the server on the event loop; any thread may read the flags."""

    def __init__(self) -> None:
        #: The shutdown was requested: not ready any more, but serving (drain_delay_ms).
        self.announced = False
        #: Only look-ups are accepted.
        self.begun = False
        self._listeners: set[Callable[[], None]] = set()
        self._end: Callable[[], None] = _nothing

    def when_asked(self, end: Callable[[], None]) -> None:
        """Registers `end`, which is called once, when the shutdown is requested. For the server."""
        self._end = end

    def ask(self) -> bool:
        """Requests the shutdown. Returns False if it was requested before. Event loop only."""
        if self.announced:
            return False
        self.announced = True
        self._end()
        return True

    def begin(self) -> None:
        """Begins to reject new work, and calls each listener once. One that raises is logged."""
        self.begun = True
        while self._listeners:
            try:
                self._listeners.pop()()
            except Exception:  # noqa: BLE001 -- a bug: the others are called, and the process ends
                _log.exception("a listener of the drain failed; the shutdown goes on")

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when the drain begins, or at once if it has begun. Event loop only."""
        if self.begun:
            listener()
        else:
            self._listeners.add(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        self._listeners.discard(listener)

    @contextmanager
    def ending(self, limit: asyncio.Timeout) -> Iterator[None]:
        """Ends `limit`, which is entered, when the drain begins. Event loop only."""

        def end_now() -> None:
            if not limit.expired():  # its task may not have run yet
                limit.reschedule(0)

        self.listen(end_now)
        try:
            yield
        finally:
            self.unlisten(end_now)


def _nothing() -> None:
    """Does nothing: the app is not a process of its own, and is ended in another way."""


def _refusal(setting: str, detail: str, error: str = "") -> Problem:
    challenge = f'Bearer realm="pilotfish {setting.removesuffix("_token_file")}"{error}'
    return Problem(401, detail, written="no", headers=((b"www-authenticate", challenge.encode()), _NO_STORE))


_ONLY_POST: Final = Problem(405, f"{PATH} takes POST only", written="no", headers=((b"allow", b"POST"),))

Refuse = Callable[[Scope, Send, Problem], Awaitable[None]]


class TokenFile:
    """The present token of a file: quit_token_file, or admin_token_file."""

    def __init__(self, setting: str, token_file: str, reported: Callable[[Event], None]) -> None:
        """Reads the file. Raises FileFaultError. `reported` gets an event for each reload."""
        self._path: Final = Path(token_file)
        self._files: Final = WatchedFiles(setting, [token_file], self._digest_in, reported=reported)
        self.watch: Final = self._files.watch
        self.close: Final = self._files.close
        self._no_token: Final = _refusal(
            setting, f"a token is needed, as in `Authorization: Bearer TOKEN`; it is in {setting}"
        )
        self._wrong_token: Final = _refusal(
            setting, f"this is not the token of {setting}", ', error="invalid_token"'
        )

    def fault_of(self, authorizations: Sequence[bytes]) -> Problem | None:
        """Returns what is wrong with a request's Authorization headers; None if they have the token."""
        if len(authorizations) != 1:
            return TWICE if authorizations else self._no_token
        scheme, _, token = authorizations[0].partition(b" ")
        if scheme.lower() != b"bearer":
            return self._no_token
        digest = digest_of(token.strip(b" \t"))
        if hmac.compare_digest(digest, self._files.in_force) or self._has_just_come(digest):
            return None
        return self._wrong_token

    def _has_just_come(self, digest: bytes) -> bool:
        """Returns whether the file has this token now, before the next check."""
        try:
            return hmac.compare_digest(digest, self._digest_in([read_file(self._path)]))
        except FileFaultError:
            return False  # the next check reports it

    def _digest_in(self, contents: Sequence[bytes]) -> bytes:
        token = contents[0].removeprefix(BOM_UTF8).strip()
        if not _TOKEN.fullmatch(token):
            raise FileFaultError(
                f"{self._path} holds no token; it must be one line of printable ASCII without spaces"
            )
        return digest_of(token)


class Quit:
    """The ASGI endpoint of /quitquitquit."""

    def __init__(self, token: TokenFile, drain: Drain, metrics: HttpMetrics) -> None:
        self._token: Final = token
        self._drain: Final = drain
        self._metrics: Final = metrics

    async def __call__(self, scope: Scope, send: Send, refuse: Refuse) -> None:
        """Answers a request for this path; `refuse` answers with a problem."""
        is_post = scope["method"] == "POST"
        problem = self._token.fault_of(header_values(scope, b"authorization")) if is_post else _ONLY_POST
        if problem is not None:
            await refuse(scope, send, problem)
            return
        self._metrics.route_counters("POST", PATH, 200).add(0.0)
        await respond_with(send, 200, _JSON, b'{"shutting_down":true}', [_NO_STORE])
        if self._drain.ask():
            _log.info("POST %s: shutting down", PATH)
