"""How a list becomes another: which items stay, which go, which come, and where. Pure.

Items that mean the same stay. So do mappings of one `name`, as Kubernetes tells containers, variables and
volumes apart, and are changed where they stand. So do all items of a list that keeps its length, if no two of
them have different names in one place.
"""

from __future__ import annotations

from typing import NamedTuple

from service.cli.inject.values import Data, same


class Changed(NamedTuple):
    """`kept`: the old place and what stands there now. `added`: before which old place (None: at the end)."""

    kept: list[tuple[int, Data]]
    dropped: list[int]
    added: list[tuple[int | None, list[Data]]]


def changes(old: list[Data], new: list[Data]) -> Changed:
    """What to do to `old`. Order is kept: an item that moved goes, and comes elsewhere."""
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
    """Whether one may be the other, changed: not where they have two names."""
    return same(_name(old), _name(new))


def _name(item: Data) -> Data:
    return item.get("name") if isinstance(item, dict) else None


def _stays(old: Data, new: Data) -> bool:
    if same(old, new):
        return True
    return _name(old) is not None and same(_name(old), _name(new))
