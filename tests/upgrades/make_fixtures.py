"""`python -m tests.upgrades.make_fixtures CHECKOUT`: has an older checkout write what fixtures/ keeps of it.

The checkout runs on this environment's packages, and its pipeline on this project's jars.
"""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from pipeline.jars.connector_jars import default_folder
from tests.upgrades.trees import (
    Tree,
    other_values,
    scrape,
    settings_schema,
    write_events,
    write_spool,
    write_tables,
    write_tokens,
)

FIXTURES: Final = Path(__file__).parent / "fixtures"


def main(checkout: Path) -> None:
    tree = Tree(checkout.resolve())
    jars = default_folder(Path(__file__).resolve().parents[2])
    shutil.rmtree(FIXTURES, ignore_errors=True)
    FIXTURES.mkdir()
    commit = subprocess.run(
        ("git", "-C", checkout, "rev-parse", "HEAD"), check=True, capture_output=True, text=True
    ).stdout.strip()
    (FIXTURES / "commit").write_text(f"{commit}\n")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        state = write_spool(tree, FIXTURES / "spool", scratch)
        (FIXTURES / "spool" / "lock").unlink(missing_ok=True)
        _keep("spool.json", state._asdict())
        events = write_events(tree, scratch)
        (FIXTURES / "events.jsonl").write_text("".join(f"{line}\n" for line in events))
        for store in ("parquet", "delta"):
            write_tables(tree, events, scratch / store, store, jars, scratch)
            with (
                lzma.open(FIXTURES / f"{store}.tar.xz", "wb", preset=9) as out,
                tarfile.open(fileobj=out, mode="w") as archive,
            ):
                archive.add(scratch / store, store)
        tokens, token = write_tokens(tree, scratch)
        (FIXTURES / "tokens.toml").write_text(tokens)
        (FIXTURES / "token").write_text(f"{token}\n")
        _keep("settings.json", other_values(settings_schema(tree, scratch)))
        (FIXTURES / "metrics.txt").write_text(scrape(tree, scratch))


def _keep(name: str, value: object) -> None:
    (FIXTURES / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
