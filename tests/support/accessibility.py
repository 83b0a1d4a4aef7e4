"""A page's accessibility, by axe-core and by a few rules of our own: a sentence for each fault.

    assert axe_faults(browser) + own_faults(browser) == []

axe-core comes by npm (tests/support/axe) and runs in the page, but comes through the driver: the page's
Content Security Policy stays in force. page_audit.js has what axe-core leaves out, and needs it. Blocks, on
the test's thread.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.npm_packages import install
from tests.support.waiting import patient

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

_HERE: Final = Path(__file__).parent
_TIMEOUT_S: Final = patient(60)
_OWN_RULES: Final = (_HERE / "page_audit.js").read_text()

#: WCAG 2.2 A and AA, and axe-core's best practices. What axe can't decide counts where it is asked for.
_RUN: Final = """
const [withUndecided, done] = arguments;
const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const said = (rules, word) => rules.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) =>
  `${word}${id}: ${target.join(" ")}: ${failureSummary.replace(/\\s+/g, " ")}`));
axe.run(document, { runOnly: tags, preload: false }).then(({ violations, incomplete, passes }) => {
  const judged = new Set(passes.map(({ id }) => id));
  const missed = ["color-contrast", "target-size", "region"].filter((id) => !judged.has(id));
  done([
    ...said(violations, ""),
    ...(withUndecided ? said(incomplete, "undecided: ") : []),
    ...(violations.length === 0 ? missed.map((id) => `nothing passed ${id}`) : []),
  ]);
}, (error) => done([`axe-core failed: ${error}`]));
"""


@cache
def _axe_core() -> str:
    """The script. NodeMissingError says what to install."""
    return (install(_HERE / "axe") / "node_modules" / "axe-core" / "axe.min.js").read_text()


def axe_faults(browser: Chrome, *, undecided: bool = True) -> list[str]:
    """What axe-core finds in the page as it is: rule, element, why. `undecided` adds what it can't judge."""
    _bring_axe_core(browser)
    found: list[str] = browser.execute_async_script(_RUN, undecided)
    return found


def own_faults(browser: Chrome) -> list[str]:
    """What our own rules find in the page as it is."""
    _bring_axe_core(browser)
    found: list[str] = browser.execute_script(_OWN_RULES)
    return found


def _bring_axe_core(browser: Chrome) -> None:
    browser.set_script_timeout(_TIMEOUT_S)
    if not browser.execute_script("return 'axe' in window"):
        browser.execute_script(_axe_core())
