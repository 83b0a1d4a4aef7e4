"""The wall clock of another Python process, as a test sets it while the process runs.

    clock = SteeredClock(folder)
    Sidecar(..., environment=clock.environment())
    clock.set(-3_600)          # an hour behind, from the next moment on
    clock.set(0)               # the true time again

The process finds `sitecustomize.py` of this folder first on its path. `time.time` and `time.time_ns` then add
the difference in a file, which is mapped into memory: a look at the clock costs no system call. Monotonic
clocks and the times of files stay true, as they do when a real clock is set. Where C code asks the system
(datetime.now, the validity of certificates), the time is true, too; the product has no
datetime.now. Any thread.

libfaketime does not work: its waits by a monotonic clock fail with EINVAL in threads of CPython 3.11.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent
#: The variable with the path of the file.
DIFFERENCE_VARIABLE: Final = "STEERED_CLOCK_DIFFERENCE"


class SteeredClock:
    """The difference of a process's wall clock to the true one: none at first."""

    def __init__(self, folder: Path) -> None:
        """The folder is for the file with the difference, in nanoseconds."""
        self._path = folder / "clock-difference"
        self._path.write_bytes(bytes(8))

    def environment(self) -> dict[str, str]:
        """What a process must be started with; its children have the same clock."""
        path = os.pathsep.join(filter(None, (str(_HERE), os.environ.get("PYTHONPATH"))))
        return {"PYTHONPATH": path, DIFFERENCE_VARIABLE: str(self._path)}

    def set(self, difference_s: float) -> None:
        """From now on the clock is so many seconds ahead of the true time, or behind it."""
        with self._path.open("r+b") as file:
            file.write(round(difference_s * 1e9).to_bytes(8, "little", signed=True))
