"""A plugin of pytest that records which test ran which line: a coverage context for each test.

`tests.mutants.one_line_run` starts it as `coverage run -m pytest -p tests.mutants.one_line_recording`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import coverage

if TYPE_CHECKING:
    import pytest

DURATIONS_VARIABLE: Final = "TEST_DURATIONS"
_durations_s: Final[dict[str, float]] = {}
_failed: Final[set[str]] = set()


def pytest_runtest_logstart(nodeid: str) -> None:
    recording = coverage.Coverage.current()
    if recording is not None:
        recording.switch_context(nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _durations_s[report.nodeid] = _durations_s.get(report.nodeid, 0.0) + report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Leaves out tests that did not pass: they would find every mutant."""
    passed = {test: duration for test, duration in _durations_s.items() if test not in _failed}
    Path(os.environ[DURATIONS_VARIABLE]).write_text(json.dumps(passed), encoding="utf-8")
