"""Which package imports which, from the source: imports inside functions and for types only count, too."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

#: Which packages each package imports.
Graph = dict[str, set[str]]


class Arrow(NamedTuple):
    """One module of a package imports one of another: `package.module`, below the root."""

    importer: str
    imported: str


def arrows(root: Path, package: str) -> list[Arrow]:
    """The imports between the modules of a package, given its folder; modules by their names below it."""
    files = {_name(path, root): path for path in root.rglob("*.py")}
    return [
        Arrow(name, imported)
        for name, path in sorted(files.items())
        for imported in _imports(ast.parse(path.read_text(encoding="utf-8")), package + ".", files)
    ]


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.AST, package: str, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if not name.startswith(package):
                continue
            below = name.removeprefix(package)
            while below not in files and "." in below:
                below = below.rpartition(".")[0]
            if below in files:
                yield below


def graph(found: list[Arrow], depth: int = 1) -> Graph:
    """The arrows between the rooms: packages, or modules, of the first so many levels."""
    rooms: Graph = defaultdict(set)
    for importer, imported in found:
        one, other = (".".join(name.split(".")[:depth]) for name in (importer, imported))
        if one and other:
            rooms[one]
            rooms[other]
            if one != other:
                rooms[one].add(other)
    return dict(rooms)


def circles(rooms: Graph) -> list[list[str]]:
    """The sets of more than one room that all import each other, directly or not (Tarjan's components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(room: str) -> None:
        index[room] = low[room] = len(index)
        stack.append(room)
        for other in rooms[room]:
            if other not in index:
                visit(other)
            if other in stack:
                low[room] = min(low[room], low[other])
        if low[room] == index[room]:
            at = stack.index(room)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for room in rooms:
        if room not in index:
            visit(room)
    return sorted(found)


def floors(rooms: Graph) -> int | None:
    """The longest way down from one room to another, counted in rooms; None where there is a circle."""
    if circles(rooms):
        return None
    depths: dict[str, int] = {}

    def depth(room: str) -> int:
        if room not in depths:
            depths[room] = 1 + max(map(depth, rooms[room]), default=0)
        return depths[room]

    return max(map(depth, rooms), default=0)
