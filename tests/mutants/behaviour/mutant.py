"""Mutants: their replacements of text, read from the TOML files beside this one, and planted in a copy.

    [[mutant]]
    name = "offset-one-too-high"
    fault = "A receipt's offset is one too high."
    floor = "tests/producer/results/test_produce_results.py::test_…"   only of the floor: what finds it

    [[mutant.change]]
    file = "client_core/producer/results/batch_outcome.py"
    old = "self.base_offset + position"                        occurs in the file exactly once
    new = "self.base_offset + position + 1"

A compound has `of`, the names of single mutants, in place of changes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import tomllib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.support.tiers import HYPOTHESIS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[3]
PRODUCT: Final = ("client_core", "service", "pipeline")
_FOLDER: Final = Path(__file__).parent
#: Linked and not copied: environments and downloads, which no mutant touches.
_LINKED: Final = (".venv", ".cache")
_LEFT_OUT: Final = (".git", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", *_LINKED)


class MutantError(Exception):
    """A mutant that can't be planted. The message names it, the file and the remedy."""


class Change(NamedTuple):
    """One text that is replaced."""

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """A fault to plant. `floor`: the test that `make test` must find it by."""

    name: str
    fault: str
    changes: Sequence[Change]
    floor: str | None = None
    of: Sequence[str] = ()

    @property
    def files(self) -> list[str]:
        """The files that it changes, each once."""
        return list(dict.fromkeys(change.file for change in self.changes))

    @property
    def digest(self) -> str:
        """A digest of the mutated files: if it differs, an earlier result may no longer hold."""
        texts = [f"{file}\0{text}" for file, text in sorted(mutated(self, ROOT).items())]
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def read_mutants() -> list[Mutant]:
    """All mutants, compounds last. Raises MutantError for a name that is given twice, or for none."""
    single: dict[str, Mutant] = {}
    compound: list[dict[str, Any]] = []
    for path in sorted(_FOLDER.glob("*.toml")):
        for item in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            if "of" in item:
                compound.append(item)
                continue
            name = item["name"]
            if name in single:
                raise MutantError(f"{path.name}: {name} is given twice; give one of them another name")
            changes = [Change(**change) for change in item["change"]]
            single[name] = Mutant(name, item["fault"], changes, item.get("floor"))
    return [*single.values(), *(_combined(item, single) for item in compound)]


def _combined(item: Mapping[str, Any], single: Mapping[str, Mutant]) -> Mutant:
    missing = [name for name in item["of"] if name not in single]
    if missing:
        raise MutantError(f"{item['name']}: there is no mutant {', '.join(missing)}; take one that there is")
    changes = [change for name in item["of"] for change in single[name].changes]
    fault = " And: ".join(single[name].fault for name in item["of"])
    return Mutant(item["name"], fault, changes, item.get("floor"), tuple(item["of"]))


def mutated(mutant: Mutant, root: Path) -> dict[str, str]:
    """The texts of the files that a mutant changes. Raises MutantError where a change does not apply."""
    texts: dict[str, str] = {}
    for file, old, new in mutant.changes:
        path = root / file
        if not path.is_file():
            raise MutantError(f"{mutant.name}: there is no {file}; name the file that the code is in now")
        text = texts.get(file) or path.read_text(encoding="utf-8")
        count = text.count(old)
        if count != 1:
            raise MutantError(
                f"{mutant.name}: {old!r} occurs {count} times in {file}; rewrite the change for this code"
            )
        texts[file] = text.replace(old, new)
    return texts


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of this tree to plant in, with its compiled modules; gone at the end."""
    with tempfile.TemporaryDirectory(prefix="pilotfish-mutant-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
        for name in _LINKED:
            if (ROOT / name).exists():
                (tree / name).symlink_to((ROOT / name).resolve())
        yield tree


@contextmanager
def planted(mutant: Mutant, tree: Path) -> Iterator[None]:
    """The mutant in a copy of the tree, for as long as the block lasts."""
    texts = mutated(mutant, tree)
    before = {file: (tree / file).read_text(encoding="utf-8") for file in texts}
    _write(tree, texts)
    try:
        yield
    finally:
        _write(tree, before)


def _write(tree: Path, texts: Mapping[str, str]) -> None:
    for file, text in texts.items():
        path = tree / file
        path.write_text(text, encoding="utf-8")
        # A module that was compiled in the same second, of the same size, would be taken for this one.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


def environment_of(tree: Path) -> dict[str, str]:
    """For programs that run on the copy: its packages are found before those that are installed."""
    return {**os.environ, "PYTHONPATH": str(tree), HYPOTHESIS_VARIABLE: "unshrunk"}
