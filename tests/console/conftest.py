"""The console in a real browser, over a real sidecar process and the fake cluster: what tests get.

    browser      one Chromium for all tests; nothing of a test is left in it but an empty page
    cluster      three fake brokers; `orders` with six partitions and three replicas, `audit` with one and one
    sidecar      over them, refreshing twice a second, so that a test need not ask for it
    console      the page of that sidecar, open and live (console_page.py)

Tests that only look share a cluster and a sidecar of their module (`shared_console`). All bear the mark
`tools`.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.console.console_page import ConsolePage
from tests.support.chromium import ChromiumMissingError, started_browser
from tests.support.fake_cluster import FakeCluster
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

_HERE: Final = Path(__file__).parent
KAFKA: Final = {"metadata.max.age.ms": "500", "reconnect.backoff.max.ms": "200"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what lies in this folder, before `-m` chooses."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.tools)


@pytest.fixture(scope="session")
def browser_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    try:
        with started_browser(tmp_path_factory.mktemp("browser")) as browser:
            yield browser
    except ChromiumMissingError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def browser(browser_of_the_session: Chrome) -> Iterator[Chrome]:
    """The browser, in light colours and 1280 by 900; its page is left behind empty."""
    yield browser_of_the_session
    browser_of_the_session.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser_of_the_session.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser_of_the_session.get("about:blank")
    browser_of_the_session.get_log("browser")  # type: ignore[no-untyped-call]


@contextmanager
def new_cluster() -> Iterator[FakeCluster]:
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders", partitions=6, replication_factor=3)
        cluster.create_topic("audit")
        yield cluster


def sidecar_over(cluster: FakeCluster, folder: Path, *flags: str) -> Sidecar:
    return Sidecar(folder, bootstrap_servers=cluster.bootstrap_servers, kafka=KAFKA, flags=flags)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with new_cluster() as cluster:
        yield cluster


@pytest.fixture
def sidecar(cluster: FakeCluster, tmp_path: Path) -> Iterator[Sidecar]:
    with sidecar_over(cluster, tmp_path, "--warm-topics", "orders") as sidecar:
        yield sidecar


@pytest.fixture
def console(browser: Chrome, sidecar: Sidecar) -> ConsolePage:
    return ConsolePage.opened(browser, sidecar.api_url)


@pytest.fixture(scope="module")
def shared_sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """For tests that leave it and its cluster as they were."""
    with (
        new_cluster() as cluster,
        sidecar_over(cluster, tmp_path_factory.mktemp("sidecar"), "--warm-topics", "orders") as sidecar,
    ):
        yield sidecar


@pytest.fixture
def shared_console(browser: Chrome, shared_sidecar: Sidecar) -> ConsolePage:
    return ConsolePage.opened(browser, shared_sidecar.api_url)
