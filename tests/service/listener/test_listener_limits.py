"""The number of connections of a process, requests cut into reads in every way, and uvicorn as a server."""

from __future__ import annotations

import asyncio
import errno
import json
import random
import resource
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from service.base.settings import InternalLimits, Settings
from service.listener.access_log import AccessLogged
from service.listener.api_server import ApiServer, connections_that_fit
from service.listener.connections import USUAL_HEAD_BYTES, Connections, Limits
from service.listener.listeners import Listener
from service.wire.asgi import Receive, Scope, Send, respond
from tests.support.coroutine_tests import until
from tests.support.http_app import NativeApp
from tests.support.served import Caller, Served, ended, limits, on_each_loop

if TYPE_CHECKING:
    import pytest

HOST = b"Host: localhost\r\n"

UNLIMITED: Final = resource.RLIM_INFINITY


def test_the_limit_of_files_is_raised_as_far_as_it_goes_and_the_rest_is_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`hard` None: the system allows no change."""
    limit: list[tuple[int, int]] = []

    def set_limit(_: int, new: tuple[int, int]) -> None:
        if limit[1:]:
            raise ValueError("not allowed to raise maximum limit")
        limit[:] = [new]

    monkeypatch.setattr(resource, "getrlimit", lambda _: limit[0])
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    for soft, hard, wanted, fit, raised in (
        (1_024, 1_024, 500, 500, 1_024),
        (1_024, 4_096, 768, 768, 1_024),
        (512, 4_096, 1_000, 1_000, 1_256),
        (512, UNLIMITED, 1_000, 1_000, 1_256),
        (512, 1_024, 10_000, 768, 1_024),
        (256, 256, 10_000, 128, 256),
        (1, 1, 10_000, 1, 1),
        (UNLIMITED, UNLIMITED, 10_000, 10_000, UNLIMITED),
        (512, None, 10_000, 256, 512),
    ):
        caplog.clear()
        limit[:] = [(soft, UNLIMITED)] * 2 if hard is None else [(soft, hard)]
        assert connections_that_fit(wanted) == fit, (soft, hard, wanted)
        assert limit[0] == (raised, UNLIMITED if hard is None else hard), (soft, hard, wanted)
        reported = f"{wanted} connections are allowed, but only {fit} fit into the limit of {raised} open"
        assert caplog.messages == ([f"{reported} files; raise it (ulimit -n)"] if fit != wanted else []), (
            soft,
            hard,
            wanted,
        )


def test_the_limit_of_files_is_raised_in_a_process() -> None:
    code = (
        "import resource\n"
        "from service.listener.api_server import connections_that_fit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (512, 1_024))\n"
        "print(connections_that_fit(700), resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "700 (956, 1024)\n"


def test_the_limits_of_connections_are_those_of_the_settings() -> None:
    given = Settings(
        kafka={"bootstrap.servers": "localhost:9092"},
        internal=InternalLimits(
            max_connections=7,
            request_timeout_ms=3_000,
            stall_timeout_ms=5_000,
            max_unsent_bytes=2**20,
            large_heads_bytes=2**19,
        ),
    )
    assert Limits.of(given) == Limits(7, 3.0, 75.0, 5.0, 2**20, 2**19)
    assert [limits(**{name: 8.0}).look_s for name in ("head_s", "keep_alive_s", "stall_s")] == [2.0] * 3
    assert limits(head_s=0.001).look_s == 0.005


class Idle:
    """A connection that notes how it is ended."""

    def __init__(self, waits_since_s: float | None = None) -> None:
        self.waits_since_s = waits_since_s
        self.ends: list[str] = []

    def close(self) -> None:
        self.ends.append("close")

    def end_with_answer(self) -> None:
        self.ends.append("end_with_answer")

    def abort(self) -> None:
        self.ends.append("abort")


def values(connections: Connections) -> dict[str, float]:
    """What it says of itself, and how many it ended, by why."""
    families = list(connections.collect())
    assert all(family.documentation for family in families)
    samples = [sample for family in families for sample in family.samples]
    return {s.labels.get("reason", s.name): s.value for s in samples if not s.name.endswith("_created")}


def test_why_connections_end_is_counted_from_the_start() -> None:
    """Or the first of a kind would not show in a rate."""
    reasons = ("slow_head", "slow_body", "stalled", "unsent_bytes", "made_room", "handshake")
    assert dict(ended(Connections(limits()))) == dict.fromkeys(reasons, 0)


def test_there_is_room_for_as_many_as_the_limit_says_and_a_waiting_listener_is_called_once() -> None:
    connections = Connections(limits(max_connections=2))
    called: list[int] = []
    for number in (1, 2):
        assert connections.has_room()
        connections.accepted()
        assert values(connections)["pilotfish_http_connections"] == number
    assert not connections.has_room()
    connections.when_room(lambda: called.append(connections.open))
    connections.over()
    connections.over()
    assert called == [1]


def test_the_longest_idle_connections_make_room_a_hundredth_at_a_time() -> None:
    """Who waits for a second at most stays; so does who has a request."""
    for max_connections, closed in ((100, [3.0]), (101, [3.0, 4.0]), (1_000, [3.0, 4.0, 5.0])):
        connections = Connections(limits(max_connections=max_connections))
        idle = [Idle(since_s) for since_s in (5.0, None, 3.0, 9.0, 4.0, 10.0)]
        for each in idle:
            connections.served(each)
        connections.make_room(10.0)
        assert sorted(each.waits_since_s or 0.0 for each in idle if each.ends == ["close"]) == closed, (
            max_connections
        )
        assert values(connections)["made_room"] == len(closed), max_connections


def test_a_crowd_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    connections = Connections(limits(max_connections=1))
    reported = []
    for now_s in (5.0, 64.9, 65.0, 124.9, 125.0):
        connections.make_room(now_s)
        reported.append(len(caplog.messages))
    assert reported == [1, 1, 2, 2, 3]
    Connections(limits(), "the admin listener").make_room(0.0)
    assert "0 connections to the admin listener are open" in caplog.messages[-1]


def test_the_slowest_readers_are_cut_off_first_and_the_last_one_never() -> None:
    connections = Connections(limits(max_unsent_bytes=100))
    first, second, third = Idle(), Idle(), Idle()

    def state() -> tuple[float, list[bool]]:
        cut = [each.ends == ["abort"] for each in (first, second, third)]
        return connections.unsent_bytes, cut

    connections.fell_behind(first, 30)
    connections.fell_behind(second, 70)
    assert state() == (100, [False] * 3)
    connections.fell_behind(first, 30)  # anew: the second is behind longest now
    assert state() == (100, [False] * 3)
    connections.fell_behind(third, 1)
    assert state() == (31, [False, True, False])
    connections.caught_up(third)
    assert state() == (30, [False, True, False])
    connections.fell_behind(third, 500)
    assert state() == (500, [True, True, False])
    assert values(connections)["unsent_bytes"] == 2
    connections.accepted()
    connections.left(third)
    assert (state()[0], connections.open) == (0, 0)


def test_what_heads_take_beyond_the_usual_ones_adds_up_to_the_limit() -> None:
    connections = Connections(limits(large_heads_bytes=100))
    usual = USUAL_HEAD_BYTES
    for before, now, fits, total in (
        (0, usual, True, 0),
        (0, usual + 60, True, 60),
        (0, usual + 41, False, 60),
        (0, usual + 40, True, 100),
        (usual, usual + 1, False, 100),
        (usual + 40, usual + 39, True, 99),  # less always fits
        (usual + 60, 0, True, 39),
        (usual + 39, 0, True, 0),
    ):
        assert (connections.holds_heads(before, now), connections.large_heads_bytes) == (fits, total)


@on_each_loop
async def test_large_heads_are_refused_while_others_wait_for_their_end_or_for_their_answers() -> None:
    """Usual ones are served all the time, and large ones again when the others are answered or gone."""
    begin = b"GET / HTTP/1.1\r\n" + HOST
    usual = begin + b"\r\n"
    large = begin + b"X: " + b"a" * 20_000
    for first in (
        large,  # its end never comes
        large + b"\r\n\r\n",
        begin + b"X: a\r\n" * 150 + b"\r\n",  # small, but not in memory
        usual + large + b"\r\n\r\n",  # the large one waits in the pipeline
    ):
        answer = asyncio.Event()

        async def app(scope: Scope, receive: Receive, send: Send, answer: asyncio.Event = answer) -> None:
            if (b"x-quick", b"1") not in scope["headers"]:
                await answer.wait()
            await respond(send, 200, [(b"content-length", b"0")], b"")

        async with Served(app, limits=limits(large_heads_bytes=30_000)) as served:
            callers = [await served.call() for _ in range(4)]
            callers[0].send(first)
            await until(lambda held=served.connections: held.large_heads_bytes > 15_000)
            for caller, end in zip(callers[2:], (b"", b"\r\nX-Quick: 1\r\n\r\n"), strict=True):
                caller.send(large + end)
                status, headers, body = await caller.answer()
                said = (status, headers["retry-after"], json.loads(body)["written"])
                assert said == (429, "1", "no"), (first[-9:], end)
            callers[1].send(usual.replace(b"\r\n\r\n", b"\r\nX-Quick: 1\r\n\r\n"))
            assert (await callers[1].answer())[0] == 200
            answer.set()
            if first is large:
                await callers[0].hang_up()
            await until(lambda held=served.connections: held.large_heads_bytes == 0)
            callers[1].send(large + b"\r\nX-Quick: 1\r\n\r\n")
            assert (await callers[1].answer())[0] == 200
            await until(lambda held=served.connections: held.large_heads_bytes == 0)


async def test_a_large_head_whose_body_comes_after_the_answer_is_counted_until_then() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, [(b"content-length", b"0")], b"")

    async with Served(app, limits=limits()) as served:
        caller = await served.call()
        padding = b"X: " + b"a" * 20_000
        caller.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n" + padding + b"\r\n\r\n")
        assert (await caller.answer())[0] == 200
        assert served.connections.large_heads_bytes > 15_000
        caller.send(b"a")
        await until(lambda: served.connections.large_heads_bytes == 0)


def test_at_the_end_every_served_caller_gets_its_last_answer() -> None:
    connections = Connections(limits())
    stays, left = Idle(), Idle()
    connections.served(stays)
    connections.served(left)
    connections.left(left)
    assert not connections.are_ending
    connections.end_with_answers()
    assert (connections.are_ending, stays.ends, left.ends) == (True, ["end_with_answer"], [])


async def test_a_listener_that_waited_for_room_when_it_was_closed_stays_closed() -> None:
    served = Served(echo, limits=limits(max_connections=0))
    served.open()
    served.listener._accept()
    assert not served.listener._is_accepting  # otherwise the loop would ask it in each turn
    served.listener.close()
    served.listener.close()
    served.connections.accepted()
    served.connections.over()  # which calls the listener that waits for room


@on_each_loop
async def test_connections_that_arrive_as_the_listener_closes_end() -> None:
    for request in (b"", b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"):
        for turns in range(8):
            served = Served(echo)
            served.open()
            with socket.create_connection(served.address) as caller:
                caller.send(request)
                for _ in range(turns):
                    await asyncio.sleep(0)
                served.shut_down()
                await until(lambda served=served: not served.connections.open and not served._state.tasks)


@on_each_loop
async def test_open_connections_get_their_turn_while_many_arrive_and_no_task_is_kept() -> None:
    async with Served(echo) as served:
        arriving = [socket.create_connection(served.address) for _ in range(65)]
        for accepted in (64, 65):
            served.listener._accept()
            assert served.connections.open == accepted
        await until(lambda: len(served.protocols) == 65)
        await until(lambda: not served.listener._arriving)
        for caller in arriving:
            caller.close()


class Full(socket.socket):
    """A listening socket of a process that has no file left for so many accepts."""

    accepts = 0
    fails = 3

    def accept(self) -> tuple[socket.socket, object]:
        self.accepts += 1
        if self.accepts <= self.fails:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@on_each_loop
async def test_a_connection_has_the_receive_buffer_that_its_listener_was_given() -> None:
    async with Served(echo) as served:
        served.listener.close()
        listening = socket.create_server(("127.0.0.1", 0))
        served.listener = Listener(listening, "tcp", receive_buffer_bytes=16_384)
        served.address = listening.getsockname()
        served.open()
        await served.call()
        await until(lambda: bool(served.protocols))
        accepted = served.protocols[0].transport.get_extra_info("socket")
        # Linux doubles it, for its own bookkeeping.
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (16_384, 32_768)


@on_each_loop
async def test_a_listener_without_a_file_for_a_connection_says_so_once_and_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.clear()
    async with Served(echo) as served:
        with Full() as full:
            full.bind(("127.0.0.1", 0))
            full.listen()
            served.listener.close()
            served.listener, served.address = Listener(full, "full"), full.getsockname()
            served.open()
            caller = await served.call()
            for number in (1, 2, 3):
                await until(lambda number=number: full.accepts == number)
                for _ in range(20):
                    await asyncio.sleep(0)
                assert full.accepts == number  # it is not asked in each turn
                served.connections.accepted()
                served.connections.over()
            caller.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            assert (await caller.answer())[0] == 200
            accepted = served.protocols[0].transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            said = "full: can't accept a connection: Too many open files"
            assert caplog.messages == [said]
            full.fails, full.accepts = 1, 0  # again, after accepts that worked
            other = await served.call()
            await until(lambda: full.accepts == 1)
            served.connections.accepted()
            served.connections.over()
            other.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
            assert (await other.answer())[0] == 200
    assert caplog.messages == [said, said]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    more = True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        more = message["more_body"]
    text = json.dumps([scope["method"], scope["path"], body.decode()]).encode()
    await respond(send, 200, [(b"content-length", b"%d" % len(text))], text)


def requests(chance: random.Random) -> tuple[bytes, list[list[str]]]:
    """Some requests in a row, and the expected answer to each."""
    written, expected = b"", []
    for number in range(chance.randint(1, 12)):
        path, body = f"/{number}", b"x" * chance.choice([0, 1, 7, 3_000])
        match chance.randrange(4):
            case 0:
                written += b"GET %s HTTP/1.1\r\n%s\r\n" % (path.encode(), HOST)
                expected.append(["GET", path, ""])
                continue
            case 1:
                head = b"Content-Length: %d\r\n\r\n" % len(body)
                written += b"POST %s HTTP/1.1\r\n%s%s%s" % (path.encode(), HOST, head, body)
            case 2:
                pieces = [body[at : at + 1_000] for at in range(0, len(body), 1_000)]
                chunks = b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
                head = b"Transfer-Encoding: chunked\r\n\r\n"
                trailer = b"0\r\nX-Trailer: y\r\n\r\n"
                written += b"POST %s HTTP/1.1\r\n%s%s%s%s" % (path.encode(), HOST, head, chunks, trailer)
            case 3:
                head = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(body)
                written += b"POST %s HTTP/1.1\r\n%s%s%s" % (path.encode(), HOST, head, body)
        expected.append(["POST", path, body.decode()])
    return written, expected


@on_each_loop
async def test_requests_are_understood_however_they_are_cut_into_reads() -> None:
    async with Served(echo) as served:
        for seed in range(25):
            chance = random.Random(seed)
            written, expected = requests(chance)
            cuts = sorted(chance.sample(range(len(written)), min(len(written), chance.choice([0, 1, 5, 40]))))
            caller = await served.call()
            for begin, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
                caller.send(written[begin:end])
                await asyncio.sleep(0)
            assert [json.loads((await caller.answer())[2]) for _ in expected] == expected, seed


# -- uvicorn as the API's server -----------------------------------------------------------------------------


def server(web: NativeApp, *listeners: Listener) -> ApiServer:
    access_log = web.app.sidecar.settings.access_log
    made = ApiServer(web.app, listeners, Connections(limits()), access_log=access_log, cors=web.app.cors)
    made.config.load()
    made.lifespan = made.config.lifespan_class(made.config)
    return made


def test_no_header_of_a_proxy_is_believed_and_the_last_answers_have_two_seconds() -> None:
    config = server(NativeApp()).config
    assert (config.proxy_headers, config.server_header, config.lifespan) == (False, False, "on")
    assert config.ws_protocol_class is None
    # Of the 5 s that a pod has after its drain. The third is for requests whose connections are cut off then.
    assert config.timeout_graceful_shutdown == 3
    logs = [isinstance(server(NativeApp(access_log=on)).config.app, AccessLogged) for on in (True, False)]
    assert logs == [True, False]


async def test_a_server_that_was_shut_down_accepts_nothing_more() -> None:
    web = NativeApp()
    listening = socket.create_server(("127.0.0.1", 0))
    address = listening.getsockname()
    running = server(web, Listener(listening, "tcp"))
    await running.startup()
    caller = Caller(*await asyncio.open_connection(*address))
    caller.send(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
    status, headers, _ = await caller.answer()
    assert (status, "server" in headers) == (200, False)
    await running.shutdown()
    assert await caller.until_closed() == b""
    await caller.hang_up()
    assert listening.fileno() == -1
    await until(lambda: not running._connections.open)
