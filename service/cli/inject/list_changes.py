"""The changes from one list to another: kept, dropped and added items. Pure.

Items with the same meaning are kept. So are mappings with the same `name`, Kubernetes' key of containers,
variables and volumes; they are edited in place. If the length is equal and no position has two different
names, all items are kept.
"""

from __future__ import annotations

from typing import NamedTuple

from service.cli.inject.values import Data, same


class Changed(NamedTuple):
    """`kept`: old index and new value. `added`: the old index after them (None: the end), new items."""

    kept: list[tuple[int, Data]]
    dropped: list[int]
    added: list[tuple[int | None, list[Data]]]


def changes(old: list[Data], new: list[Data]) -> Changed:
    """Returns the changes from `old` to `new`. Keeps the order: a moved item is dropped and added."""
    if len(old) == len(new) and all(map(_may_stay, old, new)):
        return Changed(list(enumerate(new)), [], [])
    kept: list[tuple[int, Data]] = []
    dropped: list[int] = []
    added: list[tuple[int | None, list[Data]]] = []
    waiting: list[Data] = []
    done = 0
    for item in new:
        found = next((index for index in range(done, len(old)) if _stays(old[index], item)), None)
        if found is None:
            waiting.append(item)
            continue
        dropped.extend(range(done, found))
        if waiting:
            added.append((found, waiting))
            waiting = []
        kept.append((found, item))
        done = found + 1
    dropped.extend(range(done, len(old)))
    if waiting:
        added.append((None, waiting))
    return Changed(kept, dropped, added)


def _may_stay(old: Data, new: Data) -> bool:
    """Returns whether `old` may be edited into `new`: not if their names differ."""
    return same(_name(old), _name(new))


def _name(item: Data) -> Data:
    return item.get("name") if isinstance(item, dict) else None


def _stays(old: Data, new: Data) -> bool:
    if same(old, new):
        return True
    return _name(old) is not None and same(_name(old), _name(new))
