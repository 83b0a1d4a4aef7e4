"""The Unix domain socket: its permissions, an earlier file, its removal, and the guards."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from service.__main__ import main
from service.listener.unix_socket import MAX_PATH_BYTES, UnixSocket, bind_unix_socket
from tests.support.http_app import HttpApp, NativeApp
from tests.support.served import Served, on_each_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A short one: pytest's own folders may be too long for a socket."""
    monkeypatch.chdir(tmp_path)
    return "api.sock"


@pytest.fixture
def bound(path: str) -> Iterator[UnixSocket]:
    made = bind_unix_socket(path, 0o600, 16)
    yield made
    made.close()


# -- the file ------------------------------------------------------------------------------------------------


def test_the_mode_is_the_one_that_was_asked_for_whatever_the_umask(path: str) -> None:
    for mode in (0o600, 0o660, 0o666, 0o700):
        before = os.umask(0o077)
        try:
            made = bind_unix_socket(path, mode, 16)
        finally:
            os.umask(before)
        assert stat.S_IMODE(os.stat(path).st_mode) == mode, oct(mode)
        made.close()


def test_the_file_is_gone_at_the_end(bound: UnixSocket, path: str) -> None:
    bound.close()
    bound.close()
    assert not os.path.exists(path)


def test_a_file_that_another_process_put_there_meanwhile_stays(bound: UnixSocket, path: str) -> None:
    os.unlink(path)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(path)
        bound.close()
        assert os.path.exists(path)


def test_a_file_that_is_gone_already_is_no_matter(bound: UnixSocket, path: str) -> None:
    os.unlink(path)
    bound.close()
    assert not os.path.exists(path)


