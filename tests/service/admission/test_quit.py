"""POST /quitquitquit: which callers may end the sidecar, and that it ends as by SIGTERM."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner

from client_core.testing import FakeCluster
from service.__main__ import main
from service.base.watched_file import FileFaultError
from service.process.admin import make_registry
from tests.support.file_looks import FileLooks
from tests.support.http_app import NativeApp
from tests.support.running_server import RunningServer
from tests.support.secured_settings import MountedSecret
from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


QUIT: Final = "/quitquitquit"
TOKEN: Final = "looking-glass-2Jm"
NEXT_TOKEN: Final = "red-queen-9Wb"


def showing(token: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{scheme} {token}"}


@pytest.fixture
def mounted(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "quit", {"token": f"{TOKEN}\n"})


@pytest.fixture
def web(mounted: MountedSecret) -> NativeApp:
    return NativeApp(quit_token_file=str(mounted.path("token")))


def is_asked_to_end(web: NativeApp) -> bool:
    return web.app.sidecar.drain.announced


# -- rights --------------------------------------------------------------------------------------------------


def test_it_is_off_by_default_and_looks_like_any_path_that_is_not_there() -> None:
    for method in ("GET", "POST"):
        web = NativeApp()
        answer, other = web.ask(method, QUIT, headers=showing(TOKEN)), web.ask(method, "/nothing")
        as_other = json.loads(answer.text.replace(QUIT, "/nothing"))
        assert (answer.status_code, as_other) == (404, other.json()), method
        assert not is_asked_to_end(web), method


def test_with_the_token_it_asks_for_the_end(web: NativeApp) -> None:
    answer = web.post(QUIT, headers=showing(TOKEN))
    assert (answer.status_code, answer.json()) == (200, {"shutting_down": True})
    headers = answer.headers["content-type"], answer.headers["cache-control"]
    assert headers == ("application/json", "no-store")
    assert is_asked_to_end(web)
    counted = {"method": "POST", "route": QUIT, "code": "200"}
    assert make_registry(web.app).get_sample_value("pilotfish_http_requests_total", counted) == 1


def test_twice_is_once(web: NativeApp) -> None:
    asked: list[str] = []
    web.app.sidecar.drain.when_asked(lambda: asked.append("ended"))
    assert [web.post(QUIT, headers=showing(TOKEN)).status_code for _ in range(2)] == [200, 200]
    assert asked == ["ended"]


def test_it_is_answered_during_the_drain(web: NativeApp) -> None:
    web.app.sidecar.drain.begin()
    assert web.post(QUIT, headers=showing(TOKEN)).status_code == 200


def test_without_the_token_nothing_happens(web: NativeApp) -> None:
    for headers, challenge in (
        ({}, 'Bearer realm="pilotfish quit"'),
        (showing(TOKEN, "Basic"), 'Bearer realm="pilotfish quit"'),
        ({"authorization": TOKEN}, 'Bearer realm="pilotfish quit"'),
        (showing("another"), 'Bearer realm="pilotfish quit", error="invalid_token"'),
        (showing(""), 'Bearer realm="pilotfish quit", error="invalid_token"'),
        (showing(TOKEN[:-1]), 'Bearer realm="pilotfish quit", error="invalid_token"'),
        (showing(f"{TOKEN} {TOKEN}"), 'Bearer realm="pilotfish quit", error="invalid_token"'),
    ):
        answer = web.post(QUIT, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, challenge), headers
        assert answer.headers["content-type"] == "application/problem+json", headers
        assert not is_asked_to_end(web), headers


def test_a_duplicate_header_is_refused(web: NativeApp) -> None:
    answer = web.post(QUIT, headers=[("authorization", f"Bearer {TOKEN}")] * 2)
    assert answer.status_code == 400
    assert not is_asked_to_end(web)


def test_only_post_ends_it(web: NativeApp) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        answer = web.ask(method, QUIT, headers=showing(TOKEN))
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST"), method
        assert not is_asked_to_end(web), method


def test_a_web_page_can_not_end_it_even_with_the_token(web: NativeApp) -> None:
    for headers, status in (({"host": "evil.example"}, 421), ({"origin": "https://evil.example"}, 403)):
        assert web.post(QUIT, headers={**headers, **showing(TOKEN)}).status_code == status, headers
        assert not is_asked_to_end(web), headers


def test_a_callers_token_does_not_end_it_and_this_one_opens_nothing_else(
    mounted: MountedSecret, tmp_path: Path
) -> None:
    tokens = TokensFile(tmp_path, shop={"read": ["*"], "produce": ["*"]})
    web = NativeApp(quit_token_file=str(mounted.path("token")), tokens_file=tokens.setting)
    assert web.post(QUIT, headers=tokens.of("shop")).status_code == 401
    assert web.get("/v1/status", headers=showing(TOKEN)).status_code == 401
    assert not is_asked_to_end(web)
    assert web.post(QUIT, headers=showing(TOKEN)).status_code == 200


def test_it_is_counted_by_its_own_name(web: NativeApp) -> None:
    web.post(QUIT, headers=showing(TOKEN))
    assert web.app.sidecar.http.route_counters("POST", QUIT, 200) is not None
    families = {family.name: family for family in web.app.sidecar.http.collect()}
    routes = {sample.labels["route"] for sample in families["pilotfish_http_requests"].samples}
    assert QUIT in routes


# -- the file ------------------------------------------------------------------------------------------------


def test_a_rotated_token_holds_at_once_and_the_old_one_until_the_next_look(
    web: NativeApp, mounted: MountedSecret
) -> None:
    token = web.app.quit_token
    assert token is not None
    mounted.swap({"token": NEXT_TOKEN})
    looks = FileLooks(token)
    looks.look()
    for _ in range(2):
        token.close()
        assert looks.due is None
    assert web.post(QUIT, headers=showing(TOKEN)).status_code == 401
    assert web.post(QUIT, headers=showing(NEXT_TOKEN)).status_code == 200

    mounted.swap({"token": f"\ufeff{TOKEN}\r\n"})  # as an editor on Windows saves it
    assert web.post(QUIT, headers=showing(TOKEN)).status_code == 200
    assert web.post(QUIT, headers=showing(NEXT_TOKEN)).status_code == 200


def test_a_file_that_holds_no_token_ends_the_start(tmp_path: Path) -> None:
    for text in ("", "two words", "one\ntwo", "ü"):
        path = tmp_path / "token"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(FileFaultError, match=r"quit_token_file: .*token holds no token"):
            NativeApp(quit_token_file=str(path))


def test_a_file_that_is_missing_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(FileFaultError, match="quit_token_file: can't read"):
        NativeApp(quit_token_file=str(tmp_path / "nothing"))


def test_a_file_that_is_wrong_later_leaves_the_old_token_in_force(
    web: NativeApp, mounted: MountedSecret
) -> None:
    token = web.app.quit_token
    assert token is not None
    mounted.swap({"token": ""})
    FileLooks(token).look()
    assert web.post(QUIT, headers=showing("")).status_code == 401
    assert web.post(QUIT, headers=showing(TOKEN)).status_code == 200


def test_no_token_is_logged(web: NativeApp, mounted: MountedSecret, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    web.post(QUIT, headers=showing("another-4Tk"))
    web.post(QUIT, headers=showing(TOKEN))
    assert TOKEN not in repr(web.settings) + caplog.text
    assert "another-4Tk" not in caplog.text
    assert "POST /quitquitquit: shutting down" in caplog.text


# -- the end -------------------------------------------------------------------------------------------------


async def test_a_server_ends_as_by_sigterm_and_goes_on_serving_for_the_delay(mounted: MountedSecret) -> None:
    running = RunningServer(quit_token_file=str(mounted.path("token")), drain_delay_ms=1_500)
    async with running.clients() as (api, admin):
        asked = await api.post(QUIT, headers=showing(TOKEN))
        asked, ready, served = [asked, await admin.get("/readyz"), await api.get("/v1/topics/orders")]
    assert [asked.status_code, ready.status_code, served.status_code] == [200, 503, 200]
    assert (running.ended.result(), running.producer.state) == (0, "closed")


@pytest.fixture
def sidecar(mounted: MountedSecret, tmp_path: Path) -> Iterator[Sidecar]:
    flags = ["--quit-token-file", str(mounted.path("token")), "--drain-delay-ms", "1500"]
    with (
        FakeCluster(brokers=1) as cluster,
        Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, flags=flags) as running,
    ):
        yield running


def test_a_sigterm_that_follows_is_no_second_one(sidecar: Sidecar) -> None:
    """The pod is deleted while its sidecar drains: what was accepted is delivered all the same."""
    assert sidecar.api.post(QUIT, headers=showing(TOKEN)).status_code == 200
    sidecar.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "SIGTERM: shutting down, as requested before" in sidecar.log(), what="the signal")
    assert sidecar.process.wait(timeout=patient(30)) == 0
    assert "ending at once" not in sidecar.log()


# -- the command ---------------------------------------------------------------------------------------------


def quit_by_command(api_port: int, *words: str) -> tuple[int, str]:
    """Exit code and output of `pilotfish quit`."""
    result = CliRunner().invoke(main, ["quit", *words], env={"PILOTFISH_API_PORT": str(api_port)})
    return result.exit_code, result.output


def test_the_command_ends_a_sidecar(sidecar: Sidecar, mounted: MountedSecret) -> None:
    words = ("--token-file", str(mounted.path("token")))
    assert quit_by_command(sidecar.api_port, *words) == (0, "shutting down\n")
    assert quit_by_command(sidecar.api_port, *words) == (0, "shutting down\n")
    assert sidecar.process.wait(timeout=patient(30)) == 0
    code, said = quit_by_command(sidecar.api_port, *words)
    assert code == 1
    assert "no Pilotfish answers" in said


async def test_the_command_says_what_is_wrong_with_its_token(mounted: MountedSecret, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("another-4Tk")
    running = RunningServer(quit_token_file=str(mounted.path("token")))
    async with running.clients():
        port = running.api_port
        code, said = await asyncio.to_thread(quit_by_command, port, "--token-file", str(wrong))
        assert (code, "this is not the token of quit_token_file" in said) == (1, True)
        assert "another-4Tk" not in said
        code, said = await asyncio.to_thread(quit_by_command, port)
        assert (code, "a token is needed" in said) == (1, True)
        assert not running.app.sidecar.drain.announced


async def test_the_command_says_how_a_sidecar_could_be_ended_that_has_no_such_path(
    mounted: MountedSecret,
) -> None:
    running = RunningServer()
    async with running.clients():
        words = ("--token-file", str(mounted.path("token")))
        code, said = await asyncio.to_thread(quit_by_command, running.api_port, *words)
    assert code == 1
    assert "--quit-token-file" in said
