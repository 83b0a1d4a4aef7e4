"""Programs that tests use: where each is found, what is downloaded once, and the error if one is missing.

A missing program skips its tests or fails them. Maven, npm, apt-get and dpkg are shell scripts here, and the
only repository is a proxy of this file: there is no traffic to the internet.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pipeline.jars.connector_jars import JarsMissingError, WantedJars
from pipeline.jars.connector_jars import ensure_jars as ensure_wanted_jars
from pipeline.java import JavaMissingError, candidates, version_of, what_to_install
from tests.support import npm_packages
from tests.support.certificates import Authority
from tests.support.chromium import Chromium, ChromiumMissingError, find_chromium
from tests.support.compiled_tests import not_compiled
from tests.support.debian_packages import PackagesMissingError, unpack
from tests.support.java import find_java
from tests.support.kafka_jars import WANTED, ensure_jars
from tests.support.missing_programs import may_be_left_out, summary
from tests.support.npm_packages import NodeMissingError, find_node
from tests.support.promtool import PromtoolMissingError, find_promtool
from tests.support.tls_peers import server_context

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parents[2]


class Programs:
    """A folder of shell scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls = folder / "calls"

    def make(self, name: str, script: str = "") -> Path:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def count(self, word: str = "") -> int:
        """How many lines of `calls` have this word."""
        lines = self.calls.read_text(encoding="utf-8").splitlines() if self.calls.exists() else []
        return sum(word in line for line in lines)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """All that is on PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return Programs(tmp_path / "bin")


@pytest.fixture
def programs(alone: Programs, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Those that come before the system's on PATH."""
    monkeypatch.setenv("PATH", f"{alone.folder}:/usr/bin:/bin")
    return alone


def test_a_program_on_path_is_taken_and_then_one_that_was_unpacked(alone: Programs, tmp_path: Path) -> None:
    (tmp_path / "prometheus").mkdir()
    for package in ("promtool", "prometheus"):  # Debian 13 has it in the first, Debian 12 in the second
        unpacked = tmp_path / package / "usr" / "bin" / "promtool"
        unpacked.parent.mkdir(parents=True)
        unpacked.touch()
        assert find_promtool(tmp_path) == unpacked
    promtool = alone.make("promtool")
    assert find_promtool(tmp_path) == promtool
    chromium = Chromium(alone.make("chromium"), alone.make("chromedriver"))
    assert find_chromium() == chromium
    node = alone.make("node", "echo v20.1.2")
    assert find_node() == node


def test_a_missing_program_is_named_with_the_package_to_install(alone: Programs, tmp_path: Path) -> None:
    alone.make("chromium")
    (tmp_path / "client").mkdir()
    (tmp_path / "client" / "package-lock.json").touch()
    with pytest.raises(ChromiumMissingError, match="apt-get install chromium chromium-driver"):
        find_chromium()
    with pytest.raises(PromtoolMissingError, match="install Prometheus"):
        find_promtool(tmp_path)
    with pytest.raises(NodeMissingError, match="node is needed and not on PATH: install Node"):
        find_node()
    with pytest.raises(NodeMissingError, match="npm is needed and not on PATH: install Node"):
        npm_packages.install(tmp_path / "client", tmp_path / "cache")
    with pytest.raises(JarsMissingError, match=r"Maven \(mvn\) is not installed"):
        ensure_jars(tmp_path / "kafka", fetcher="mvn")
    for said in ("v16.20.2", "something else"):
        alone.make("node", f"echo {said}")
        with pytest.raises(NodeMissingError, match=f"{said}, which is too old: install Node 18"):
            find_node()


# -- Debian's packages ---------------------------------------------------------------------------------------


@pytest.fixture
def apt(programs: Programs) -> Programs:
    """apt-get notes each call and downloads an empty archive."""
    script = f'echo "$1" >> {programs.calls}; [ "$1" = download ] && touch "$2_1.deb"; exit 0'
    programs.make("apt-get", script)
    return programs


def test_a_package_that_is_being_unpacked_is_not_in_its_place_yet(apt: Programs, tmp_path: Path) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    half, rest = 'mkdir -p "$3"; echo half > "$3/tool"', 'echo all > "$3/tool"'
    apt.make("dpkg", f"{half}; echo > {begun}; read _ < {go_on}; {rest}")
    tools = tmp_path / "tools"
    with ThreadPoolExecutor(1) as other:
        root = other.submit(unpack, "thing", tools)
        begun.read_text()
        assert not (tools / "thing").exists()
        go_on.write_text("\n")
        assert (root.result() / "tool").read_text() == "all\n"


