"""Lines as they come, in portions of bounded size."""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.produce import (
    BYTES_PER_REQUEST,
    LINES_PER_REQUEST,
    MAX_LINE_BYTES,
    Chunk,
    LineTooLongError,
    chunks,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class Pieces:
    """A source that is read in these pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = iter(pieces)

    def read1(self, size: int = -1, /) -> bytes:
        return next(self._pieces, b"")


def test_what_is_there_is_not_held_back() -> None:
    assert list(chunks(Pieces([b"a\n", b"b\nc\n"]))) == [Chunk(1, [b"a"]), Chunk(2, [b"b", b"c"])]


def test_a_line_may_come_in_pieces_and_the_last_without_its_end() -> None:
    assert list(chunks(Pieces([b"a", b"b\r", b"\n\nc", b"d"]))) == [
        Chunk(1, [b"ab", b""]),
        Chunk(3, [b"cd"]),
    ]


def test_a_portion_has_so_many_lines_at_most() -> None:
    found = [len(chunk.lines) for chunk in chunks(io.BytesIO(b"x\n" * (2 * LINES_PER_REQUEST + 1)))]
    assert found == [LINES_PER_REQUEST, LINES_PER_REQUEST, 1]


def test_a_portion_has_so_many_bytes_at_most_but_one_line_always_fits() -> None:
    large = b"x" * (BYTES_PER_REQUEST + 1)
    source = Pieces([b"a\n" + large + b"\n" + b"b\nc\n"])
    assert [len(chunk.lines) for chunk in chunks(source)] == [1, 1, 2]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    class Endless:
        def read1(self, size: int = -1, /) -> bytes:
            return b"x" * size

    with pytest.raises(LineTooLongError, match=str(MAX_LINE_BYTES)):
        list(chunks(Endless()))


def test_nothing_is_no_line() -> None:
    assert list(chunks(io.BytesIO())) == []


@given(
    st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line and b"\r" not in line)), st.data()
)
def test_however_it_comes_each_line_comes_out_once(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    edges = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges) if a < b]
    found = list(chunks(Pieces(pieces)))
    assert [line for chunk in found for line in chunk.lines] == lines
    assert [chunk.first for chunk in found] == [
        1 + sum(len(p.lines) for p in found[:n]) for n in range(len(found))
    ]


def test_portions_are_named_for_people() -> None:
    assert (Chunk(1, [b"", b""]).name, Chunk(7, [b""]).name) == ("lines 1-2", "line 7")
