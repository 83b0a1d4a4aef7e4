"""`python -m tests.lives`: the tests of this folder on each Python of the machine, for `make lives`.

A Python is looked for on PATH and among pyenv's. It gets an environment with the pins of requirements/run.txt
in .cache/pythons. The tests run in the present environment, the lives run in that one. Missing Pythons are
named at the end. The exit status is 1 if a test failed, or if there was no other Python.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_FOLDER: Final = _ROOT / ".cache" / "pythons"

#: What pyproject.toml allows, and what there is of it.
_VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")


def _found(version: str) -> Path | None:
    of_path = shutil.which(f"python{version}")
    of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for program in (*of_pyenv[-1:], *([Path(of_path)] if of_path else [])):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        if said.startswith(f"Python {version}."):
            return program
    return None


def _environment(version: str, program: Path) -> Path:
    """A Python with what client_core needs."""
    folder = _FOLDER / version
    python = folder / "bin" / "python"
    uv = Path(sys.executable).with_name("uv")
    pins = _ROOT / "requirements" / "run.txt"
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", program, folder], check=True)
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", pins], check=True
    )
    return python


def main() -> int:
    outcomes: dict[str, str] = {}
    for version in _VERSIONS:
        program = _found(version)
        if program is None:
            outcomes[version] = "NOT RUN: there is no such Python on PATH or in ~/.pyenv/versions"
            continue
        python = _environment(version, program)
        print(f"Python {version}: {program}", flush=True)
        tests = [
            sys.executable,
            "-m",
            "pytest",
            str(Path(__file__).parent),
            "--quiet",
            "--python",
            str(python),
        ]
        outcomes[version] = "failed" if subprocess.run(tests, cwd=_ROOT, check=False).returncode else "passed"
    for version, outcome in outcomes.items():
        print(f"Python {version}: {outcome}")
    ran = [outcome for outcome in outcomes.values() if not outcome.startswith("NOT RUN")]
    return 1 if "failed" in ran or len(ran) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
