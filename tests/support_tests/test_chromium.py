"""The finder of Chromium: takes what is on PATH, and says what to install where nothing can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.chromium import Chromium, ChromiumMissingError, find_chromium

if TYPE_CHECKING:
    from pathlib import Path


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_a_browser_and_a_driver_on_path_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "chromium", "chromedriver")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_chromium() == Chromium(tmp_path / "chromium", tmp_path / "chromedriver")


def test_without_apt_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "chromium")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ChromiumMissingError, match="apt-get install chromium chromium-driver"):
        find_chromium()
