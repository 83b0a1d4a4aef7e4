"""Shared by all tests: the folder of golden data, and the settings of hypothesis.

`pytest --golden FOLDER` takes Java's vectors and traces from another folder of the same layout. If the folder
is missing, the run ends with its name. Only files of `tables/` and `captured/` may be missing; then their
tests are absent. See `tests/golden/data/README.md`.

`make test` leaves the tests with the mark `long` to `make test-long`: tests/tiers.toml.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hypothesis
import pytest

from tests.support import missing_programs, tiers
from tests.support.coroutine_tests import run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_GOLDEN: Final = Path(__file__).parent / "golden" / "data"
#: Marks of tests that share something slow to start; a test goes with the first that it has.
_LONG_GROUPS: Final = ("kafka_http", "kafka", "spark")
_LONGEST_ID: Final = 200
_OPTIONAL_FOLDERS: Final = ("tables", "captured")
#: What `make test` gives to -m.
_QUICK: Final = "not long"
_WHOLE_FILES: Final = frozenset(str(tiers.ROOT / file) for file in tiers.whole_files(tiers.rows()))

# Derandomised: a run must not depend on chance. No deadline: a busy machine is no bug.
hypothesis.settings.register_profile("pilotfish", deadline=None, derandomize=True, print_blob=True)
# Without shrinking, which takes minutes of a failure that is wanted: tests/mutants.
hypothesis.settings.register_profile(
    "unshrunk",
    deadline=None,
    derandomize=True,
    database=None,
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)
hypothesis.settings.load_profile(os.environ.get(tiers.HYPOTHESIS_VARIABLE, "pilotfish"))
# Other cases with each `--hypothesis-profile fresh --hypothesis-seed N`; tests/stress.py draws N.
hypothesis.settings.register_profile(
    "fresh", deadline=None, derandomize=False, database=None, print_blob=True
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden",
        type=Path,
        default=_GOLDEN,
        metavar="FOLDER",
        help="Java's vectors and traces; %(default)s",
    )
    parser.addoption("--python", metavar="PROGRAM", help="runs tests/lives on another Python; make lives")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "golden(pattern): over the golden files of that pattern; with an argument `case`, once per case",
    )
    folder = golden_folder(config)
    if not folder.is_dir():
        raise pytest.UsageError(f"--golden: no such folder: {folder}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files without a quick test: each process of `make test` would import them for nothing."""
    return (config.option.markexpr == _QUICK and str(collection_path) in _WHOLE_FILES) or None


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A short name for a long text: each worker sends the ids of all tests to the controller."""
    if isinstance(val, str | bytes) and len(val) > _LONGEST_ID:
        data = val.encode(errors="surrogatepass") if isinstance(val, str) else val
        return f"{argname}-of-{len(val)}-{zlib.crc32(data):08x}"
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("golden")
    if marker is not None and "case" in metafunc.fixturenames:
        cases = golden_cases(metafunc.config, *marker.args)
        metafunc.parametrize("case", [pytest.param(case, id=name) for name, case in cases])


@pytest.hookimpl(tryfirst=True)  # xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes the placeholders of empty optional folders; marks the tests that go together and the long ones.

    If several processes share the tests (`make test`), those of a file stay together. So do all that share
    something slow to start: real brokers, or a session of Spark.
    """
    long = tiers.long_tests(tiers.rows(), [item.nodeid for item in items])
    for item in items:
        if item.nodeid in long:
            item.add_marker(pytest.mark.long)
        item.add_marker(pytest.mark.xdist_group(_group_of(item)))
    absent = [item for item in items if _is_over_nothing(config, item)]
    if absent:
        config.hook.pytest_deselected(items=absent)
        items[:] = [item for item in items if not _is_over_nothing(config, item)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine to its end, which comes within the patience of `run`."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    names = inspect.signature(pyfuncitem.function).parameters
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leaves out a test whose program is missing, where nothing may be installed."""
    report = yield
    if call.excinfo is not None and missing_programs.of_this_process():
        return missing_programs.left_out(report, call.excinfo.value, item.location[1] or 0)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Counts the tests that were left out, with what to install."""
    skipped = terminalreporter.getreports("skipped")
    lines = missing_programs.summary(
        report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)
    )
    if lines:
        terminalreporter.section("not run")
        for line in lines:
            terminalreporter.write_line(line)


def _group_of(item: pytest.Item) -> str:
    """With whom a test shares a process."""
    for group in _LONG_GROUPS:
        if item.get_closest_marker(group) is not None:
            return group
    return item.path.name


@pytest.hookimpl(tryfirst=True)  # xdist hands out tests in this order
def pytest_collection_finish(session: pytest.Session) -> None:
    """Ends the run where groups are overlooked: each process would start brokers and a Spark of its own.

    The long groups begin first, or one process would be left alone with them at the end. They wait most of
    the time, while others use the cores. All other tests keep the order that chance gave them.

    The garbage collector is kept from the collected items: some 800,000 objects that live until the end. A
    walk over them takes a third of a second, for every collection of a test that counts objects. By itself it
    collects seldom: at its usual thresholds it takes a tenth of the CPU of all tests.
    """
    first = {group: place for place, group in enumerate(_LONG_GROUPS)}
    session.items.sort(key=lambda item: first.get(_group_of(item), len(first)))
    is_grouped = getattr(session.config.option, "loadgroup", False)
    if is_grouped and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist and this pytest don't keep groups of tests together")
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_unconfigure() -> None:
    """Gives the collected items back to the garbage collector, or extensions complain about leaks."""
    gc.unfreeze()


def _is_over_nothing(config: pytest.Config, item: pytest.Item) -> bool:
    marker = item.get_closest_marker("golden")
    return marker is not None and not golden_files(config, *marker.args)


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Callable[[str], Any]:
    """Loads a golden file by its path below the golden folder: `golden("traces/bootstrap.json")`."""

    def load(path: str) -> Any:
        return json.loads((golden_folder(pytestconfig) / path).read_text(encoding="utf-8"))

    return load


def golden_folder(config: pytest.Config) -> Path:
    folder: Path = config.getoption("--golden")
    return folder


def golden_files(config: pytest.Config, pattern: str) -> list[Path]:
    """The golden files of a pattern. None at all is an error, unless they may be missing."""
    wanted = golden_folder(config) / pattern
    files = sorted(wanted.parent.glob(wanted.name))
    if not files and wanted.parent.name not in _OPTIONAL_FOLDERS:
        raise pytest.UsageError(f"--golden: no {wanted}")
    return files


def golden_cases(config: pytest.Config, pattern: str) -> list[tuple[str, Any]]:
    """Each case of the golden files of a pattern, with a name for it: its own id, or file and number."""
    return [
        (str(case.get("id", f"{path.stem}-{number}")), {"file": path.name, **case})
        for path in golden_files(config, pattern)
        for number, case in enumerate(json.loads(path.read_text(encoding="utf-8")))
    ]
