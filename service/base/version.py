"""The version of this build: of the installed package, or of the checkout that it runs from."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path
from typing import Final

_NAME: Final = "pilotfish"
_CHECKOUT: Final = Path(__file__).parents[2]


def pilotfish_version() -> str:
    """Returns the version; "unknown" if the code was copied without its pyproject.toml."""
    try:
        return metadata.version(_NAME)
    except metadata.PackageNotFoundError:
        return version_of_the_checkout(_CHECKOUT)


def version_of_the_checkout(checkout: Path) -> str:
    """Returns the version in a folder's pyproject.toml.

    "unknown" if the folder has no pyproject.toml of this project.
    """
    try:
        project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        if project["name"] == _NAME:
            return str(project["version"])
    except (OSError, ValueError, LookupError):
        pass
    return "unknown"
