"""A package is unpacked once, and its folder appears whole. apt-get and dpkg are shell scripts here."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.debian_packages import PackagesMissingError, unpack

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is PATH: apt-get notes each call and downloads an empty archive."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    script(
        folder / "apt-get", f'echo "$1" >> {folder}/calls; [ "$1" = download ] && touch "$2_1.deb"; exit 0'
    )
    return folder


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_package_that_is_being_unpacked_is_not_in_its_place_yet(programs: Path, tmp_path: Path) -> None:
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    script(
        programs / "dpkg",
        f'mkdir -p "$3"; echo half > "$3/tool"; echo > {begun}; read _ < {go_on}; echo all > "$3/tool"',
    )
    tools = tmp_path / "tools"
    with ThreadPoolExecutor(1) as other:
        root = other.submit(unpack, "thing", tools)
        begun.read_text()
        assert not (tools / "thing").exists()
        go_on.write_text("\n")
        assert (root.result() / "tool").read_text() == "all\n"


def test_two_who_want_a_package_at_once_download_it_once(programs: Path, tmp_path: Path) -> None:
    script(programs / "dpkg", 'mkdir -p "$3"; echo all > "$3/tool"')
    with ThreadPoolExecutor(2) as both:
        roots = list(both.map(unpack, ("thing", "thing"), (tmp_path / "tools",) * 2))
    assert roots == [tmp_path / "tools" / "thing"] * 2
    assert (programs / "calls").read_text().count("download") == 1


def test_a_failure_leaves_nothing_behind_that_looks_unpacked(programs: Path, tmp_path: Path) -> None:
    script(programs / "dpkg", 'mkdir -p "$3"; echo "no room" >&2; exit 1')
    with pytest.raises(PackagesMissingError, match="no room"):
        unpack("thing", tmp_path / "tools")
    assert not (tmp_path / "tools" / "thing").exists()
