"""The admin listener's own paths: configuration, log level, stacks. The settings that SIGHUP reads again."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from client_core.testing import FakeCluster
from service.base.settings import Settings
from service.base.settings_sources import SettingsError
from service.process.run_time import PATHS, LogLevel, RunTime, read_again
from service.wire.errors import ProblemError
from tests.support.coroutine_tests import run
from tests.support.http_app import HttpApp
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
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
        assert [answer.status_code for answer in answers] == [401] * 4
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
        ("PUT", "/config"),
        ("POST", "/loglevel"),
    )
    assert [answer.status_code for answer in answers] == [400] * 9 + [405, 405]
    assert root.level == logging.INFO


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
        hang_up(web, root, settings_of(max_waiting_bytes=48 << 20), limit=limit)
    assert f"changed: max_waiting_bytes={48 << 20}\n" in caplog.text
    assert "restart" not in caplog.text
    assert "SIGHUP: the memory limit of 128 MiB is too small for these settings" in caplog.text
    caplog.clear()
    hang_up(web, root, settings_of(), limit=limit)
    # Not given any more: it is sized again.
    assert web.app.sidecar.admission.limits[1] < settings_of().max_waiting_bytes


def test_the_level_of_the_file_ends_a_change_for_some_seconds(web: HttpApp, root: logging.Logger) -> None:
    log_level = LogLevel(root)
    end = log_level.set_for_a_while("debug", "a test")
    read_again(lambda: settings_of(log_level="error"), web.app.sidecar, settings_of(), None, log_level)
    end()
    assert log_level.now == "error"


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
        assert sidecar.is_running
