"""Runs every benchmark, each in a process of its own: memory and imports of one don't bend the next."""

from __future__ import annotations

import subprocess
import sys
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


def main() -> int:
    failed = [name for name in ALL if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode]
    if failed:
        print(f"did not run to their end: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
