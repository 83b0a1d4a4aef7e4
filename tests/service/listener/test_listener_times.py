"""One connection without a socket, on a loop with a mock time: when it ends, and with which answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.server import ServerState

from service.listener.connections import HEADER_BYTES, USUAL_HEAD_BYTES, Connections
from service.listener.http_protocol import LINGER_S, MAX_HEAD_BYTES, MAX_PIPELINED, ApiProtocol
from tests.support.served import ended, limits

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from service.wire.asgi import Answer, HeaderPairs, Peer

HOST: Final = b"Host: localhost\r\n"
GET: Final = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
POST: Final = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 9\r\n\r\n"
CHUNKED: Final = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"

#: A connection looks at itself every 2.5 s then.
LIMITS: Final = limits(head_s=10.0, keep_alive_s=20.0, stall_s=40.0)


class Loop:
    """What a protocol uses of a loop; timers fire when the time is set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.tasks: list[Coroutine[Any, Any, None]] = []
        self._timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        self._timers.append(Timer(self.now_s + delay_s, callback))
        return self._timers[-1]

    def create_task(self, work: Coroutine[Any, Any, None], *, context: object) -> asyncio.Future[None]:
        self.tasks.append(work)
        return asyncio.get_running_loop().create_future()

    def go_to(self, now_s: float) -> None:
        """Fires what is due until then, each in its time."""
        while due := [timer for timer in self._timers if timer.at_s <= now_s]:
            timer = min(due, key=lambda each: each.at_s)
            self._timers.remove(timer)
            self.now_s = max(self.now_s, timer.at_s)
            if not timer.is_cancelled:
                timer.callback()
        self.now_s = now_s

    @property
    def waiting(self) -> int:
        return sum(not timer.is_cancelled for timer in self._timers)


