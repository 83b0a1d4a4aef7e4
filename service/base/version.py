"""Which build this is: the installed package's version, or that of the checkout that it runs from."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path
from typing import Final

_NAME: Final = "pilotfish"
_CHECKOUT: Final = Path(__file__).parents[2]


def pilotfish_version(checkout: Path = _CHECKOUT) -> str:
    """The version; "unknown" where the code was copied without its pyproject.toml."""
    try:
        return metadata.version(_NAME)
    except metadata.PackageNotFoundError:
        return version_of_the_checkout(checkout)


def version_of_the_checkout(checkout: Path) -> str:
    """The version in a folder's pyproject.toml; "unknown" where there is none, or it is another project's."""
    try:
        project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        if project["name"] == _NAME:
            return str(project["version"])
    except (OSError, ValueError, LookupError):
        pass
    return "unknown"
