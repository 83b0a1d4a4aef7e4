"""Programs whose environment has other packages than the tests': they import only what is pinned for them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
#: Prints the modules that do not load without the packages of which the first argument is a list.
_LOAD: Final = """
import importlib, json, sys
absent, modules = map(json.loads, sys.argv[1:])
sys.modules.update(dict.fromkeys(absent))
for module in modules:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] in absent:
            print(f"{module} needs {error.name}")
"""


def _packages_without_a_pin(requirements: str) -> list[str]:
    text = (_ROOT / "requirements" / requirements).read_text(encoding="utf-8")
    pinned = {*re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE), "pilotfish"}
    return sorted(
        package
        for package, distributions in packages_distributions().items()
        if not pinned & {re.sub(r"[-_.]+", "-", name).lower() for name in distributions}
    )


def test_benchmarks_load_with_what_is_pinned_for_them() -> None:
    """Those of the pipeline run in the tests' environment. What only bench.txt has may be absent here."""
    files = [path for path in (_ROOT / "benchmarks").glob("*.py") if not path.name.startswith("pipeline")]
    modules = sorted(f"benchmarks.{path.stem}" for path in files if path.stem != "__main__")
    absent = _packages_without_a_pin("bench.txt")
    assert {"pyspark", "pytest"} <= set(absent)
    loaded = subprocess.run(
        [sys.executable, "-c", _LOAD, json.dumps(absent), json.dumps(modules)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (loaded.stdout, loaded.stderr, loaded.returncode) == ("", "", 0)