class Timer:
    def __init__(self, at_s: float, callback: Callable[[], object]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Wire(asyncio.Transport):
    """Keeps what is written, as far as the caller takes it."""

    def __init__(self, loop: Loop, *, is_tls: bool) -> None:
        super().__init__({"sslcontext": object()} if is_tls else {})
        self._loop = loop
        self.is_tls = is_tls
        self.said = b""
        self.unsent_bytes = 0
        self.closing_at_s: float | None = None
        self.aborted_at_s: float | None = None
        self.has_eof = False
        self.takes_more = True

    def write(self, data: Any) -> None:
        assert not self.has_eof
        self.said += data

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def is_closing(self) -> bool:
        return self.closing_at_s is not None

    def close(self) -> None:
        if self.closing_at_s is None:
            self.closing_at_s = self._loop.now_s

    def abort(self) -> None:
        self.close()
        if self.aborted_at_s is None:
            self.aborted_at_s = self._loop.now_s

    def can_write_eof(self) -> bool:
        return not self.is_tls

    def write_eof(self) -> None:
        assert not self.is_tls
        self.has_eof = True

    def pause_reading(self) -> None:
        self.takes_more = False

    def resume_reading(self) -> None:
        self.takes_more = True


class Connected:
    """A connection that is made at 0 s, and what its caller and the application do."""

    def __init__(self, *, is_tls: bool = False) -> None:
        self.loop = Loop()
        self.connections = Connections(LIMITS)
        self.connections.accepted()
        config = uvicorn.Config(_nothing, http=ApiProtocol, lifespan="off", log_config=None, access_log=False)
        self.protocol = ApiProtocol(
            config, ServerState(), {}, self.connections, answer_at_once=_answer_at_once
        )
        self.protocol.loop = self.loop  # type: ignore[assignment]  # what is used of one
        self.wire = Wire(self.loop, is_tls=is_tls)
        self.protocol.connection_made(self.wire)

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def answer(self) -> None:
        """The application answers the request that runs."""
        running = self.protocol._running
        assert running is not None
        messages: list[Any] = [
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]},
            {"type": "http.response.body", "body": b""},
        ]
        for message in messages:
            with pytest.raises(StopIteration):
                running.send(message).send(None)

    def do(self, what: Callable[[Connected], object] | bytes) -> None:
        if isinstance(what, bytes):
            self.send(what)
        else:
            what(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.protocol.connection_lost(None)
        for work in self.loop.tasks:
            work.close()


async def _nothing(scope: object, receive: object, send: object) -> None:
    """Tests answer in its place."""


def _answer_at_once(target: bytes, headers: HeaderPairs, peer: Peer, write: Answer) -> bool:
    """The answer to this one target is ready."""
    return target == b"/ready" and write(200, b"content-length: 0\r\n\r\n", b"")


def stuck(unsent_bytes: int) -> Callable[[Connected], None]:
    """The caller leaves that much where it is from now on."""

    def set_unsent(connected: Connected) -> None:
        connected.wire.unsent_bytes = unsent_bytes

    return set_unsent


def took_and_fell_behind(connected: Connected) -> None:
    """The caller took enough for writing to go on, and then left as much as before."""
    connected.protocol.resume_writing()


Doing: TypeAlias = "Callable[[Connected], object] | bytes"
ANSWER: Final = Connected.answer
HALF: Final = b"GET / HTTP/1.1\r\n"
READY: Final = b"GET /ready HTTP/1.1\r\n" + HOST + b"\r\n"


#: The times of the caller's acts, the time and the manner of the connection's end, and its counter.
ENDS: Final[tuple[tuple[Mapping[float, Doing], float | None, str, str | None], ...]] = (
    ({}, 10.0, "408", "slow_head"),
    ({4.0: b"GET"}, 10.0, "408", "slow_head"),
    ({1.0: GET, 1.5: ANSWER}, 22.5, "closed", None),
    ({1.0: GET, 2.5: ANSWER}, 22.5, "closed", None),
    ({4.0: READY}, 25.0, "closed", None),
    ({1.0: GET}, None, "", None),
    ({1.0: GET, 1.5: ANSWER, 5.0: HALF, 9.0: b"X: y\r\n"}, 15.0, "408", "slow_head"),
    ({1.0: GET, 1.5: HALF, 7.5: ANSWER}, 17.5, "408", "slow_head"),
    ({1.0: GET, 1.5: HALF, 7.5: ANSWER, 9.0: b"\r\n", 9.5: ANSWER}, 30.0, "closed", None),
    ({1.0: POST + b"a", 2.5: ANSWER}, 12.5, "closed", "slow_body"),
    ({1.0: POST + b"a", 50.0: ANSWER}, 60.0, "closed", "slow_body"),
    ({1.0: GET, 1.5: stuck(1)}, 42.5, "cut", "stalled"),
    ({1.0: GET, 1.5: stuck(9), 29.0: stuck(8)}, 70.0, "cut", "stalled"),
    ({1.0: GET, 1.5: stuck(9), 30.0: stuck(0)}, None, "", None),
    ({1.0: GET, 1.5: stuck(9), 29.0: took_and_fell_behind}, 70.0, "cut", "stalled"),
)


async def test_a_connection_ends_when_its_caller_was_too_slow_and_not_before() -> None:
    for does, ended_at_s, how, counted in ENDS:
        with Connected() as connected:
            wire = connected.wire
            for at_s, what in does.items():
                connected.loop.go_to(at_s)
                connected.do(what)
            said_before = wire.said
            connected.loop.go_to(200.0 if ended_at_s is None else ended_at_s - 0.01)
            assert (wire.closing_at_s, wire.has_eof, wire.said) == (None, False, said_before), does
            if ended_at_s is None:
                continue
            connected.loop.go_to(ended_at_s)
            reported = wire.said.removeprefix(said_before)
            assert (reported[9:12].decode(), wire.has_eof) == (
                ("408", True) if how == "408" else ("", False)
            ), does
            assert (wire.closing_at_s, wire.aborted_at_s) == {
                "408": (None, None),
                "closed": (ended_at_s, None),
                "cut": (ended_at_s, ended_at_s),
            }[how], does
            assert +ended(connected.connections) == ({counted: 1} if counted else {}), does


async def test_bytes_that_came_while_the_process_was_stopped_are_read_before_any_caller_counts_as_slow() -> (
    None
):
    """A delay of two looks is not late yet: a busy loop may take so long."""
    for until_s, is_late in ((10.0, False), (10.5, True)):
        with Connected() as connected:
            connected.loop.go_to(5.0)
            connected.loop.now_s = until_s  # no timer fires meanwhile
            connected.loop.go_to(until_s)
            assert (connected.wire.said == b"") is is_late, until_s
            connected.loop.go_to(until_s + 2.5)
            assert connected.wire.said.startswith(b"HTTP/1.1 408"), until_s


async def test_a_closing_transport_that_sends_nothing_more_is_cut_off_but_did_not_stall() -> None:
    with Connected() as connected:
        connected.wire.close()
        connected.loop.go_to(100.0)
        assert connected.wire.aborted_at_s == 40.0
        assert +ended(connected.connections) == {}


async def test_a_caller_over_tls_has_a_moment_for_its_goodbye() -> None:
    for is_tls, unsent_bytes, aborted_at_s in ((True, 0, 0.1), (True, 1, None), (False, 0, None)):
        with Connected(is_tls=is_tls) as connected:
            connected.wire.unsent_bytes = unsent_bytes
            connected.protocol.close()
            assert (connected.wire.closing_at_s, connected.wire.aborted_at_s) == (0.0, None), is_tls
            connected.loop.go_to(1.0)
            assert connected.wire.aborted_at_s == aborted_at_s, (is_tls, unsent_bytes, aborted_at_s)


async def test_behind_the_last_words_what_comes_is_thrown_away_for_a_moment() -> None:
    for is_tls in (False, True):
        with Connected(is_tls=is_tls) as connected:
            wire = connected.wire
            wire.takes_more = False
            connected.protocol.flow.read_paused = True
            connected.send(b"no http")
            assert wire.said.startswith(b"HTTP/1.1 400"), is_tls
            assert (wire.has_eof, wire.takes_more) == (not is_tls, True), is_tls
            connected.send(GET)
            assert not connected.loop.tasks, is_tls
            connected.loop.go_to(LINGER_S - 0.01)
            assert wire.closing_at_s is None, is_tls
            connected.loop.go_to(LINGER_S)
            assert wire.closing_at_s == LINGER_S, is_tls


async def test_a_connection_that_is_lost_leaves_no_timer_and_no_place() -> None:
    with Connected() as connected:
        connected.send(b"no http")
        assert connected.loop.waiting == 2
        connected.protocol.connection_lost(None)
        assert (connected.loop.waiting, connected.connections.open) == (0, 0)
        connected.connections.accepted()  # for the end, which loses it again


async def test_unwanted_bytes_are_bounded_however_many_reads_bring_them() -> None:
    for pieces in (1, 2):
        for begun, piece, status, named in (
            (HALF, b"X: ", b"431", b"the head of the request is larger than 65536 bytes"),
            (b"GET", b" /", b"414", b"the target"),
            (b"GET / ", b"HTTP/1.1\r\nX: ", b"431", b"the head"),
            (CHUNKED, b"1;", b"431", b"between the chunks"),
            (CHUNKED + b"1\r\na\r\n0\r\n", b"X: ", b"431", b"between the chunks"),
        ):
            whole = piece.ljust(MAX_HEAD_BYTES, b"a")
            middle = MAX_HEAD_BYTES // pieces
            with Connected() as connected:
                connected.send(begun)
                for part in (whole[:middle], whole[middle:]):
                    if part:
                        connected.send(part)
                assert connected.wire.said == b"", (begun, pieces)
                connected.send(b"a")
                assert connected.wire.said[9:12] == status, (begun, pieces)
                assert named in connected.wire.said, (begun, pieces)
                assert b'"written":"no"' in connected.wire.said, (begun, pieces)


async def test_what_a_head_takes_beyond_a_usual_one_is_counted_until_its_answer() -> None:
    for target in (b"/", b"/ready"):
        with Connected() as connected:
            for _ in range(2):
                begun = b"GET %s HTTP/1.1\r\nX: " % target + b"a" * USUAL_HEAD_BYTES
                connected.send(begun)
                assert connected.connections.large_heads_bytes == len(begun) - USUAL_HEAD_BYTES, target
                connected.send(b"\r\n\r\n")
                if target == b"/":
                    # Its target and one header.
                    assert connected.connections.large_heads_bytes == len("/x") + HEADER_BYTES
                    connected.answer()
                assert connected.connections.large_heads_bytes == 0, target


async def test_heads_behind_each_other_are_counted_together_until_the_last_answer() -> None:
    large = b"GET / HTTP/1.1\r\nX: " + b"a" * USUAL_HEAD_BYTES + b"\r\n\r\n"
    head_bytes = USUAL_HEAD_BYTES + len("/x") + HEADER_BYTES
    with Connected() as connected:
        for count in (1, 2, 3):
            connected.send(large)
            assert connected.connections.large_heads_bytes == count * head_bytes - USUAL_HEAD_BYTES
        for _ in range(3):
            assert connected.connections.large_heads_bytes == 3 * head_bytes - USUAL_HEAD_BYTES
            connected.answer()
        assert connected.connections.large_heads_bytes == 0


async def test_a_body_that_breaks_behind_the_head_of_its_answer_ends_without_a_word() -> None:
    with Connected() as connected:
        connected.send(CHUNKED)
        connected.protocol.cycle.response_started = True
        connected.send(b"no length\r\n")
        assert (connected.wire.said, connected.wire.closing_at_s) == (b"", 0.0)


async def test_a_body_in_chunks_moves_its_bound_along() -> None:
    with Connected() as connected:
        connected.send(CHUNKED)
        for _ in range(3):
            connected.send(b"1;" + b"a" * (MAX_HEAD_BYTES - 9))
            connected.send(b"\r\na\r\n")
        assert connected.wire.said == b""


async def test_it_waits_for_a_request_since_it_was_made_or_had_its_last_answer() -> None:
    with Connected() as connected:
        waits_since_s = [connected.protocol.waits_since_s]
        connected.loop.go_to(1.0)
        connected.send(GET)
        waits_since_s.append(connected.protocol.waits_since_s)
        connected.loop.go_to(2.0)
        connected.answer()
        waits_since_s.append(connected.protocol.waits_since_s)
        connected.protocol.close()
        waits_since_s.append(connected.protocol.waits_since_s)
        assert waits_since_s == [0.0, None, 2.0, None]


# -- bodies --------------------------------------------------------------------------------------------------


async def test_reading_pauses_when_more_of_a_body_waits_than_may() -> None:
    for more_bytes, is_read_on in ((0, True), (1, False)):
        with Connected() as connected:
            connected.send(POST.replace(b"9", b"999999") + b"a" * HIGH_WATER_LIMIT)
            connected.send(b"a" * more_bytes)
            assert connected.wire.takes_more is is_read_on, more_bytes


async def test_of_a_body_that_was_answered_already_nothing_is_kept() -> None:
    with Connected() as connected:
        connected.send(POST + b"1")
        connected.answer()
        connected.send(b"2345")
        assert connected.protocol.cycle.body == b""


async def test_the_last_answer_waits_for_its_reader_where_a_body_is_still_coming() -> None:
    for method in (b"POST", b"GET"):
        for body, lingers in (((b"12345678",), True), ((b"123456789",), False), ((b"1", b"23456789"), False)):
            with Connected() as connected:
                connected.send(POST.replace(b"POST", method) + body[0])
                for more in body[1:]:
                    connected.send(more)
                connected.protocol.end_with_answer()
                connected.answer()
                assert connected.wire.closing_at_s == (None if lingers else 0.0), (method, body)
                connected.loop.go_to(LINGER_S)
                assert connected.wire.closing_at_s == (LINGER_S if lingers else 0.0), (method, body)


async def test_the_first_refusal_behind_a_pending_answer_is_the_one_that_is_sent() -> None:
    with Connected() as connected:
        connected.send(GET + CHUNKED.replace(b"chunked", b"gzip"))
        connected.send(GET)
        connected.answer()
        assert connected.wire.said.count(b"HTTP/1.1 ") == 2
        assert b"HTTP/1.1 501" in connected.wire.said


async def test_behind_an_answer_that_ends_the_connection_no_refusal_is_sent() -> None:
    with Connected() as connected:
        connected.send(POST + b"12345678")
        connected.send(b"9" + CHUNKED + b"no length\r\n")
        running = connected.protocol._running
        assert running is not None
        running.keep_alive = False
        connected.answer()
        assert connected.wire.said.count(b"HTTP/1.1 ") == 1
        assert connected.wire.has_eof


async def test_behind_a_pipeline_that_is_too_long_nothing_is_read() -> None:
    with Connected() as connected:
        connected.send(GET * (MAX_PIPELINED + 2))
        connected.send(GET)
        assert len(connected.protocol.pipeline) == MAX_PIPELINED
        for _ in range(MAX_PIPELINED + 1):
            connected.answer()
        said = connected.wire.said
        assert said.count(b"HTTP/1.1 200") == said.count(b"HTTP/1.1 ") == MAX_PIPELINED + 1
        assert connected.wire.closing_at_s == 0.0


# -- the short way -------------------------------------------------------------------------------------------


def disconnected(connected: Connected) -> None:
    connected.protocol.cycle.disconnected = True


def writing_paused(connected: Connected) -> None:
    connected.protocol.flow.pause_writing()


def asks_for_leave(connected: Connected) -> None:
    connected.protocol.cycle.waiting_for_100_continue = True


def is_last(connected: Connected) -> None:
    connected.protocol.end_with_answer()


def nothing(_: Connected) -> None:
    """As it is."""


async def test_only_an_answer_that_needs_nothing_else_goes_the_short_way() -> None:
    for asked, does, goes in (
        (b"", nothing, False),
        (GET, nothing, True),
        (GET, disconnected, False),
        (GET, writing_paused, False),
        (GET, asks_for_leave, False),
        (GET, is_last, False),
        (GET, ANSWER, False),
    ):
        with Connected() as connected:
            if asked:
                connected.send(asked)
            does(connected)
            said_before = connected.wire.said
            assert connected.protocol._answer(200, b"a: b\r\n\r\n", b"body") is goes, (asked, does)
            assert connected.wire.said == said_before + (
                b"HTTP/1.1 200 OK\r\na: b\r\n\r\nbody" if goes else b""
            ), (asked, does)


async def test_a_look_up_is_answered_at_once_only_while_the_caller_takes_its_answers() -> None:
    """Else answers would gather for a caller who asks on and reads nothing."""
    for does, is_answered in ((nothing, True), (writing_paused, False)):
        with Connected() as connected:
            connected.send(GET)
            connected.answer()
            said_before = connected.wire.said
            does(connected)
            connected.send(READY)
            assert (connected.wire.said != said_before) is is_answered, does


async def test_a_caller_who_took_its_answer_is_not_cut_off_for_others() -> None:
    with Connected() as connected, Connected() as slow:
        connected.wire.unsent_bytes = LIMITS.max_unsent_bytes
        connected.protocol.pause_writing()
        connected.wire.unsent_bytes = 0
        connected.protocol.resume_writing()
        connected.connections.fell_behind(slow.protocol, LIMITS.max_unsent_bytes)
        assert connected.wire.aborted_at_s is None
        assert connected.connections.unsent_bytes == LIMITS.max_unsent_bytes


async def test_only_a_body_that_came_whole_is_taken_at_once() -> None:
    for asked, does, taken in (
        (b"", nothing, None),
        (POST + b"123456789", nothing, b"123456789"),
        (POST + b"12345678", nothing, None),
        (POST + b"123456789", disconnected, None),
        (POST + b"123456789", asks_for_leave, None),
        (POST + b"123456789", ANSWER, None),
    ):
        with Connected() as connected:
            if asked:
                connected.send(asked)
            does(connected)
            assert connected.protocol._whole_body() == taken, (asked, does)


# -- the end -------------------------------------------------------------------------------------------------


async def test_the_answer_that_is_due_is_the_last() -> None:
    for how in (ApiProtocol.shutdown, ApiProtocol.end_with_answer):
        with Connected() as connected:
            connected.send(GET)
            how(connected.protocol)
            assert connected.wire.closing_at_s is None, how
            connected.answer()
            assert b"connection: close" in connected.wire.said, how
            assert connected.wire.closing_at_s == 0.0, how


async def test_a_connection_without_a_request_is_closed_only_at_the_end() -> None:
    for how, closing_at_s in ((ApiProtocol.shutdown, 0.0), (ApiProtocol.end_with_answer, None)):
        for asked in (b"", GET):
            with Connected() as connected:
                if asked:
                    connected.send(asked)
                    connected.answer()
                how(connected.protocol)
                assert connected.wire.closing_at_s == closing_at_s, (how, asked)


async def test_while_the_sidecar_ends_each_answer_is_the_last_of_its_connection() -> None:
    for asked_before in (True, False):
        with Connected() as connected:
            if asked_before:
                connected.send(GET)
            connected.connections.end_with_answers()
            if not asked_before:
                connected.send(GET)
            connected.answer()
            assert b"connection: close" in connected.wire.said, asked_before


async def test_a_disconnect_ends_the_running_request_and_those_behind_it() -> None:
    for is_answered in (True, False):
        with Connected() as connected:
            connected.send(GET if is_answered else GET + GET)
            if is_answered:
                connected.answer()
            running = connected.protocol._running
            assert running is not None, is_answered
            running.message_event.clear()
            connected.protocol.connection_lost(None)
            assert running.disconnected is not is_answered, is_answered
            assert is_answered or running.message_event.is_set(), is_answered
            assert not connected.protocol.pipeline, is_answered
            connected.connections.accepted()  # for the end, which loses it again


async def test_empty_lines_in_front_of_a_request_are_no_part_of_its_head() -> None:
    with Connected() as connected:
        for _ in range(3):
            connected.send(b"\r\n" * (MAX_HEAD_BYTES // 2))
        connected.send(GET)
        connected.answer()
        assert connected.wire.said.startswith(b"HTTP/1.1 200")


async def test_a_connection_that_is_closing_begins_no_queued_request() -> None:
    with Connected() as connected:
        connected.send(GET + GET)
        assert len(connected.loop.tasks) == 1
        connected.wire.close()
        connected.answer()
        assert len(connected.loop.tasks) == 1
