"""What was not fsynced is gone after a power cut: contents and names, in a process that was killed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support import power_cut

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = """
import os, pathlib, runpy, sys
folder, shadow = map(pathlib.Path, sys.argv[1:3])
runpy.run_path(sys.argv[3])["_keep_what_is_fsynced"](shadow)
def write(name, *parts):
    with open(folder / name, "wb") as file:
        for data, is_synced in parts:
            file.write(data)
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
write("half", (b"kept", True), (b"lost", False))
write("void", (b"lost", False))
opened = os.open(folder, os.O_RDONLY)
os.fsync(opened)
write("nameless", (b"kept in vain", True))
os.kill(os.getpid(), 9)
"""


def test_a_power_cut_leaves_what_was_fsynced(tmp_path: Path) -> None:
    folder, shadow = tmp_path / "spool", tmp_path / "shadow"
    folder.mkdir()
    shadow.mkdir()
    command = [sys.executable, "-c", _PROGRAM, str(folder), str(shadow), power_cut.__file__]
    assert subprocess.run(command, check=False).returncode == -9
    assert len(list(folder.iterdir())) == 3
    power_cut.restore(folder, shadow)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"half": b"kept", "void": b""}
