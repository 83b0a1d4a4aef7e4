"""A cgroup of its own with a limit of memory or CPU, and a program that runs a sidecar in it.

    with LimitedCgroup(memory_bytes=96 << 20) as group:
        Sidecar(folder, bootstrap_servers=…, program=group.program)

It is made below this process's own group, v1 or v2: that takes root and a writable /sys/fs/cgroup, else
`CgroupMissingError`. The sidecar joins it before its first import. One thread.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

_TOP: Final = Path("/sys/fs/cgroup")
#: Of a CPU limit: the kernel's own period.
_PERIOD_US: Final = 100_000
_RUN: Final = (
    "import os, sys\n"
    "[open(f, 'w').write(str(os.getpid())) for f in {files}]\n"
    "sys.path.insert(0, {root!r})\n"
    "from service.__main__ import main\n"
    "sys.argv[0] = 'pilotfish'\n"
    "main()\n"
)


class CgroupMissingError(RuntimeError):
    """No cgroup with a limit can be made here; the message says why."""


class LimitedCgroup:
    """One cgroup, or one per controller with v1. `cpus` is a part of one processor."""

    def __init__(self, *, memory_bytes: int | None = None, cpus: float | None = None) -> None:
        quota = None if cpus is None else int(cpus * _PERIOD_US)
        self._is_v2 = (_TOP / "cgroup.controllers").is_file()
        name = f"pilotfish-{os.getpid()}"
        if self._is_v2:
            wanted = {"memory.max": memory_bytes, "cpu.max": quota and f"{quota} {_PERIOD_US}"}
            self._files = {_TOP / name / file: value for file, value in wanted.items() if value is not None}
        else:
            self._files = {
                _TOP / file.partition(".")[0] / name / file: value
                for file, value in {"memory.limit_in_bytes": memory_bytes, "cpu.cfs_quota_us": quota}.items()
                if value is not None
            }
        self._folders = sorted({file.parent for file in self._files})

    def __enter__(self) -> LimitedCgroup:
        try:
            for folder in self._folders:
                folder.mkdir()
            for file, value in self._files.items():
                file.write_text(str(value))
        except OSError as error:
            self.__exit__()
            raise CgroupMissingError(
                f"no cgroup with a limit can be made here ({error}): run it as root, where {_TOP} is writable"
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        for folder in self._folders:
            if folder.is_dir():
                wait_until(lambda folder=folder: _removed(folder), what="an empty cgroup")  # type: ignore[misc]

    @property
    def program(self) -> Sequence[str]:
        """What Python runs: the sidecar, in this group."""
        files = [str(folder / "cgroup.procs") for folder in self._folders]
        return ("-c", _RUN.format(files=files, root=str(Path(__file__).parents[2])))

    @property
    def peak_bytes(self) -> int:
        """The most memory that the group has had."""
        name = "memory.peak" if self._is_v2 else "memory.max_usage_in_bytes"
        return next(int((folder / name).read_text()) for folder in self._folders if (folder / name).is_file())


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:  # the kernel has not reaped its last process yet
        return False
    return True
