"""Adds licences to a bill of materials: `python requirements/licences.py dist/pilotfish-0.1.0.cdx.json`.

`cyclonedx_py` takes the components from the pins, which name no licence. The installed distributions do, in
License-Expression (PEP 639), or else in their classifiers or License. Ends with 1 and names the component if
one is not installed here in this version, or has no licence.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, Final

_CLASSIFIER: Final = "License :: OSI Approved :: "
#: A longer text is the licence itself, and no name.
_LONGEST_NAME: Final = 80


def licences_of(name: str, version: str) -> list[dict[str, Any]]:
    """Returns CycloneDX's `licenses` of an installed distribution. Raises LookupError if there are none."""
    try:
        found = metadata(name)
    except PackageNotFoundError as error:
        raise LookupError(f"{name} is not installed") from error
    if found["Version"] != version:
        raise LookupError(f"{name} is installed as {found['Version']}, and not as {version}")
    for expression in found.get_all("License-Expression") or ():
        return [{"expression": expression}]
    names = [
        line.removeprefix(_CLASSIFIER) for line in found.get_all("Classifier") or () if _CLASSIFIER in line
    ]
    if not names:
        names = [text for text in found.get_all("License") or () if 0 < len(text) <= _LONGEST_NAME]
    if not names:
        raise LookupError(f"{name} {version} names no licence")
    return [{"license": {"name": one}} for one in names]


def main(path: Path) -> int:
    bill = json.loads(path.read_text())
    try:
        for part in bill["components"]:
            part["licenses"] = licences_of(part["name"], part["version"])
    except LookupError as error:
        print(f"{path}: {error}. Run `make setup`.", file=sys.stderr)
        return 1
    path.write_text(json.dumps(bill, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
