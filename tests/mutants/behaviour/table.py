"""results.json: which suite and test found each mutant, and what that took; and the same as a table.

One entry for each mutant, by name. `digest` is of the mutated files: another text is played anew. The CPU is
of all processes of the suites up to the first test that failed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.mutants.behaviour.mutant import Mutant

RESULTS: Final = Path(__file__).parent / "results.json"


class Result(NamedTuple):
    """What became of a mutant. `suite` None: nothing found it."""

    digest: str
    suite: str | None
    test: str
    timed_out: bool
    cpu_s: float
    wall_s: float


def read_results() -> dict[str, Result]:
    """What was kept; nothing where there is no file."""
    if not RESULTS.exists():
        return {}
    kept: Mapping[str, Mapping[str, object]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return {name: Result(**values) for name, values in kept.items()}  # type: ignore[arg-type]  # as written


def keep_results(results: Mapping[str, Result]) -> None:
    """Writes results.json, in the order of names."""
    values = {name: results[name]._asdict() for name in sorted(results)}
    RESULTS.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def row(name: str, result: Result) -> str:
    """One line of the table."""
    suite = result.suite or "NOT FOUND"
    how = " (timeout)" if result.timed_out else ""
    return f"{name:38} {suite:9} {result.cpu_s:7.1f} {result.wall_s:7.1f}  {result.test}{how}"


def table(mutants: Sequence[Mutant], results: Mapping[str, Result]) -> Iterable[str]:
    """A head, a line for each mutant that was played, and a sum."""
    yield f"{'mutant':38} {'found by':9} {'CPU s':>7} {'wall s':>7}  first test"
    played = [(mutant.name, results[mutant.name]) for mutant in mutants if mutant.name in results]
    for name, result in played:
        yield row(name, result)
    found = [result for _, result in played if result.suite is not None]
    without_brokers = sum(result.suite in ("near", "room", "unit") for result in found)
    yield (
        f"{len(found)} of {len(mutants)} found, {without_brokers} of them without brokers, "
        f"{sum(result.timed_out for result in found)} by a timeout; "
        f"{sum(result.cpu_s for _, result in played):.0f} CPU s"
    )
