"""Both pages' accessibility: axe-core, keyboard, narrow and enlarged; many topics, no other hosts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import element_to_be_clickable
from selenium.webdriver.support.ui import WebDriverWait

from client_core.testing import FakeCluster
from tests.console.conftest import sidecar_over
from tests.console.console_page import PATIENCE_S, ConsolePage
from tests.support.accessibility import axe_faults, own_faults
from tests.support.tokens import TokensFile
from tests.support.waiting import patient

if TYPE_CHECKING:
    from pathlib import Path

    from selenium.webdriver import Chrome

    from tests.support.sidecar import Sidecar

#: Width and height in CSS pixels.
DESKTOP: Final = (1280, 900)
PHONE: Final = (375, 812)
#: Of the page's width, how much lies outside.
OVERFLOW: Final = (
    "const page = document.documentElement; return Math.max(0, page.scrollWidth - page.clientWidth);"
)
#: What has an animation, a transition or a smooth scroll.
MOVING: Final = """
return [...document.querySelectorAll("*")].filter((node) => {
  const { animationName, transitionDuration, scrollBehavior } = getComputedStyle(node);
  return animationName !== "none" || transitionDuration !== "0s" || scrollBehavior !== "auto";
}).map((node) => node.tagName);
"""
#: Whether Swagger UI has taken over the colours that are preferred, and fades from no colour to another.
SETTLED: Final = """
const isDark = document.documentElement.classList.contains("dark-mode");
return isDark === (arguments[0] === "dark") && document.getAnimations().length === 0;
"""
#: The addresses of all that was loaded.
LOADED: Final = "return performance.getEntriesByType('resource').map((entry) => entry.name)"


def faults_in_every_look(page: ConsolePage, *, bundled: bool = False) -> list[str]:
    """Light and dark, on a desktop and a phone.

    `bundled` is for the reference, whose markup is Swagger UI's: what axe-core can't judge and our own rules
    are left out.
    """
    found = []
    for width, height in (DESKTOP, PHONE):
        page.resize(width, height)
        for colours in ("light", "dark"):
            page.prefer(prefers_color_scheme=colours)
            if bundled:
                page.until(partial(page.run, SETTLED, colours))
            faults = axe_faults(page.browser, undecided=not bundled)
            faults += [] if bundled else own_faults(page.browser)
            found += [f"{width} pixels, {colours}: {fault}" for fault in faults]
    return found


def test_the_console_is_accessible(shared_console: ConsolePage) -> None:
    page = shared_console
    page.fill(lookup_topic="orders", lookup_value="a")
    page.press("Look up")
    page.until_says("lookup-result", "broker")
    page.resize(*PHONE)
    page.prefer(prefers_color_scheme="dark")
    assert axe_faults(page.browser) + own_faults(page.browser) == []


def test_a_full_page_and_one_whose_sidecar_is_gone_are_accessible(
    console: ConsolePage, cluster: FakeCluster, sidecar: Sidecar
) -> None:
    cluster.move_leader("orders", 1, None)
    cluster.set_isr("orders", 2, [3])
    records = {"records": [{"value": 1}]}
    assert sidecar.api.post("/v1/topics/absent/records?max_block_ms=3000", json=records).status_code == 404
    console.press("orders")
    console.fill(lookup_topic="orders", lookup_value="a", send_topic="orders", send_partition="0")
    console.press("Look up")
    console.press("Send")
    console.until_says("lookup-result", "broker")
    console.until_says("send-result", "Written: partition 0")
    console.until_says("findings", "under-replicated")
    console.until_says("failed", "absent")
    console.until_says("changes", "orders, partition 1")
    assert faults_in_every_look(console) == []
    sidecar.process.kill()
    sidecar.process.wait(timeout=patient(30))
    console.until_says("banner", "has not answered")
    assert faults_in_every_look(console) == []


def test_an_open_call_its_answer_the_schemas_and_the_dialog_are_accessible(
    browser: Chrome, shared_sidecar: Sidecar
) -> None:
    page = reference(browser, shared_sidecar)
    try_out(browser, "produceRecords")
    try_out(browser, "getCluster")
    page.until_says("reference", '"cluster_id"')
    click(browser, ".models-control")
    assert faults_in_every_look(page, bundled=True) == []
    page.resize(*DESKTOP)
    click(browser, ".btn.authorize")
    assert faults_in_every_look(page, bundled=True) == []


def test_both_pages_are_accessible_while_they_ask_for_a_token(
    browser: Chrome, cluster: FakeCluster, tmp_path: Path
) -> None:
    tokens = TokensFile(tmp_path, operator={"read": ["*"]})
    guarded = sidecar_over(cluster, tmp_path, "--tokens-file", tokens.setting)
    guarded.api.headers.update(tokens.of("operator"))
    with guarded as sidecar:
        page = ConsolePage(browser)
        for path, form in (("/", "token"), ("/docs", "token-form")):
            browser.get(f"{sidecar.api_url}{path}")
            page.until_says(form, "Use it")
            assert faults_in_every_look(page, bundled=path == "/docs") == []


def test_everything_can_be_done_with_the_keyboard_alone(
    shared_console: ConsolePage, shared_sidecar: Sidecar
) -> None:
    page = shared_console
    page.type(Keys.TAB)
    assert page.focused == "Skip to the state of things"
    page.type(Keys.ENTER)
    assert page.focused == "state"
    page.tab_to("orders")
    page.type(Keys.ENTER)
    page.until(lambda: page.focused == "detail-title")
    page.tab_to("detail-use")
    page.tab_to("detail-close")
    page.type(Keys.SPACE)
    page.until(lambda: page.focused == "orders")
    page.tab_to("lookup-topic")
    page.type("orders", Keys.TAB, Keys.TAB, "customer-7", Keys.ENTER)
    page.until(lambda: page.text("lookup-result").startswith("orders, partition"))
    page.tab_to("send-topic")
    page.type("orders")
    page.tab_to("send-value")
    page.type("by keyboard")
    page.tab_to("Send")
    page.type(Keys.ENTER)
    page.until(lambda: "Written: partition" in page.text("send-result"))


def test_the_focus_is_visible(shared_console: ConsolePage) -> None:
    shared_console.tab_to("refresh")
    style = shared_console.run(
        "const s = getComputedStyle(document.activeElement); return [s.outlineStyle, s.outlineWidth]"
    )
    assert style == ["solid", "2px"]


def test_focus_stays_where_it_is_while_the_page_renews_itself(
    shared_console: ConsolePage, shared_cluster: FakeCluster, shared_sidecar: Sidecar
) -> None:
    shared_cluster.create_topic("focused", partitions=3)
    assert shared_sidecar.api.get("/v1/topics/focused").is_success
    shared_console.until(lambda: "focused" in shared_console.topics)
    shared_console.tab_to("focused")
    shared_cluster.create_topic("before-focused", partitions=3)
    shared_cluster.add_partitions("focused", 6)
    assert shared_sidecar.api.get("/v1/topics/before-focused").is_success
    shared_console.until(lambda: _partitions(shared_console, "focused", "before-focused") == ["6", "3"])
    assert shared_console.focused == "focused"


def _partitions(page: ConsolePage, *names: str) -> list[str]:
    """How many partitions the page shows of each topic that it shows."""
    shown = page.topics
    return [shown[name]["Partitions"] for name in names if name in shown]


def test_nothing_lies_outside_of_the_page_however_narrow(shared_console: ConsolePage) -> None:
    """640 wide is 1280 at 200 % zoom, 320 is 1280 at 400 % (WCAG 2.2, 1.4.10)."""
    shared_console.press("orders")
    shared_console.until(lambda: "5" in shared_console.partitions)
    for width, height in ((1280, 900), (640, 450), (360, 800), (320, 640)):
        shared_console.resize(width, height)
        assert shared_console.run(OVERFLOW) == 0, f"at {width} pixels"
        assert axe_faults(shared_console.browser) + own_faults(shared_console.browser) == []


def test_nothing_moves_by_itself(shared_console: ConsolePage) -> None:
    moving = shared_console.run(MOVING)
    assert moving == []


def test_nothing_is_loaded_from_anywhere_else(shared_console: ConsolePage, shared_sidecar: Sidecar) -> None:
    loaded: list[str] = shared_console.run(LOADED)
    assert f"{shared_sidecar.api_url}/console/main.js" in loaded
    assert [name for name in loaded if not name.startswith(shared_sidecar.api_url)] == []
    assert shared_console.faults() == []


def test_thousands_of_topics_are_shown_a_page_at_a_time(browser: Chrome, tmp_path: Path) -> None:
    names = [f"stream-{number:04d}" for number in range(2_000)]
    with FakeCluster(3) as cluster:
        for name in names:
            cluster.create_topic(name, partitions=20)
        # So much metadata, twice a second, a busy machine would truly be slow with.
        seldom, limits = {"metadata.max.age.ms": "10000"}, {"slow_after_ms": 60_000}
        with sidecar_over(cluster, tmp_path, warm_topics=names, kafka=seldom, limits=limits) as sidecar:
            console = ConsolePage.opened(browser, sidecar.api_url)
            console.until(lambda: list(console.topics) == names[:25])
            console.until(lambda: console.facts("metadata")["Follows"] == "2,000 topics, 40,000 partitions")
            console.press("Next topics")
            console.until(lambda: list(console.topics) == names[25:50])
            console.fill(topic_search="1999")
            console.until(lambda: list(console.topics) == ["stream-1999"])
            assert console.run("return document.querySelectorAll('*').length") < 1_500


def reference(browser: Chrome, sidecar: Sidecar) -> ConsolePage:
    """The API's reference, once it is drawn."""
    browser.get(f"{sidecar.api_url}/docs")
    page = ConsolePage(browser)
    page.until_says("reference", "/v1/topics/{topic}/leader")
    return page


def click(browser: Chrome, selector: str) -> None:
    WebDriverWait(browser, PATIENCE_S).until(element_to_be_clickable((By.CSS_SELECTOR, selector))).click()


def try_out(browser: Chrome, operation: str) -> None:
    """Opens a call of the reference and sends it."""
    for control in (".opblock-summary-control", ".try-out__btn", ".execute"):
        click(browser, f"[id$=-{operation}] {control}")


def test_the_reference_is_accessible_and_drawn_without_the_internet(
    browser: Chrome, shared_sidecar: Sidecar
) -> None:
    page = reference(browser, shared_sidecar)
    loaded: list[str] = page.run(LOADED)
    assert [name for name in loaded if not name.startswith((shared_sidecar.api_url, "data:"))] == []
    assert axe_faults(browser, undecided=False) == []
    assert page.faults() == []


def test_a_call_can_be_tried_out_from_the_reference(browser: Chrome, shared_sidecar: Sidecar) -> None:
    page = reference(browser, shared_sidecar)
    try_out(browser, "getCluster")
    page.until_says("reference", '"cluster_id"')
    assert page.run("return location.hash") == "#/metadata/getCluster"
    assert page.faults() == []
