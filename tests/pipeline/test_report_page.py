"""The report in a real browser: it loads nothing else, and is readable light, dark, narrow and on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from pipeline.report import report_html
from pipeline.report.view import ParquetGold
from tests.pipeline.gold_samples import troubled, write_gold
from tests.support.accessibility import axe_faults, own_faults
from tests.support.chromium import started_browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

pytestmark = pytest.mark.tools

_SERIES: Final = 8
_HEATS: Final = 7
#: WCAG 2.2, 1.4.3 for text and 1.4.11 for what is drawn.
_TEXT_CONTRAST: Final = 4.5
_DRAWN_CONTRAST: Final = 3.0


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report with all that a report can have in it."""
    folder = tmp_path_factory.mktemp("report")
    gold = ParquetGold(write_gold(folder / "tables", troubled(name="<script>alert({n})</script>")))
    page = folder / "report.html"
    page.write_text(report_html(gold), encoding="utf-8")
    return page.as_uri()


@pytest.fixture(scope="module")
def browser_of_the_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with started_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(browser_of_the_module: Chrome, report: str) -> Iterator[Chrome]:
    browser = browser_of_the_module
    browser.get(report)
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def looks(browser: Chrome, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def run(browser: Chrome, script: str) -> Any:
    return browser.execute_script(script)


def test_it_loads_nothing_else_and_the_browser_has_no_complaint(browser: Chrome) -> None:
    assert run(browser, "return performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    assert run(browser, "return document.querySelectorAll('script, link, img, iframe').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(browser: Chrome, scheme: str) -> None:
    looks(browser, scheme)
    run(browser, "for (const folded of document.querySelectorAll('details')) folded.open = true")
    # axe-core can't judge texts in drawings; the test of their contrast does.
    assert axe_faults(browser, undecided=False) + own_faults(browser) == []


def test_every_drawing_has_a_title_and_text_that_is_text(browser: Chrome) -> None:
    drawings = run(
        browser,
        """return [...document.querySelectorAll('svg')].map((svg) => ({
            role: svg.getAttribute('role'),
            title: document.getElementById(svg.getAttribute('aria-labelledby')).textContent,
            said: document.getElementById(svg.getAttribute('aria-describedby')).textContent,
            texts: [...svg.querySelectorAll('text')].map((text) => text.textContent),
            size: svg.getBoundingClientRect().height,
        }))""",
    )
    assert len(drawings) == 6
    for drawing in drawings:
        assert drawing["role"] == "img"
        assert len(drawing["title"]) > 10
        assert len(drawing["said"]) > 10
        assert len(drawing["texts"]) > 5
        assert drawing["size"] > 80


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_in_a_drawing_have_enough_contrast(browser: Chrome, scheme: str) -> None:
    looks(browser, scheme)
    style = "getComputedStyle(document.documentElement)"
    pairs = [("ink", "surface", _TEXT_CONTRAST), ("ink-soft", "surface", _TEXT_CONTRAST)]
    pairs += [(f"heat-ink-{n}", f"heat-{n}", _TEXT_CONTRAST) for n in range(_HEATS)]
    pairs += [("surface", f"series-{n}", _TEXT_CONTRAST) for n in range(_SERIES)]
    pairs += [("surface", "other", _TEXT_CONTRAST)]
    pairs += [(name, "surface", _DRAWN_CONTRAST) for name in ("bad", "warn", "accent", "good")]
    for one, other, least in pairs:
        colours = [run(browser, f"return {style}.getPropertyValue('--{name}')") for name in (one, other)]
        assert contrast(*colours) >= least, (scheme, one, other)


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours like #0b5394."""
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour.strip()[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_black_on_white_is_the_most_there_is() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_a_drawing_takes_its_colours_from_the_scheme(browser: Chrome) -> None:
    fills = {}
    for scheme in ("light", "dark"):
        looks(browser, scheme)
        fills[scheme] = run(browser, "return getComputedStyle(document.querySelector('svg text')).fill")
    assert fills["light"] != fills["dark"]


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_never_scrolls_sideways_but_its_drawings_may(browser: Chrome, width: int) -> None:
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wide, room = run(browser, "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
    assert wide <= room
    # What scrolls can be reached by keyboard.
    assert run(
        browser,
        """return [...document.querySelectorAll('.plot-room, .table-room')]
            .every((room) => room.scrollWidth <= room.clientWidth || room.tabIndex === 0)""",
    )


def test_on_paper_it_is_dark_on_light_and_nothing_is_cut_off(browser: Chrome) -> None:
    feature = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [feature]})
    ink, ground = run(
        browser,
        "const s = getComputedStyle(document.documentElement);"
        "return [s.getPropertyValue('--ink'), s.getPropertyValue('--surface')]",
    )
    assert luminance(ink) < 0.05
    assert luminance(ground) > 0.9
    assert (
        run(browser, "return getComputedStyle(document.querySelector('.plot-room')).overflowX") == "visible"
    )


def test_hostile_names_are_shown_as_they_are(browser: Chrome) -> None:
    assert "<script>alert(007)</script>" in run(browser, "return document.body.textContent")


def test_each_link_leads_to_a_heading_of_the_page(browser: Chrome) -> None:
    assert run(
        browser,
        """return [...document.querySelectorAll('a')].every((link) =>
            /^H[23]$/.test(document.getElementById(link.getAttribute('href').slice(1))?.tagName))""",
    )
