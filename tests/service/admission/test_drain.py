"""The drain as an operator wants it: requests that can still succeed are not cut off, and it ends in time."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster
from service.admission.drain import Drain
from tests.support.coroutine_tests import until
from tests.support.running_server import RunningServer, terminate
from tests.support.sidecar import Sidecar
from tests.support.stream_connection import StreamConnection
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

ONE: Final = b'{"records":[{"value":1}]}'
JSON: Final = {"content-type": "application/json"}
PATH: Final = "/v1/topics/orders/records"
#: The time for the steps after the drain: the rest of the grace period in docs/operations.md.
BEHIND_S: Final = patient(15.0)


# -- asking --------------------------------------------------------------------------------------------------


def test_two_requests_to_end_count_as_one() -> None:
    drain, asked = Drain(), []
    drain.when_asked(lambda: asked.append("ended"))
    assert [drain.ask(), drain.ask()] == [True, False]
    assert asked == ["ended"]
    assert (drain.announced, drain.begun) == (True, False)


def test_an_app_that_nobody_runs_as_a_process_is_announced_all_the_same() -> None:
    drain = Drain()
    assert drain.ask()
    assert drain.announced


# -- connections that are kept -------------------------------------------------------------------------------


class _Draining:
    """A server whose drain is held up: a produce is under way, and the producer waits for it."""

    def __init__(self) -> None:
        self.running = RunningServer()
        self.running.producer.holds_records = True
        self.running.producer.closing = threading.Event()

    async def begin(self, api: httpx.AsyncClient) -> asyncio.Task[httpx.Response]:
        waiting = asyncio.create_task(api.post(PATH, content=ONE, headers=JSON, timeout=30))
        await until(lambda: self.running.producer.waiting)
        terminate()
        await until(lambda: self.running.app.sidecar.drain.begun)
        return waiting

    def finish(self) -> None:
        assert self.running.producer.closing is not None
        self.running.producer.closing.set()


async def test_in_the_drain_every_answer_asks_its_caller_to_close_the_connection() -> None:
    draining = _Draining()
    async with draining.running.clients() as (api, _):
        before = (await api.get("/v1/topics/orders")).headers.get("connection")
        waiting = await draining.begin(api)
        fast = await api.get("/v1/topics/orders")
        slow = await api.get("/v1/topics/%6Frders")
        missing = await api.get("/nothing")
        refused = await api.post(PATH, content=ONE, headers=JSON)
        draining.finish()
        accepted = await waiting
        assert (fast.status_code, slow.status_code, accepted.status_code) == (200, 200, 200)
        answers = {"fast": fast, "slow": slow, "missing": missing, "refused": refused, "last": accepted}
        reported = {"before": before} | {name: a.headers.get("connection") for name, a in answers.items()}
    assert reported.pop("before") is None
    assert set(reported.values()) == {"close"}, reported


async def test_before_it_a_connection_is_kept_as_ever() -> None:
    running = RunningServer(drain_delay_ms=1_500)
    async with running.clients() as (api, _):
        terminate()
        await until(lambda: running.app.sidecar.drain.announced)
        assert "connection" not in (await api.get("/v1/topics/orders")).headers
        assert "connection" not in (await api.post(PATH, content=ONE, headers=JSON)).headers
    assert running.ended.result() == 0


async def test_a_connection_that_idles_may_ask_once_more_and_is_closed_at_the_end() -> None:
    draining = _Draining()
    async with draining.running.clients() as (api, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", draining.running.api_port)
        waiting = await draining.begin(api)
        writer.write(b"GET /v1/topics/orders HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = await reader.read()  # to the end: the answer was the last
        draining.finish()
        await waiting
        writer.close()
    assert said.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("path", "media_type", "said"),
    [
        (PATH, "application/json", b'"type":"/problems/shutting-down"'),
        ("/v1/records", "application/json", b'"type":"/problems/shutting-down"'),
        ("/v1/leaders", "application/json", b'"type":"/problems/shutting-down"'),
        ("/topics/orders", "application/vnd.kafka.json.v2+json", b'"error_code":50302'),
        ("/cloudevents/orders", "application/cloudevents+json", b'"type":"/problems/shutting-down"'),
        ("/v1.0/publish/pubsub/orders", "application/json", b'"errorCode":"ERR_HEALTH_NOT_READY"'),
    ],
)
async def test_a_caller_whose_body_is_not_complete_is_refused_as_any_other(
    path: str, media_type: str, said: bytes
) -> None:
    running = RunningServer(dialects="rest-v2,cloudevents,dapr")
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {media_type}\r\n"
    async with running.clients():
        asking = asyncio.create_task(running.raw(f"{head}Content-Length: 99\r\n\r\n{{".encode()))
        await until(lambda: running.app.sidecar.admission.requests == 1)
        terminate()
        answer = await asking
    assert answer.startswith(b"HTTP/1.1 503 "), answer
    assert said in answer
    assert b"connection: close" in answer
    assert b"retry-after: " in answer
    assert running.app.sidecar.admission.requests == running.app.sidecar.admission.bytes == 0


async def test_idle_callers_do_not_delay_the_end() -> None:
    running = RunningServer()
    async with running.clients():
        writers = []
        for sent in (b"", b"GET /v1/top", b"POST " + PATH.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"):
            _, writer = await asyncio.open_connection("127.0.0.1", running.api_port)
            writer.write(sent)
            writers.append(writer)
        began_s = time.monotonic()
        terminate()
        await running.ended
        took_s = time.monotonic() - began_s
        for writer in writers:
            writer.close()
    assert took_s < BEHIND_S


async def test_a_caller_that_does_not_read_its_last_answers_is_cut_off_without_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = RunningServer()
    async with running.clients():
        # Its reader stops at once, and the answers are more than any socket buffers.
        _, writer = await asyncio.open_connection("127.0.0.1", running.api_port, limit=1)
        writer.write(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        await until(lambda: running.app.sidecar.http.in_progress == 1)
        terminate()
        await running.ended
        writer.close()
    assert running.ended.result() == 0
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert "Connections cut off because their last answers were not read: 1" in caplog.text
    assert running.app.sidecar.http.in_progress == 0


# -- answers that go on --------------------------------------------------------------------------------------


async def test_a_watcher_gets_a_whole_answer() -> None:
    draining = _Draining()
    async with draining.running.clients() as (api, _), api.stream("GET", "/v1/watch") as watch:
        assert watch.status_code == 200
        pieces = watch.aiter_text()
        first = await anext(pieces)
        waiting = await draining.begin(api)
        rest = [piece async for piece in pieces]  # raises where the answer is cut off
        draining.finish()
        await waiting
    assert "snapshot" in first + "".join(rest)


async def test_a_poll_for_changes_is_answered_without_any() -> None:
    draining = _Draining()
    async with draining.running.clients() as (api, _):
        snapshot = await api.get("/v1/watch", headers={"accept": "application/json"})
        version = snapshot.json()["version"]
        query = {"last_event_id": version, "max_block_ms": 60_000}
        polling = asyncio.create_task(
            api.get("/v1/watch", params=query, headers={"accept": "application/json"}, timeout=30)
        )
        await until(lambda: draining.running.app.sidecar.feed.watchers == 1)
        waiting = await draining.begin(api)
        answer = await polling
        again = await api.get("/v1/watch/changes", params=query)
        draining.finish()
        await waiting
    assert (answer.status_code, answer.json()["changes"]) == (200, [])
    # Else a caller in a loop would ask hundreds of times a second until the end of the drain.
    assert (again.status_code, again.json()["type"]) == (503, "/problems/shutting-down")
    assert "retry-after" in again.headers


# -- a process on brokers ------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as running:
        running.create_topic("orders", partitions=1)
        yield running


class _Get:
    """A GET on a thread of its own."""

    def __init__(self, sidecar: Sidecar, path: str) -> None:
        self._answers: list[httpx.Response] = []
        self._thread = threading.Thread(target=lambda: self._answers.append(sidecar.api.get(path)))
        self._thread.start()

    def answer(self) -> httpx.Response:
        self._thread.join(patient(30))
        return self._answers[0]


def test_a_look_up_that_waits_for_its_topic_is_answered_and_does_not_hold_up_the_end(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers) as sidecar:
        cluster.hold_next(ApiKey.METADATA, times=1_000)
        parked = _Get(sidecar, "/v1/topics/later?max_block_ms=60000")
        wait_until(
            lambda: sidecar.metric("pilotfish_waiting_requests") == 1,
            what="a look-up that waits",
        )
        began_s = time.monotonic()
        assert sidecar.terminate() == 0
        assert time.monotonic() - began_s < BEHIND_S
        answer = parked.answer()
    assert (answer.status_code, answer.headers["connection"]) == (503, "close")
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.json()["type"], answer.json()["retriable"]) == ("/problems/shutting-down", True)


def test_a_stream_answers_each_record_and_says_that_there_are_no_more(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with (
        Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers) as sidecar,
        StreamConnection("127.0.0.1", sidecar.api_port, PATH, timeout_s=30) as stream,
    ):
        stream.send(b'{"value":1}\n{"value":2}\n')
        assert [next(stream)["offset"], next(stream)["offset"]] == [0, 1]
        sidecar.process.send_signal(signal.SIGTERM)
        rest = list(stream)  # to its proper end
        assert sidecar.process.wait(timeout=patient(30)) == 0
    assert rest == [{"summary": {"records": 2, "acknowledged": 2, "failed": 0, "ended": "shutdown"}}]
    assert len(cluster.records("orders")) == 2


def test_records_that_brokers_do_not_take_are_named_and_the_end_comes_in_time(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    flags = ["--drain-delay-ms", "300", "--drain-timeout-ms", "700"]
    with Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, flags=flags) as sidecar:
        cluster.hold_next(ApiKey.PRODUCE, times=1_000)
        statuses: list[int] = []
        produce = threading.Thread(
            target=lambda: statuses.append(sidecar.produce("orders", [{"value": "x"}] * 3).status_code)
        )
        produce.start()
        cluster.wait_for_requests(ApiKey.PRODUCE, 1)
        began_s = time.monotonic()
        assert sidecar.terminate() == 0
        assert 1.0 <= time.monotonic() - began_s < 1.0 + BEHIND_S
        produce.join(patient(30))
        assert statuses[0] in {503, 504}
        assert "3 records of orders-0" in sidecar.log()


def test_records_that_wait_for_memory_are_delivered_in_the_drain(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    flags = ["--kafka", "buffer.memory=65536"]
    with Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, flags=flags) as sidecar:
        hold = cluster.hold_next(ApiKey.PRODUCE)
        statuses: list[int] = []

        def produce() -> None:
            statuses.append(sidecar.produce("orders", [{"value": "x" * 15_000}]).status_code)

        callers = [threading.Thread(target=produce) for _ in range(12)]
        for caller in callers:
            caller.start()
        wait_until(lambda: sidecar.metric("pilotfish_waiting_requests") == 12, what="all wait")
        sidecar.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "no new requests are accepted" in sidecar.log(), what="the drain")
        hold.release()
        assert sidecar.process.wait(timeout=patient(60)) == 0
        for caller in callers:
            caller.join(patient(30))
        assert statuses == [200] * 12
        assert "all accepted records are acknowledged" in sidecar.log()
    assert len(cluster.records("orders")) == 12


def test_the_last_heartbeat_is_written_though_the_producer_used_all_of_the_time(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "events"
    flags = ["--drain-timeout-ms", "500", "--events-folder", str(folder)]
    limits = {"events_heartbeat_ms": 3_600_000}
    with (
        Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, flags=flags, limits=limits) as sidecar,
        ExitStack() as ends,
    ):
        cluster.hold_next(ApiKey.PRODUCE, times=1_000)
        produce = threading.Thread(target=lambda: sidecar.produce("orders", [{"value": "x"}]))
        produce.start()
        ends.callback(produce.join, 30)
        cluster.wait_for_requests(ApiKey.PRODUCE, 1)
        assert sidecar.terminate() == 0
        assert "not all events were delivered" not in sidecar.log()
        assert "were not delivered" not in sidecar.log()
    (finished,) = folder.iterdir()
    reported = [json.loads(line) for line in finished.read_text().splitlines()]
    assert [event["type"] for event in (reported[0], reported[-1])] == ["heartbeat", "heartbeat"]
    assert reported[-1]["uptime_ms"] > reported[0]["uptime_ms"]
    assert [event["seq"] for event in reported] == list(range(1, len(reported) + 1))


def test_a_signal_before_the_sidecar_has_started_ends_it_in_order_too() -> None:
    """The first process of a container ignores every signal without a handler."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"bootstrap.servers=127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "service", "serve", "--api-port", "0", "--admin-port", "0"]
        with subprocess.Popen([*command, "--kafka", servers], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            process.stderr.readline()  # its settings: nothing listens to signals on the loop yet
            process.send_signal(signal.SIGTERM)
            rest = process.stderr.read()
            assert process.wait(timeout=patient(30)) == 0, rest


@pytest.mark.parametrize("module", ["service.cli.serve", "fastapi"])
def test_a_signal_as_modules_are_loaded_ends_it_in_order_too(module: str) -> None:
    """Loading is most of the start. The handler came halfway; its SystemExit became an error of pydantic."""
    program = f"""
import os, pydantic, signal, sys, typing
class Signalling(str):
    def __repr__(self):  # called by pydantic's Rust
        os.kill(os.getpid(), signal.SIGTERM)
        return super().__repr__()
class Finder:
    @staticmethod
    def find_spec(name, *_):
        if name == {module!r}:
            class Model(pydantic.BaseModel):
                type: typing.Literal[Signalling("x")] | None = None
sys.meta_path.insert(0, Finder)
from service.__main__ import main
main(["serve", "--api-port", "0", "--admin-port", "0", "--kafka", "bootstrap.servers=127.0.0.1:1"])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_signal_as_the_event_loop_starts_ends_it_in_order_too() -> None:
    """An exception of the signal's handler broke the loop: a stack in the log, and exit code 1."""
    program = """
import os, signal, uvloop
make = uvloop.new_event_loop
def signalled():
    loop = make()
    loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)  # before the first step of any task
    return loop
uvloop.new_event_loop = signalled
from service.__main__ import main
main(["serve", "--api-port", "0", "--admin-port", "0", "--kafka", "bootstrap.servers=127.0.0.1:1"])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
    assert "SIGTERM: shutting down" in ended.stderr
    assert "pilotfish has shut down" in ended.stderr


def test_each_listener_is_called_once_when_the_drain_begins() -> None:
    drain, reported = Drain(), Counter[str]()
    for name in ("a stream", "a watch", "another stream"):
        drain.listen(partial(reported.update, [name]))
    left = partial(reported.update, ["gone"])
    drain.listen(left)
    drain.unlisten(left)
    drain.begin()
    drain.begin()
    assert reported == {"a stream": 1, "a watch": 1, "another stream": 1}