def test_two_processes_that_need_a_package_at_once_download_it_once(apt: Programs, tmp_path: Path) -> None:
    apt.make("dpkg", 'mkdir -p "$3"; echo all > "$3/tool"')
    with ThreadPoolExecutor(2) as both:
        roots = list(both.map(unpack, ("thing", "thing"), (tmp_path / "tools",) * 2))
    assert roots == [tmp_path / "tools" / "thing"] * 2
    assert apt.count("download") == 1


def test_a_failure_leaves_nothing_behind_that_looks_unpacked(apt: Programs, tmp_path: Path) -> None:
    apt.make("dpkg", 'mkdir -p "$3"; echo "no room" >&2; exit 1')
    with pytest.raises(PackagesMissingError, match="no room"):
        unpack("thing", tmp_path / "tools")
    assert not (tmp_path / "tools" / "thing").exists()


# -- packages of npm: kept by their lock ---------------------------------------------------------------------

PROJECTS: Final = [path.parent for path in (_ROOT / "tests" / "kafka").glob("*/package.json")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "client"
    folder.mkdir()
    (folder / "package.json").write_text("{}")
    (folder / "package-lock.json").write_text('{"lockfileVersion": 3}')
    (folder / "run.js").write_text("1")
    return folder


def test_packages_are_installed_once_for_a_lock_and_scripts_are_always_the_newest(
    alone: Programs, project: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    alone.make("npm", f'echo "$@" >> {alone.calls}; /bin/mkdir node_modules')
    home = npm_packages.install(project, cache)
    lock = hashlib.sha256((project / "package-lock.json").read_bytes()).hexdigest()
    assert home.name == f"client-{lock[:16]}"
    (project / "run.js").write_text("2")
    assert npm_packages.install(project, cache) == home
    assert (home / "run.js").read_text() == "2"
    (ran,) = alone.calls.read_text().splitlines()
    assert ran.startswith("ci --ignore-scripts ")
    (project / "package-lock.json").write_text('{"lockfileVersion": 2}')
    assert npm_packages.install(project, cache) != home


def test_npm_is_asked_again_and_its_last_words_are_reported(
    alone: Programs, project: Path, tmp_path: Path
) -> None:
    alone.make("npm", f"echo once >> {alone.calls}; echo no network >&2; exit 1")
    with pytest.raises(NodeMissingError, match="in 3 attempts: no network"):
        npm_packages.install(project, tmp_path / "cache")
    assert alone.count("once") == 3
    assert not list((tmp_path / "cache").glob("client-*"))
    alone.make("npm", "[ -d half ] && { /bin/mkdir node_modules; exit 0; }; /bin/mkdir half; exit 1")
    home = npm_packages.install(project, tmp_path / "cache")
    assert (home / "node_modules").is_dir(), "the second attempt is enough"


def test_a_committed_lock_names_no_place_to_download_from() -> None:
    assert PROJECTS
    for folder in PROJECTS:
        text = (folder / "package-lock.json").read_text()
        packages = json.loads(text)["packages"]
        assert all("resolved" not in package for package in packages.values()), folder
        assert all("integrity" in package for name, package in packages.items() if name), folder
        assert not re.search(r"registry|\.tgz", text), folder


# -- jars: a folder appears whole or not at all, and once ----------------------------------------------------

_NAMES: Final = sorted(WANTED.file_names)


class FakeMaven:
    """An `mvn` on PATH that copies files as its arguments say, and writes down each call."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self.copies(*_NAMES)

    def copies(self, *names: str) -> None:
        self.does("; ".join(f'echo {name} > "$out/{name}"' for name in names))

    def does(self, what: str) -> None:
        output = 'for a in "$@"; do case "$a" in -DoutputDirectory=*) out="${a#*=}";; -f) ;; esac; done'
        self._programs.make("mvn", f'echo "$@" >> {self._programs.calls}\n{output}\n{what}')

    @property
    def calls(self) -> int:
        return self._programs.count()


@pytest.fixture
def maven(programs: Programs) -> FakeMaven:
    return FakeMaven(programs)


def test_a_folder_is_fetched_once_and_again_where_it_is_not_what_its_stamp_says(
    tmp_path: Path, maven: FakeMaven
) -> None:
    first = ensure_jars(tmp_path / "kafka", fetcher="mvn")
    assert [jar.name for jar in first] == _NAMES
    assert ensure_jars(tmp_path / "kafka", fetcher="mvn") == first
    assert maven.calls == 1
    jar, stamp = first[0], first[0].parent / "jars.json"
    whole = jar.read_text(encoding="utf-8")
    for calls, damage in enumerate(("truncated", "missing", "stampless version"), 2):
        if damage == "truncated":
            jar.write_text("", encoding="utf-8")
        elif damage == "missing":
            jar.unlink()
        else:
            stamp.write_text(stamp.read_text(encoding="utf-8").replace("4.3.1", "4.2.0"), encoding="utf-8")
        (again, *_) = ensure_jars(tmp_path / "kafka", fetcher="mvn")
        assert (again.read_text(encoding="utf-8"), maven.calls) == (whole, calls), damage


def test_a_failure_says_what_maven_said_and_leaves_nothing_behind(tmp_path: Path, maven: FakeMaven) -> None:
    maven.does("echo 'Could not resolve dependencies'; exit 1")
    with pytest.raises(JarsMissingError, match=r"exit code 1\); it said: Could not resolve dependencies"):
        ensure_jars(tmp_path / "kafka", fetcher="mvn")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "kafka.lock"]
    maven.copies(*_NAMES[1:])
    with pytest.raises(JarsMissingError, match=f"lack {_NAMES[0]}"):
        ensure_jars(tmp_path / "kafka", fetcher="mvn")
    assert not (tmp_path / "kafka").exists()


def test_a_strangers_folder_is_never_replaced(tmp_path: Path, maven: FakeMaven) -> None:
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "thesis.txt").write_text("years of work", encoding="utf-8")
    with pytest.raises(JarsMissingError, match="name another folder"):
        ensure_jars(tmp_path / "kafka", fetcher="mvn")
    assert (tmp_path / "kafka" / "thesis.txt").exists()
    assert maven.calls == 0


# -- jars behind a proxy that signs every certificate with an authority only the system knows ----------------

_WANTED: Final = WantedJars("a jar", ("org.example:thing:1",))
_FILES: Final = {
    "thing-1.jar": b"PK\x05\x06" + 18 * b"\x00",
    "thing-1.pom": b"<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
    b"<artifactId>thing</artifactId><version>1</version></project>",
}


class _InterceptingProxy(BaseHTTPRequestHandler):
    """Answers CONNECT to any host, and then serves that host's repository under a certificate of its own."""

    authority: Authority

    def do_CONNECT(self) -> None:
        self.send_response_only(200)
        self.end_headers()
        context = server_context(self.authority.issue(self.path.partition(":")[0]))
        with suppress(OSError):  # a client that does not trust the authority hangs up
            self.connection = context.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", buffering=0)
            self.close_connection = False
            return
        self.close_connection = True

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        content = _FILES.get(name.removesuffix(".sha1"))
        if content is None:
            self.send_error(404)
            return
        body = hashlib.sha1(content).hexdigest().encode() if name.endswith(".sha1") else content
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def finish(self) -> None:
        super().finish()
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: pytest's output is for failures."""


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Authority]:
    """The proxy's authority; the proxy runs, and every request to a repository goes through it."""
    authority = Authority()
    handler = type("Proxy", (_InterceptingProxy,), {"authority": authority})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_address[1]}")
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))  # jgo keeps what it fetched there
        yield authority
        proxy.shutdown()
        thread.join()


