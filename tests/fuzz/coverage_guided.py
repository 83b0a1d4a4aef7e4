"""The decoders under atheris, which looks for inputs that reach new code. Run by hand: it is no dependency.

    .venv/bin/uv venv .cache/atheris
    .venv/bin/uv pip install --python .cache/atheris/bin/python atheris==3.0.0
    PYTHONPATH=.:.venv/lib/python3.11/site-packages \\
        .cache/atheris/bin/python -m tests.fuzz.coverage_guided "JAAS config" --runs 100000 --seed 1

The target is one of `decoders.ALL`, by its name. The first inputs come from its `make`. libFuzzer ends at the
first input that breaks the decoder's promise, and keeps that input in the folder where it was started.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any, Final

_VALID: Final = 30
_LONGEST_BYTES: Final = 4_096
_DEADLINE_S: Final = 10


def main() -> None:
    """Ends the process, as libFuzzer does."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.coverage_guided", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["client_core", "service"]):
        decoders: Any = importlib.import_module("tests.fuzz.decoders")
        judge = importlib.import_module("tests.fuzz.target").judge
    target = next(target for target in decoders.ALL if target.name == chosen.target)

    def try_one(data: bytes) -> None:
        judge(target, data)

    corpus = Path(tempfile.mkdtemp())
    for number in range(_VALID):
        (corpus / str(number)).write_bytes(target.make(Random(number)))
    options = (f"-runs={chosen.runs}", f"-seed={chosen.seed}", f"-max_len={_LONGEST_BYTES}", "-verbosity=0")
    atheris.Setup([sys.argv[0], *options, f"-timeout={_DEADLINE_S}", str(corpus)], try_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
