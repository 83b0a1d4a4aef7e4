"""Tests that need a program which this machine lacks: left out for a normal user, and counted at the end.

Root gets the programs from apt, so for root a program that is missing fails its tests. The same holds where
the variable CI is set. For everyone else such a test is reported as skipped, and the end of the run lists how
many tests each missing program cost, with the command that installs it.

tests/conftest.py uses the hooks.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

from pipeline.jars.connector_jars import JarsMissingError
from pipeline.java import JavaMissingError
from tests.clients.generators import GeneratorMissingError
from tests.support.chromium import ChromiumMissingError
from tests.support.debian_packages import PackagesMissingError
from tests.support.limited_cgroup import CgroupMissingError
from tests.support.npm_packages import NodeMissingError
from tests.support.promtool import PromtoolMissingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Each message says what to install.
MISSING: Final = (
    *(JavaMissingError, JarsMissingError, ChromiumMissingError, NodeMissingError),
    *(PackagesMissingError, PromtoolMissingError, GeneratorMissingError, CgroupMissingError),
)
_NOT_RUN: Final = "NOT RUN: "


def may_be_left_out(user_id: int, environment: Mapping[str, str]) -> bool:
    """Whether a missing program leaves its tests out, where it would fail them otherwise."""
    return user_id != 0 and not environment.get("CI")


def left_out(report: pytest.TestReport, error: BaseException | None, line: int) -> pytest.TestReport:
    """The report of a test: skipped where the error is a missing program, else as it is."""
    if isinstance(error, MISSING):
        report.outcome = "skipped"
        reason = " ".join(str(error).split())
        report.longrepr = (report.nodeid.partition("::")[0], line, _NOT_RUN + reason)
    return report


def summary(reasons: Iterable[str]) -> list[str]:
    """Lines for the end of a run: how many tests were left out, by reason. None where all were run."""
    counts = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    lines = [
        f"{_tests(count)} {reason if reason.startswith(_NOT_RUN) else f'skipped: {reason}'}"
        for reason, count in counts.most_common()
    ]
    missing = sum(count for reason, count in counts.items() if reason.startswith(_NOT_RUN))
    if missing:
        lines.append(f"{_tests(missing)} NOT RUN in all. A commit must pass them too.")
    return lines


def _tests(count: int) -> str:
    return f"{count} test was" if count == 1 else f"{count} tests were"


def leave_out(reason: str) -> NoReturn:
    """Skips a test whose program nobody need have, and counts it as one that was not run."""
    pytest.skip(_NOT_RUN + reason)


def of_this_process() -> bool:
    """may_be_left_out() for this user and environment. A system without user ids has no apt either."""
    user_id = os.geteuid() if hasattr(os, "geteuid") else 1
    return may_be_left_out(user_id, os.environ)
