"""A manifest's nodes as a tree, with their positions in the text.

ruamel.yaml parses the text into events. Each node keeps the offsets of its first and last character, so that
an edit touches no other byte. Aliases stay aliases. Only this module uses ruamel.yaml, and it is imported
only when a manifest is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from service.cli.inject.faults import EditError

_BLOCK_SCALARS: Final = ("|", ">")
_MERGE: Final = "<<"
_COLON: Final = re.compile(r"\s*:")

#: ruamel.yaml scans all open brackets at each new one: a hundred thousand would take hours.
_MOST_OPEN: Final = 1_000


@dataclass(slots=True, eq=False)
class Scalar:
    """One value. `plain` means without quotes: it may be a number, a boolean or null."""

    start: int
    end: int
    line: int
    text: str
    plain: bool
    tag: str | None
    anchored: bool


@dataclass(slots=True, eq=False)
class Mapping:
    """Pairs in order. `body` is the first key, or in flow style the opening brace."""

    start: int
    body: int
    line: int
    flow: bool
    anchored: bool
    end: int = 0
    pairs: list[tuple[Node, Node]] = field(default_factory=list)

    def merged(self) -> list[Node]:
        """Returns the values of `<<`: the mappings merged into this one."""
        return [value for key, value in self.pairs if is_merge(key)]


@dataclass(slots=True, eq=False)
class Sequence:
    """Items in order. `body` is the first dash, or in flow style the opening bracket."""

    start: int
    body: int
    line: int
    flow: bool
    anchored: bool
    end: int = 0
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Alias:
    """A reference to an anchored value."""

    start: int
    end: int
    line: int
    target: Scalar | Mapping | Sequence


Node = Scalar | Mapping | Sequence | Alias


@dataclass(slots=True, eq=False)
class Document:
    """One document of a file, counted from 1; `explicit` if it begins with three dashes."""

    number: int
    line: int
    explicit: bool
    directives: bool
    root: Node


class NotYamlError(Exception):
    """The text is not YAML; `line` counts from 0. `document` is the one with the error, if known."""

    def __init__(self, document: int | None, line: int, why: str) -> None:
        super().__init__(why)
        self.document = document
        self.line = line
        self.why = why


def is_nothing(node: Node) -> bool:
    """Returns whether the value is empty text."""
    return isinstance(node, Scalar) and node.start == node.end


def is_merge(key: Node) -> bool:
    return isinstance(key, Scalar) and key.plain and key.tag is None and key.text == _MERGE


def target(node: Node) -> Scalar | Mapping | Sequence:
    """Returns the node itself, or an alias's target."""
    return node.target if isinstance(node, Alias) else node


def child(node: Node | None, key: str) -> Node | None:
    """Returns the value of a key, merged ones included; None if absent."""
    left = [] if node is None else [node]
    seen: set[int] = set()
    is_source = False
    while left:
        of = target(left.pop())
        if id(of) in seen:  # merged into itself, directly or not
            continue
        seen.add(id(of))
        if isinstance(of, Mapping):
            for name, value in of.pairs:
                if isinstance(name, Scalar) and name.text == key and not is_merge(name):
                    return value
            left.extend(reversed(of.merged()))
        elif isinstance(of, Sequence) and is_source:
            left.extend(reversed(of.items))
        is_source = True
    return None


class ByName(NamedTuple):
    """A path step to the list item with this name."""

    name: str


def at(node: Node, path: tuple[str | int | ByName, ...]) -> Node:
    """Returns the node at a path, or the last existing one on the way."""
    for step in path:
        found = child(node, step) if isinstance(step, str) else _item(node, step)
        if found is None:
            return node
        node = found
    return node


def _item(node: Node, step: int | ByName) -> Node | None:
    of = target(node)
    items = of.items if isinstance(of, Sequence) else []
    if isinstance(step, int):
        return items[step] if step < len(items) else None
    return next((item for item in items if text_of(child(item, "name")) == step.name), None)


def text_of(node: Node | None) -> str | None:
    """Returns a scalar's text; None for anything else, and for empty text."""
    scalar = None if node is None else target(node)
    return scalar.text if isinstance(scalar, Scalar) and scalar.text else None


def parse(text: str) -> list[Document]:
    """Returns the documents of a text. Raises NotYamlError; does not check for Kubernetes objects."""
    builder = _Builder(text)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.take(event)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = " ".join(str(error.problem or error.context or "can't be read").split())
        raise NotYamlError(builder.number, mark.line if mark is not None else 0, why) from error
    except YAMLError as error:
        # The reader's error: a character that YAML forbids.
        position = getattr(error, "position", 0)
        why = f"has a character that YAML does not allow: {getattr(error, 'reason', 'a special character')}"
        raise NotYamlError(None, text.count("\n", 0, position), why) from error
    except (ValueError, OverflowError, AssertionError) as error:
        # ruamel.yaml converts escapes and versions to numbers unchecked, and asserts their form.
        raise NotYamlError(builder.number, builder.line, f"can't be read: {error}") from error
    return builder.documents


