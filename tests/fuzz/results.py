"""What a run tried and found, as values and as the JSON that it leaves behind.

{"seed": 1, "python": "3.11.7", "parts": [{"name": ..., "inputs": ..., "read": ..., ...}, ...]}
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.fuzz.corpus import Finding

#: Of the last run that was kept.
RESULTS: Final = Path(__file__).parent / "results.json"


@dataclass(slots=True)
class Part:
    """One part of a run. `inputs` are counted in `unit`; `read` and `refused` are parts of them, where known.

    `notes` are other observations by their names.
    """

    name: str
    unit: str
    inputs: int = 0
    read: int | None = None
    refused: int | None = None
    faults: list[str] = field(default_factory=list)
    seconds: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    #: For the corpus, and not in the JSON.
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """All parts of a run, and what makes it again."""

    seed: int
    python: str
    parts: list[Part] = field(default_factory=list)

    @property
    def faults(self) -> int:
        return sum(len(part.faults) for part in self.parts)

    def write(self, path: Path = RESULTS) -> None:
        """Keeps it."""
        said = asdict(self)
        for part in said["parts"]:
            del part["findings"]
        path.write_text(json.dumps(said, indent=1) + "\n")

    @staticmethod
    def read(path: Path = RESULTS) -> Run:
        """The run that was kept."""
        said = json.loads(path.read_text())
        return Run(said["seed"], said["python"], [Part(**part) for part in said["parts"]])
