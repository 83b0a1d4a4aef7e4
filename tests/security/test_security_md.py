"""SECURITY.md: each line of each table names a test, and each test that it names is there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "SECURITY.md").read_text()
_HEADING: Final = re.compile(r"^## (?P<title>.+)$", re.MULTILINE)
_TEST: Final = re.compile(r"`(?P<file>tests/[\w/]+\.py)::(?P<test>test_\w+)`")

#: The attackers that the page must cover, by words of its headings.
ADVERSARIES: Final = (
    "web page",
    "Another pod",
    "Another process",
    "without a token",
    "token for other topics",
    "broker",
    "man in the middle",
    "reads logs",
    "write the sidecar's files",
    "supply chain",
)


def sections() -> dict[str, str]:
    """The text below each heading."""
    heads = list(_HEADING.finditer(TEXT))
    ends = [head.start() for head in heads[1:]] + [len(TEXT)]
    return {head["title"]: TEXT[head.end() : end] for head, end in zip(heads, ends, strict=True)}


def rows(text: str) -> list[list[str]]:
    """The cells of each line of a section's table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


ROWS: Final = [row for text in sections().values() for row in rows(text)]


def test_every_adversary_has_a_table() -> None:
    for adversary in ADVERSARIES:
        (found,) = [text for title, text in sections().items() if adversary in title]
        assert rows(found), adversary


@cache
def names_of_tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_a_line_says_what_stops_it_and_names_a_test_that_is_there() -> None:
    for tried, stopped, shown_by in ROWS:
        assert tried, shown_by
        assert stopped, shown_by
        named = _TEST.fullmatch(shown_by)
        assert named is not None, shown_by
        assert named["test"] in names_of_tests(named["file"]), shown_by


def test_every_line_of_every_table_was_looked_at() -> None:
    assert len(ROWS) == len(_TEST.findall(TEXT)) == len({row[2] for row in ROWS})


def test_no_address_is_invented_and_both_pages_lead_to_each_other() -> None:
    assert "@" not in TEXT.replace("`@", "")
    assert "docs/security.md" in TEXT
    assert "../SECURITY.md" in (ROOT / "docs" / "security.md").read_text()
