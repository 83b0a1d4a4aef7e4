"""Writes helm/pilotfish/files/dashboard.json.

python -m helm.dashboard            writes it
python -m helm.dashboard --check    exits 1 if the file is out of date

`make dashboard` runs the first, a test the second.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from helm.dashboard.board import text

FILE: Final = Path(__file__).parents[1] / "pilotfish" / "files" / "dashboard.json"


def main(arguments: list[str]) -> int:
    """Writes or checks; returns the exit code."""
    built = text()
    if "--check" not in arguments:
        FILE.write_text(built, encoding="utf-8")
        return 0
    if FILE.is_file() and FILE.read_text(encoding="utf-8") == built:
        return 0
    print(f"{FILE.relative_to(Path.cwd())} is out of date: run `make dashboard`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
