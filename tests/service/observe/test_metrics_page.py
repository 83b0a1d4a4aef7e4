"""docs/metrics.md against a scrape: each metric's type and labels, and every name that any page gives.

That the page has all metrics and no other is in tests/test_docs.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.scraped_sidecar import Scrape, busy_scrape

DOCS: Final = Path(__file__).parents[3] / "docs"
PAGE: Final = (DOCS / "metrics.md").read_text()

#: The name, its type, and the cell of its labels.
ROWS: Final = re.findall(r"^\| `(pilotfish_\w+)` \| (\w+)[^|]*\| ([^|]*)\|", PAGE, re.MULTILINE)
SUFFIXES: Final = {"histogram": "_count"}


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    return busy_scrape(tmp_path_factory.mktemp("sidecar"))


def test_a_metric_has_the_labels_that_the_page_gives_it(scrape: Scrape) -> None:
    """Those that have no series in this scrape are looked at by their own tests."""
    for name, kind, cell in ROWS:
        sample = name + SUFFIXES.get(kind, "")
        assert sample in scrape.samples, name
        if scrape.samples[sample]:
            assert scrape.labels(sample) == set(re.findall(r"`(\w+)`", cell)), name


def test_most_metrics_have_series_to_look_at(scrape: Scrape) -> None:
    without = [name for name, kind, _ in ROWS if not scrape.samples[name + SUFFIXES.get(kind, "")]]
    assert len(without) <= len(ROWS) // 10, without


def test_a_metric_that_any_page_names_is_on_the_page_of_metrics() -> None:
    for page in sorted(DOCS.glob("*.md")):
        known = {name for name, _, _ in ROWS}
        named = set(re.findall(r"`(pilotfish_[a-z_]+)[`{]", page.read_text()))
        assert {name for name in named if re.sub(r"_(bucket|count|sum)$", "", name) not in known} == set(), (
            page.name
        )
