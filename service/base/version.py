"""Which build this is. Read from the installed package, so that it is said in one place."""

from __future__ import annotations

from importlib import metadata


def pilotfish_version() -> str:
    """The package's version; "unknown" where it runs from a folder and was never installed."""
    try:
        return metadata.version("pilotfish")
    except metadata.PackageNotFoundError:
        return "unknown"
