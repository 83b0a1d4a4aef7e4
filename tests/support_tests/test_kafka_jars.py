"""The folder of jars appears whole or not at all, and once. Maven is a shell script: nothing goes out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.jars.connector_jars import JarsMissingError
from tests.support.kafka_jars import WANTED, ensure_jars

if TYPE_CHECKING:
    from pathlib import Path

_NAMES = sorted(WANTED.file_names)


class FakeMaven:
    """An `mvn` on PATH that copies files as told, and writes down each call."""

    def __init__(self, folder: Path) -> None:
        self._program = folder / "mvn"
        self._calls = folder / "calls"
        self.copies(*_NAMES)

    def copies(self, *names: str) -> None:
        self._does("; ".join(f'echo {name} > "$out/{name}"' for name in names))

    def fails(self, message: str) -> None:
        self._does(f"echo '{message}'; exit 1")

    def _does(self, what: str) -> None:
        self._program.write_text(
            f'#!/bin/sh\necho "$@" >> {self._calls}\n'
            'for a in "$@"; do case "$a" in -DoutputDirectory=*) out="${a#*=}";; -f) ;; esac; done\n'
            f"{what}\n",
            encoding="utf-8",
        )
        self._program.chmod(0o755)

    @property
    def calls(self) -> int:
        return len(self._calls.read_text(encoding="utf-8").splitlines()) if self._calls.exists() else 0


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMaven:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return FakeMaven(folder)


def test_the_second_call_fetches_nothing(tmp_path: Path, maven: FakeMaven) -> None:
    first = ensure_jars(tmp_path / "kafka", fetcher="mvn")
    second = ensure_jars(tmp_path / "kafka", fetcher="mvn")
    assert [jar.name for jar in first] == _NAMES
    assert first == second
    assert maven.calls == 1


@pytest.mark.parametrize("damage", ["truncated", "missing", "stampless version"])
def test_a_folder_that_is_not_what_its_stamp_says_is_replaced(
    tmp_path: Path, maven: FakeMaven, damage: str
) -> None:
    (jar, *_) = ensure_jars(tmp_path / "kafka", fetcher="mvn")
    whole = jar.read_text(encoding="utf-8")
    if damage == "truncated":
        jar.write_text("", encoding="utf-8")
    elif damage == "missing":
        jar.unlink()
    else:
        stamp = jar.parent / "jars.json"
        stamp.write_text(stamp.read_text(encoding="utf-8").replace("4.3.1", "4.2.0"), encoding="utf-8")
    (again, *_) = ensure_jars(tmp_path / "kafka", fetcher="mvn")
    assert again.read_text(encoding="utf-8") == whole
    assert maven.calls == 2


def test_a_failure_says_what_maven_said_and_leaves_nothing_behind(tmp_path: Path, maven: FakeMaven) -> None:
    maven.fails("Could not resolve dependencies")
    with pytest.raises(JarsMissingError, match=r"exit code 1\); it said: Could not resolve dependencies"):
        ensure_jars(tmp_path / "kafka", fetcher="mvn")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "kafka.lock"]


def test_what_lacks_the_broker_is_not_taken_for_it(tmp_path: Path, maven: FakeMaven) -> None:
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


def test_without_maven_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarsMissingError, match=r"Maven \(mvn\) is not installed"):
        ensure_jars(tmp_path / "kafka", fetcher="mvn")
