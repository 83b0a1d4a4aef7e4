"""uvicorn's HTTP/1.1 protocol, with the limits and checks that it lacks.

    no HTTP       never reaches the application, so its problem document is written here, after the answers
                  that are still pending
    heads         uvicorn keeps them until complete, without a limit: here they have one, in bytes and in
                  time. So have chunk extensions and trailers. Heads that are not answered have a limit for
                  all connections (`connections.py`). `http_exchange.py` checks complete heads
    trailers      are dropped: uvicorn adds them to the headers that were already checked
    upgrades      are declined by serving the request without them (RFC 9110 section 7.8). The parser stops at
                  such a head, and uvicorn would lose the body: Java's HTTP client offers h2c with the first
                  request of each connection, produces included
    pipelines     are bounded; a disconnect ends the running request, not only the last one of the queue. To
                  notice it, reading goes on behind one queued request
    last answers  can be read by callers who are still sending: input is discarded for a moment
                  (`http_exchange.py`)
    ready answers go out in one piece with prebuilt heads (`_answer`); uvicorn checks every header. A GET
                  whose answer is ready gets it after its head (`asgi.AnswerAtOnce`): no scope, cycle, task
    slow callers  are ended by one timer per connection that checks now and then (`connections.py`), so that
                  requests cost none; it also ends uvicorn's waits for a caller who reads nothing

One object per connection; event loop only.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from service.listener.connections import HEADER_BYTES, USUAL_HEAD_BYTES, Connections
from service.listener.http_exchange import (
    MAX_TARGET_BYTES,
    TOO_LONG,
    TOO_MANY_LARGE,
    LingeringTransport,
    RefusedError,
    check_coding,
    check_version,
    closing_if_not_asked_for,
    problem_within,
    settled,
    spelled,
    without_chunks,
    without_offer,
)
from service.wire.asgi import ABORT, ANSWER, BODY, UNIX, AnswerAtOnce, HeaderPairs, Peer, header_lines
from service.wire.cors import NO_CORS, Cors
from service.wire.errors import Problem

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

#: About the limit of Node and nginx. The part that came in one read with the beginning is not counted.
MAX_HEAD_BYTES: Final = 64 * 1024

#: How many requests may wait for an earlier answer; each is kept whole.
MAX_PIPELINED: Final = 128

#: How long input is discarded after the last answer.
LINGER_S: Final = 2.0

#: How long a TLS caller may take to send its close_notify once nothing is left to write.
_GOODBYE_S: Final = 0.1


class _NoTrailers(list[tuple[bytes, bytes]]):
    """Replaces the header list once the head is complete: drops trailers."""

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
        answer_at_once: AnswerAtOnce | None = None,
    ) -> None:
        """`cors` adds headers to answers that reach neither the application nor `answer_at_once`."""
        super().__init__(config, server_state, app_state)
        self._connections = connections
        self._cors = cors
        self._answer_at_once = answer_at_once
        #: The headers of the last message; `headers` drops trailers once the head is complete.
        self._came: HeaderPairs = []
        #: Whether the last message has its head, and whether any had.
        self._has_head = self._had_head = False
        #: Since when there is no request to answer: connection start or end of the last answer.
        self._since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        #: Closes a lingering connection.
        self._lingers_until: asyncio.TimerHandle | None = None
        #: Whether a message is incomplete, and whether the last read made useful progress.
        self._is_partial = self._has_moved = False
        #: Whether the last message took several reads, and its start time.
        self._is_timed = False
        self._head_since_s = 0.0
        #: Bytes since the last useful progress.
        self._loose_bytes = 0
        #: What the heads take whose requests are not answered, and with an incomplete one, as counted.
        self._whole_heads_bytes = self._heads_bytes = 0
        #: The request being answered; `cycle` is the last one received.
        self._running: RequestResponseCycle | None = None
        #: Input is discarded; the problem to send after the pending answers.
        self._is_deaf = False
        self._last_words: Problem | None = None
        #: Unsent bytes at the last check, and since when that number is unchanged.
        self._unsent_bytes = 0
        self._unsent_since_s = 0.0
        #: uvicorn's headers for every answer, such as the date, and their encoding.
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
        self._peer = Peer(self.scheme or "http", self.client, self._is_unix)
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
        for cycle in (running, self._last):
            if cycle is not None:
                cycle.body.clear()
        self.pipeline.clear()
        if self.is_made:
            self._hold_heads(0)
            self._connections.left(self)

    @property
    def is_made(self) -> bool:
        """Whether it has, or had, a transport."""
        return self._timer is not None

    @property
    def _last(self) -> RequestResponseCycle | None:
        """The last request that reached the application, and its answer."""
        return cast("RequestResponseCycle | None", self.cycle)

    @property
    def _is_serving(self) -> bool:
        last = self._last
        return last is not None and not last.response_complete

    @property
    def waits_since_s(self) -> float | None:
        """Since when it has had no complete request; None while it serves one, or if it is closing."""
        return None if self._is_serving or self.transport.is_closing() else self._since_s

    def close(self) -> None:
        """Closes after all writes. Over TLS the caller has a moment for its close_notify."""
        self.transport.close()
        if self.scheme == "https" and not self.transport.get_write_buffer_size():
            self.loop.call_later(_GOODBYE_S, self._abort)

    def end_with_answer(self) -> None:
        """Makes its pending answer, if any, announce that it is the last."""
        if self._is_serving:
            self.cycle.keep_alive = False

    def abort(self) -> None:
        """Closes it at once and drops unsent bytes."""
        self._abort()

    def shutdown(self) -> None:
        """Closes after the pending answers, because the server ends."""
        if self._is_serving:
            self.cycle.keep_alive = False
        else:
            self.close()

    # -- input -----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline(data[upgrade.args[0] :])
            return
        except httptools.HttpParserCallbackError as e:
            self._refuse(problem_within(e))
            return
        except httptools.HttpParserError as e:
            self._refuse(Problem(400, f"not HTTP/1.1: {e}", written="no"))
            return
        if self._is_partial:
            self._linger_behind()
            self._bound(len(data))

    def _bound(self, came_bytes: int) -> None:
        """Bounds the non-body bytes of an incomplete message."""
        if not self._is_timed:
            self._is_timed = True
            self._head_since_s = self.loop.time()
        self._loose_bytes = 0 if self._has_moved else self._loose_bytes + came_bytes
        self._has_moved = False
        if self._loose_bytes <= MAX_HEAD_BYTES:
            if not self._has_head and not self._hold_heads(
                self._heads_bytes + min(came_bytes, MAX_HEAD_BYTES)
            ):
                self._refuse(TOO_MANY_LARGE)
            return
        if self._has_head:
            what = "the bytes between the chunks of a body or behind them"
            self._refuse(Problem(431, f"{what} is larger than {MAX_HEAD_BYTES} bytes", written="no"))
        elif not self.headers and len(self.url) > MAX_TARGET_BYTES:
            self._refuse(TOO_LONG)
        else:
            detail = f"the head of the request is larger than {MAX_HEAD_BYTES} bytes"
            self._refuse(Problem(431, detail, written="no"))

    def _hold_heads(self, now_bytes: int) -> bool:
        """Counts what its heads take now. Returns False if those of all connections take too much."""
        before_bytes = self._heads_bytes
        are_usual = now_bytes <= USUAL_HEAD_BYTES and before_bytes <= USUAL_HEAD_BYTES
        if not are_usual and not self._connections.holds_heads(before_bytes, now_bytes):
            return False
        self._heads_bytes = now_bytes
        return True

    def on_message_begin(self) -> None:
        if self.pipeline and len(self.pipeline) >= MAX_PIPELINED:
            self.cycle.keep_alive = False
            raise RefusedError(None)
        self.url = b""
        self.expect_100_continue = False
        self.headers = self._came = []
        self._is_partial = self._has_moved = True
        self._has_head = self._is_timed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn's, but white space behind a value is no part of it, and HTTP/1.0 has no 100."""
        name, value = name.lower(), value.rstrip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = self.parser.get_http_version() != "1.0"
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        url = self.url
        if url[:1] != b"/" or len(url) > MAX_TARGET_BYTES or b"#" in url:
            self.url = settled(url, self.parser.get_method(), self.headers)
        if self._answer_at_once is not None and self._is_answered(self._answer_at_once):
            self._has_head = self._had_head = self._has_moved = True
            self._is_partial = False
            if self._heads_bytes:
                self._hold_heads(0)
            return
        check_version(self.parser.get_http_version())
        head_bytes = len(url)
        for name, value in self.headers:
            head_bytes += len(name) + len(value) + HEADER_BYTES
            if name == b"transfer-encoding":
                check_coding(self.headers)
        if not self.parser.should_upgrade():  # else it is parsed again
            self._whole_heads_bytes += head_bytes
            if not self._hold_heads(self._whole_heads_bytes):
                raise RefusedError(TOO_MANY_LARGE)
        self._make_scope()
        super().on_headers_complete()
        if len(self.pipeline) == 1:
            self.flow.resume_reading()  # uvicorn has paused: nobody would see that the caller leaves
        self._has_head = self._had_head = True
        if self._connections.are_ending:
            self.end_with_answer()
        self.headers = _DROPPED
        self._has_moved = True

    def _is_answered(self, answer_at_once: AnswerAtOnce) -> bool:
        """Answers a request at once, if nothing comes before its answer, and its answer is ready."""
        parser, running = self.parser, self._running
        if (
            parser.get_method() != b"GET"
            or (running is not None and not running.response_complete)
            or parser.should_upgrade()
            or not parser.should_keep_alive()
            or parser.get_http_version() != "1.1"
            or self._connections.are_ending
            or self.flow.write_paused
            or self.transport.is_closing()
        ):
            return False
        try:
            if not answer_at_once(self.url, self.headers, self._peer, self._write):
                return False
        except Exception:
            # Nobody knows how much of the answer is out.
            self.logger.exception("Exception in a look-up that is answered at once")
            self._abort()
        self._since_s = self.loop.time()
        return True

    def _make_scope(self) -> None:
        """Makes the request's scope as uvicorn does when a message begins, with our keys beside ASGI's."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers
        self.scope[ABORT] = self._abort  # type: ignore[typeddict-unknown-key]
        self.scope[ANSWER] = self._answer  # type: ignore[typeddict-unknown-key]
        self.scope[BODY] = self._whole_body  # type: ignore[typeddict-unknown-key]
        if self._is_unix:
            self.scope[UNIX] = True  # type: ignore[typeddict-unknown-key]

    def _linger_behind(self) -> None:
        """Delays the close after the last answer, because the answer may come before the request's body."""
        cycle = self._last
        if cycle is not None:
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
        if not self._is_partial or self.parser.should_upgrade():
            return  # answered at once, or parsed again
        self._is_partial = False
        self.cycle.more_body = False
        self.cycle.message_event.set()
        if self.cycle.response_complete:
            self._hold_heads(0)

    def _should_upgrade(self) -> bool:
        """Returns True: a head with an upgrade offer starts nothing; it is parsed again without the offer."""
        return True

    def _decline(self, rest: bytes) -> None:
        """Parses the request again without the offer, then the bytes after its head."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(Problem(400, "not HTTP/1.1: this is not a proxy", written="no"))
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
        if cycle.scope["http_version"] == "1.0":
            app = without_chunks(app, cycle)
        # A new context: a pipelined request starts inside the one before, and would inherit its context.
        task = self.loop.create_task(cycle.run_asgi(app), context=Context())
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def _whole_body(self) -> bytes | None:
        """Returns the body, if complete, as uvicorn's `receive` would return it; see `asgi.BODY`."""
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
        """Writes a whole response at once, where uvicorn writes two pieces; see `asgi.Answer`."""
        cycle = self._running
        if (
            cycle is None
            or cycle.response_started
            or cycle.disconnected
            or not cycle.keep_alive
            or cycle.waiting_for_100_continue
            or self.flow.write_paused
        ):
            return False
        cycle.response_started = cycle.response_complete = True
        self._write(status, head, body)
        cycle.message_event.set()
        cycle.on_response()
        return True

    def _write(self, status: int, head: bytes, body: bytes) -> bool:
        headers = self.server_state.default_headers
        if headers is not self._own_headers:  # a new list every second
            self._own_headers, self._own_lines = headers, header_lines(headers)
        self.transport.write(b"".join((STATUS_LINE[status], self._own_lines, head, body)))
        return True

    def on_response_complete(self) -> None:
        running = self._running
        if running is not None:
            # Nobody reads it any more, and only the garbage collector ends a closed connection's objects.
            running.body.clear()
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
            self._whole_heads_bytes = 0
            if not self._is_partial:
                self._hold_heads(0)

    def _end_of_answers(self) -> None:
        """Closes after the last answer, once the caller had a chance to read it."""
        if self.cycle.more_body:
            self._linger()
        else:
            self.transport.close()

    def _refuse(self, problem: Problem | None) -> None:
        """Stops reading; sends the problem, if any, after the pending answers."""
        self._is_deaf = True
        last = self._last
        if last is not None and last.more_body:
            self._give_up(last, problem)
        elif self._is_serving:
            self._last_words = problem
        elif problem is not None:
            self._say(problem)

    def _give_up(self, cycle: RequestResponseCycle, problem: Problem | None) -> None:
        """Handles a last request that can't be read to its end."""
        if cycle.response_complete or cycle.response_started or problem is None:
            self.transport.close()  # there is an answer already, or a part of one
        elif self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            self._last_words = problem
        else:
            cycle.disconnected = True
            cycle.waiting_for_100_continue = False  # no 100 Continue after the last answer
            cycle.message_event.set()
            self._say(problem)

    def _say(self, problem: Problem) -> None:
        """Sends an answer outside any request, and ends the connection."""
        added = [*self.server_state.default_headers, *self._cors.headers_within(self._came)]
        self.transport.write(spelled(problem, added))
        self._linger()

    def _linger(self) -> None:
        """Discards input for a moment before closing: closing at once could lose the answer."""
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
        self._unsent_bytes = -1  # it was less meanwhile, whatever the next check finds
        self._connections.caught_up(self)

    def _look(self) -> None:
        """Checks the caller's progress periodically, while the connection exists."""
        limits, now_s = self._connections.limits, self.loop.time()
        self._timer = self.loop.call_later(limits.look_s, self._look)
        was_late, self._looked_s = now_s - self._looked_s > 2 * limits.look_s, now_s
        if was_late:
            return  # this process stalled: what callers sent meanwhile is not read yet
        if self._takes_nothing(now_s, limits.stall_s):
            if self._unsent_bytes:
                self._connections.ended("stalled")
            self._abort()
        elif self.transport.is_closing() or self._is_deaf or self._is_serving:
            return
        elif not self._had_head or (self._is_partial and not self._has_head):
            # The first head's time starts with the connection, a later one's with the head.
            since_s = max(self._since_s, self._head_since_s) if self._had_head else self._since_s
            if now_s - since_s >= limits.head_s:
                self._end("slow_head", self._say_too_slow)
        elif self._is_partial:
            if now_s - self._since_s >= limits.head_s:  # the answer is out: nothing more to send
                self._end("slow_body", self.close)
        elif now_s - self._since_s >= limits.keep_alive_s:
            self.close()

    def _takes_nothing(self, now_s: float, stall_s: float) -> bool:
        """Returns whether nothing was sent for `stall_s`, not even a closing connection's close_notify."""
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
        detail = f"no complete request head arrived within {within_ms} ms"
        self._say(Problem(408, detail, retriable=True, written="no"))
