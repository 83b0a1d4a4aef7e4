"""The admin listener's own paths: configuration, log level, stacks, profile. What SIGHUP reads again."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import re
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from client_core.testing import FakeCluster
from service.base.settings import Settings
from service.base.settings_sources import SettingsError
from service.process.cpu_profile import Profile, Profiler, Thread
from service.process.run_time import PATHS, LogLevel, RunTime, read_again
from service.wire.errors import ProblemError
from tests.support.coroutine_tests import run, until
from tests.support.http_app import HttpApp
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from pathlib import Path

    import httpx

BEARER = {"authorization": "Bearer admin-token"}
SASL = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "web",
    "sasl.password": "hunter2",
}


@pytest.fixture
def root() -> logging.Logger:
    """A logger in place of the process's."""
    logger = logging.Logger("root of a test")
    logger.setLevel("INFO")
    return logger


@pytest.fixture
def web(tmp_path: Path) -> HttpApp:
    token_file = tmp_path / "token"
    token_file.write_text("admin-token\n")
    return HttpApp(admin_token_file=str(token_file), kafka=SASL)


def ask(web: HttpApp, root: logging.Logger, *calls: tuple[str, str], **sent: Any) -> list[httpx.Response]:
    token = web.app.admin_token
    assert token is not None
    endpoint = RunTime(web.app.sidecar, token, LogLevel(root))

    async def scenario() -> list[httpx.Response]:
        async with web.client(endpoint) as client:
            headers = sent.get("headers", BEARER)
            return [await client.request(method, path, headers=headers) for method, path in calls]

    return run(scenario())


def test_the_configuration_in_force_is_shown_without_a_secret(web: HttpApp, root: logging.Logger) -> None:
    (answer,) = ask(web, root, ("GET", "/config"))
    document = answer.json()
    assert document["settings"]["max_waiting_requests"] == 10_000
    assert document["settings"]["log_level"] == "info"
    assert document["kafka"]["delivery.timeout.ms"] == "120000"
    assert document["kafka"]["sasl.username"] == "web"
    assert "sasl.password" in document["kafka"]
    assert "hunter2" not in answer.text
    assert answer.headers["cache-control"] == "no-store"


def test_the_log_level_changes_at_run_time(web: HttpApp, root: logging.Logger) -> None:
    before, changed, after = ask(
        web, root, ("GET", "/loglevel"), ("PUT", "/loglevel?level=debug"), ("GET", "/loglevel")
    )
    assert [each.json() for each in (before, changed, after)] == [
        {"log_level": "info"},
        {"log_level": "debug"},
        {"log_level": "debug"},
    ]
    assert root.level == logging.DEBUG
    (for_a_while,) = ask(web, root, ("PUT", "/loglevel?level=error&seconds=600"))
    assert for_a_while.json() == {"log_level": "error"}


def test_a_change_for_some_seconds_ends_and_a_later_one_lasts(root: logging.Logger) -> None:
    log_level = LogLevel(root)
    end_of_debug = log_level.set_for_a_while("debug", "a test")
    assert log_level.now == "debug"
    end_of_warning = log_level.set_for_a_while("warning", "a test")
    end_of_debug()
    assert log_level.now == "warning"
    end_of_warning()
    assert log_level.now == "info"
    end = log_level.set_for_a_while("debug", "a test")
    log_level.set("error", "a test")
    end()
    assert log_level.now == "error"


def test_stacks_are_those_of_the_other_threads(web: HttpApp, root: logging.Logger) -> None:
    ready, end = threading.Event(), threading.Event()

    def waits() -> None:
        ready.set()
        end.wait()

    thread = threading.Thread(target=waits, name="a thread of the test")
    thread.start()
    try:
        ready.wait()
        (answer,) = ask(web, root, ("GET", "/stacks"))
    finally:
        end.set()
        thread.join()
    assert "thread a thread of the test is at\n" in answer.text
    assert "waits" in answer.text


def test_nothing_is_shown_or_changed_without_the_token(web: HttpApp, root: logging.Logger) -> None:
    calls = [("GET", path) for path in sorted(PATHS)] + [("PUT", "/loglevel?level=debug")]
    for headers in ({}, {"authorization": "Bearer other"}):
        answers = ask(web, root, *calls, headers=headers)
        assert [answer.status_code for answer in answers] == [401] * 5
        assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}
        realms = [answer.headers["www-authenticate"].partition(",")[0] for answer in answers]
        assert realms == ['Bearer realm="pilotfish admin"'] * 5
        assert all("admin_token_file" in answer.json()["detail"] for answer in answers)
    assert root.level == logging.INFO


