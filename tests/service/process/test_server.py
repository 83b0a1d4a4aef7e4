"""The sidecar as a server: a real uvicorn on a free port, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import httpx
import pytest

from client_core import CloseReport, ProducerRecord, Unacknowledged
from service.process.server import bound_socket, report_unacknowledged
from service.spool.writer import SpoolClosedError
from tests.support.coroutine_tests import until
from tests.support.plain_http import NO_TLS
from tests.support.running_server import RunningServer, terminate
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

ONE = b'{"records":[{"value":1}]}'
JSON = {"content-type": "application/json"}
PATH = "/v1/topics/orders/records"


async def test_it_serves_look_ups_produces_probes_and_metrics_over_tcp() -> None:
    running = RunningServer()
    async with running.clients() as (api, admin):
        topic = await api.get("/v1/topics/orders")
        assert (topic.status_code, len(topic.json()["partitions"])) == (200, 3)
        held = await api.get("/v1/topics/orders", headers={"if-none-match": topic.headers["etag"]})
        assert (held.status_code, held.content) == (304, b"")
        assert (await api.get("/v1/topics/%6Frders")).content == topic.content
        assert (await api.post(PATH, content=ONE, headers=JSON)).status_code == 200
        for path in ("/livez", "/readyz", "/startupz"):
            assert (await admin.get(path)).status_code == 200
        assert "pilotfish_http_requests_total" in (await admin.get("/metrics")).text
        assert running.producer.state == "running"
    assert (running.ended.result(), running.producer.state) == (0, "closed")


async def test_a_body_in_chunks_without_length_is_bounded_over_tcp_too() -> None:
    running = RunningServer(max_body_bytes=1_000)

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b" " * 100

    async with running.clients() as (api, _):
        paths = (PATH, "/v1/leaders")
        reported = [(await api.post(path, content=pieces(), headers=JSON)).status_code for path in paths]
    assert reported == [413, 413]


async def test_warm_topics_are_passed_to_the_producer() -> None:
    running = RunningServer(warm_topics="a,b")
    async with running.clients():
        assert running.producer.configured == ["a", "b"]


async def test_a_caller_who_hangs_up_frees_its_place_over_tcp() -> None:
    running = RunningServer()
    running.producer.holds_records = True
    async with running.clients() as (api, _):
        with pytest.raises(httpx.ReadTimeout):
            await api.post(PATH, content=ONE, headers=JSON, timeout=httpx.Timeout(5, read=0.05))
        await until(lambda: not running.producer.waiting)
        await until(lambda: running.app.sidecar.admission.requests == 0)


async def test_on_sigterm_it_takes_nothing_on_delivers_what_it_has_and_ends_with_0() -> None:
    running = RunningServer(drain_timeout_ms=25_000)
    running.producer.holds_records = True
    running.producer.closing = threading.Event()
    async with running.clients() as (api, admin):
        waiting = asyncio.create_task(api.post(PATH, content=ONE, headers=JSON, timeout=30))
        await until(lambda: running.producer.waiting)
        terminate()
        await until(lambda: running.app.sidecar.drain.begun)
        refused = await api.post(PATH, content=ONE, headers=JSON)
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        assert (await api.get("/v1/topics/orders")).status_code == 200
        assert (await admin.get("/readyz")).status_code == 503
        assert (await admin.get("/livez")).status_code == 200
        assert running.producer.closing is not None
        running.producer.closing.set()
        assert (await waiting).status_code == 200
    assert running.ended.result() == 0
    assert running.producer.closed_after_ms == 25_000


class _Unclosable(threading.Event):
    """The close of a producer that raises."""

    def wait(self, timeout: float | None = None) -> bool:
        raise ZeroDivisionError("nobody foresaw this")


async def test_a_producer_that_can_not_be_closed_keeps_neither_the_spool_nor_the_process_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = RunningServer(spool_folder=str(tmp_path))
    running.producer.holds_records = True
    running.producer.closing = _Unclosable()
    async with running.clients() as (api, _):
        waiting = asyncio.create_task(api.post(PATH, content=ONE, headers=JSON, timeout=30))
        await until(lambda: running.producer.waiting)
        terminate()
        await until(lambda: running.app.sidecar.drain.begun)
        (asked,) = running.producer.waiting
        running.producer.acknowledge(asked)
        assert (await waiting).status_code == 200
    assert running.ended.result() == 1
    assert "records may be lost" in caplog.text
    assert running.app.spool is not None
    with pytest.raises(SpoolClosedError):
        running.app.spool.submit([ProducerRecord("orders", b"1")], lambda _: None)


async def test_what_fails_as_the_drain_begins_keeps_no_accepted_record_from_delivery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("nobody foresaw this")

    running = RunningServer()
    running.app.sidecar.drain.listen(broken)
    async with running.clients():
        pass
    assert (running.ended.result(), running.producer.state) == (0, "closed")
    assert [record.exc_info is not None for record in caplog.records if record.levelname == "ERROR"] == [True]


async def test_with_a_drain_delay_it_goes_on_serving_for_a_while() -> None:
    running = RunningServer(drain_delay_ms=1_500)
    async with running.clients() as (api, admin):
        terminate()
        await until(lambda: running.app.sidecar.drain.announced)
        assert (await api.post(PATH, content=ONE, headers=JSON)).status_code == 200
        assert (await admin.get("/readyz")).status_code == 503
    assert running.ended.result() == 0


async def test_a_producer_that_was_handed_in_is_not_started_or_closed() -> None:
    running = RunningServer(own=False)
    async with running.clients():
        pass
    assert running.producer.state == "starting"


def test_records_that_could_not_be_delivered_are_named(caplog: pytest.LogCaptureFixture) -> None:
    left = (Unacknowledged("orders", 3, 17), Unacknowledged("audit", None, 2))
    report_unacknowledged(CloseReport(left))
    reported = [record.getMessage() for record in caplog.records]
    assert reported == [
        "17 records of orders-3 were not acknowledged before the drain ended",
        "2 records of audit were not acknowledged before the drain ended",
    ]


def test_a_drain_that_delivered_all_says_what_had_failed_before(caplog: pytest.LogCaptureFixture) -> None:
    for failed_earlier, reported in (
        (0, "all accepted records are acknowledged"),
        (3, "all open records are acknowledged; 3 records had failed before the drain"),
    ):
        caplog.clear()
        with caplog.at_level("INFO"):
            report_unacknowledged(CloseReport(failed_earlier=failed_earlier))
        assert [record.getMessage() for record in caplog.records] == [reported], failed_earlier


def _serving_process(*, drain_delay_ms: int, flags: Sequence[str] = ()) -> subprocess.Popen[str]:
    """A sidecar without brokers."""
    command = [sys.executable, "-m", "service", "serve", "--api-port", "0", "--admin-port", "0", *flags]
    command += ["--drain-delay-ms", str(drain_delay_ms), "--kafka", "bootstrap.servers=127.0.0.1:1"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_a_reader_of_its_log_that_stops_reading_stops_nothing() -> None:
    """Once the pipe was full, every thread that logged waited for the reader, and SIGTERM had no effect."""
    with _serving_process(drain_delay_ms=0, flags=("--access-log",)) as process:
        assert process.stderr is not None
        api = next(
            found for line in process.stderr if (found := re.search(r"serves on (http://[\d.:]+)", line))
        )
        with httpx.Client(base_url=api[1], verify=NO_TLS) as client:
            answers = [client.get("/v1/topics/orders/leader") for _ in range(500)]
        assert len(answers) == 500
        process.send_signal(signal.SIGTERM)
        assert process.wait(patient(30)) == 0


def test_a_second_sigterm_ends_it_at_once() -> None:
    with _serving_process(drain_delay_ms=600_000) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "serves on" in line:
                process.send_signal(signal.SIGTERM)
            if "shutting down" in line:
                break

        def asked_again() -> bool:
            process.send_signal(signal.SIGTERM)  # counts as the first one for a while
            return process.poll() is not None

        wait_until(asked_again, what="the end")
        assert process.returncode == 128 + signal.SIGTERM
        assert "again: ending at once" in process.stderr.read()


def test_a_sighup_while_the_settings_are_read_ends_nothing(tmp_path: Path) -> None:
    config = tmp_path / "pilotfish.toml"
    os.mkfifo(config)
    command = [sys.executable, "-m", "service", "serve", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with config.open("w") as settings:  # opens when the process reads it
            process.send_signal(signal.SIGHUP)
            settings.write("api_port = 0\nadmin_port = 0\n[kafka]\nbootstrap.servers = '127.0.0.1:1'\n")
        assert process.stderr is not None
        for line in process.stderr:
            if "serves on" in line:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


def test_a_sigterm_that_arrives_twice_at_once_is_one() -> None:
    def ended_in_good_order() -> bool:
        """False on a machine so busy that half a second lay between the two."""
        with _serving_process(drain_delay_ms=300) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if "serves on" in line:
                    process.send_signal(signal.SIGTERM)
                if "shutting down" in line:
                    process.send_signal(signal.SIGTERM)
        return process.returncode == 0

    wait_until(ended_in_good_order, what="one end by two signals")


def test_an_address_may_be_in_brackets_and_a_name_without_address_is_reported_as_that() -> None:
    with bound_socket("[::1]", 0, "api_port") as bound:
        assert bound.getsockname()[0] == "::1"
    with pytest.raises(OSError, match=r"api_port: can't listen on a\.\.b:0: (?!Unknown error)[^(]+$"):
        bound_socket("a..b", 0, "api_port")


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"admin_port: can't listen on 127.0.0.1:{port}"):
            bound_socket("127.0.0.1", port, "admin_port")
        command = [sys.executable, "-m", "service", "serve", "--api-port", str(port)]
        ended = subprocess.run(
            [*command, "--kafka", "bootstrap.servers=127.0.0.1:1"],
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 1
    assert f"api_port: can't listen on 127.0.0.1:{port}" in ended.stderr
