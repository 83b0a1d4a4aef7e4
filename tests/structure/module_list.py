"""docs/modules.md: every module of the sidecar by its package, with the first words of its docstring.

    python -m tests.structure.module_list            writes it
    python -m tests.structure.module_list --check    exits 1 where it is out of date

Left out are the generated messages of Kafka's protocol. Of the charts, benchmarks and tests only the highest
packages are listed.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[2]
LIST: Final = ROOT / "docs" / "modules.md"
_TOPS: Final = ("client_core", "service", "pipeline", "helm", "benchmarks", "tests")
_GENERATED: Final = "client_core/protocol/messages"
_WORDS: Final = 12
#: Words after a comma that begin a qualification, or a second verb or object.
_QUALIFYING: Final = (
    "(?:and|apart|as|at|behind|by|checked|each|for|from|if|in|of|on|once|or|passed|reusing|so|such|through|to"
    "|until|validated|versions|which|while|with|without)"
)
#: Only their packages are listed.
_PACKAGES_ONLY: Final = ("helm", "benchmarks", "tests")
_HEAD: Final = """# Modules

`make docs` writes this page from the modules' docstrings. [DESIGN.md](../DESIGN.md) shows how the packages
depend on each other.
"""


def module_list() -> str:
    """The text of the file."""
    folders = list(_folders())
    packages = "".join(_package(folder) for folder in folders if _top(folder) not in _PACKAGES_ONLY)
    lines = "".join(_line(folder) for folder in folders if _is_one_line(folder))
    return f"{_HEAD}{packages}\n## Charts, benchmarks and tests\n\n{lines}"


def _folders() -> Iterator[Path]:
    for top in _TOPS:
        for folder in sorted({path.parent for path in (ROOT / top).rglob("*.py")}):
            if not folder.relative_to(ROOT).as_posix().startswith(_GENERATED):
                yield folder


def _top(folder: Path) -> str:
    return folder.relative_to(ROOT).parts[0]


def _is_one_line(folder: Path) -> bool:
    return _top(folder) in _PACKAGES_ONLY and len(folder.relative_to(ROOT).parts) <= 2


def _line(folder: Path) -> str:
    """A package in one line; empty without a docstring."""
    init = folder / "__init__.py"
    about = summary(init) if init.exists() else ""
    return f"- `{folder.relative_to(ROOT).as_posix()}/`: {about}\n" if about else ""


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
    lines = "".join(f"- `{path.name}`: {summary(path)}\n" for path in modules)
    head = f"\n## `{folder.relative_to(ROOT).as_posix()}/`\n\n"
    return head + (f"{about}\n\n" if about else "") + lines


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
    """The first clause of a module's docstring: at most 12 words, without what qualifies it after a comma."""
    sentence = first_sentence(docstring(path))
    clause = re.split(r"(?<=\S{3})[:;]\s", sentence, maxsplit=1)[0]
    clause = clause if len(clause.split()) >= 3 else sentence
    unqualified = re.split(rf",\s(?={_QUALIFYING}\b)", clause, maxsplit=1)[0]
    words = (unqualified if len(unqualified.split()) >= 4 else clause).rstrip(".").split()
    return " ".join(words[:_WORDS]) + (" …" if len(words) > _WORDS else ".") if words else ""


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
