"""Finds Chromium and its driver, or installs Debian's packages; starts a browser with an empty profile.

    with started_browser(folder) as browser:
        browser.get(sidecar.api_url)

Both come from the same Debian source package, so they fit each other; selenium's own search for a driver,
which would download one, is never asked. Where they are missing and we are root, apt installs them; else
`find_chromium` says what to install. Blocks, on the caller's thread.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.support.debian_packages import PackagesMissingError, install

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE_LOAD_TIMEOUT_S: Final = 120

#: Alone, without a screen, and without the errands that a browser runs for itself.
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # a container's root can't have one
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class ChromiumMissingError(RuntimeError):
    """There is no Chromium here; the message says what to install."""


class Chromium(NamedTuple):
    """The browser and the program that steers it."""

    program: Path
    driver: Path


def find_chromium() -> Chromium:
    """Both programs, from PATH, else from Debian's packages. Raises ChromiumMissingError."""
    found = _on_path()
    if found is None:
        _install()
        found = _on_path()
    if found is None:
        raise ChromiumMissingError("apt installed chromium and chromium-driver, but they are not on PATH")
    return found


def _on_path() -> Chromium | None:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    return None if program is None or driver is None else Chromium(Path(program), Path(driver))


def _install() -> None:
    try:
        install("chromium", "chromium-driver")
    except PackagesMissingError as error:
        raise ChromiumMissingError(
            "chromium and chromedriver are needed and not here: on Debian `apt-get install chromium "
            f"chromium-driver`; elsewhere put a Chromium and its ChromeDriver on PATH: {error}"
        ) from error


@contextmanager
def started_browser(folder: Path) -> Iterator[webdriver.Chrome]:
    """A browser with an empty profile in that folder; it ends with the block."""
    chromium = find_chromium()
    options = webdriver.ChromeOptions()
    options.binary_location = str(chromium.program)
    for flag in (*_FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(str(chromium.driver)))
    try:
        browser.set_page_load_timeout(_PAGE_LOAD_TIMEOUT_S)
        yield browser
    finally:
        browser.quit()
