"""`python -m tests.soak --minutes 10 --seed 7`: the long form, for `make soak`.

Most of the time a sidecar process goes through rounds of faults (sidecar_soak.py). The rest is for days of a
producer in simulated time (simulated.py). The sizes after each round are judged (growth.py, allowances.py)
and written to results.json for docs/reliability.md. The exit status is 1 if anything grows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.soak.allowances import growing, judge_rounds, with_totals
from tests.soak.growth import FEWEST_ROUNDS
from tests.soak.report import RESULTS, soak_table
from tests.soak.sidecar_soak import SidecarSoak
from tests.soak.simulated import SimulatedSoak
from tests.support.hostile_runs import without_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.soak.growth import DeliveryOutcome

_ACTS: Final = 400
_SIMULATED_MINUTES: Final = 120
_SIMULATED_STEP_MS: Final = 10_000
#: The sidecar's share of the time.
_PART_OF_SIDECAR: Final = 0.6
#: The measures that the results keep for every round; of all others the outcome is enough.
_KEPT: Final = (
    *("anonymous_bytes", "python_blocks", "c_heap_used_bytes", "c_heap_bytes", "uss_bytes", "rss_bytes"),
    *("descriptors", "threads", "metric_series", "metrics_bytes", "all objects"),
    *("our objects", "our lengths"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs, prints and writes; 1 if anything grows."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=10.0, help="how long in all; %(default)s")
    parser.add_argument("--seed", type=int, default=None, help="any number; one by chance, which is printed")
    parser.add_argument(
        "--trace", action="store_true", help="show which lines allocate what is kept; slow, and no results"
    )
    chosen = parser.parse_args(arguments)
    seed = random.randrange(2**31) if chosen.seed is None else chosen.seed
    print(f"seed {seed}, {chosen.minutes:g} minutes", flush=True)
    seconds = chosen.minutes * 60
    with without_log():
        sidecar = _soak_sidecar(seed, seconds * _PART_OF_SIDECAR, trace=chosen.trace)
        simulated = _soak_simulated(seed, seconds * (1 - _PART_OF_SIDECAR))
    results = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "seed": seed,
        "minutes": chosen.minutes,
        "sidecar": sidecar,
        "simulated": simulated,
    }
    if not chosen.trace:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(soak_table())
    grown = [*sidecar["grows"], *simulated["grows"]]
    print(f"seed {seed}: {len(grown)} measures grow", *grown, sep="\n  ")
    return 1 if grown else 0


def _soak_sidecar(seed: int, seconds: float, *, trace: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, SidecarSoak(Path(folder), seed) as soak:

        def a_round() -> dict[str, float]:
            soak.round(_ACTS)
            return with_totals(soak.measure())

        if trace:
            soak.ask("trace")
        rounds = _rounds_for(seconds, "sidecar", a_round)
        if trace:
            print(*soak.ask("grown"), sep="\n")
        return _summary(rounds, soak.requests(), {"acts a round": _ACTS})


def _soak_simulated(seed: int, seconds: float) -> dict[str, Any]:
    soak = SimulatedSoak(seed, step_ms=_SIMULATED_STEP_MS)

    def a_round() -> dict[str, float]:
        soak.live(_SIMULATED_MINUTES)
        return with_totals(soak.measure())

    try:
        rounds = _rounds_for(seconds, "simulated", a_round)
        minutes = soak.simulated_ms // 60_000
        return _summary(rounds, soak.counts, {"simulated minutes": minutes})
    finally:
        soak.close()


def _rounds_for(seconds: float, what: str, a_round: Callable[[], dict[str, float]]) -> list[dict[str, float]]:
    """Rounds until the time is up, as many as can be judged at the least; a line for each tenth."""
    began_s = time.monotonic()
    rounds: list[dict[str, float]] = []
    printed_s = began_s
    while time.monotonic() - began_s < seconds or len(rounds) < FEWEST_ROUNDS:
        rounds.append(a_round())
        now_s = time.monotonic()
        if len(rounds) == 1 or now_s - printed_s >= seconds / 10:
            printed_s = now_s
            reported = {name: rounds[-1][name] for name in _KEPT if name in rounds[-1]}
            print(f"{now_s - began_s:6.0f} s  {what} round {len(rounds)}: {reported}", flush=True)
    return rounds


def _summary(
    rounds: Sequence[Mapping[str, float]], happened: Mapping[str, int], how: Mapping[str, int]
) -> dict[str, Any]:
    outcomes = judge_rounds(rounds)
    return {
        **how,
        "rounds": len(rounds),
        "happened": dict(sorted(happened.items())),
        "judged": len(outcomes),
        "measures": {outcome.name: _reported(outcome) for outcome in outcomes if outcome.name in _KEPT},
        "grows": [str(outcome) for outcome in growing(rounds)],
    }


def _reported(outcome: DeliveryOutcome) -> dict[str, float | bool]:
    return {name: value for name, value in outcome._asdict().items() if name != "name"}


if __name__ == "__main__":
    sys.exit(main())
