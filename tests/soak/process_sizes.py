"""The sizes of a process by the system: memory, descriptors, threads. Linux only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

_FIELD: Final = re.compile(r"^(\w+):\s+(\d+) kB$", re.MULTILINE)


class ProcessSizes(NamedTuple):
    """RSS with what is shared with others, USS without; open descriptors; threads.

    `anonymous_bytes` is the memory that the process has allocated. USS also counts pages of libraries, which
    depend on the other processes that have them loaded at the moment.
    """

    rss_bytes: int
    uss_bytes: int
    anonymous_bytes: int
    descriptors: int
    threads: int


def sizes_of(pid: int) -> ProcessSizes:
    """The sizes of a process of ours, now. FileNotFoundError when it is gone."""
    of_process = Path("/proc") / str(pid)
    kilobytes = {name: int(n) for name, n in _FIELD.findall((of_process / "smaps_rollup").read_text())}
    return ProcessSizes(
        rss_bytes=kilobytes["Rss"] * 1024,
        uss_bytes=(kilobytes["Private_Clean"] + kilobytes["Private_Dirty"]) * 1024,
        anonymous_bytes=kilobytes["Anonymous"] * 1024,
        descriptors=len(list((of_process / "fd").iterdir())),
        threads=len(list((of_process / "task").iterdir())),
    )
