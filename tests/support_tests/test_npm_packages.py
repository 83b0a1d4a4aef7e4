"""Packages of npm: kept by their lock, and what is said where they can't be had. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.npm_packages import NodeMissingError, find_node, install

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECTS = [path.parent for path in (Path(__file__).parents[1] / "kafka").glob("*/package.json")]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Puts a shell script of that name on an otherwise empty PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "client"
    folder.mkdir()
    (folder / "package.json").write_text("{}")
    (folder / "package-lock.json").write_text('{"lockfileVersion": 3}')
    (folder / "run.js").write_text("1")
    return folder


def test_node_is_found_on_the_path(program: Callable[[str, str], Path]) -> None:
    node = program("node", "echo v20.1.2")
    assert find_node() == node


@pytest.mark.parametrize("said", ["v16.20.2", "something else"])
def test_a_node_that_is_too_old_is_named(program: Callable[[str, str], Path], said: str) -> None:
    program("node", f"echo {said}")
    with pytest.raises(NodeMissingError, match=f"{said}, which is too old: install Node 18"):
        find_node()


def test_without_node_or_npm_it_says_what_to_install(
    program: Callable[[str, str], Path], project: Path, tmp_path: Path
) -> None:
    with pytest.raises(NodeMissingError, match="node is needed and not on PATH: install Node"):
        find_node()
    with pytest.raises(NodeMissingError, match="npm is needed and not on PATH: install Node"):
        install(project, tmp_path / "cache")


def test_packages_are_installed_once_and_scripts_are_always_the_newest(
    program: Callable[[str, str], Path], project: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    runs = tmp_path / "runs"
    program("npm", f'echo "$@" >> {runs}; /bin/mkdir node_modules')
    home = install(project, cache)
    lock = hashlib.sha256((project / "package-lock.json").read_bytes()).hexdigest()
    assert home.name == f"client-{lock[:16]}"
    (project / "run.js").write_text("2")
    assert install(project, cache) == home
    assert (home / "run.js").read_text() == "2"
    (ran,) = runs.read_text().splitlines()
    assert ran.startswith("ci --ignore-scripts ")


def test_another_lock_is_another_folder(
    program: Callable[[str, str], Path], project: Path, tmp_path: Path
) -> None:
    program("npm", "/bin/mkdir node_modules")
    first = install(project, tmp_path / "cache")
    (project / "package-lock.json").write_text('{"lockfileVersion": 2}')
    assert install(project, tmp_path / "cache") != first


def test_npm_is_asked_again_and_its_last_words_are_told(
    program: Callable[[str, str], Path], project: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    program("npm", f"echo once >> {runs}; echo no network >&2; exit 1")
    with pytest.raises(NodeMissingError, match="in 3 attempts: no network"):
        install(project, tmp_path / "cache")
    assert runs.read_text().count("once") == 3
    assert not list((tmp_path / "cache").glob("client-*"))


def test_an_attempt_that_succeeds_after_one_that_failed_is_enough(
    program: Callable[[str, str], Path], project: Path, tmp_path: Path
) -> None:
    program("npm", "[ -d half ] && { /bin/mkdir node_modules; exit 0; }; /bin/mkdir half; exit 1")
    assert (install(project, tmp_path / "cache") / "node_modules").is_dir()


@pytest.mark.parametrize("folder", PROJECTS, ids=lambda folder: folder.name)
def test_a_committed_lock_names_no_place_to_download_from(folder: Path) -> None:
    text = (folder / "package-lock.json").read_text()
    packages = json.loads(text)["packages"]
    assert all("resolved" not in package for package in packages.values())
    assert all("integrity" in package for name, package in packages.items() if name)
    assert not re.search(r"registry|\.tgz", text)


def test_there_is_a_committed_lock_to_look_at() -> None:
    assert PROJECTS
