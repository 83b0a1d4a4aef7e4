"""docs/modules.md: every module by its package, the sidecar's with the first words of their docstrings.

    python -m tests.structure.module_list            writes it
    python -m tests.structure.module_list --check    exits 1 where it is out of date

Left out are the messages of Kafka's protocol, which are generated, and files of tests, whose names say what
is in them. Modules of the pipeline, the charts, benchmarks and helpers of tests are named only.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
LIST: Final = ROOT / "docs" / "modules.md"
_TOPS: Final = ("client_core", "service", "pipeline", "helm", "benchmarks", "tests")
_GENERATED: Final = "client_core/protocol/messages"
_WORDS: Final = 10
#: Their modules are listed by name only.
_NAMED_ONLY: Final = ("benchmarks", "helm", "pipeline", "tests")
_COLUMNS: Final = 128
_HEAD: Final = """# Modules

Find the file that holds a behaviour. The rest is in its docstring. `make docs` writes
this page. [DESIGN.md](../DESIGN.md) shows how the packages depend on each other.
"""


def module_list() -> str:
    """The text of the file."""
    return _HEAD + "".join(_package(folder) for folder in _folders())


def _folders() -> Iterator[Path]:
    for top in _TOPS:
        for folder in sorted({path.parent for path in (ROOT / top).rglob("*.py")}):
            if not folder.relative_to(ROOT).as_posix().startswith(_GENERATED):
                yield folder


def _package(folder: Path) -> str:
    modules = [
        path
        for path in sorted(folder.glob("*.py"))
        if path.name != "__init__.py" and not path.name.startswith("test_")
    ]
    init = folder / "__init__.py"
    about = summary(init) if init.exists() else ""
    if not modules:
        return ""
    if folder.relative_to(ROOT).parts[0] in _NAMED_ONLY:
        lines = _wrapped(", ".join(f"`{path.name}`" for path in modules))
    else:
        lines = "".join(f"- `{path.name}`: {summary(path)}\n" for path in modules)
    head = f"\n## `{folder.relative_to(ROOT).as_posix()}/`\n\n"
    return head + (f"{about}\n\n" if about else "") + lines


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _COLUMNS, break_long_words=False, break_on_hyphens=False) + ".\n"


def docstring(path: Path) -> str:
    """A module's docstring, empty without one. The rest is not parsed: of all files that takes seconds."""
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.STRING:
                return inspect.cleandoc(ast.literal_eval(token.string))
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                break
    return ""


def first_line(path: Path) -> str:
    """The first line of a module's docstring, empty without one."""
    return docstring(path).partition("\n")[0]


def summary(path: Path) -> str:
    """The first sentence of a module's docstring, cut to 10 words, at a mark where there is one."""
    words = first_sentence(docstring(path)).split()
    if len(words) <= _WORDS:
        return " ".join(words)
    kept = words[:_WORDS]
    ends = [count for count, word in enumerate(kept, 1) if word[-1] in ":;," and count >= 4]
    return " ".join(kept[: ends[-1]]).rstrip(":;,") + "." if ends else " ".join(kept) + " …"


def first_sentence(text: str) -> str:
    """The text up to the first full stop that ends a sentence, on one line."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[.?!])\s+(?=[A-Z`])", paragraph, maxsplit=1)[0]


def main() -> int:
    text = module_list()
    if "--check" not in sys.argv:
        LIST.write_text(text, encoding="utf-8")
    elif LIST.read_text(encoding="utf-8") != text:
        print("docs/modules.md is out of date: run `make docs`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
