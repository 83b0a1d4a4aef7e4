"""Runs every benchmark in its own process: memory and imports of one do not affect others.

    python -m benchmarks             all, from the start
    python -m benchmarks --resume    those that did not complete in the last run, on the same machine

Results are collected in `.cache/bench`. They replace `results.json` when all benchmarks completed, so no
figures of a removed benchmark stay behind.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.measure import RESULTS, RESULTS_VARIABLE

ALL: Final = (
    "metadata_refresh",
    "encoding",
    "lookups",
    "waiting",
    "deadlines",
    "produce_library",
    "produce_http",
    "footprint",
    "growth",
    "failover",
)
_KEPT: Final = Path(__file__).resolve().parents[1] / ".cache" / "bench"
_RESULTS: Final = _KEPT / RESULTS.name
#: The names of those that completed, one a line.
_COMPLETED: Final = _KEPT / "completed"


def ran(name: str) -> bool:
    """Runs one benchmark, prints its duration, and returns whether it completed."""
    print(f"\n== {name}", flush=True)
    begun_s = time.monotonic()
    environment = {**os.environ, RESULTS_VARIABLE: str(_RESULTS)}
    outcome = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], env=environment)
    print(f"   {name}: {time.monotonic() - begun_s:.0f} s", flush=True)
    return outcome.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--resume", action="store_true", help="only those that did not complete")
    if not parser.parse_args().resume:
        shutil.rmtree(_KEPT, ignore_errors=True)
    _KEPT.mkdir(parents=True, exist_ok=True)
    _COMPLETED.touch()
    completed = _COMPLETED.read_text().split()
    for name in ALL:
        if name not in completed and ran(name):
            completed.append(name)
            _COMPLETED.write_text("\n".join(completed))
    failed = [name for name in ALL if name not in completed]
    if failed:
        names = ", ".join(failed)
        print(f"did not complete: {names}; {RESULTS} is unchanged. Try again with --resume", file=sys.stderr)
        return 1
    RESULTS.write_text(_RESULTS.read_text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
