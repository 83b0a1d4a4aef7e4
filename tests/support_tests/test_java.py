"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.java import JavaMissingError, candidates, version_of, what_to_install
from tests.support.java import find_java

if TYPE_CHECKING:
    from pathlib import Path


def _java(home: Path, version: str) -> Path:
    """A program that says it is that Java."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return program


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


@pytest.mark.parametrize(
    ("said", "version"), [("1.8.0_402", 8), ("11.0.22", 11), ("17.0.15", 17), ("25-ea", 25), ("25", 25)]
)
def test_the_major_version_is_read_from_what_it_says(tmp_path: Path, said: str, version: int) -> None:
    assert version_of(_java(tmp_path, said)) == version


def test_what_does_not_run_has_no_version(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("os_release", "command"),
    [
        ('ID=ubuntu\nID_LIKE="debian"\n', "apt-get install"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install"),
        ("ID=alpine\n", "apk add"),
        ("ID=arch\n", "pacman -S"),
    ],
)
def test_the_command_is_the_systems_own(tmp_path: Path, os_release: str, command: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(os_release, encoding="utf-8")
    assert command in what_to_install(tmp_path)
