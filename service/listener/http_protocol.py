"""uvicorn's HTTP/1.1, with what it leaves to others.

    no HTTP       never reaches the application, so its problem document is spelled here, and stands behind
                  the answers that are still due
    heads         have no limit of uvicorn's own, and are kept until they are complete: here is one, of bytes
                  and of time. So it is for what is neither head nor body: chunk extensions and trailers.
                  What is wrong with a complete one says `http_exchange.py`
    trailers      are dropped: uvicorn puts them among the headers that were judged already
    upgrades      are declined by going on as if none had been offered (RFC 9110 section 7.8). The parser ends
                  at such a head, and uvicorn would lose the body: Java's own HTTP client offers h2c with each
                  first request of a connection, produces among them
    pipelines     are bounded; who hangs up ends the request that runs, not only the last one of the queue
    last answers  can be read by callers who are still sending: what comes is thrown away for a moment
                  (`http_exchange.py`)
    ready answers go out in one piece, their heads spelled already (`_answer`); uvicorn judges every header
    slow callers  are ended by one timer per connection that looks now and then (`connections.py`), so that a
                  request costs none; every wait of uvicorn's for a caller who takes nothing ends with it

One object per connection; event loop only.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.base.logs import ACCESS_LOG
from service.listener.connections import Connections
from service.listener.http_exchange import (
    MAX_TARGET_BYTES,
    NO_URL,
    TOO_LONG,
    LingeringTransport,
    RefusedError,
    check_coding,
    closing_if_not_asked_for,
    settled,
    spelled,
    without_offer,
)
from service.wire.asgi import ABORT, ANSWER, BODY, UNIX, HeaderPairs, header_lines
from service.wire.cors import NO_CORS, Cors
from service.wire.errors import Problem

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

#: As much as Node and nginx take, give or take. What came in one read with its beginning is not counted.
MAX_HEAD_BYTES: Final = 64 * 1024

#: How many requests may wait for the answer to the one before them; each is kept whole.
MAX_PIPELINED: Final = 128

#: How long what still comes is thrown away after the last answer.
LINGER_S: Final = 2.0

#: How long a caller over TLS may take to say goodbye when there is nothing more to say.
_GOODBYE_S: Final = 0.1


class _NoTrailers(list[tuple[bytes, bytes]]):
    """Where the parser's further headers go once the head is complete."""

    def append(self, _: tuple[bytes, bytes]) -> None:
        """Drops it."""


_DROPPED: Final = _NoTrailers()


class ApiProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        connections: Connections,
        cors: Cors = NO_CORS,
    ) -> None:
        """`cors` says what answers bear that never reach the application, for pages of allowed origins."""
        super().__init__(config, server_state, app_state)
        # uvicorn's own is shut for the whole process by any server that wants none, as the admin listener.
        self.access_logger = ACCESS_LOG
        self.access_log = config.access_log
        self._connections = connections
        self._cors = cors
        #: Since when there is no request to answer: the connection's beginning, or the last answer's end.
        self._since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        #: When a connection that lingers is closed.
        self._lingers_until: asyncio.TimerHandle | None = None
        #: A message has begun and has not come whole; the last of them that did not come in one read, and
        #: when it began.
        self._is_partial = False
        self._head: Mapping[str, object] | None = None
        self._head_since_s = 0.0
        #: What came since the last thing that was of use, and whether the last read brought anything.
        self._loose_bytes = 0
        self._has_moved = False
        #: The request that is being answered; `cycle` is the last one that came.
        self._running: RequestResponseCycle | None = None
        #: Nothing more is read but thrown away; what is said when the answers that are due are out.
        self._is_deaf = False
        self._last_words: Problem | None = None
        #: What had not gone out yet when it was last looked at, and since when it has been so much.
        self._unsent_bytes = 0
        self._unsent_since_s = 0.0
        #: What uvicorn puts into every head, such as the date, and how that is spelled.
        self._own_headers: list[tuple[bytes, bytes]] | None = None
        self._own_lines = b""

    # -- the connection --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._abort = transport.abort
        own = transport.get_extra_info("socket")
        self._is_unix = own is not None and own.family == socket.AF_UNIX
        self._since_s = self._unsent_since_s = self._looked_s = self.loop.time()
        self._timer = self.loop.call_later(self._connections.limits.look_s, self._look)
        self._connections.served(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._timer, self._lingers_until):
            if timer is not None:
                timer.cancel()
        running = self._running
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        self.pipeline.clear()
        if self.is_made:
            self._connections.left(self)

    @property
    def is_made(self) -> bool:
        """Whether there is, or was, a connection under it."""
        return self._timer is not None

    @property
    def _last(self) -> RequestResponseCycle | None:
        """The last request whose head was complete, and its answer."""
        return cast("RequestResponseCycle | None", self.cycle)

    @property
    def _has_head(self) -> bool:
        """Whether the last message that began has its head; uvicorn puts the method in then."""
        return "method" in cast("Mapping[str, object]", self.scope)

    @property
    def _is_serving(self) -> bool:
        last = self._last
        return last is not None and not last.response_complete

    @property
    def waits_since_s(self) -> float | None:
        """Since when it has been waiting for a request to come whole; None while it has one."""
        return None if self._is_serving else self._since_s

    def close(self) -> None:
        """Ends it when what was written is out. Over TLS the caller has a moment for its own goodbye."""
        self.transport.close()
        if self.scheme == "https" and not self.transport.get_write_buffer_size():
            self.loop.call_later(_GOODBYE_S, self._abort)

    def end_with_answer(self) -> None:
        """Has its answer, if one is due, say that it is the last."""
        if self._is_serving:
            self.cycle.keep_alive = False

    def abort(self) -> None:
        """Ends it at once, whatever is unsent."""
        self._abort()

    def shutdown(self) -> None:
        """The server ends: so does the connection, after the answers that are due."""
        if self._is_serving:
            self.cycle.keep_alive = False
        else:
            self.close()

    # -- what comes ------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
            return
        except httptools.HttpParserCallbackError as e:
            self._refuse(_problem_within(e))
            return
        except httptools.HttpParserError as e:
            self._refuse(Problem(400, f"not HTTP/1.1: {e}", written="no"))
            return
        if self._is_partial:
            self._bound(len(data))

    def _bound(self, came_bytes: int) -> None:
        """A message is not complete: bounds what comes of it that is no body."""
        if self.scope is not self._head:
            self._head = self.scope
            self._head_since_s = self.loop.time()
        self._loose_bytes = 0 if self._has_moved else self._loose_bytes + came_bytes
        self._has_moved = False
        if self._loose_bytes <= MAX_HEAD_BYTES:
            return
        if self._has_head:
            what = "the bytes between the chunks of a body or behind them"
            self._refuse(Problem(431, f"{what} is larger than {MAX_HEAD_BYTES} bytes", written="no"))
        elif not self.headers and len(self.url) > MAX_TARGET_BYTES:
            self._refuse(TOO_LONG)
        else:
            detail = f"the head of the request is larger than {MAX_HEAD_BYTES} bytes"
            self._refuse(Problem(431, detail, written="no"))

    def on_message_begin(self) -> None:
        if self.pipeline and len(self.pipeline) >= MAX_PIPELINED:
            self.cycle.keep_alive = False
            raise RefusedError(None)
        super().on_message_begin()
        # Ours, beside ASGI's own.
        self.scope[ABORT] = self._abort  # type: ignore[typeddict-unknown-key]
        self.scope[ANSWER] = self._answer  # type: ignore[typeddict-unknown-key]
        self.scope[BODY] = self._whole_body  # type: ignore[typeddict-unknown-key]
        if self._is_unix:
            self.scope[UNIX] = True  # type: ignore[typeddict-unknown-key]
        self._is_partial = self._has_moved = True

    def on_headers_complete(self) -> None:
        method = self.parser.get_method()
        url = self.url
        if url[:1] != b"/" or len(url) > MAX_TARGET_BYTES or b"#" in url:
            self.url = settled(url, method, self.headers)
        if method == b"GET":
            super().on_headers_complete()
        else:
            check_coding(self.headers)
            super().on_headers_complete()
            self._linger_behind()
        if self._connections.are_ending:
            self.end_with_answer()
        self.headers = _DROPPED
        self._has_moved = True

    def _linger_behind(self) -> None:
        """The request may be answered before its body has come; an offer to upgrade is no request yet."""
        cycle = self._last
        if cycle is not None and cycle.scope is self.scope:
            lingering = LingeringTransport(self.transport, self._end_of_answers)
            cycle.transport = cast("asyncio.Transport", lingering)

    def on_body(self, body: bytes) -> None:
        self._has_moved = True
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._is_partial = False
        self.cycle.more_body = False
        self.cycle.message_event.set()

    def _should_upgrade(self) -> bool:
        """Of a head that offers an upgrade nothing is to be begun: it comes again, without it."""
        return True

    def _decline(self, rest: bytes) -> None:
        """Reads the request again, without the offer, and then what came behind its head."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(Problem(400, "not HTTP/1.1: this is no proxy", written="no"))
            return
        version = self.parser.get_http_version()
        headers = cast("list[tuple[bytes, bytes]]", self.scope["headers"])
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(without_offer(method, self.url, version, headers) + rest)

    # -- answers ---------------------------------------------------------------------------------------------

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        if cycle.waiting_for_100_continue:
            app = closing_if_not_asked_for(app, cycle)
        # A context of its own: a pipelined request is begun from within the one before, and would inherit.
        task = self.loop.create_task(cycle.run_asgi(app), context=Context())
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _whole_body(self) -> bytes | None:
        """The body, if all of it has come, as uvicorn's `receive` would give it; see `asgi.BODY`."""
        cycle = self._running
        if (
            cycle is None
            or cycle.more_body
            or cycle.disconnected
            or cycle.response_complete
            or cycle.waiting_for_100_continue
        ):
            return None
        self.flow.resume_reading()
        cycle.message_event.clear()
        body = bytes(cycle.body)
        cycle.body.clear()
        return body

    def _answer(self, status: int, head: bytes, body: bytes) -> bool:
        """Writes a whole response at once, as uvicorn would in two pieces; see `asgi.Answer`."""
        cycle = self._running
        if (
            cycle is None
            or cycle.response_started
            or cycle.disconnected
            or not cycle.keep_alive
            or cycle.waiting_for_100_continue
            or cycle.access_log
            or self.flow.write_paused
        ):
            return False
        cycle.response_started = cycle.response_complete = True
        if cycle.default_headers is not self._own_headers:  # they are another list every second
            self._own_headers = cycle.default_headers
            self._own_lines = header_lines(cycle.default_headers)
        cycle.transport.write(b"".join((STATUS_LINE[status], self._own_lines, head, body)))
        cycle.message_event.set()
        cycle.on_response()
        return True

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self.flow.resume_reading()
            self._start_asgi_task(*self.pipeline.pop())
        elif self._last_words is not None:
            self._say(self._last_words)
        else:
            self.flow.resume_reading()
            self._since_s = self.loop.time()

    def _end_of_answers(self) -> None:
        """The last answer is written: closes, when the caller had a chance to read it."""
        if self.cycle.more_body:
            self._linger()
        else:
            self.transport.close()

    def _refuse(self, problem: Problem | None) -> None:
        """Reads nothing more; says why (or nothing) when the answers that are due are out."""
        self._is_deaf = True
        last = self._last
        if last is not None and last.more_body:
            self._give_up(last, problem)
        elif self._is_serving:
            self._last_words = problem
        elif problem is not None:
            self._say(problem)

    def _give_up(self, cycle: RequestResponseCycle, problem: Problem | None) -> None:
        """The last request can't be read to its end."""
        if cycle.response_complete or cycle.response_started or problem is None:
            self.transport.close()  # there is an answer already, or a part of one
        elif self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            self._last_words = problem
        else:
            cycle.disconnected = True
            cycle.waiting_for_100_continue = False  # nothing is asked for behind the last answer
            cycle.message_event.set()
            self._say(problem)

    def _say(self, problem: Problem) -> None:
        """Answers outside of any request, and ends the connection."""
        # There is no scope before the first request, whatever uvicorn's types say.
        headers = cast("HeaderPairs", (cast("Mapping[str, object]", self.scope) or {}).get("headers", []))
        self.transport.write(spelled(problem, self._cors.headers_within(headers)))
        self._linger()

    def _linger(self) -> None:
        """Throws away what still comes, for a moment: closing at once would take the answer away too."""
        if self.transport.is_closing():
            return
        self._is_deaf = True
        self._last_words = None
        self.pipeline.clear()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._lingers_until = self.loop.call_later(LINGER_S, self.transport.close)

    # -- slow callers ----------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connections.fell_behind(self, self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unsent_bytes = -1  # it was less meanwhile, whatever it will be at the next look
        self._connections.caught_up(self)

    def _look(self) -> None:
        """Whether the caller does its part. Called now and then, as long as the connection is there."""
        limits, now_s = self._connections.limits, self.loop.time()
        self._timer = self.loop.call_later(limits.look_s, self._look)
        was_late, self._looked_s = now_s - self._looked_s > 2 * limits.look_s, now_s
        if was_late:
            return  # this process stood still, and what callers did meanwhile has not been read yet
        if self._takes_nothing(now_s, limits.stall_s):
            if self._unsent_bytes:
                self._connections.ended("stalled")
            self._abort()
        elif self.transport.is_closing() or self._is_deaf or self._is_serving:
            return
        elif self._last is None or (self._is_partial and not self._has_head):
            # The first head counts from the connection's beginning, another one from its own.
            since_s = self._since_s if self._last is None else max(self._since_s, self._head_since_s)
            if now_s - since_s >= limits.head_s:
                self._end("slow_head", self._say_too_slow)
        elif self._is_partial:
            if now_s - self._since_s >= limits.head_s:  # the answer is out: there is nothing more to say
                self._end("slow_body", self.close)
        elif now_s - self._since_s >= limits.keep_alive_s:
            self.close()

    def _takes_nothing(self, now_s: float, stall_s: float) -> bool:
        """Whether so long nothing has gone out, not even the goodbye of a connection that is closing."""
        unsent_bytes = self.transport.get_write_buffer_size()
        has_to_go = unsent_bytes > 0 or self.transport.is_closing()
        if not has_to_go or unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since_s = unsent_bytes, now_s
            return False
        return now_s - self._unsent_since_s >= stall_s

    def _end(self, reason: str, how: Callable[[], None]) -> None:
        self._connections.ended(reason)
        how()

    def _say_too_slow(self) -> None:
        within_ms = round(self._connections.limits.head_s * 1000)
        detail = f"no whole head of a request came within {within_ms} ms (request_timeout_ms)"
        self._say(Problem(408, detail, retriable=True, written="no"))


def _problem_within(error: httptools.HttpParserCallbackError) -> Problem | None:
    """What a callback found wrong: ours, or uvicorn's with a target that it can't take apart."""
    cause = error.__context__
    return cause.problem if isinstance(cause, RefusedError) else NO_URL
