"""Errors in a call or a manifest: one sentence each, with place and remedy.

InjectError                  exit code 1
  ManifestError              a manifest can't be read, or must not get the sidecar
EditError                    a manifest can't be edited in place; becomes a ManifestError
AskedError                   exit code 2: an option can't be used
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the input. `line` and `document` count from 1; None means the whole file."""

    file: str
    document: int | None = None
    what: str = ""
    line: int | None = None

    def __str__(self) -> str:
        parts = [self.file]
        if self.document is not None:
            parts.append(f"document {self.document}{f' ({self.what})' if self.what else ''}")
        if self.line is not None:
            parts.append(f"line {self.line}")
        return ", ".join(parts)


class InjectError(click.ClickException):
    """Nothing was written; standard error gets a line for each fault. Exit code 1."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))


class ManifestError(InjectError):
    """Manifests that can't be read, or can't get the sidecar."""


class EditError(Exception):
    """A text can't be edited in place: the line, counted from 0, the reason, and the document if known."""

    def __init__(self, line: int, why: str, document: int | None = None) -> None:
        super().__init__(why)
        self.line = line
        self.why = why
        self.document = document


class AskedError(click.UsageError):
    """Options that can't be used, a line for each. Exit code 2."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
