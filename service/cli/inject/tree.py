"""A manifest as a tree of nodes that know where they stand in the text.

ruamel.yaml reads the text into events; what is kept of them here is each value with the offsets of its first
and last character, so that an edit touches what it is about and not a byte beside it. Aliases stay aliases.
This is the one module that knows ruamel.yaml, and it is imported when a manifest is read, not before.
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

#: ruamel.yaml goes over all brackets that are open at each further one: at a hundred thousand, for hours.
_MOST_OPEN: Final = 1_000


@dataclass(slots=True, eq=False)
class Scalar:
    """One value. `plain` is one without quotes, which may mean a number, a truth value or nothing."""

    start: int
    end: int
    line: int
    text: str
    plain: bool
    tag: str | None
    anchored: bool


@dataclass(slots=True, eq=False)
class Mapping:
    """Pairs in their order. `body` is the first key, or in flow style the brace that opens."""

    start: int
    body: int
    line: int
    flow: bool
    anchored: bool
    end: int = 0
    pairs: list[tuple[Node, Node]] = field(default_factory=list)

    def merged(self) -> list[Node]:
        """The values of `<<`: mappings that this one takes over."""
        return [value for key, value in self.pairs if is_merge(key)]


@dataclass(slots=True, eq=False)
class Sequence:
    """Items in their order. `body` is the first dash, or in flow style the bracket that opens."""

    start: int
    body: int
    line: int
    flow: bool
    anchored: bool
    end: int = 0
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Alias:
    """A place that stands for an anchored value elsewhere."""

    start: int
    end: int
    line: int
    target: Scalar | Mapping | Sequence


Node = Scalar | Mapping | Sequence | Alias


@dataclass(slots=True, eq=False)
class Document:
    """One document of a file, counted from 1; `explicit` where it begins with three dashes."""

    number: int
    line: int
    explicit: bool
    directives: bool
    root: Node


class NotYamlError(Exception):
    """A text that is no YAML; the line counts from 0. `document` is the one it broke off in, where known."""

    def __init__(self, document: int | None, line: int, why: str) -> None:
        super().__init__(why)
        self.document = document
        self.line = line
        self.why = why


def is_nothing(node: Node) -> bool:
    """Whether no character stands for a value."""
    return isinstance(node, Scalar) and node.start == node.end


def is_merge(key: Node) -> bool:
    return isinstance(key, Scalar) and key.plain and key.tag is None and key.text == _MERGE


def target(node: Node) -> Scalar | Mapping | Sequence:
    """What a node stands for."""
    return node.target if isinstance(node, Alias) else node


def child(node: Node | None, key: str) -> Node | None:
    """The value of a key, also of one that was merged in; None where there is none."""
    left = [] if node is None else [node]
    seen: set[int] = set()
    is_source = False
    while left:
        of = target(left.pop())
        if id(of) in seen:  # it was merged into itself, on whichever way
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
    """A step to the item of a list that has this name."""

    name: str


def at(node: Node, path: tuple[str | int | ByName, ...]) -> Node:
    """The node at a path, or the last one on the way to it that there is."""
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
    """A scalar's text; None for anything else, and for nothing."""
    scalar = None if node is None else target(node)
    return scalar.text if isinstance(scalar, Scalar) and scalar.text else None


def parse(text: str) -> list[Document]:
    """The documents of a text. Raises NotYamlError; what is no Kubernetes object is not judged here."""
    builder = _Builder(text)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            builder.take(event)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = " ".join(str(error.problem or error.context or "can't be read").split())
        raise NotYamlError(builder.number, mark.line if mark is not None else 0, why) from error
    except YAMLError as error:
        # The reader's: a character that YAML does not have.
        position = getattr(error, "position", 0)
        why = f"has a character that YAML does not allow: {getattr(error, 'reason', 'a special character')}"
        raise NotYamlError(None, text.count("\n", 0, position), why) from error
    except (ValueError, OverflowError, AssertionError) as error:
        # ruamel.yaml turns escapes and versions into numbers without looking, and asserts what they are.
        raise NotYamlError(builder.number, builder.line, f"can't be read: {error}") from error
    return builder.documents


class _Builder:
    """Puts events together. Holds no recursion, and ends what nests deeper than any text that is meant."""

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
        """Start, body, line, flow, anchored."""
        flow = bool(event.flow_style)
        body = event.end_mark.index
        # The end of the bracket in flow style; of the dash in a sequence that is not indented.
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
        """Behind its last line; with `|+` the empty lines that follow belong to it."""
        head, _, _ = self._text[start:end].partition("\n")
        header = head.partition(" #")[0]
        return end if "+" in header else start + len(self._text[start:end].rstrip())

    def _alias(self, event: Any) -> Alias:
        found = self._anchors.get(event.anchor)
        if found is None:
            raise NotYamlError(self.number, self.line, f"names the anchor {event.anchor}, which is nowhere")
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
        """Where nothing stands behind a key, ruamel.yaml tells the place of what comes next."""
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
    """The tag that was written, in full; None where there is none."""
    return None if event.tag is None else str(event.tag)


def nodes(root: Node, deepest: int | None = None) -> Iterator[Node]:
    """Every node, aliases not followed. Raises EditError for what nests deeper than that, if it must not."""
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
