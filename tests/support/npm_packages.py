"""Packages of npm for tests that run clients of others: installed as a lock file says, once, into .cache/npm.

    folder = install(Path("tests/kafka/dapr_client"))     # its scripts, beside its node_modules
    run([find_node(), folder / "publish.js"])

A folder is kept under the hash of its lock file and is put in its place whole, so that two test runs do not
meet in one that is half there. No script of any package runs. Needs Node 18 or newer with its npm, which apt
installs where they are missing and we are root; else it is said what to install. Blocks, on the caller's
thread.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.support import debian_packages
from tests.support.waiting import patient

CACHE: Final = Path(__file__).resolve().parents[2] / ".cache" / "npm"

OLDEST_NODE: Final = 18
_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = patient(100)

_REMEDY: Final = (
    f"install Node {OLDEST_NODE} or newer with its npm (Debian and Ubuntu: `apt-get install nodejs npm`; "
    "elsewhere https://nodejs.org)"
)


class NodeMissingError(RuntimeError):
    """There is no Node here, or no npm, or the packages can't be had; the message says what to do."""


def find_node() -> Path:
    """The `node` on PATH, or Debian's. Raises NodeMissingError where there is none that is new enough."""
    found = shutil.which("node") or _from_debian("node")
    said = subprocess.run(
        [found, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
    )
    version = re.match(r"v(\d+)\.", said.stdout)
    if version is None or int(version[1]) < OLDEST_NODE:
        raise NodeMissingError(f"{found} is {said.stdout.strip()}, which is too old: {_REMEDY}")
    return Path(found)


def _from_debian(program: str) -> str:
    try:
        debian_packages.install("nodejs", "npm")
    except debian_packages.PackagesMissingError as error:
        raise NodeMissingError(f"{program} is needed and not on PATH: {_REMEDY}: {error}") from error
    found = shutil.which(program)
    if found is None:
        raise NodeMissingError(f"apt installed nodejs and npm, but {program} is not on PATH: {_REMEDY}")
    return found


def install(project: Path, cache: Path = CACHE) -> Path:
    """A copy of the project's files with its packages. Raises NodeMissingError."""
    lock = hashlib.sha256((project / "package-lock.json").read_bytes()).hexdigest()[:16]
    home = cache / f"{project.name}-{lock}"
    if not (home / "node_modules").is_dir():
        _install_into(home, project, cache)
    for script in project.glob("*.js"):  # they change while the lock stays
        shutil.copy2(script, home / script.name)
    return home


def _install_into(home: Path, project: Path, cache: Path) -> None:
    npm = shutil.which("npm") or _from_debian("npm")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        made = Path(folder) / home.name
        made.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy2(project / name, made / name)
        _run_npm(npm, made, cache)
        try:
            made.rename(home)
        except OSError as error:
            # Another test run was faster, with the same packages.
            if not (home / "node_modules").is_dir():
                raise NodeMissingError(f"{home} can't be made: {error}; remove it and try again") from error


def _run_npm(npm: str, folder: Path, cache: Path) -> None:
    command = [
        *(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"),
        *("--cache", str(cache / "downloads")),
    ]
    said = ""
    for _ in range(_ATTEMPTS):
        ran = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if ran.returncode == 0:
            return
        said = ran.stderr.strip()
    raise NodeMissingError(f"npm could not install {folder.name} in {_ATTEMPTS} attempts: {said[-2000:]}")
