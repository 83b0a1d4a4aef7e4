"""The version of an installed package, of a checkout, and of neither."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from service.base.version import pilotfish_version, version_of_the_checkout


def test_the_installed_version_is_the_checkouts() -> None:
    assert pilotfish_version() == metadata.version("pilotfish")
    assert version_of_the_checkout(Path(__file__).parents[3]) == metadata.version("pilotfish")


@pytest.mark.parametrize(
    ("project", "version"),
    [
        ('[project]\nname = "pilotfish"\nversion = "1.2.3"\n', "1.2.3"),
        ('[project]\nname = "another"\nversion = "1.2.3"\n', "unknown"),
        ("[project", "unknown"),
        ("", "unknown"),
        (None, "unknown"),
    ],
)
def test_the_version_of_a_checkout(tmp_path: Path, project: str | None, version: str) -> None:
    if project is not None:
        (tmp_path / "pyproject.toml").write_text(project)
    assert version_of_the_checkout(tmp_path) == version
