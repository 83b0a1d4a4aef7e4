"""A Dockerfile's instructions as they are written: enough to check its promises, not a builder.

Lines that end with a backslash go on; comments are left out, between such lines too. Variables stay as they
are written. A stage begins with its FROM.
"""

from __future__ import annotations

import json
from typing import NamedTuple


class Instruction(NamedTuple):
    """One instruction: its name in capitals, and all that is behind it in one line."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """The exec form's words. ValueError where the instruction is written in shell form."""
        words = json.loads(self.rest[self.rest.index("[") :])
        if not all(isinstance(word, str) for word in words):
            raise ValueError(f"{self.name} {self.rest} is no list of words")
        return list(words)


class Dockerfile(NamedTuple):
    """The instructions before the first FROM, and those of each stage."""

    before: list[Instruction]
    stages: list[list[Instruction]]

    def all(self, name: str, stage: int = -1) -> list[Instruction]:
        """Those of a name in a stage; by default in the last one, which becomes the image."""
        return [found for found in self.stages[stage] if found.name == name]

    def one(self, name: str, stage: int = -1) -> Instruction:
        """The only one of a name in a stage. ValueError where there are more, or none."""
        (found,) = self.all(name, stage)
        return found


def read(text: str) -> Dockerfile:
    """The instructions of a Dockerfile."""
    before: list[Instruction] = []
    stages: list[list[Instruction]] = []
    for line in _whole_lines(text):
        name, _, rest = line.partition(" ")
        if name.upper() == "FROM":
            stages.append([])
        (stages[-1] if stages else before).append(Instruction(name.upper(), rest.strip()))
    return Dockerfile(before, stages)


def _whole_lines(text: str) -> list[str]:
    lines: list[str] = []
    begun = ""
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        begun = f"{begun} {stripped}" if begun else stripped
        if begun.endswith("\\"):
            begun = begun[:-1].rstrip()
            continue
        lines.append(begun)
        begun = ""
    return lines
