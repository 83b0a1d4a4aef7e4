"""Runs every benchmark in its own process: memory and imports of one do not affect others.

The results are collected in a file beside `results.json`, which replaces it when all benchmarks completed. So
no figures of a removed benchmark stay behind.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
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


def ran(name: str, results: Path) -> bool:
    """Runs one benchmark, prints its duration, and returns whether it completed."""
    print(f"\n== {name}", flush=True)
    begun_s = time.monotonic()
    environment = {**os.environ, RESULTS_VARIABLE: str(results)}
    outcome = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], env=environment)
    print(f"   {name}: {time.monotonic() - begun_s:.0f} s", flush=True)
    return outcome.returncode == 0


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / RESULTS.name
        failed = [name for name in ALL if not ran(name, results)]
        if failed:
            print(f"did not run to their end: {', '.join(failed)}; {RESULTS} is as it was", file=sys.stderr)
            return 1
        RESULTS.write_text(results.read_text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
