"""Plain values of manifests: dicts, lists, strings, integers, booleans, null."""

from __future__ import annotations

from typing import NamedTuple


class Raw(NamedTuple):
    """A value kept uninterpreted: its text, and its tag if any."""

    text: str
    tag: str | None = None


Key = str | Raw
Data = str | int | bool | None | Raw | list["Data"] | dict[Key, "Data"]


def same(one: Data, other: Data) -> bool:
    """Returns whether Kubernetes treats two values as equal: key order is ignored, 1 is not true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
