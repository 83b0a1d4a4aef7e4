"""Runs every benchmark, each in a process of its own: memory and imports of one don't bend the next."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

ALL: Final = (
    "metadata_refresh",
    "encoding",
    "lookups",
    "waiting",
    "produce_library",
    "produce_http",
    "footprint",
    "growth",
    "failover",
)


def ran(name: str) -> bool:
    """Runs one, says how long it took, and returns whether it came to its end."""
    print(f"\n== {name}", flush=True)
    begun_s = time.monotonic()
    outcome = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"])
    print(f"   {name}: {time.monotonic() - begun_s:.0f} s", flush=True)
    return outcome.returncode == 0


def main() -> int:
    failed = [name for name in ALL if not ran(name)]
    if failed:
        print(f"did not run to their end: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
