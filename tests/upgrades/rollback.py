"""`python -m tests.upgrades.rollback [COMMIT]`: an upgrade from a commit, and the way back, file by file.

Makes a checkout of the commit (by default that of fixtures/). The checkout writes files that this tree reads,
and this tree writes files that the checkout reads: a spool folder, a tokens file, a file of common settings,
events and tables. Prints one line each; ends with 1 if one was not read. `make test-long` runs it. Without
git history, as in a source archive, it prints NOT RUN and ends with 2.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from pipeline.jars.connector_jars import default_folder
from tests.upgrades.make_fixtures import FIXTURES
from tests.upgrades.trees import (
    Tree,
    load_settings,
    other_values,
    read_spool,
    read_tokens,
    settings_schema,
    write_events,
    write_spool,
    write_tables,
    write_tokens,
)

_ROOT: Final = Path(__file__).resolve().parents[2]
#: Settings that can't be given another value alone.
_NOT_ALONE: Final = frozenset(
    {"api_tls_certificate_file", "api_tls_key_file", "api_tls_client_ca_file", "internal", "kafka"}
)

Trial = Callable[[Tree, Tree, Path], None]


def _spool(writer: Tree, reader: Tree, scratch: Path) -> None:
    state = write_spool(writer, scratch / "spool", scratch)
    read_spool(reader, scratch / "spool", state, scratch)


def _tokens(writer: Tree, reader: Tree, scratch: Path) -> None:
    file, token = write_tokens(writer, scratch)
    read_tokens(reader, file, token, scratch)


def _settings(writer: Tree, reader: Tree, scratch: Path) -> None:
    known = settings_schema(reader, scratch)
    schema = settings_schema(writer, scratch)
    values = {name: shape for name, shape in schema.items() if name in known and name not in _NOT_ALONE}
    load_settings(reader, other_values(values), scratch)


def _tables(store: str, writer: Tree, reader: Tree, scratch: Path) -> None:
    """The reader goes on from the writer's tables with the writer's events, and with its own.

    The older tree does so with --rebuild, as docs/operations.md says: it can't merge into columns that it
    does not know.
    """
    folder, jars = scratch / store, default_folder(_ROOT)
    write_tables(writer, write_events(writer, scratch), folder, store, jars, scratch)
    options = () if reader.root == _ROOT else ("--rebuild",)
    write_tables(reader, write_events(reader, scratch), folder, store, jars, scratch, *options)


_TRIALS: Final[dict[str, Trial]] = {
    "spool folder": _spool,
    "tokens file": _tokens,
    "settings file": _settings,
    "events and parquet tables": partial(_tables, "parquet"),
    "events and delta tables": partial(_tables, "delta"),
}


def main(arguments: list[str]) -> int:
    commit = arguments[0] if arguments else (FIXTURES / "commit").read_text().strip()
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        added = _git("worktree", "add", "--detach", str(checkout), commit)
        if added.returncode:
            print(f"NOT RUN: no checkout of {commit}: {added.stderr.strip()}")
            return 2
        try:
            return _play(Tree(checkout), Tree(_ROOT), Path(folder))
        finally:
            _git("worktree", "remove", "--force", str(checkout))


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(("git", "-C", _ROOT, *words), capture_output=True, text=True, check=False)


def _play(old: Tree, new: Tree, folder: Path) -> int:
    code = 0
    for way, writer, reader in (("upgrade", old, new), ("rollback", new, old)):
        for thing, trial in _TRIALS.items():
            scratch = folder / "scratch"
            scratch.mkdir()
            try:
                trial(writer, reader, scratch)
                print(f"{way}: {thing}: read", flush=True)
            except AssertionError as error:
                code = 1
                print(f"{way}: {thing}: NOT READ: {error}", flush=True)
            finally:
                shutil.rmtree(scratch)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
