"""Shows and changes a running sidecar: its configuration, its log level, its stacks, a profile of it.

    GET /config                             every setting in force, secrets masked, as JSON
    GET /loglevel                           {"log_level": "info"}
    PUT /loglevel?level=debug&seconds=600   changes it; without `seconds`, until the next change
    GET /stacks                             where each thread is now, as text
    GET /profile?seconds=5                  where CPU time is spent, as folded stacks (cpu_profile.py)

They are paths of the admin listener, for the token of admin_token_file (`Authorization: Bearer TOKEN`), and
404 without this setting. Admin thread.

SIGHUP reads the settings again, from the same flags, environment and file. CHANGEABLE ones take effect, also
where PUT /loglevel has changed the level. The log names others that differ: they need a restart. If the file
is invalid, nothing changes. Event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs

from service.admission.drain import TokenFile
from service.base.memory_limit import fitted
from service.base.settings import OWN_NAMES, Settings
from service.base.settings_sources import SettingsError
from service.process.cpu_profile import Profiler
from service.process.loop_watchdog import stacks
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import Receive, Scope, Send, header_values, respond_with
from service.wire.errors import Problem, ProblemError, native
from service.wire.waiting import until_gone

_log: Final = logging.getLogger(__name__)

#: Settings that take effect when they are read again.
CHANGEABLE: Final = ("log_level", "max_waiting_requests", "max_waiting_bytes")

PATHS: Final = frozenset({"/config", "/loglevel", "/profile", "/stacks"})
LEVELS: Final = ("debug", "info", "warning", "error")
_MOST_SECONDS: Final = 86_400
_MOST_PROFILE_SECONDS: Final = 60
_PROFILE_SECONDS: Final = 5
_SECONDS: Final = re.compile(r"[0-9]{1,5}")

_JSON: Final = b"application/json"
_TEXT: Final = b"text/plain; charset=utf-8"
_NO_STORE: Final = (b"cache-control", b"no-store")


class LogLevel:
    """The level of the process's logs. Any thread."""

    def __init__(self, root: logging.Logger | None = None) -> None:
        self._root = logging.getLogger() if root is None else root
        self._lock = threading.Lock()
        #: The level after a change for some seconds; None if there is none now.
        self._usual: str | None = None
        self._changes = 0

    @property
    def now(self) -> str:
        return logging.getLevelName(self._root.level).lower()

    def set(self, level: str, why: str) -> None:
        """Changes the level until the next change, and logs that at any level."""
        with self._lock:
            self._usual = None
            self._change(level, why)

    def set_for_a_while(self, level: str, why: str) -> Callable[[], None]:
        """Changes the level. Returns what ends the change; that does nothing after a later one."""
        with self._lock:
            if self._usual is None:
                self._usual = self.now
            self._change(level, why)
            change = self._changes

        def end() -> None:
            with self._lock:
                if change == self._changes and self._usual is not None:
                    self._change(self._usual, "its time is over")
                    self._usual = None

        return end

    def _change(self, level: str, why: str) -> None:
        self._changes += 1
        before = self.now
        if level == before:
            return
        self._root.setLevel(min(logging.INFO, self._root.level))
        _log.info("log_level is %s, it was %s: %s", level, before, why)
        self._root.setLevel(level.upper())


