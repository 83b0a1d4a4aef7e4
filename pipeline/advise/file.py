"""A file that is there whole or as it was: a sidecar that starts meanwhile reads the one or the other."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pathlib import Path

#: Anyone may read it, within the umask: sidecars run under users of their own.
_MODE: Final = 0o666


class FileNotWrittenError(PipelineError):
    """The file can't be written; names it, and why. What was there is there still."""


def write_whole(path: Path, content: bytes) -> None:
    """Writes beside the file, to the disk, and takes its place. Raises FileNotWrittenError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        reason = error.strerror or str(error)
        raise FileNotWrittenError(
            f"--out {path} can't be written: {reason}. What was there is as it was."
        ) from error
