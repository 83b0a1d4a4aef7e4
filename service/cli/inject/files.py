"""Reads manifests from files, folders and standard input; writes them back to files.

New files are written next to the old ones, and renamed once all are complete. So no reader sees a partial
file, and if one can't be written, none is replaced.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from service.cli.inject.faults import AskedError, InjectError, ManifestError
from service.cli.inject.manifests import Source

STANDARD_INPUT: Final = "-"
_STANDARD_INPUT_NAME: Final = "standard input"
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_BESIDE: Final = ".pilotfish-"


def paths_of(named: Sequence[str]) -> list[str]:
    """Returns the named files; for a folder, the manifests directly in it. Raises AskedError."""
    found: list[str] = []
    for name in named:
        if name == STANDARD_INPUT or not Path(name).is_dir():
            found.append(name)
            continue
        inside = sorted(path for path in Path(name).iterdir() if path.suffix in _SUFFIXES and path.is_file())
        if not inside:
            kinds = ", ".join(_SUFFIXES)
            raise AskedError(
                [f"-f {name}: is a folder without files of {kinds}; its subfolders are not searched"]
            )
        found.extend(map(str, inside))
    known: dict[str, str] = {}
    for name in found:
        place = name if name == STANDARD_INPUT else os.path.realpath(name)
        if place in known:
            as_what = "" if known[place] == name else f", as {known[place]} too"
            raise AskedError([f"-f {name}: is given twice{as_what}; give it once"])
        known[place] = name
    return found


def read(paths: Sequence[str]) -> list[Source]:
    """Returns the texts of the files. Raises ManifestError for unreadable files or invalid UTF-8."""
    sources: list[Source] = []
    broken: list[str] = []
    for path in paths:
        name = _STANDARD_INPUT_NAME if path == STANDARD_INPUT else path
        try:
            content = sys.stdin.buffer.read() if path == STANDARD_INPUT else Path(path).read_bytes()
            sources.append(Source(name, content.decode()))
        except OSError as error:
            broken.append(f"{name}: can't be read: {error.strerror or error}")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            broken.append(
                f"{name}, line {line}: is not UTF-8; save it as UTF-8, or convert it with `iconv -t utf-8`"
            )
    if broken:
        raise ManifestError(broken)
    return sources


def joined(texts: Sequence[str]) -> str:
    """Joins several files into one stream of documents; returns a single one unchanged."""
    stream = ""
    for text in texts:
        if not stream:
            stream = text
            continue
        following = text.removeprefix("\ufeff")
        ended = stream if stream.endswith("\n") else f"{stream}\n"
        if _begins_with_directive(following):
            stream = f"{ended}...\n{following}"
        elif following.startswith("---"):
            stream = ended + following
        else:
            stream = f"{ended}---\n{following}"
    return stream


def _begins_with_directive(text: str) -> bool:
    """Returns whether a stream begins with a directive such as %YAML: it needs a document end before it."""
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return next(lines, "").startswith("%")


def write(texts: Mapping[Path, str]) -> None:
    """Replaces files, keeping their modes. Raises InjectError; then no file has changed."""
    ready: dict[Path, Path] = {}
    path = Path()
    try:
        for path, text in texts.items():
            # A link stays; its target is replaced.
            target = path.resolve()
            ready[target] = _written_beside(target, text)
        for path in list(ready):
            ready[path].replace(path)
            del ready[path]
    except OSError as error:
        why = error.strerror or error
        raise InjectError([f"{path}: can't be written: {why}; name another file, or redirect"]) from error
    finally:
        for unused in ready.values():
            unused.unlink(missing_ok=True)


def _written_beside(target: Path, text: str) -> Path:
    """Writes a new file in the target's folder, with the target's mode or the default one."""
    if target.exists() and not target.is_file():
        raise FileExistsError(errno.EEXIST, "it is not a file")
    mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
    descriptor, name = tempfile.mkstemp(prefix=_BESIDE, dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
        Path(name).chmod(mode)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