def test_the_socket_of_a_dead_sidecar_is_replaced(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
        dead.listen(1)
    made = bind_unix_socket(path, 0o600, 16)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(path)
    made.close()


def test_the_socket_of_a_living_one_is_refused_and_left_alone(bound: UnixSocket, path: str) -> None:
    with pytest.raises(OSError, match=r"api_socket: another process listens on api\.sock; end it, or"):
        bind_unix_socket(path, 0o600, 16)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(path)


def test_one_whose_backlog_is_full_lives(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as first:
        busy.bind(path)
        busy.listen(0)
        first.connect(path)
        with pytest.raises(OSError, match="another process listens"):
            bind_unix_socket(path, 0o600, 16)


def test_a_datagram_socket_belongs_to_another_process(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(path)
        with pytest.raises(OSError, match="another process listens"):
            bind_unix_socket(path, 0o600, 16)


class NotAllowed(socket.socket):
    """One of a user who may not connect to others' sockets."""

    def connect(self, _: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_socket_that_may_not_be_connected_to_is_left_alone(
    bound: UnixSocket, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "socket", NotAllowed)
    with pytest.raises(OSError, match=r"can't listen on api\.sock: Permission denied; choose another with"):
        bind_unix_socket(path, 0o600, 16)
    assert os.path.exists(path)


def test_a_sidecar_that_removes_its_socket_meanwhile_makes_way(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (FileNotFoundError, ConnectionRefusedError):  # before the connect, and just after it

        class Ending(socket.socket):
            def connect(self, _: object, error: type[OSError] = error) -> None:
                os.unlink(path)
                raise error

        with socket.socket(socket.AF_UNIX) as ended:
            ended.bind(path)
        with monkeypatch.context() as context:
            context.setattr(socket, "socket", Ending)
            bind_unix_socket(path, 0o600, 16).close()
        assert not os.path.exists(path), error


def test_a_file_that_is_no_socket_is_refused_and_left_alone(path: str, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    there = tmp_path / path
    made: dict[str, Callable[[], object]] = {
        "a file": lambda: there.write_text("precious"),
        "a folder": there.mkdir,
        "a dangling link": lambda: there.symlink_to("nowhere"),
        "a link": lambda: there.symlink_to(target),
    }
    for kind, make in made.items():
        make()
        with pytest.raises(OSError, match=r"api_socket: api\.sock exists and is not a socket; remove it, or"):
            bind_unix_socket(path, 0o600, 16)
        assert os.path.lexists(there), kind
        there.rename(tmp_path / kind)


def test_a_path_that_is_too_long_is_named_with_how_long_it_may_be(tmp_path: Path) -> None:
    too_long = "é" * 54
    with pytest.raises(OSError, match=rf"{too_long} has 108 bytes, but a socket's path may have 107"):
        bind_unix_socket(too_long, 0o600, 16)
    with pytest.raises(OSError, match="a path can't contain a zero byte"):
        bind_unix_socket("\0abstract", 0o600, 16)


def test_a_path_of_the_greatest_length_is_taken(path: str) -> None:
    longest = "a" * MAX_PATH_BYTES
    bind_unix_socket(longest, 0o600, 16).close()


def test_a_folder_that_is_not_there_is_named(path: str) -> None:
    with pytest.raises(OSError, match=r"can't listen on nowhere/api\.sock: No such file or directory; c"):
        bind_unix_socket("nowhere/api.sock", 0o600, 16)


def test_two_that_start_at_once_do_not_take_the_socket_from_each_other(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    start = threading.Barrier(8)
    made: list[UnixSocket] = []
    refused: list[str] = []

    def begin() -> None:
        start.wait()
        try:
            made.append(bind_unix_socket(path, 0o600, 16))
        except OSError as e:
            refused.append(str(e))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused)) == (1, 7)
    assert all("another process listens" in reported for reported in refused)
    made[0].close()


def test_a_held_lock_of_the_folder_keeps_no_sidecar_from_starting(path: str) -> None:
    folder = os.open(".", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        bind_unix_socket(path, 0o600, 16).close()
    finally:
        os.close(folder)


def test_a_file_system_without_locks_keeps_no_sidecar_from_starting(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", no_locks)
        bind_unix_socket(path, 0o600, 16).close()


def test_the_folder_is_locked_until_the_socket_listens(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other, naps = os.open(".", os.O_RDONLY), []
    chmod = os.chmod

    def nap(duration_s: float) -> None:
        naps.append(duration_s)
        fcntl.flock(other, fcntl.LOCK_UN)

    def chmod_in_a_locked_folder(*asked: Any) -> None:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        chmod(*asked)

    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with monkeypatch.context() as patched:
            patched.setattr(time, "sleep", nap)
            patched.setattr(os, "chmod", chmod_in_a_locked_folder)
            bind_unix_socket(path, 0o600, 16).close()
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)
    assert naps == [0.02]


def test_a_socket_that_can_not_listen_leaves_no_file(path: str) -> None:
    with pytest.raises(OverflowError):
        bind_unix_socket(path, 0o600, 1 << 80)
    assert not os.path.exists(path)


def test_a_pipe_is_no_folder_and_is_not_waited_for(path: str) -> None:
    os.mkfifo("pipe")
    with pytest.raises(OSError, match=r"can't listen on pipe/api\.sock: Not a directory"):
        bind_unix_socket("pipe/api.sock", 0o600, 16)


def test_a_second_close_leaves_the_file_of_the_next_alone(bound: UnixSocket, path: str) -> None:
    """Its number may be that of the first."""
    there = os.stat(path)
    closed = socket.socket(socket.AF_UNIX)
    closed.close()
    UnixSocket(closed, path, (there.st_dev, there.st_ino)).close()
    assert os.path.exists(path)


# -- asked over it -------------------------------------------------------------------------------------------


def is_there(path: str) -> bool:
    return os.path.exists(path)


async def ask(path: str, web: NativeApp, headers: bytes) -> bytes:
    unix = bind_unix_socket(path, 0o600, 16)
    async with Served(web.app, unix=unix) as served:
        caller = await served.call()
        caller.send(b"GET /v1/status HTTP/1.1\r\n" + headers + b"Connection: close\r\n\r\n")
        return await caller.until_closed()


@on_each_loop
async def test_any_host_will_do_over_it(path: str) -> None:
    web = NativeApp()
    for host in (
        b"Host: localhost\r\n",
        b"Host: %2Frun%2Fapi.sock\r\n",
        b"Host: %s\r\n" % (b"%2F" * MAX_PATH_BYTES),
        b"Host:\r\n",
        b"",
    ):
        assert (await ask(path, web, host)).startswith(b"HTTP/1.1 200"), host
        assert not is_there(path)  # the listener is closed


@on_each_loop
async def test_a_host_that_thousands_of_links_would_repeat_is_refused_over_it(path: str) -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 300})
    linked = f"/v3/clusters/{web.producer.cache.cluster_id}/topics/orders/partitions".encode()
    for target in (linked, b"/v1/topics/orders/leader?partition=0"):
        unix = bind_unix_socket(path, 0o600, 16)
        async with Served(web.app, unix=unix, answer_at_once=web.app.answer_at_once) as served:
            caller = await served.call()
            asked = b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n"
            for _ in range(2):  # the second answer is ready
                caller.send(asked % (target, b"localhost"))
                assert (await caller.answer())[0] == 200
            caller.send(asked % (target, b"x" * 513))
            answers = await caller.until_closed()
            assert answers.startswith(b"HTTP/1.1 400"), target
            assert b"x" * 513 not in answers


def test_a_host_that_was_good_over_it_is_not_good_over_tcp_for_that(path: str) -> None:
    web = NativeApp()

    @on_each_loop
    async def good_over_it() -> None:
        assert (await ask(path, web, b"Host: evil.example\r\n")).startswith(b"HTTP/1.1 200")

    good_over_it()
    assert web.get("/v1/status", headers={"host": "evil.example"}).status_code == 421


@on_each_loop
async def test_no_origin_is_its_own_but_allowed_ones_are(path: str) -> None:
    web = NativeApp(allowed_origins=("https://ops.example",))
    for origin, status in (
        (b"https://ops.example", b"200"),
        (b"http://localhost", b"403"),
        (b"http://evil.example", b"403"),
        (b"null", b"403"),
    ):
        host = origin.rpartition(b"/")[2]
        said = await ask(path, web, b"Host: %s\r\nOrigin: %s\r\n" % (host, origin))
        assert said[9:12] == status, origin


# -- in a sidecar --------------------------------------------------------------------------------------------

SERVE = [sys.executable, "-m", "service", "serve", "--api-port", "0", "--admin-port", "0"]
NO_KAFKA = ["--kafka", "bootstrap.servers=127.0.0.1:1"]


def test_a_path_that_can_not_be_listened_on_ends_a_sidecar_as_a_taken_port_does(
    path: str, tmp_path: Path
) -> None:
    (tmp_path / path).write_text("precious")
    ended = subprocess.run(
        [*SERVE, *NO_KAFKA, "--api-socket", str(tmp_path / path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert f"{tmp_path / path} exists and is not a socket" in ended.stderr


def test_a_mode_that_is_none_is_a_wrong_setting() -> None:
    for mode in ("66", "0888", "rw"):
        result = CliRunner().invoke(main, ["serve", *NO_KAFKA, "--api-socket-mode", mode])
        assert result.exit_code == 2, mode
        assert "api_socket_mode" in result.output, mode


def test_a_command_names_the_socket_that_does_not_answer(path: str) -> None:
    result = CliRunner().invoke(main, ["status", "--api-socket", path])
    assert result.exit_code == 1
    assert "no Pilotfish answers at api.sock (No such file or directory)" in result.output
    assert "--api-socket" in result.output


def test_an_option_for_the_address_wins_over_the_environments_socket(path: str) -> None:
    environment = {"PILOTFISH_API_SOCKET": path, "PILOTFISH_API_PORT": "1"}
    asked = {
        options: CliRunner().invoke(main, ["status", *options], env=environment).output
        for options in [
            (),
            ("--api-port", "1"),
            ("--api-host", "::1"),
            ("--api-port", "1", "--api-socket", path),
        ]
    }
    assert ["api.sock" in output for output in asked.values()] == [True, False, False, True], asked