def test_what_makes_no_sense_is_refused(web: HttpApp, root: logging.Logger) -> None:
    answers = ask(
        web,
        root,
        ("PUT", "/loglevel?level=loud"),
        ("PUT", "/loglevel"),
        ("PUT", "/loglevel?level=debug&seconds=0"),
        ("PUT", "/loglevel?level=debug&seconds=soon"),
        ("PUT", "/loglevel?level=debug&seconds="),
        ("PUT", "/loglevel?level=debug&seconds=86401"),
        ("PUT", "/loglevel?level=debug&seconds=000000001999999"),
        ("PUT", "/loglevel?level=debug&level=info"),
        ("PUT", "/loglevel?level=debug&second=5"),
        ("GET", "/profile?seconds=0"),
        ("GET", "/profile?seconds=61"),
        ("GET", "/profile?seconds=1000"),
        ("GET", "/profile?seconds=soon"),
        ("GET", "/profile?seconds="),
        ("GET", "/profile?seconds=1&seconds=2"),
        ("GET", "/profile?second=5"),
        ("PUT", "/config"),
        ("POST", "/loglevel"),
        ("PUT", "/profile"),
    )
    assert [answer.status_code for answer in answers] == [400] * 16 + [405] * 3
    assert answers[9].json()["detail"] == "seconds must be a number from 1 to 60"
    assert answers[15].json()["detail"] == "second is not a parameter; there is seconds"
    assert root.level == logging.INFO


# -- the profile ---------------------------------------------------------------------------------------------


class OneBusyThread:
    """A process with one thread, which is always busy in the same call. `is_sampled` once it is seen."""

    def __init__(self) -> None:
        self._used_ns = itertools.count(step=1_000_000)
        self.is_sampled = threading.Event()
        self.profiler = Profiler(self._profile)

    def _profile(self) -> Profile:
        used_ns = self._used_ns
        return Profile(self._threads, lambda _: next(used_ns), lambda: next(used_ns), lambda: None)

    def _threads(self) -> Iterator[Thread]:
        self.is_sampled.set()
        frame = inspect.currentframe()
        assert frame is not None
        yield Thread(1, "busy", frame)


def profiled(web: HttpApp, root: logging.Logger, process: OneBusyThread) -> RunTime:
    token = web.app.admin_token
    assert token is not None
    return RunTime(web.app.sidecar, token, LogLevel(root), process.profiler)


async def ask_for_profile(web: HttpApp, endpoint: RunTime, seconds: int = 60) -> httpx.Response:
    async with web.client(endpoint) as client:
        return await client.get(f"/profile?seconds={seconds}", headers=BEARER)


def thread_names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_a_profile_ends_when_the_sidecar_shuts_down_and_shows_what_was_sampled(
    web: HttpApp, root: logging.Logger
) -> None:
    process = OneBusyThread()

    async def scenario() -> httpx.Response:
        asked = asyncio.create_task(ask_for_profile(web, profiled(web, root, process)))
        await until(process.is_sampled.is_set)
        web.app.sidecar.drain.ask()
        return await asked

    answer = run(scenario())
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert re.fullmatch(r"(busy;\S.*:OneBusyThread._threads \d+\n|busy;\(not sampled\) \d+\n)+", answer.text)


def test_a_profile_lasts_as_long_as_asked(web: HttpApp, root: logging.Logger) -> None:
    answer = run(ask_for_profile(web, profiled(web, root, OneBusyThread()), seconds=1))
    assert answer.status_code == 200
    assert ":OneBusyThread._threads " in answer.text


def test_one_profile_is_taken_at_a_time(web: HttpApp, root: logging.Logger) -> None:
    process = OneBusyThread()

    async def scenario() -> list[httpx.Response]:
        endpoint = profiled(web, root, process)
        first = asyncio.create_task(ask_for_profile(web, endpoint))
        await until(process.is_sampled.is_set)
        meanwhile = await ask_for_profile(web, endpoint)
        web.app.sidecar.drain.ask()
        return [await first, meanwhile, await ask_for_profile(web, endpoint)]

    first, meanwhile, later = run(scenario())
    assert [first.status_code, meanwhile.status_code, later.status_code] == [200, 429, 200]
    assert meanwhile.headers["retry-after"]
    assert meanwhile.json()["detail"] == "another profile is being taken; ask again when it has ended"


def test_a_profile_ends_when_its_caller_leaves(web: HttpApp, root: logging.Logger) -> None:
    process = OneBusyThread()
    headers = [(b"authorization", b"Bearer admin-token")]
    scope = {"method": "GET", "path": "/profile", "query_string": b"seconds=60", "headers": headers}
    sent = []

    async def receive() -> dict[str, Any]:
        await until(process.is_sampled.is_set)
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    run(profiled(web, root, process)(scope, receive, send))
    assert sent


def test_a_profile_ends_with_the_admin_listener(web: HttpApp, root: logging.Logger) -> None:
    process = OneBusyThread()

    async def scenario() -> None:
        asked = asyncio.create_task(ask_for_profile(web, profiled(web, root, process)))
        await until(process.is_sampled.is_set)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    run(scenario())
    wait_until(lambda: "pilotfish-profile" not in thread_names(), what="the end of the sampler")


