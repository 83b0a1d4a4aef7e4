"""docs/modules.md is what the modules say of themselves, and none of them is too long to read at once."""

from __future__ import annotations

from tests.structure.module_list import LIST, ROOT, first_line, module_list

#: A module that is longer has more than one chapter.
_MOST_LINES = 550


def test_the_list_of_modules_is_up_to_date() -> None:
    assert LIST.read_text(encoding="utf-8") == module_list(), "docs/modules.md: run `make docs`"


def test_every_module_of_the_product_says_in_its_first_line_what_it_is() -> None:
    paths = [
        path
        for top in ("client_core", "service", "pipeline", "helm", "benchmarks")
        for path in (ROOT / top).rglob("*.py")
        if "messages" not in path.parts
    ]
    assert [str(path.relative_to(ROOT)) for path in paths if len(first_line(path)) < 15] == []


def test_no_module_of_the_product_is_too_long() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_bytes().splitlines())
        for top in ("client_core", "service", "pipeline")
        for path in (ROOT / top).rglob("*.py")
        if "messages" not in path.parts
    }
    too_long = {path: lines for path, lines in lengths.items() if lines > _MOST_LINES}
    assert too_long == {}, f"split these by what they are about, or shorten them: at most {_MOST_LINES} lines"
