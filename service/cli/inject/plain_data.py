"""Converts a node to plain values.

Aliases and merges are expanded into separate values, so that a change of one affects no other. Text that YAML
1.1 and 1.2 read differently (`yes`, `0644`, `1e3`, dates) is kept as written: Raw.
"""

from __future__ import annotations

import re
from typing import Final

from service.cli.inject.faults import EditError
from service.cli.inject.tree import Mapping, Node, Scalar, Sequence, is_merge, target
from service.cli.inject.values import Data, Key, Raw

#: A manifest has some twenty levels.
DEEPEST: Final = 100
#: More than the largest object that Kubernetes accepts (1.5 MiB) has.
_MOST_VALUES: Final = 200_000

_NOTHING: Final = ("", "~", "null", "Null", "NULL")
_TRUE: Final = ("true", "True", "TRUE")
_FALSE: Final = ("false", "False", "FALSE")
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
#: Text that some YAML version does not read as a string.
_AMBIGUOUS: Final = re.compile(
    r"[-+]?\.?[0-9][0-9_]*([.eE:xob+\-][0-9a-fA-F_.:eE+\-TtZz ]*)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|[yYnN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|<<|=|[-+][0-9_.]*"
)
#: An address or a version: no number has two dots.
_DOTTED: Final = re.compile(r"[0-9]+(\.[0-9]+){2,}")
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
#: `!!int "3"` is 3.
_PLAIN_TAGS: Final = tuple(f"tag:yaml.org,2002:{name}" for name in ("int", "bool", "null"))


def plain_value(text: str) -> str | int | bool | Raw | None:
    """Returns the value of a text without quotes."""
    if text in _NOTHING:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _WHOLE.fullmatch(text):
        return int(text)
    return Raw(text) if _AMBIGUOUS.fullmatch(text) and not _DOTTED.fullmatch(text) else text


def data(node: Node) -> Data:
    """Returns a node's value. Raises EditError for duplicate keys, and for circular aliases."""
    return _Reading().value(node, ())


class _Reading:
    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def value(self, node: Node, inside: tuple[Node, ...]) -> Data:
        self._left -= 1
        of = target(node)
        if isinstance(of, Scalar):
            return scalar_value(of)
        if of in inside:
            raise EditError(node.line, "an alias is inside its own anchor")
        if len(inside) >= DEEPEST:
            raise EditError(node.line, f"nests deeper than {DEEPEST} levels")
        if self._left < 0:
            raise EditError(node.line, f"its aliases expand to more than {_MOST_VALUES} values")
        within = (*inside, of)
        if isinstance(of, Sequence):
            return [self.value(item, within) for item in of.items]
        return self._mapping(of, within)

    def _mapping(self, node: Mapping, inside: tuple[Node, ...]) -> dict[Key, Data]:
        own: dict[Key, Data] = {}
        for key, value in node.pairs:
            if is_merge(key):
                continue
            name = key_of(key)
            if name in own:
                raise EditError(key.line, f"has the key {name} twice; keep one")
            own[name] = self.value(value, inside)
        for source in node.merged():
            for name, taken in self._source(source, inside):
                own.setdefault(name, taken)
        return own

    def _source(self, source: Node, inside: tuple[Node, ...]) -> list[tuple[Key, Data]]:
        read = self.value(source, inside)
        taken = read if isinstance(read, list) else [read]
        if not all(isinstance(part, dict) for part in taken):
            raise EditError(source.line, "merges (<<) something that is not a mapping")
        return [pair for part in taken if isinstance(part, dict) for pair in part.items()]


def scalar_value(node: Scalar) -> str | int | bool | Raw | None:
    if node.tag in _PLAIN_TAGS or (node.tag is None and node.plain):
        return plain_value(node.text)
    return node.text if node.tag in (None, _TEXT_TAG, "!") else Raw(node.text, node.tag)


def key_of(node: Node) -> Key:
    """Returns a key's text, or its spelling if it is no string."""
    of = target(node)
    if not isinstance(of, Scalar):
        raise EditError(node.line, "has a key that is not a string")
    value = scalar_value(of)
    return value if isinstance(value, str | Raw) else Raw(of.text)
