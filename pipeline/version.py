"""Which build made the tables. Read from the installed package, as the sidecar does for itself."""

from __future__ import annotations

from importlib import metadata


def pilotfish_version() -> str:
    """The package's version; "unknown" where it was shipped to a cluster as files."""
    try:
        return metadata.version("pilotfish")
    except metadata.PackageNotFoundError:
        return "unknown"
