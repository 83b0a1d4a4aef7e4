"""Writes values as YAML: block style as usual, flow style as JSON.

Strings are quoted unless every YAML version reads them as strings: `yes`, `8085` and `0.0.0.0` are quoted.
Quoted strings are valid in JSON and YAML.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final

from service.cli.inject.plain_data import plain_value
from service.cli.inject.values import Data, Key, Raw

#: A string that needs no quotes in any YAML version.
_SAFE: Final = re.compile(
    r"[A-Za-z/_][A-Za-z0-9_./-]*([:=@][A-Za-z0-9_./-]+)*|[0-9]+(m|[KMG]i)|[0-9]+(\.[0-9]+){2,}"
)
#: Characters that JSON keeps and YAML can't read: controls, Unicode line ends, surrogates.
_UNREADABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Style:
    """The document's indentation: columns per level, and of a dash below its key."""

    step: int = 2
    dash: int = 2


def scalar_text(value: str | int | bool | Raw | None, *, flow: bool = False) -> str:
    """Returns one value; in flow style strings are always quoted, so that JSON stays JSON."""
    if isinstance(value, Raw):
        return value.text if value.tag is None else f"{_tag(value.tag)} {quoted(value.text)}"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return value if not flow and _is_safe(value) else quoted(value)


def _is_safe(text: str) -> bool:
    return _SAFE.fullmatch(text) is not None and isinstance(plain_value(text), str)


def quoted(text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    return _UNREADABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", shown)


def _tag(tag: str) -> str:
    return tag if tag.startswith("!") else f"!<{tag}>"


def block_pairs(pairs: dict[Key, Data], column: int, style: Style) -> list[str]:
    """Returns the lines of a mapping with its keys in `column`."""
    lines: list[str] = []
    for key, value in pairs.items():
        lines.extend(_below(f"{' ' * column}{scalar_text(key)}:", value, column, style))
    return lines


def _below(head: str, value: Data, column: int, style: Style) -> list[str]:
    """Returns a key's line, and the lines of its value."""
    if isinstance(value, dict) and value:
        return [head, *block_pairs(value, column + style.step, style)]
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value) and len(value) <= _SHORT:
            return [f"{head} {flow_text(value)}"]
        return [head, *(line for item in value for line in block_item(item, column + style.dash, style))]
    return [f"{head} {flow_text(value) if isinstance(value, dict | list) else scalar_text(value)}"]


#: Lists of strings up to this length are on one line: `args: ["serve"]`.
_SHORT: Final = 4


def block_item(value: Data, column: int, style: Style) -> list[str]:
    """Returns the lines of one item with its dash in `column`."""
    indent = " " * column
    if isinstance(value, dict) and value:
        first, *rest = block_pairs(value, column + 2, style)
        return [f"{indent}- {first[column + 2 :]}", *rest]
    return [f"{indent}- {flow_text(value) if isinstance(value, dict | list) else scalar_text(value)}"]


def flow_text(value: Data, indent: str | None = None, step: int = 2) -> str:
    """Returns the value in flow style: on one line, or with an indent on several."""
    if isinstance(value, dict) and value:
        parts = [
            flow_pair(key, of, None if indent is None else indent + " " * step, step)
            for key, of in value.items()
        ]
        return _bracketed("{", parts, "}", indent, step)
    if isinstance(value, list) and value:
        below = None if indent is None else indent + " " * step
        return _bracketed("[", [flow_text(item, below, step) for item in value], "]", indent, step)
    if isinstance(value, dict):
        return "{}"
    return "[]" if isinstance(value, list) else scalar_text(value, flow=True)


def flow_pair(key: Key, value: Data, indent: str | None = None, step: int = 2) -> str:
    return f"{scalar_text(key, flow=True)}: {flow_text(value, indent, step)}"


def _bracketed(opened: str, parts: list[str], closed: str, indent: str | None, step: int) -> str:
    if indent is None:
        return f"{opened}{', '.join(parts)}{closed}"
    inner = "\n" + indent + " " * step
    return f"{opened}{inner}{f',{inner}'.join(parts)}\n{indent}{closed}"
