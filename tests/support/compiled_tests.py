"""`python -m tests.support.compiled_tests`: has pytest compile the tests once, before all its workers do.

pytest rewrites the asserts of a test file when it first imports it, some 40 CPU seconds for all of them. In a
fresh checkout each worker of pytest-xdist would do that for itself, at the same time. Here each core gets a
part of the files, and the workers find the results in `__pycache__`. Files that have not changed since are
passed over. An error in a file is not reported here, but by the run of the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

_TESTS: Final = Path(__file__).parents[1]


def not_compiled(folder: Path) -> list[Path]:
    """The test files that have changed since pytest last compiled them, or never were."""
    return [file for file in sorted(folder.rglob("test_*.py")) if not _is_compiled(file)]


def _is_compiled(file: Path) -> bool:
    made = (file.parent / "__pycache__").glob(f"{file.stem}.{sys.implementation.cache_tag}-pytest-*.pyc")
    changed_s = file.stat().st_mtime
    return any(each.stat().st_mtime >= changed_s for each in made)


def main() -> None:
    """Compiles what is not, and waits for that."""
    files = [str(file) for file in not_compiled(_TESTS)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    count = os.cpu_count() or 1
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    parts = [files[first::count] for first in range(count)]
    running = [
        subprocess.Popen(
            [*command, *part], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for part in parts
        if part
    ]
    for each in running:
        each.wait()


if __name__ == "__main__":
    main()
