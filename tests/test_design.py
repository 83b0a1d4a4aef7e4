"""DESIGN.md's file map tells the truth: every module stands in it, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOM = re.compile(r"^\*\*`(?P<room>[\w/]+)/`\*\*", re.MULTILINE)
FILE = re.compile(r"^\| `(?P<file>\w+\.py)` \|", re.MULTILINE)


def mapped_rooms() -> dict[str, set[str]]:
    text = (ROOT / "DESIGN.md").read_text()
    heads = list(ROOM.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return {
        head["room"]: set(FILE.findall(text[head.end() : end])) for head, end in zip(heads, ends, strict=True)
    }


@pytest.mark.parametrize("room", sorted(mapped_rooms()))
def test_a_room_holds_the_files_that_the_map_names(room: str) -> None:
    files = {path.name for path in (ROOT / room).glob("*.py")}
    # What is in a file of tests, its name says.
    there = {name for name in files if not name.startswith("test_")} - {"__init__.py"}
    if room != "service":
        there -= {"__main__.py"}
    assert mapped_rooms()[room] == there


def test_every_room_of_the_code_is_in_the_map() -> None:
    rooms = {
        str(path.parent.relative_to(ROOT))
        for top in ("client_core", "service", "pipeline")
        for path in (ROOT / top).rglob("*.py")
        if path.parent.name != "messages"
    }
    assert rooms <= set(mapped_rooms())
