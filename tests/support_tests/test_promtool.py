"""Where promtool is found, and what is said where it can't be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.promtool import PromtoolMissingError, find_promtool

if TYPE_CHECKING:
    from pathlib import Path


def test_the_one_on_the_path_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "promtool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_promtool(tmp_path / "tools") == program


def test_an_unpacked_one_is_taken_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "prometheus" / "usr" / "bin" / "promtool"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setenv("PATH", "")
    assert find_promtool(tmp_path) == program


def test_without_a_package_manager_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PromtoolMissingError, match="install Prometheus"):
        find_promtool(tmp_path)
