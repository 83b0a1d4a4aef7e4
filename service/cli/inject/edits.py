"""Finds the smallest edits that give a manifest's text a wanted meaning.

`edits(text, document, wanted)` compares the nodes with the wanted values. A value with the right meaning
keeps every byte: comments, order, quotes, indentation, anchors. A new key or item gets the style of its
neighbours; a comment stays above its line. An alias that must keep its anchor's old value is replaced by that
value.

Pure. The result may be wrong: the caller must parse it and compare it with the wanted values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from service.cli.inject.faults import EditError
from service.cli.inject.plain_data import DEEPEST, data, key_of
from service.cli.inject.tree import Alias, Mapping, Node, Sequence, is_merge, is_nothing, nodes, target
from service.cli.inject.values import Data, Key, same
from service.cli.inject.yaml_text import Style, block_item, block_pairs, flow_pair, flow_text, scalar_text


@dataclass(frozen=True, slots=True)
class Lines:
    """Offsets in a text, counted in characters."""

    text: str

    def start(self, place: int) -> int:
        """Returns the start of the place's line."""
        return self.text.rfind("\n", 0, place) + 1

    def column(self, place: int) -> int:
        return place - self.start(place)

    def indent(self, place: int) -> str:
        """Returns the leading blanks of the place's line."""
        line = self.text[self.start(place) : place]
        return line[: len(line) - len(line.lstrip(" \t"))]

    def is_first(self, place: int) -> bool:
        """Returns whether only blanks precede the place on its line."""
        return not self.text[self.start(place) : place].strip(" ")

    def after(self, end: int) -> int:
        """Returns the start of the next line after `end`; the text's end if there is none."""
        if self.text[end - 1 : end] == "\n":
            return end
        found = self.text.find("\n", end)
        return len(self.text) if found < 0 else found + 1

    def rest(self, end: int) -> str:
        """Returns the rest of the line after a place."""
        return self.text[end : self.after(end)] if self.text[end - 1 : end] != "\n" else ""

    def dash(self, column: int, behind: int, before: int) -> int:
        """Returns the offset of the first dash at `column` on a line after `behind`, up to `before`."""
        line = self.after(behind)
        while self.text[line + column : line + column + 1] != "-" and line < before:
            line = self.after(line + 1)
        return line + column

    def above_comments(self, place: int, not_before: int) -> int:
        """Returns the start of the line, or of the comments directly above with the same indentation."""
        begin, column = self.start(place), self.column(place)
        while begin > not_before:
            above = self.start(begin - 1)
            line = self.text[above:begin]
            if (
                above < not_before
                or len(line) - len(line.lstrip(" ")) != column
                or line.lstrip(" ")[:1] != "#"
            ):
                break
            begin = above
        return begin


class Edit(NamedTuple):
    """Replaces these characters by a text."""

    start: int
    end: int
    text: str


def edits(text: str, root: Node, wanted: Data) -> list[Edit]:
    """Returns the edits that make a document mean `wanted`, by position. Raises EditError if none do."""
    writing = _Writing(Lines(text), style_of(text, root))
    writing.write(root, wanted, None)
    return writing.edits


def applied(text: str, changes: list[Edit]) -> str:
    """Returns the text after its edits, with its own line ends."""
    newline = "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"
    parts: list[str] = []
    done = 0
    # At the same position, insertions come before deletions; equal edits keep their order.
    for edit in sorted(changes, key=lambda edit: (edit.start, edit.end)):
        if edit.start < done:
            raise EditError(
                text.count("\n", 0, edit.start), "is written in a way that can't be edited in place"
            )
        parts += [text[done : edit.start], edit.text.replace("\n", newline)]
        done = edit.end
    made = "".join([*parts, text[done:]])
    # If the last line had no line end, the result has none either.
    return made if text.endswith("\n") or text[done:] else made.removesuffix("\n").removesuffix("\r")


