"""The console in a real browser, over a real sidecar process and the fake cluster: what tests get.

    console          the page of a sidecar of the test's own, open and live (console_page.py)
    sidecar          that sidecar. It refreshes twice a second, so that a test need not ask for it
    cluster          its cluster: three fake brokers; `orders` with six partitions and three replicas, known
                     to the sidecar from the start, and `audit` with one, which is not
    shared_console, shared_sidecar, shared_cluster
                     the same for all tests that leave nothing behind but records and topics of their own
    browser          one Chromium for all tests

A browser takes a second to start and a sidecar another. All bear the mark `tools`.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from client_core.testing import FakeCluster
from tests.console.console_page import ConsolePage
from tests.support.chromium import started_browser
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from selenium.webdriver import Chrome

_HERE: Final = str(Path(__file__).parent) + os.sep
_KAFKA: Final = {"metadata.max.age.ms": "500", "reconnect.backoff.max.ms": "200"}


@pytest.hookimpl(tryfirst=True)  # the conftest above looks at the mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what lies in this folder, before `-m` chooses."""
    for item in items:
        if str(item.path).startswith(_HERE):
            item.add_marker(pytest.mark.tools)


def sidecar_over(
    cluster: FakeCluster,
    folder: Path,
    *flags: str,
    warm_topics: Sequence[str] = ("orders",),
    kafka: Mapping[str, str] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Sidecar:
    """A sidecar on a cluster, not started yet. `kafka` and `limits`: settings that differ from the usual."""
    warm = (word for topic in warm_topics for word in ("--warm-topics", topic))
    return Sidecar(
        folder,
        bootstrap_servers=cluster.bootstrap_servers,
        kafka={**_KAFKA, **(kafka or {})},
        flags=(*warm, *flags),
        limits=limits,
    )


@contextmanager
def _new_cluster() -> Iterator[FakeCluster]:
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders", partitions=6, replication_factor=3)
        cluster.create_topic("audit")
        yield cluster


@pytest.fixture(scope="session")
def browser_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with started_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(browser_of_the_session: Chrome) -> Iterator[Chrome]:
    """The browser at its usual size and colours; nothing of a test is left in it but an empty page."""
    browser = browser_of_the_session
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get("about:blank")
    browser.get_log("browser")  # type: ignore[no-untyped-call]  # takes what is there, or the next test would


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[FakeCluster]:
    with _new_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def shared_sidecar(
    shared_cluster: FakeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sidecar]:
    with sidecar_over(shared_cluster, tmp_path_factory.mktemp("sidecar")) as sidecar:
        yield sidecar


@pytest.fixture
def shared_console(browser: Chrome, shared_sidecar: Sidecar) -> ConsolePage:
    return ConsolePage.opened(browser, shared_sidecar.api_url)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with _new_cluster() as cluster:
        yield cluster


@pytest.fixture
def sidecar(cluster: FakeCluster, tmp_path: Path) -> Iterator[Sidecar]:
    with sidecar_over(cluster, tmp_path) as sidecar:
        yield sidecar


@pytest.fixture
def console(browser: Chrome, sidecar: Sidecar) -> ConsolePage:
    return ConsolePage.opened(browser, sidecar.api_url)
