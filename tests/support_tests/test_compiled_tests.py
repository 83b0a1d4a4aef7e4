"""pytest leaves compiled tests where `compiled_tests` looks for them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.compiled_tests import not_compiled

if TYPE_CHECKING:
    from pathlib import Path


def test_what_pytest_has_imported_is_compiled_until_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "test_something.py"
    file.write_text("def test_it():\n    assert 1\n")
    assert not_compiled(tmp_path) == [file]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", str(file)]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    assert not_compiled(tmp_path) == []
    later_s = file.stat().st_mtime + 10
    os.utime(file, (later_s, later_s))
    assert not_compiled(tmp_path) == [file]
