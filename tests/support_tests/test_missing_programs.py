"""A test whose program is missing is left out by name and count, and only where nothing may be installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.missing_programs import may_be_left_out, summary

_ROOT: Final = Path(__file__).parents[2]

_TESTS: Final = """
import pytest
from pipeline.java import JavaMissingError
from tests.support import missing_programs

@pytest.fixture(scope="session")
def kafka():
    raise JavaMissingError("Kafka needs Java. Install one with: sudo apt-get install java.")

@pytest.mark.parametrize("number", range(3))
def test_with_brokers(kafka, number): ...

def test_without_brokers(): ...

def test_that_fails():
    raise ValueError("a bug")
"""


def _run(folder: Path, user_id: int) -> str:
    (folder / "test_it.py").write_text(_TESTS)
    (folder / "conftest.py").write_text(
        "import os\n"
        f"os.geteuid = lambda: {user_id}\n"
        "from tests.conftest import pytest_runtest_makereport, pytest_terminal_summary\n"
    )
    command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "-rN", folder)
    environment = {name: value for name, value in os.environ.items() if name not in {"CI", "PYTEST_ADDOPTS"}}
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**environment, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return ran.stdout


def test_a_normal_users_run_counts_what_it_left_out(tmp_path: Path) -> None:
    said = _run(tmp_path, 1000)
    assert (
        "3 tests were NOT RUN: Kafka needs Java. Install one with: sudo apt-get install java.\n"
        "3 tests were NOT RUN in all. A commit must pass them too.\n" in said
    )
    assert "1 failed, 1 passed, 3 skipped" in said


def test_for_root_a_missing_program_is_an_error(tmp_path: Path) -> None:
    said = _run(tmp_path, 0)
    assert "NOT RUN" not in said
    assert "1 failed, 1 passed, 3 errors" in said


@pytest.mark.parametrize(
    ("user_id", "environment", "may_be"), [(1000, {}, True), (0, {}, False), (1000, {"CI": "true"}, False)]
)
def test_who_may_leave_tests_out(user_id: int, environment: dict[str, str], may_be: bool) -> None:
    assert may_be_left_out(user_id, environment) is may_be


def test_other_skips_are_not_counted() -> None:
    assert summary(["Skipped: no IPv6", "NOT RUN: no Java", "NOT RUN: no npm", "NOT RUN: no Java"]) == [
        "2 tests were NOT RUN: no Java",
        "1 tests were NOT RUN: no npm",
        "3 tests were NOT RUN in all. A commit must pass them too.",
    ]