def style_of(text: str, root: Node) -> Style:
    """Returns the document's indentation, from its first level and its first list below a key."""
    lines = Lines(text)
    step: int | None = None
    dash: int | None = None
    for node in nodes(root, DEEPEST):
        if not isinstance(node, Mapping) or node.flow:
            continue
        for key, value in node.pairs:
            if isinstance(value, Mapping) and not value.flow and value.pairs:
                step = min(step or _WIDEST, lines.column(value.body) - lines.column(key.start))
            elif isinstance(value, Sequence) and not value.flow and value.items:
                below = lines.column(value.body) - lines.column(key.start)
                dash = below if dash is None else max(dash, below)
    usual = Style()
    return Style(step if step is not None and step > 0 else usual.step, usual.dash if dash is None else dash)


_WIDEST: Final = 8


@dataclass(frozen=True, slots=True)
class _Pair:
    """The place of a value after a key in block style."""

    key: Node


class _Writing:
    """Writes one document. `_became` has the new meanings of anchored values."""

    def __init__(self, lines: Lines, style: Style) -> None:
        self.edits: list[Edit] = []
        self._lines = lines
        self._style = style
        self._became: dict[int, Data] = {}

    def write(self, node: Node, wanted: Data, slot: _Pair | None) -> None:
        if isinstance(node, Alias):
            if not same(self._meaning(node), wanted):
                self._replace(node, wanted, slot)
            return
        if node.anchored:
            self._became[id(node)] = wanted
        if isinstance(node, Mapping) and isinstance(wanted, dict) and _stays(node, node.pairs, wanted, slot):
            self._write_mapping(node, wanted)
        elif (
            isinstance(node, Sequence) and isinstance(wanted, list) and _stays(node, node.items, wanted, slot)
        ):
            self._write_sequence(node, wanted)
        elif not same(data(node), wanted):
            self._replace(node, wanted, slot)

    def _meaning(self, node: Node) -> Data:
        of = target(node)
        return self._became[id(of)] if id(of) in self._became else data(of)

    # -- a whole value --------------------------------------------------------------------------------------

    def _replace(self, node: Node, wanted: Data, slot: _Pair | None) -> None:
        start = self._behind_properties(node)
        if isinstance(wanted, dict | list) and wanted and slot is not None and self._ends_line(node, slot):
            while self._lines.text[start - 1] == " ":
                start -= 1
            self.edits.append(Edit(start, node.end, ""))
            self._insert_lines(self._lines.after(node.end), self._block(wanted, slot))
            return
        text = (
            flow_text(wanted) if isinstance(wanted, dict | list) else scalar_text(wanted, flow=slot is None)
        )
        gap = "" if self._lines.text[start - 1 : start] in (" ", "\n", "") or slot is None else " "
        self.edits.append(Edit(start, node.end, gap + text))

    def _behind_properties(self, node: Node) -> int:
        """Returns the value's start after its anchor, which stays."""
        if isinstance(node, Alias) or not node.anchored:
            return node.start
        if isinstance(node, Mapping | Sequence):
            return node.body
        anchor = self._lines.text[node.start : node.end].split(None, 1)
        return node.end - len(anchor[1]) if len(anchor) > 1 else node.end

    def _ends_line(self, node: Node, slot: _Pair) -> bool:
        """Returns whether the value is on its key's line, followed at most by a comment."""
        rest = self._lines.rest(node.end).strip()
        return node.line == slot.key.line and (not rest or rest.startswith("#"))

    def _block(self, wanted: Data, slot: _Pair) -> list[str]:
        column = self._lines.column(slot.key.start)
        if isinstance(wanted, dict):
            return block_pairs(wanted, column + self._style.step, self._style)
        assert isinstance(wanted, list)
        return [line for item in wanted for line in block_item(item, column + self._style.dash, self._style)]

    def _insert_lines(self, place: int, lines: list[str]) -> None:
        """Inserts whole lines at a line's start, or after a last line without line end."""
        text = "\n".join(lines)
        ended = place == 0 or self._lines.text[place - 1] == "\n"
        self.edits.append(Edit(place, place, f"{text}\n" if ended else f"\n{text}"))

    # -- mappings -------------------------------------------------------------------------------------------

    def _write_mapping(self, node: Mapping, wanted: dict[Key, Data]) -> None:
        own = {key_of(key): (key, value) for key, value in node.pairs if not is_merge(key)}
        merged = self._merged(node)
        kept = [name for name in own if name in wanted]
        for name in kept:
            key, value = own[name]
            self.write(value, wanted[name], None if node.flow else _Pair(key))
        dropped = [
            index
            for index, (key, _) in enumerate(node.pairs)
            if not is_merge(key) and key_of(key) not in wanted
        ]
        entries = [_Entry(key.start, max(key.end, value.end), key.line) for key, value in node.pairs]
        added = _added(wanted, own, merged)
        places = {
            name: index
            for index, (key, _) in enumerate(node.pairs)
            if not is_merge(key)
            for name in [key_of(key)]
        }
        groups = [(None if before is None else places[before], pairs) for before, pairs in added]
        if node.flow:
            texts = [
                (place, [self._flow_pair(node, name, value) for name, value in pairs.items()])
                for place, pairs in groups
            ]
            self._write_flow(node, entries, dropped, texts)
            return
        column = self._lines.column(node.body)
        self._write_block(
            entries, dropped, [(place, block_pairs(pairs, column, self._style)) for place, pairs in groups]
        )

    def _merged(self, node: Mapping) -> dict[Key, Data]:
        taken: dict[Key, Data] = {}
        for source in node.merged():
            read = self._meaning(source)
            for part in read if isinstance(read, list) else [read]:
                if isinstance(part, dict):
                    taken = {**part, **taken}
        return taken

    # -- sequences ------------------------------------------------------------------------------------------

    def _write_sequence(self, node: Sequence, wanted: list[Data]) -> None:
        found = _list_changes([data(item) for item in node.items], wanted)
        for index, value in found.kept:
            self.write(node.items[index], value, None)
        if node.flow:
            entries = [_Entry(item.start, item.end, item.line) for item in node.items]
            self._write_flow(
                node,
                entries,
                found.dropped,
                [
                    (place, [self._flow_item(node, value) for value in values])
                    for place, values in found.added
                ],
            )
            return
        entries = self._items(node)
        column = self._lines.column(node.body)
        self._write_block(
            entries,
            found.dropped,
            [
                (place, [line for value in values for line in block_item(value, column, self._style)])
                for place, values in found.added
            ],
        )

    def _items(self, node: Sequence) -> list[_Entry]:
        """Returns each item with its dash."""
        column = self._lines.column(node.body)
        entries: list[_Entry] = []
        for item in node.items:
            dash = node.body
            if entries:
                dash = self._lines.dash(column, entries[-1].end, item.start)
            end = dash + 1 if is_nothing(item) else max(item.end, dash + 1)
            entries.append(_Entry(dash, end, item.line))
        return entries

    # -- both -----------------------------------------------------------------------------------------------

    def _write_block(
        self, entries: list[_Entry], dropped: list[int], added: list[tuple[int | None, list[str]]]
    ) -> None:
        for index in dropped:
            entry = entries[index]
            if self._lines.is_first(entry.start):
                self.edits.append(Edit(self._lines.start(entry.start), self._lines.after(entry.end), ""))
            elif index + 1 < len(entries) and index + 1 not in dropped:
                # The entry follows a list's dash on its line, and the dash stays.
                self.edits.append(Edit(entry.start, entries[index + 1].start, ""))
            else:
                raise EditError(entry.line, "can't be removed from its line; write it on its own line")
        for place, lines in added:
            if place is None or not self._lines.is_first(entries[place].start):
                self._insert_lines(self._lines.after(entries[-1].end), lines)
            else:
                above = entries[place - 1].end if place else 0
                self._insert_lines(self._lines.above_comments(entries[place].start, above), lines)

    def _write_flow(
        self,
        node: Mapping | Sequence,
        entries: list[_Entry],
        dropped: list[int],
        added: list[tuple[int | None, list[str]]],
    ) -> None:
        if not dropped and not added:
            return
        between = self._between(node, entries)
        kept = [index for index in range(len(entries)) if index not in dropped]
        if not kept:
            inner = between.join(text for _, texts in added for text in texts)
            self.edits.append(Edit(node.body + 1, node.end - 1, inner))
            return
        for first, last in _runs(dropped):
            if last + 1 < len(entries):
                self.edits.append(Edit(entries[first].start, entries[last + 1].start, ""))
            else:
                self.edits.append(Edit(entries[first - 1].end, entries[last].end, ""))
        for place, texts in added:
            joined = between.join(texts)
            if place is None:
                end = entries[kept[-1]].end
                self.edits.append(Edit(end, end, between + joined))
            else:
                start = entries[place].start
                self.edits.append(Edit(start, start, joined + between))

    def _between(self, node: Mapping | Sequence, entries: list[_Entry]) -> str:
        """Returns the separator of entries: a comma, and a line end if each has its own line."""
        indent = self._flow_indent(node, entries[0].start if entries else None)
        return ", " if indent is None else f",\n{indent}"

    def _flow_indent(self, node: Mapping | Sequence, first: int | None) -> str | None:
        """Returns the indentation of entries on their own lines; None if they share one line."""
        if first is None or self._lines.start(first) == self._lines.start(node.body):
            return None
        return self._lines.indent(first)

    def _flow_pair(self, node: Mapping, key: Key, value: Data) -> str:
        indent = self._flow_indent(node, node.pairs[0][0].start if node.pairs else None)
        return flow_pair(key, value, indent, self._flow_step(node, indent))

    def _flow_item(self, node: Sequence, value: Data) -> str:
        indent = self._flow_indent(node, node.items[0].start if node.items else None)
        return flow_text(value, indent, self._flow_step(node, indent))

    def _flow_step(self, node: Mapping | Sequence, indent: str | None) -> int:
        return max(1, len(indent or "  ") - len(self._lines.indent(node.body)))


