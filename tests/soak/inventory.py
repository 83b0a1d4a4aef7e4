"""The objects of a process: the number of each type, and the length of each of our containers.

    {"objects": {"client_core.cluster.Node": 3, …}, "containers": {"ProducerMetadata._topics": 17, …}}

Objects are those that the garbage collector tracks. Texts and numbers are not among them, so the containers
of our own objects are measured too, all instances of a class together. Any thread; it stops the others for
some milliseconds.
"""

from __future__ import annotations

import gc
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_OURS: Final = ("client_core", "service")
#: Their lengths can be asked for from another thread, and while they change.
_CONTAINERS: Final = (dict, list, set, frozenset, deque, OrderedDict, bytearray)


class Inventory(NamedTuple):
    """Numbers by name."""

    objects: dict[str, int]
    containers: dict[str, int]


def take_inventory() -> Inventory:
    """What there is now, garbage taken away before."""
    gc.collect()
    followed = gc.get_objects()
    types = Counter(map(type, followed))
    objects: Counter[str] = Counter()
    for kind, count in types.items():
        objects[_name_of(kind)] += count
    containers: Counter[str] = Counter()
    for thing in followed:
        if _is_ours(type(thing)):
            for attribute, length in _containers_of(thing):
                containers[f"{_name_of(type(thing))}.{attribute}"] += length
    return Inventory(dict(objects), dict(containers))


def _is_ours(kind: type) -> bool:
    module = getattr(kind, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in _OURS


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _containers_of(thing: object) -> Iterator[tuple[str, int]]:
    for attribute in _attributes_of(thing):
        try:
            value = object.__getattribute__(thing, attribute)
        except AttributeError:  # a slot that is not set
            continue
        if isinstance(value, _CONTAINERS):
            yield attribute, len(value)


def _attributes_of(thing: object) -> set[str]:
    names: set[str] = set(getattr(thing, "__dict__", ()))
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names.update((slots,) if isinstance(slots, str) else slots)
    return names - {"__dict__", "__weakref__"}
