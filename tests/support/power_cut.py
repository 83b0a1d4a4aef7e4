"""A sidecar whose power can be cut: fsynced data is copied, and replaces its files after the cut.

    python power_cut.py SHADOW serve ...        as `python -m service serve ...`
    restore(folder, shadow)                     after a SIGKILL: what a disk would have kept at least

SIGKILL alone keeps the page cache, so it does not show a missing fsync. A file has the bytes of its last
fsync, a folder the names of its last. `crash_disk.py` does the same for a spool within one process.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from hashlib import sha256
from pathlib import Path
from typing import Protocol


class SupportsFileno(Protocol):
    def fileno(self) -> int: ...


def restore(folder: Path, shadow: Path) -> None:
    """Leaves in the folder, and in those below it, what was fsynced."""
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        kept = shadow / _name_of(place)
        names = json.loads(kept.read_text()) if kept.exists() else {}
        for path in place.iterdir():
            if path.is_file() and path.name != "lock":
                path.unlink()
        for name, inode in names.items():
            contents = shadow / str(inode)
            (place / name).write_bytes(contents.read_bytes() if contents.exists() else b"")


def _name_of(folder: Path) -> str:
    return sha256(str(folder.resolve()).encode()).hexdigest()


def _keep_what_is_fsynced(shadow: Path) -> None:
    """From now on, of this process. The real fsync is left out: no power is cut but this one."""
    held: dict[int, int] = {}

    def fsync(fd: int | SupportsFileno) -> None:
        descriptor = fd if isinstance(fd, int) else fd.fileno()
        status = os.fstat(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if stat.S_ISDIR(status.st_mode):
            names = {each.name: each.stat().st_ino for each in path.iterdir() if each.is_file()}
            names.pop("lock", None)
            kept, data = shadow / _name_of(path), json.dumps(names).encode()
        else:
            if status.st_ino not in held:  # so that no other file gets its inode
                held[status.st_ino] = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
            kept, data = shadow / str(status.st_ino), Path(f"/proc/self/fd/{descriptor}").read_bytes()
        written = kept.with_suffix(f".{threading.get_ident()}")
        written.write_bytes(data)
        written.replace(kept)

    os.fsync = fsync


if __name__ == "__main__":
    from service.__main__ import main

    folder = Path(sys.argv.pop(1))
    folder.mkdir(exist_ok=True)
    _keep_what_is_fsynced(folder)
    main()
