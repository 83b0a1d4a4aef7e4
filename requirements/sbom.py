"""`python -m requirements.sbom FOLDER PINS`: what these pins install, as CycloneDX with licences.

`cyclonedx_py` takes the components from the pins, which name no licence. The installed distributions do, in
License-Expression (PEP 639), or else in their classifiers or License. Those that the environment of `make
setup` has not, or has in another version, are installed into a scratch folder for it. Ends with 1 and names
the component if that fails, or if one has no licence.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from requirements.distributions import project

ROOT: Final = Path(__file__).resolve().parents[1]

_CLASSIFIER: Final = "License :: OSI Approved :: "
#: A longer text is the licence itself, and no name.
_LONGEST_NAME: Final = 80


def write(pins: str, path: Path) -> None:
    """Writes the bill of a file of pins, such as run.txt. Raises LookupError and CalledProcessError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Pins are a flat list, and cyclonedx_py says so: who needs whom is in their comments.
    python = (sys.executable, "-W", "ignore:The Component this BOM", "-m", "cyclonedx_py")
    what = (
        "requirements",
        f"requirements/{pins}",
        "--pyproject",
        "pyproject.toml",
        "--mc-type",
        "application",
    )
    command = (*python, *what, "--output-reproducible", "-o", str(path.resolve()))
    subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - our own words
    bill = json.loads(path.read_text())
    path.unlink()  # without licences it is not what it claims to be
    _add_licences(bill["components"], pins)
    path.write_text(json.dumps(bill, indent=2) + "\n")


def _add_licences(components: list[dict[str, Any]], pins: str) -> None:
    try:
        for part in components:
            part["licenses"] = licences_of(part["name"], part["version"])
    except LookupError:
        with tempfile.TemporaryDirectory() as scratch:
            _install(pins, scratch)
            for part in components:
                part["licenses"] = licences_of(part["name"], part["version"], scratch)


def _install(pins: str, folder: str) -> None:
    how = ("--quiet", "--no-deps", "--require-hashes", "--target", folder, "--python", sys.executable)
    command = (sys.executable, "-m", "uv", "pip", "install", *how, "-r", f"requirements/{pins}")
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if ran.returncode:
        raise LookupError(f"{pins} can't be installed to read its licences: {ran.stderr.strip()}")


def licences_of(name: str, version: str, folder: str | None = None) -> list[dict[str, Any]]:
    """Returns CycloneDX's `licenses` of a distribution, installed in this environment or in a folder.

    Raises LookupError if there are none.
    """
    found = next(iter(distributions(name=name, path=[folder] if folder else sys.path)), None)
    if found is None:
        raise LookupError(f"{name} is not installed")
    if found.version != version:
        raise LookupError(f"{name} is installed as {found.version}, and not as {version}")
    for expression in found.metadata.get_all("License-Expression") or ():
        return [{"expression": expression}]
    classifiers = found.metadata.get_all("Classifier") or ()
    names = [line.removeprefix(_CLASSIFIER) for line in classifiers if _CLASSIFIER in line]
    if not names:
        names = [text for text in found.metadata.get_all("License") or () if 0 < len(text) <= _LONGEST_NAME]
    if not names:
        raise LookupError(f"{name} {version} names no licence")
    return [{"license": {"name": one}} for one in names]


def file_name(pins: str) -> str:
    """The name of the bill of a file of pins."""
    flavour = pins.removesuffix(".txt")
    return f"pilotfish-{project()['version']}{'' if flavour == 'run' else f'-{flavour}'}.cdx.json"


def main(folder: Path, pins: str) -> int:
    """Writes the bill into the folder, and returns the exit code."""
    try:
        write(pins, folder / file_name(pins))
    except LookupError as error:
        print(f"no bill of {pins}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
