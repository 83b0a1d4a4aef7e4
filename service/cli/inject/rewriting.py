"""Rewrites some documents of a text, and verifies that nothing else changed.

The edited text is parsed again and compared with the wanted values: an incorrect edit is found here, before
anything is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from service.cli.inject.edits import Edit, applied, edits
from service.cli.inject.faults import EditError
from service.cli.inject.plain_data import data
from service.cli.inject.tree import Document, NotYamlError, parse
from service.cli.inject.values import Data, same
from service.cli.inject.workloads import Path

_CANNOT: Final = (
    "can't be edited without changing other values, because of its anchors or its layout; write out "
    "its aliases, or give it as `kubectl create --dry-run=client -o yaml -f FILE` prints it"
)


def rewritten(text: str, wanted: Sequence[tuple[Document, Data]]) -> str:
    """Returns the text in which those documents have the wanted values. Raises EditError if impossible."""
    if not wanted:
        return text
    changes: list[Edit] = []
    for document, value in wanted:
        try:
            changes += edits(text, document.root, value)
        except EditError as error:
            raise EditError(error.line, error.why, document.number) from error
    made = applied(text, changes)
    again = _read_again(made)
    for document, value in wanted:
        if not _means(again, document.number, value):
            raise EditError(document.root.line, _CANNOT, document.number)
    return made


def _read_again(text: str) -> list[Document]:
    try:
        return parse(text)
    except NotYamlError:
        return []


def _means(documents: list[Document], number: int, value: Data) -> bool:
    try:
        return number <= len(documents) and same(data(documents[number - 1].root), value)
    except EditError:
        return False


def value_at(whole: Data, path: Path) -> Data:
    for step in path:
        if isinstance(step, int):
            whole = whole[step] if isinstance(whole, list) and step < len(whole) else None
        else:
            whole = whole.get(step) if isinstance(whole, dict) else None
    return whole


def with_value_at(whole: Data, path: Path, value: Data) -> Data:
    """Returns `whole` with another value at an existing path."""
    if not path:
        return value
    step, *rest = path
    if isinstance(step, int):
        assert isinstance(whole, list)
        return [*whole[:step], with_value_at(whole[step], tuple(rest), value), *whole[step + 1 :]]
    assert isinstance(whole, dict)
    return {**whole, step: with_value_at(whole[step], tuple(rest), value)}
