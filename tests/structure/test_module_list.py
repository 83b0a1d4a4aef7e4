"""docs/modules.md is what the modules say of themselves."""

from __future__ import annotations

from tests.structure.module_list import LIST, ROOT, first_line, module_list


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