@pytest.mark.parametrize("by_user", [False, True], ids=["the system's", "the user's, whatever the system's"])
def test_jgo_trusts_an_authority_that_the_user_has_named_or_the_system_trusts(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, by_user: bool
) -> None:
    of_the_system = Authority() if by_user else authority
    monkeypatch.setenv("SSL_CERT_FILE", str(of_the_system.write_trust(tmp_path / "system.pem")))
    if by_user:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.write_trust(tmp_path / "mine.pem")))
    jars = ensure_wanted_jars(_WANTED, tmp_path / "jars", fetcher="jgo")
    assert [jar.name for jar in jars] == ["thing-1.jar"]


def test_an_unknown_authority_is_named_with_its_remedy_and_without_a_traceback(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority().write_trust(tmp_path / "system.pem")))
    with pytest.raises(JarsMissingError, match="REQUESTS_CA_BUNDLE") as raised:
        ensure_wanted_jars(_WANTED, tmp_path / "jars", fetcher="jgo")
    assert "Traceback" not in str(raised.value)
    assert "update-ca-certificates" in str(raised.value)


# -- Java ----------------------------------------------------------------------------------------------------


def _java(home: Path, version: str) -> Path:
    """A program that prints that version of Java."""
    (home / "bin").mkdir(parents=True)
    return Programs(home / "bin").make("java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


def test_java_home_comes_before_the_path_and_the_systems_folders(tmp_path: Path) -> None:
    home = _java(tmp_path / "home", "21.0.1")
    on_path = _java(tmp_path / "path", "17.0.2")
    of_the_system = _java(tmp_path / "root/usr/lib/jvm/java-17-openjdk", "17.0.2")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert list(candidates(environ, tmp_path / "root")) == [home, on_path, of_the_system]
    assert find_java(environ, tmp_path / "root").path == home


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    _java(tmp_path / "home", "1.8.0_402")
    new = _java(tmp_path / "path", "17.0.2")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(new.parent)}
    assert find_java(environ, tmp_path).path == new


