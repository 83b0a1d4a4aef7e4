"""`make structure`: packages, imports between them, sizes of modules, and the files that one request uses.

Rooms of a package are what lies in its folder: packages and single modules. An arrow leads from a room to one
that it imports; a circle is a set of rooms that import each other. Modules of Kafka's messages, which are
generated, do not count as modules.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.structure.imports import arrows, circles, floors, graph
from tests.structure.request_paths import PATHS

_ROOT: Final = Path(__file__).parents[2]
#: Whose rooms are shown.
_PACKAGES: Final = ("service", "client_core", "client_core/producer", "pipeline")
_PRODUCT: Final = ("service", "client_core", "pipeline")
_GENERATED: Final = "client_core/protocol/messages"
_SHORT_LINES: Final = 60


def main() -> None:
    print("package               rooms  floors  arrows  circles")
    for package in _PACKAGES:
        rooms = graph(arrows(_ROOT / package, package.replace("/", ".")))
        count = sum(map(len, rooms.values()))
        found = circles(rooms)
        deep = floors(rooms)
        print(f"{package:20} {len(rooms):6} {'-' if deep is None else deep:>7} {count:7} {len(found):8}")
        for circle in found:
            print(f"    circle of {len(circle)}: {', '.join(circle)}")
    print()
    print("package        modules   lines  median  under 60  longest")
    total = 0
    for package in _PRODUCT:
        sizes = {
            path: len(path.read_bytes().splitlines())
            for path in sorted((_ROOT / package).rglob("*.py"))
            if not path.is_relative_to(_ROOT / _GENERATED)
        }
        total += sum(sizes.values())
        modules = [size for path, size in sizes.items() if path.name != "__init__.py"]
        short = sum(size < _SHORT_LINES for size in modules) / len(modules)
        median = int(statistics.median(modules))
        print(
            f"{package:14} {len(modules):7} {sum(sizes.values()):7} {median:7} {short:9.0%} {max(modules):8}"
        )
    print(f"{'all':14} {total:15}")
    print()
    print("request    own files  calls  switches")
    for name in PATHS:
        command = [sys.executable, "-m", "tests.structure.request_paths", name]
        ran = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
        if ran.returncode:
            sys.exit(f"{name}: {ran.stderr}")
        counts = json.loads(ran.stdout.splitlines()[-1])
        print(f"{name:10} {counts['files']:9} {counts['calls']:6} {counts['switches']:9}")


if __name__ == "__main__":
    main()
