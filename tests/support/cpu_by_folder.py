"""The CPU time of a run, by folder and by file: `pytest -p tests.support.cpu_by_folder`.

A wall time says little on a busy machine. This counts the CPU of the test process and of all processes below
it, those that still run included: brokers, sidecars, Spark. The CPU of such a shared process is charged to
the test that runs meanwhile. `--cpu-log FILE` gets a line of JSON for each test when it ends: its id and its
seconds.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_ATTRIBUTE: Final = "cpu_s"
_FILES_SHOWN: Final = 40


def cpu_s(pid: str = "self") -> float:
    """CPU seconds of a process, of its children that ended, and of all that run below it. Linux only."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    own = sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_S
    return own + sum(cpu_s(child) for some in children for child in some)


class CpuByFolder:
    """Notes the CPU time between two phases in the later one's report, and sums it where reports arrive."""

    def __init__(self, config: pytest.Config) -> None:
        # Reports arrive in the worker that made them, and in the process that they are for.
        is_worker = hasattr(config, "workerinput")
        self._log: Path | None = None if is_worker else config.getoption("--cpu-log")
        self._last_s = 0.0
        self._tests: defaultdict[str, float] = defaultdict(float)
        self._workers: list[tuple[float, float]] = []
        self._collected_s = 0.0

    def pytest_collection_finish(self) -> None:
        self._last_s = self._collected_s = cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now_s = cpu_s()
        setattr(report, _ATTRIBUTE, max(0.0, now_s - self._last_s))
        self._last_s = now_s
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid.partition("@")[0]
        self._tests[test] += getattr(report, _ATTRIBUTE, 0.0)
        if self._log is not None and report.when == "teardown":
            with self._log.open("a", encoding="utf-8") as log:
                log.write(json.dumps([test, round(self._tests[test], 3)]) + "\n")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_ATTRIBUTE] = [self._collected_s, cpu_s()]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if _ATTRIBUTE in getattr(node, "workeroutput", {}):
            self._workers.append(tuple(node.workeroutput[_ATTRIBUTE]))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        cases: Counter[str] = Counter()
        seconds: defaultdict[str, float] = defaultdict(float)
        for test, test_s in self._tests.items():
            file = test.partition("::")[0]
            for key in (file, str(Path(file).parent)):
                cases[key] += 1
                seconds[key] += test_s
        write = terminalreporter.write_line
        terminalreporter.section("CPU seconds")
        for folder in sorted(
            (key for key in cases if not key.endswith(".py")), key=lambda key: -seconds[key]
        ):
            write(f"{seconds[folder]:8.1f} s {cases[folder]:6} cases  {folder}/")
        write("")
        files = sorted((key for key in cases if key.endswith(".py")), key=lambda key: -seconds[key])
        for file in files[:_FILES_SHOWN]:
            write(f"{seconds[file]:8.1f} s {cases[file]:6} cases  {file}")
        write("")
        for collected_s, ended_s in self._workers:
            write(f"a worker: {collected_s:.1f} s until all was collected, {ended_s:.1f} s in all")
        write(
            f"{sum(self._tests.values()):.1f} s in {len(self._tests)} tests; all processes: {cpu_s():.1f} s"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-log", type=Path, metavar="FILE", help="appends the CPU seconds of each test")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(CpuByFolder(config))
