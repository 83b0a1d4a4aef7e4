"""The errors of a check of deployed files."""

from __future__ import annotations


class UnavailableError(Exception):
    """A tool that the check asks can't be had here. Says which, why, and what would help."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what
        self.remedy = remedy


class BrokenPromiseError(Exception):
    """Something that is deployed differs from what is documented. The text names the place."""
