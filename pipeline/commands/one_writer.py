"""One job at a time writes into a folder: a second one, of cron or of a colleague, is told so.

    <out>/_lock   held, as the system holds locks, by the process that writes: it is free when that is gone

Folders on this machine only; of a URI nobody here knows who else writes there.
"""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK: Final = "_lock"


class AlreadyWritingError(PipelineError):
    """Another job has the folder, or nobody can make it."""


@contextmanager
def one_writer(out: str) -> Iterator[None]:
    """Keeps the folder for this process; makes it first. Raises AlreadyWritingError."""
    if "://" in out:
        yield
        return
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
        lock = (Path(out) / _LOCK).open("a")
    except OSError as e:
        raise AlreadyWritingError(f"--out {out} can't be written: {e.strerror or e}.") from e
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise AlreadyWritingError(
                f"Another run is writing into {out}: let it end, or give another --out."
            ) from e
        yield
