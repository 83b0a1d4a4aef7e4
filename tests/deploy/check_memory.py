"""The sidecar stays within the memory that the charts give it, at rest and in the worst case.

The charts request the memory that it takes with 10,000 known partitions. Their limit is above what it takes
when brokers answer nothing and callers go on until the sidecar refuses them (tests/deploy/memory_use.py).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.deploy.chart_tools import pod_of, render, sidecar_of
from tests.deploy.memory_use import measure
from tests.deploy.outcome import BrokenPromiseError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

#: The volume of /tmp is memory that counts against the limit, too.
_TMP_MIB: Final = 16


def check(say: Callable[[str], None]) -> None:
    if not Path("/proc/self/status").is_file():
        raise UnavailableError("there is no /proc to read memory from", "run this on Linux")
    resources = sidecar_of(pod_of(render("pilotfish", "native")))["resources"]
    request_mib, limit_mib = (
        int(resources[it]["memory"].removesuffix("Mi")) for it in ("requests", "limits")
    )
    with tempfile.TemporaryDirectory(prefix="pilotfish-check-memory-") as folder:
        seen = measure(Path(folder))
    for memory in seen:
        say(f"{memory.moment}: {memory.now_mib:.0f} MiB, {memory.peak_mib:.0f} at most until then")
    *at_work, jammed = seen
    if max(memory.peak_mib for memory in at_work) > request_mib:
        raise BrokenPromiseError(f"at work it takes more than the {request_mib} MiB that the charts ask for")
    if jammed.peak_mib + _TMP_MIB > limit_mib:
        raise BrokenPromiseError(f"in a jam it comes too near the limit of {limit_mib} MiB")
