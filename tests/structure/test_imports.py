"""Imports between packages, as they are counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.structure.imports import Arrow, arrows, circles, floors, graph

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "__init__.py": "from shop.till.money import pay\n",
    "till/__init__.py": "",
    "till/money.py": "import os\nfrom shop.stock import shelf\nfrom shop import base\n",
    "stock/__init__.py": "",
    "stock/shelf.py": "def f():\n    import shop.base\n",
    "base.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shop.stock.shelf import f\n",
}


def test_imports_in_functions_and_for_types_are_found(tmp_path: Path) -> None:
    root = tmp_path / "shop"
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = arrows(root, "shop")
    assert found == [
        Arrow("", "till.money"),
        Arrow("base", "stock.shelf"),
        Arrow("stock.shelf", "base"),
        Arrow("till.money", "stock.shelf"),
        Arrow("till.money", "base"),
    ]
    rooms = graph(found)
    assert rooms == {"till": {"stock", "base"}, "stock": {"base"}, "base": {"stock"}}
    assert circles(rooms) == [["base", "stock"]]
    assert floors(rooms) is None


def test_floors_are_the_longest_way_down() -> None:
    rooms = {"a": {"b", "d"}, "b": {"c"}, "c": {"d"}, "d": set[str](), "e": {"d"}}
    assert circles(rooms) == []
    assert floors(rooms) == 4