def _stays(node: Mapping | Sequence, inside: list[Any], wanted: Data, slot: _Pair | None) -> bool:
    """Returns whether a collection is edited in place; an empty one is replaced, and gets its own lines."""
    return bool(inside) and (bool(wanted) or node.flow) if slot is not None else bool(wanted) or node.flow


class _Entry(NamedTuple):
    """A pair or an item in the text: from its key or dash to its last character."""

    start: int
    end: int
    line: int


def _added(
    wanted: dict[Key, Data], own: dict[Key, tuple[Node, Node]], merged: dict[Key, Data]
) -> list[tuple[Key | None, dict[Key, Data]]]:
    """Returns new pairs in groups, each with the key after it; None for the end."""
    groups: list[tuple[Key | None, dict[Key, Data]]] = []
    group: dict[Key, Data] = {}
    for name, value in wanted.items():
        if name in own:
            if group:
                groups.append((name, group))
            group = {}
        elif name not in merged or not same(merged[name], value):
            group[name] = value
    return [*groups, (None, group)] if group else groups


def _runs(indexes: list[int]) -> list[tuple[int, int]]:
    """Returns the first and last index of each run of consecutive ones."""
    runs: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    return runs


# -- lists ---------------------------------------------------------------------------------------------------


class _Changed(NamedTuple):
    """`kept`: old index and new value. `added`: the old index after them (None: the end), new items."""

    kept: list[tuple[int, Data]]
    dropped: list[int]
    added: list[tuple[int | None, list[Data]]]


def _list_changes(old: list[Data], new: list[Data]) -> _Changed:
    """Returns the changes from `old` to `new`. Keeps the order: a moved item is dropped and added.

    Items with the same meaning are kept. So are mappings with the same `name`, Kubernetes' key of containers,
    variables and volumes; they are edited in place. If the lengths are equal, and the names at each position
    too, all items are kept.
    """
    if len(old) == len(new) and all(map(_may_stay, old, new)):
        return _Changed(list(enumerate(new)), [], [])
    kept: list[tuple[int, Data]] = []
    dropped: list[int] = []
    added: list[tuple[int | None, list[Data]]] = []
    waiting: list[Data] = []
    done = 0
    for item in new:
        found = next((index for index in range(done, len(old)) if _is_kept(old[index], item)), None)
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
    return _Changed(kept, dropped, added)


def _may_stay(old: Data, new: Data) -> bool:
    """Returns whether `old` may be edited into `new`: not if their names differ."""
    return same(_name(old), _name(new))


def _name(item: Data) -> Data:
    return item.get("name") if isinstance(item, dict) else None


def _is_kept(old: Data, new: Data) -> bool:
    if same(old, new):
        return True
    return _name(old) is not None and same(_name(old), _name(new))