class RunTime:
    """The ASGI endpoint of PATHS."""

    def __init__(
        self, sidecar: Sidecar, token: TokenFile, log_level: LogLevel, profiler: Profiler | None = None
    ) -> None:
        """`log_level` is that of the process: SIGHUP changes it, too."""
        self._sidecar = sidecar
        self._token = token
        self._log_level = log_level
        self._profiler = profiler or Profiler()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            media_type, body = await self._answer(scope, receive)
        except ProblemError as refused:
            refusal = native(refused.problem)
            headers = refused.problem.all_headers()
            if _NO_STORE not in headers:  # a 401 has it
                headers.append(_NO_STORE)
            await respond_with(send, refusal.status, refusal.media_type, refusal.body, headers)
            return
        await respond_with(send, 200, media_type, body.encode(), [_NO_STORE])

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[bytes, str]:
        problem = self._token.fault_of(header_values(scope, b"authorization"))
        if problem is not None:
            raise ProblemError(problem)
        path, method = scope["path"], scope["method"]
        if method == "PUT" and path == "/loglevel":
            self._change(scope)
        elif method not in ("GET", "HEAD"):
            allow = b"GET, HEAD, PUT" if path == "/loglevel" else b"GET, HEAD"
            raise ProblemError(Problem(405, f"{method} is not served here", headers=((b"allow", allow),)))
        if path == "/profile":
            return _TEXT, await self._profile(scope, receive)
        if path == "/stacks":
            return _TEXT, "\n\n".join(f"thread {thread} is at\n{calls}" for thread, calls in stacks()) + "\n"
        document = self._config() if path == "/config" else {"log_level": self._log_level.now}
        return _JSON, json.dumps(document, indent=1)

    def _config(self) -> dict[str, object]:
        own = {name: getattr(self._sidecar.settings, name) for name in OWN_NAMES}
        own |= _in_force(self._sidecar, self._log_level)
        return {"settings": own, "kafka": self._sidecar.config.masked()}

    def _change(self, scope: Scope) -> None:
        query = _query(scope, "level", "seconds")
        level = query.get("level")
        if level not in LEVELS:
            raise ProblemError(Problem(400, f"level must be one of {', '.join(LEVELS)}"))
        if "seconds" not in query:
            self._log_level.set(level, "PUT /loglevel")
            return
        for_s = _seconds(query["seconds"], _MOST_SECONDS)
        end = self._log_level.set_for_a_while(level, f"PUT /loglevel, for {for_s} s")
        asyncio.get_running_loop().call_later(for_s, end)

    async def _profile(self, scope: Scope, receive: Receive) -> str:
        query = _query(scope, "seconds")
        for_s = _seconds(query.get("seconds", str(_PROFILE_SECONDS)), _MOST_PROFILE_SECONDS)
        stop, drain = threading.Event(), self._sidecar.drain
        taken = self._profiler.start(for_s, stop, lambda: drain.announced)
        if taken is None:
            detail = "another profile is being taken; ask again when it has ended"
            raise ProblemError(Problem(429, detail, retriable=True))
        gone = asyncio.create_task(until_gone(receive))
        gone.add_done_callback(lambda _: stop.set())
        try:
            return await asyncio.wrap_future(taken)
        finally:
            gone.cancel()
            stop.set()


def _query(scope: Scope, *names: str) -> dict[str, str]:
    """Returns the query parameters. Raises ProblemError for one that is not in `names`, or is repeated."""
    query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    for name, values in query.items():
        if name not in names:
            there_are = f"there {'is' if len(names) == 1 else 'are'} {' and '.join(names)}"
            raise ProblemError(Problem(400, f"{name} is not a parameter; {there_are}"))
        if len(values) > 1:
            raise ProblemError(Problem(400, f"{name} is given {len(values)} times; give it once"))
    return {name: values[0] for name, values in query.items()}


def _seconds(text: str, most: int) -> int:
    """Returns a number of seconds. Raises ProblemError if it is not one from 1 to `most`."""
    seconds = int(text) if _SECONDS.fullmatch(text) else 0
    if not 1 <= seconds <= most:
        raise ProblemError(Problem(400, f"seconds must be a number from 1 to {most}"))
    return seconds


def read_again(
    load: Callable[[], Settings], sidecar: Sidecar, started: Settings, limit: int | None, log_level: LogLevel
) -> None:
    """Reads the settings again. `started` are those that the process was given at its start.

    `limit` is the process's memory limit in bytes. Event loop; it reads one small file.
    """
    try:
        read = load()
    except SettingsError as error:
        _log.error("SIGHUP: the settings stay as they are: %s", "; ".join(str(error).splitlines()))
        return
    fit = fitted(read, limit)
    before = _in_force(sidecar, log_level)
    changed = {name: now for name in CHANGEABLE if (now := getattr(fit.settings, name)) != before[name]}
    sidecar.admission.limit(fit.settings.max_waiting_requests, fit.settings.max_waiting_bytes)
    # Also without a change: it ends one for some seconds.
    log_level.set(read.log_level, "SIGHUP")
    shown = ", ".join(f"{name}={value}" for name, value in changed.items())
    _log.info("SIGHUP: changed: %s", shown or "nothing")
    later = [n for n in OWN_NAMES if n not in CHANGEABLE and getattr(read, n) != getattr(started, n)]
    later += ["kafka"] if read.kafka != started.kafka else []
    if later:
        _log.warning("SIGHUP: these need a restart: %s", ", ".join(later))
    if fit.doubt:
        _log.warning("SIGHUP: %s", fit.doubt)


def _in_force(sidecar: Sidecar, log_level: LogLevel) -> dict[str, object]:
    """Returns the present values of CHANGEABLE settings."""
    requests, waiting_bytes = sidecar.admission.limits
    return {
        "log_level": log_level.now,
        "max_waiting_requests": requests,
        "max_waiting_bytes": waiting_bytes,
    }
