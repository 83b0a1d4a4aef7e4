"""A wall clock that a test sets for one process while it runs; clocks that can't be set go on as they are.

    clock = ClockJumps(folder)
    Sidecar(..., environment=clock.environment())
    clock.set(-3_600)          # an hour behind, from the next second or so on
    clock.set(0)               # the true time again

By libfaketime, which is preloaded and reads the difference from a file once a second.
It is looked for where Debian installs it, else Debian's package is unpacked into .cache/tools. The monotonic
clock and the times of files stay true, as they do when a real clock is set. Linux with glibc. Any thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.debian_packages import TOOLS, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The one for programs with threads.
_LIBRARY: Final = "usr/lib/*/faketime/libfaketimeMT.so.1"


def find_libfaketime(tools: Path = TOOLS, root: Path = Path("/")) -> Path:
    """The library, from the system, or from Debian's package. Raises PackagesMissingError."""
    found = next(_found(root), None)
    return next(_found(unpack("libfaketime", tools))) if found is None else found


def _found(root: Path) -> Iterator[Path]:
    return root.glob(_LIBRARY)


class ClockJumps:
    """The difference of a process's wall clock to the true one: none at first."""

    def __init__(self, folder: Path, library: Path | None = None) -> None:
        """The folder is for the file with the difference."""
        self._library = find_libfaketime() if library is None else library
        self._path = folder / "clock-difference"
        self.set(0)

    def environment(self) -> dict[str, str]:
        """What a process must be started with; its children have the same clock."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._path),
            # To read the file at each look at a clock would take most of a sidecar's processor.
            "FAKETIME_CACHE_DURATION": "1",
            # The older and the newer name of it.
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set(self, difference_s: float) -> None:
        """Within two seconds the clock is so many seconds ahead of the true time, or behind it."""
        beside = self._path.with_suffix(".new")
        beside.write_text(f"{difference_s:+f}\n", encoding="ascii")
        os.replace(beside, self._path)
