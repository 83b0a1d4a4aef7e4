"""What is wrong with a call or with a manifest: one sentence each, with its place and the remedy.

InjectError                  exit code 1
  ManifestError              a manifest can't be read, or must not get the sidecar
  EditError                  the manifest is written in a way that can't be edited in place
AskedError                   exit code 2: an option can't be used
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the input something is. `line` counts from 1, `document` too; None: the file as a whole."""

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
    """Nothing was written; a line for each fault on standard error. Exit code 1."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))


class ManifestError(InjectError):
    """Manifests that can't be read, or that the sidecar can't go into."""


class EditError(Exception):
    """A text that can't be edited in place: the line, counted from 0, why, and the document where known."""

    def __init__(self, line: int, why: str, document: int | None = None) -> None:
        super().__init__(why)
        self.line = line
        self.why = why
        self.document = document


class AskedError(click.UsageError):
    """Options that can't be used, a line for each. Exit code 2."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