def test_the_major_version_is_read_from_what_it_says_and_is_none_of_what_does_not_run(tmp_path: Path) -> None:
    majors = {"1.8.0_402": 8, "11.0.22": 11, "17.0.15": 17, "25-ea": 25, "25": 25}
    assert {said: version_of(_java(tmp_path / said, said)) for said in majors} == majors
    broken = tmp_path / "java"
    broken.write_text("no program", encoding="utf-8")
    broken.chmod(0o755)
    assert version_of(broken) is None
    assert version_of(tmp_path / "nowhere") is None


def test_without_a_fitting_java_the_error_names_what_was_seen_and_what_to_install(tmp_path: Path) -> None:
    old = _java(tmp_path / "home", "11.0.22")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=debian\nVERSION_ID=12\n", encoding="utf-8")
    with pytest.raises(JavaMissingError) as caught:
        find_java({"JAVA_HOME": str(tmp_path / "home")}, tmp_path)
    assert "Java 17 or newer" in str(caught.value)
    assert f"{old} (version 11)" in str(caught.value)
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value)


def test_the_command_is_the_systems_own(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for os_release, command in (
        ('ID=ubuntu\nID_LIKE="debian"\n', "apt-get install"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install"),
        ("ID=alpine\n", "apk add"),
        ("ID=arch\n", "pacman -S"),
    ):
        (tmp_path / "etc/os-release").write_text(os_release, encoding="utf-8")
        assert command in what_to_install(tmp_path)


# -- tests that are left out, by name and count, and only where nothing may be installed ---------------------

_TESTS: Final = """
import pytest
from pipeline.java import JavaMissingError
from tests.support import missing_programs

@pytest.fixture(scope="session")
def kafka():
    raise JavaMissingError("Kafka needs Java. Install one with: sudo apt-get install java.")

@pytest.mark.parametrize("number", range(3))
def test_with_brokers(kafka, number): ...

def test_without_brokers(): ...

def test_that_fails():
    raise ValueError("a bug")
"""


_RUN: Final = """
import os, sys, pytest
from pathlib import Path

for user_id in (1000, 0):
    os.geteuid = lambda: user_id
    print("as user", user_id, flush=True)
    pytest.main(["-p", "no:cacheprovider", "-rN", sys.argv[1]])
"""


def test_a_normal_users_run_counts_what_it_left_out_and_for_root_a_missing_program_is_an_error(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_it.py").write_text(_TESTS)
    hooks = "from tests.conftest import pytest_runtest_makereport, pytest_terminal_summary\n"
    (tmp_path / "conftest.py").write_text(hooks)
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
    environment |= {"PYTHONPATH": str(_ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = (sys.executable, "-c", _RUN, str(tmp_path))
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    of_a_user, of_root = ran.stdout.removeprefix("as user 1000\n").split("as user 0\n")
    assert (
        "3 tests were NOT RUN: Kafka needs Java. Install one with: sudo apt-get install java.\n"
        "3 tests were NOT RUN in all. A commit must pass them too.\n" in of_a_user
    )
    assert "1 failed, 1 passed, 3 skipped" in of_a_user
    assert "NOT RUN" not in of_root
    assert "1 failed, 1 passed, 3 errors" in of_root


def test_who_may_leave_tests_out_and_that_other_skips_are_not_counted() -> None:
    assert may_be_left_out(1000, {})
    assert not may_be_left_out(0, {})
    assert not may_be_left_out(1000, {"CI": "true"})
    reasons = ("Skipped: no IPv6", "NOT RUN: no Java", "Skipped: NOT RUN: no npm", "NOT RUN: no Java")
    assert summary(reasons) == [
        "2 tests were NOT RUN: no Java",
        "1 test was skipped: no IPv6",
        "1 test was NOT RUN: no npm",
        "3 tests were NOT RUN in all. A commit must pass them too.",
    ]


def test_what_pytest_has_imported_is_compiled_until_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "test_something.py"
    file.write_text("def test_it():\n    assert 1\n")
    assert not_compiled(tmp_path) == [file]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", str(file)]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    assert not_compiled(tmp_path) == []
    later_s = file.stat().st_mtime + 10
    os.utime(file, (later_s, later_s))
    assert not_compiled(tmp_path) == [file]
