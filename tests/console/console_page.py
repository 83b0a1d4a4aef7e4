"""The console as its reader sees it: rows, sentences and forms, found by the words on the page.

    console = ConsolePage.opened(browser, sidecar.api_url)
    console.until(lambda: console.headline == "Everything is in order")

Each call reads everything it needs in one script, so that a page which renews itself meanwhile can't give
half an answer. Blocks, on the test's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from selenium.webdriver import Chrome

PATIENCE_S: Final = patient(60.0)
_EVERY_S: Final = 0.1

_SHOWN_TEXT: Final = """
const found = document.getElementById(arguments[0]);
return found.checkVisibility() ? found.innerText.trim() : "";
"""
#: Rows of a table: the first line of the first cell, and {label of the cell: its text}.
_ROWS: Final = """
return [...document.getElementById(arguments[0]).rows].map((row) => [
  row.cells[0].innerText.trim().split("\\n")[0],
  Object.fromEntries([...row.cells].map((cell) => [cell.dataset.label, cell.innerText.trim()])),
]);
"""
_FACTS: Final = """
return Object.fromEntries([...document.getElementById(arguments[0]).querySelectorAll("div")].map((fact) =>
  [fact.querySelector("dt").innerText, fact.querySelector("dd").innerText]));
"""


class ConsolePage:
    """One open page."""

    def __init__(self, browser: Chrome) -> None:
        self.browser = browser

    @classmethod
    def opened(cls, browser: Chrome, url: str, headline: str = "Everything is in order") -> ConsolePage:
        """Opens a sidecar's page and waits until it is live and says that."""
        browser.get(url)
        page = cls(browser)
        page.until(lambda: page.link == "Live" and page.headline == headline)
        return page

    # -- what the page shows ---------------------------------------------------------------------------------

    def text(self, element_id: str) -> str:
        """What is shown of an element; empty where nothing is."""
        return str(self.run(_SHOWN_TEXT, element_id))

    @property
    def headline(self) -> str:
        return self.text("headline")

    @property
    def link(self) -> str:
        """The state of the page's connection to the sidecar."""
        return self.text("link")

    @property
    def banner(self) -> str:
        return self.text("banner")

    def rows(self, body_id: str) -> dict[str, dict[str, str]]:
        """A table's rows by the first line of their first cell: {column: text}."""
        rows: list[tuple[str, dict[str, str]]] = self.run(_ROWS, body_id)
        return dict(rows)

    @property
    def brokers(self) -> dict[str, dict[str, str]]:
        return self.rows("broker-rows")

    @property
    def topics(self) -> dict[str, dict[str, str]]:
        return self.rows("topic-rows")

    @property
    def partitions(self) -> dict[str, dict[str, str]]:
        return self.rows("detail-rows")

    def facts(self, list_id: str) -> Mapping[str, str]:
        """A list of terms, as {term: text}."""
        found: dict[str, str] = self.run(_FACTS, list_id)
        return found

    def faults(self) -> list[str]:
        """The messages of the browser's console since the last call."""
        return [str(entry["message"]) for entry in self.browser.get_log("browser")]  # type: ignore[no-untyped-call]

    def run(self, script: str, *arguments: object) -> Any:
        """What a script in the page returns."""
        return self.browser.execute_script(script, *arguments)

    # -- actions of a reader ---------------------------------------------------------------------------------

    def press(self, name: str) -> None:
        """Presses the shown button whose name begins so."""
        buttons = self.browser.find_elements(By.TAG_NAME, "button")
        named = (button for button in buttons if button.is_displayed())
        next(b for b in named if (b.accessible_name or b.text).startswith(name)).click()

    def fill(self, **values: str) -> None:
        """Fills fields by their ids, with underscores for dashes; a choice by its value."""
        for name, value in values.items():
            field = self.browser.find_element(By.ID, name.replace("_", "-"))
            if field.tag_name == "select":
                Select(field).select_by_value(value)
            else:
                field.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE, value)

    def type(self, *keys: str) -> None:
        """Types at whatever has the focus."""
        for key in keys:
            self.browser.switch_to.active_element.send_keys(key)

    def tab_to(self, element_id: str) -> None:
        """Presses Tab until the element has the focus. AssertionError when that leads nowhere."""
        passed: list[str] = []
        while self.focused != element_id:
            assert len(passed) < 100, f"no Tab leads to {element_id}, only to {passed}"
            self.type(Keys.TAB)
            passed.append(self.focused)

    @property
    def focused(self) -> str:
        """The id of what has the focus, or its text where it has no id."""
        return str(self.run("const at = document.activeElement; return at.id || at.innerText || at.tagName"))

    # -- waiting ---------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
        """Waits until the page is like that; a failure shows what it says instead."""
        wait = WebDriverWait(self.browser, timeout_s, poll_frequency=_EVERY_S)
        try:
            wait.until(lambda _: condition())
        except Exception as error:
            error.add_note(f"the page:\n{self.run('return document.body.innerText')}")
            raise

    def until_says(self, element_id: str, part: str) -> None:
        """Waits until the element's text contains the part."""
        self.until(lambda: part in self.text(element_id))

    def resize(self, width: int, height: int) -> None:
        """The size of the page in CSS pixels. At 200 % zoom it has half of the window's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, **features: str) -> None:
        """What the reader prefers, such as prefers_color_scheme="dark"."""
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})