# -- SIGHUP --------------------------------------------------------------------------------------------------


def settings_of(**changed: Any) -> Settings:
    return Settings(kafka={"bootstrap.servers": "localhost:9092"}, **changed)


def hang_up(web: HttpApp, root: logging.Logger, read: Settings, *, limit: int | None = None) -> None:
    started = settings_of()
    read_again(lambda: read, web.app.sidecar, started, limit, LogLevel(root))


def test_settings_that_can_change_are_read_again(
    web: HttpApp, root: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        hang_up(web, root, settings_of(log_level="debug", max_waiting_requests=1, api_port=9))
    assert root.level == logging.DEBUG
    with web.app.sidecar.admission.acquire(1), pytest.raises(ProblemError) as refused:
        web.app.sidecar.admission.acquire(1)
    assert refused.value.problem.status == 429
    assert "changed: log_level=debug, max_waiting_requests=1" in caplog.text
    assert "these need a restart: api_port" in caplog.text
    (answer,) = ask(web, root, ("GET", "/config"))
    shown = answer.json()["settings"]
    assert (shown["log_level"], shown["max_waiting_requests"]) == ("debug", 1)


def test_a_change_that_needs_a_restart_is_reported_until_it_is_taken_back(
    web: HttpApp, root: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        caplog.clear()
        hang_up(web, root, settings_of(api_port=9))
        assert "these need a restart: api_port" in caplog.text
    caplog.clear()
    hang_up(web, root, settings_of())
    assert "restart" not in caplog.text


def test_what_is_sized_for_a_memory_limit_is_not_reported_as_changed_and_too_much_is(
    web: HttpApp, root: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    limit = 128 << 20
    with caplog.at_level(logging.INFO):
        hang_up(web, root, settings_of(max_waiting_bytes=48 << 20, max_waiting_requests=10_000), limit=limit)
    assert f"changed: max_waiting_bytes={48 << 20}\n" in caplog.text
    assert "restart" not in caplog.text
    assert "SIGHUP: the memory limit of 128 MiB is too small for these settings" in caplog.text
    caplog.clear()
    hang_up(web, root, settings_of(), limit=limit)
    # Not given any more: it is sized again.
    assert web.app.sidecar.admission.limits[1] < settings_of().max_waiting_bytes


@pytest.mark.parametrize("level", ["error", "debug"])
def test_the_level_of_the_file_ends_a_change_for_some_seconds(
    web: HttpApp, root: logging.Logger, level: str
) -> None:
    """Also where both are the same: it is for good then."""
    log_level = LogLevel(root)
    end = log_level.set_for_a_while("debug", "a test")
    read_again(lambda: settings_of(log_level=level), web.app.sidecar, settings_of(), None, log_level)
    end()
    assert log_level.now == level


def test_an_invalid_file_changes_nothing(
    web: HttpApp, root: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    def load() -> Settings:
        raise SettingsError("log_level: unknown\napi_port: must be a number")

    before = web.app.sidecar.admission.limits
    read_again(load, web.app.sidecar, settings_of(), None, LogLevel(root))
    assert root.level == logging.INFO
    assert web.app.sidecar.admission.limits == before
    assert "the settings stay as they are: log_level: unknown; api_port: must be a number" in caplog.text


def test_a_running_process_reads_its_file_at_sighup_and_obeys_the_admin_token(tmp_path: Path) -> None:
    config, token = tmp_path / "pilotfish.toml", tmp_path / "token"
    config.write_text('log_level = "info"\n')
    token.write_text("admin-token")
    flags = ("--config", str(config), "--admin-token-file", str(token))
    with (
        FakeCluster(brokers=1) as kafka,
        Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=flags) as sidecar,
    ):
        assert sidecar.admin.get("/loglevel").status_code == 401
        config.write_text('log_level = "debug"\n')
        sidecar.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "SIGHUP: changed: log_level=debug" in sidecar.log(), what="the new level")
        assert sidecar.admin.get("/loglevel", headers=BEARER).json() == {"log_level": "debug"}
        answer = sidecar.admin.put("/loglevel?level=warning", headers=BEARER)
        assert answer.json() == {"log_level": "warning"}
        assert sidecar.admin.get("/config", headers=BEARER).json()["settings"]["log_level"] == "warning"
        assert "thread MainThread is at" in sidecar.admin.get("/stacks", headers=BEARER).text
        profile = sidecar.admin.get("/profile?seconds=1", headers=BEARER)
        assert profile.status_code == 200
        assert re.fullmatch(r"([^;\n]+(;[^;\n]+)+ [0-9]+\n)*", profile.text)
        assert "pilotfish-profile" not in profile.text
        assert sidecar.is_running