class _Builder:
    """Builds the tree from events, without recursion; refuses absurd nesting."""

    def __init__(self, text: str) -> None:
        self.documents: list[Document] = []
        self.number = 1
        self.line = 0
        self._text = text
        self._anchors: dict[str, Scalar | Mapping | Sequence] = {}
        self._open: list[tuple[Mapping | Sequence, list[Node]]] = []
        self._start: tuple[int, bool, bool] = (0, False, False)

    def take(self, event: Any) -> None:
        self.line = event.start_mark.line
        if isinstance(event, DocumentStartEvent):
            self.number = len(self.documents) + 1
            self._anchors = {}
            self._start = (self.line, bool(event.explicit), bool(event.version or event.tags))
        elif isinstance(event, ScalarEvent):
            self._add(self._scalar(event))
        elif isinstance(event, AliasEvent):
            self._add(self._alias(event))
        elif isinstance(event, MappingStartEvent):
            self._begin(event, Mapping(*self._where(event)))
        elif isinstance(event, SequenceStartEvent):
            self._begin(event, Sequence(*self._where(event)))
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            self._finish(event)

    def _where(self, event: Any) -> tuple[int, int, int, bool, bool]:
        """Returns start, body, line, flow, anchored."""
        flow = bool(event.flow_style)
        body = event.end_mark.index
        # In flow style, the end of the bracket; in a sequence without indentation, the end of the dash.
        at_dash = isinstance(event, MappingStartEvent) or self._text[body : body + 1] == "-"
        if flow or not at_dash:
            body -= 1
        return event.start_mark.index, body, event.start_mark.line, flow, event.anchor is not None

    def _scalar(self, event: Any) -> Scalar:
        start, end = event.start_mark.index, event.end_mark.index
        if event.style in _BLOCK_SCALARS:
            end = self._end_of_block_scalar(start, end)
        plain = event.style in (None, "")
        made = Scalar(start, end, self.line, event.value, plain, _tag(event), event.anchor is not None)
        if event.anchor is not None:
            self._anchors[event.anchor] = made
        return made

    def _end_of_block_scalar(self, start: int, end: int) -> int:
        """Returns the end of its last line; with `|+` the following empty lines belong to it."""
        head, _, _ = self._text[start:end].partition("\n")
        header = head.partition(" #")[0]
        return end if "+" in header else start + len(self._text[start:end].rstrip())

    def _alias(self, event: Any) -> Alias:
        found = self._anchors.get(event.anchor)
        if found is None:
            raise NotYamlError(
                self.number, self.line, f"uses the anchor {event.anchor}, which is not defined"
            )
        return Alias(event.start_mark.index, event.end_mark.index, self.line, found)

    def _begin(self, event: Any, made: Mapping | Sequence) -> None:
        if event.anchor is not None:
            self._anchors[event.anchor] = made
        if len(self._open) == _MOST_OPEN:
            raise NotYamlError(self.number, self.line, f"nests deeper than {_MOST_OPEN} levels")
        self._open.append((made, []))

    def _finish(self, event: Any) -> None:
        made, children = self._open.pop()
        if isinstance(made, Sequence):
            made.items = children
        else:
            made.pairs = list(zip(children[::2], children[1::2], strict=True))
            for key, value in made.pairs:
                self._put_behind_colon(key, value)
        ends = (node.end for node in children if isinstance(made, Mapping) or not is_nothing(node))
        made.end = event.end_mark.index if made.flow else max(ends, default=made.body)
        self._add(made)

    def _put_behind_colon(self, key: Node, value: Node) -> None:
        """Moves an empty value to its colon: ruamel.yaml gives it the position of the next token."""
        if is_nothing(value) and isinstance(value, Scalar):
            colon = _COLON.match(self._text, key.end)
            place = key.end if colon is None else colon.end()
            value.start, value.end, value.line = place, place, key.line

    def _add(self, node: Node) -> None:
        if self._open:
            self._open[-1][1].append(node)
            return
        line, explicit, directives = self._start
        self.documents.append(Document(len(self.documents) + 1, line, explicit, directives, node))


def _tag(event: Any) -> str | None:
    """Returns the tag as written, in full; None if there is none."""
    return None if event.tag is None else str(event.tag)


def nodes(root: Node, deepest: int | None = None) -> Iterator[Node]:
    """Yields every node, without following aliases. Raises EditError for nesting beyond `deepest`."""
    waiting = [(root, 0)]
    while waiting:
        node, depth = waiting.pop()
        if deepest is not None and depth > deepest:
            raise EditError(node.line, f"nests deeper than {deepest} levels")
        yield node
        if isinstance(node, Mapping):
            waiting.extend((of, depth + 1) for pair in node.pairs for of in pair)
        elif isinstance(node, Sequence):
            waiting.extend((of, depth + 1) for of in node.items)
