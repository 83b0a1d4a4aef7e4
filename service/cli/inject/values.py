"""What manifests are made of, as plain values: dicts, lists, texts, whole numbers, truth values, nothing."""

from __future__ import annotations

from typing import NamedTuple


class Raw(NamedTuple):
    """A value that is not understood, only kept: its text, and its tag where it has one."""

    text: str
    tag: str | None = None


Key = str | Raw
Data = str | int | bool | None | Raw | list["Data"] | dict[Key, "Data"]


def same(one: Data, other: Data) -> bool:
    """Whether two values are the same to Kubernetes: the order of keys is nothing, 1 is not true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if type(one) is not type(other):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
