"""An import that runs upwards turns `make check` red, wherever in a module it is written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("client_core", "service", "pipeline")
LINT = Path(sys.executable).with_name("lint-imports")

#: A module near the bottom, an import of one above it, and how it is written.
UPWARDS = {
    "service": ("service/wire/errors.py", "from service.native import topics\n"),
    "client_core.producer": (
        "client_core/producer/results/ticket.py",
        "def _upwards() -> None:\n    from client_core.producer import kafka_producer\n",
    ),
    "pipeline": (
        "pipeline/errors.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pipeline import cli\n",
    ),
    "a package that has no place": ("service/newcomer/__init__.py", ""),
}


def test_an_import_that_runs_upwards_breaks_a_contract(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "page", "*.json")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert " 0 broken." in contracts(tmp_path)
    for case, (file, added) in UPWARDS.items():
        changed = tmp_path / file
        before = changed.read_text() if changed.exists() else None
        changed.parent.mkdir(exist_ok=True)
        changed.write_text((before or "") + "\n" + added)
        said = contracts(tmp_path)
        name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert " 0 broken." not in said, case
        assert name in said or name.rpartition(".")[2] in said, f"{case}: {said}"
        if before is None:
            shutil.rmtree(changed.parent)
        else:
            changed.write_text(before)


def contracts(tree: Path) -> str:
    """What `lint-imports` prints of the packages in a folder."""
    environment = {"PYTHONPATH": str(tree), "COLUMNS": "200"}
    ran = subprocess.run(
        [LINT, "--no-cache"], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    return ran.stdout + ran.stderr
