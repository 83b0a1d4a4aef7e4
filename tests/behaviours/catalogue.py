"""The behaviours that the client must have, and the cases of Kafka's own tests, as values. Pure."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One rule. Rank 1 must have a test; rank 2 may be left out with a reason."""

    id: str
    rank: int
    rule: str


@dataclass(frozen=True, slots=True)
class JavaTestClass:
    """One of Kafka's test classes: its methods (without "test"), applicable to this client or not."""

    name: str
    applicable: tuple[str, ...]
    optional: tuple[str, ...]
    not_applicable: tuple[str, ...]

    def cases(self) -> tuple[str, ...]:
        """Every method as `Class.Method`."""
        names = (*self.applicable, *self.optional, *self.not_applicable)
        return tuple(f"{self.name}.{name}" for name in names)


def behaviours() -> dict[str, Behaviour]:
    """By id, in the order of the catalogue."""
    rows = tomllib.loads((_HERE / "behaviours.toml").read_text())
    return {id_: Behaviour(id_, row["rank"], row["rule"]) for id_, row in rows.items()}


def java_test_classes() -> dict[str, JavaTestClass]:
    """By name, in the order of the catalogue."""
    rows = tomllib.loads((_HERE / "java_tests.toml").read_text())
    kinds = ("applicable", "optional", "not_applicable")
    return {
        name: JavaTestClass(name, *(tuple(row.get(kind, ())) for kind in kinds)) for name, row in rows.items()
    }
