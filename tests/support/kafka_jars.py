"""Fetches the jars of Apache Kafka's broker from Maven's central repository into a cache folder, once.

    python -m tests.support.kafka_jars .cache/kafka/4.3.1 [--with mvn|jgo]

Maven does it where it is installed, else jgo (a resolver in Python, from the `test` extra); either reads the
settings and mirrors that the machine has for it, and no address stands here. The folder appears whole or not
at all: jars are fetched beside it, a stamp with their names and sizes is put to them, and the folder is moved
into place. A second call that finds the stamp true does nothing. Two processes wait for one another.

Called by the Makefile, by `tests/kafka` and `benchmarks/`; blocks, on the caller's thread.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_log = logging.getLogger(__name__)

KAFKA_VERSION: Final = "4.3.1"
#: The broker, its command line tools, and a log that goes to stderr. slf4j's version is the one of Kafka's
#: own pom.
COORDINATES: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
#: The folder that tests and benchmarks share, below the project's root.
DEFAULT_FOLDER: Final = Path(__file__).resolve().parents[2] / ".cache" / "kafka" / KAFKA_VERSION

_STAMP: Final = "jars.json"
_COPY_DEPENDENCIES: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
#: 54 MB in 92 jars took 5 s from a near mirror; a slow line gets a quarter of an hour before we call it dead.
_FETCH_TIMEOUT_S: Final = 900
_LAST_WORDS_CHARS: Final = 2_000


class JarsMissingError(RuntimeError):
    """The jars could not be fetched; the message says what was tried and what each attempt said."""


def ensure_jars(folder: Path = DEFAULT_FOLDER, *, fetcher: str | None = None) -> tuple[Path, ...]:
    """The jars of Kafka's broker in `folder`, fetched if they are not there yet.

    `fetcher` is "mvn" or "jgo"; None takes Maven where it is installed and jgo where it is not, or fails.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(folder.name + ".lock")):
        jars = _stamped_jars(folder)
        if jars is None:
            _fetch_into_place(folder, fetcher)
            jars = _stamped_jars(folder)
        if jars is None:
            raise JarsMissingError(
                f"{folder} does not hold what was just put there: is another process clearing it?"
            )
    return jars


@contextlib.contextmanager
def _alone(lock_path: Path) -> Iterator[None]:
    """Holds a lock between processes; it goes with its holder, however that one ends."""
    with lock_path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _stamped_jars(folder: Path) -> tuple[Path, ...] | None:
    """The jars that the folder's stamp names; None without a stamp, or when it is not true."""
    try:
        stamp = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
        if stamp["coordinates"] != list(COORDINATES):
            return None
        jars = {folder / name: size for name, size in stamp["jars"].items()}
        whole = all(jar.stat().st_size == size for jar, size in jars.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return tuple(sorted(jars)) if whole and jars else None


def _fetch_into_place(folder: Path, fetcher: str | None) -> None:
    """Fetches beside the folder and swaps it in, or raises JarsMissingError and leaves nothing behind."""
    if folder.exists() and not (folder / _STAMP).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise JarsMissingError(
            f"{folder} holds files that this program did not put there: name another folder"
        )
    with tempfile.TemporaryDirectory(prefix=folder.name + ".", dir=folder.parent) as scratch:
        fetched = Path(scratch) / "jars"
        fetched.mkdir()
        _fetch(fetched, Path(scratch), fetcher)
        _stamp(fetched)
        if folder.exists():
            folder.rename(Path(scratch) / "replaced")
        fetched.rename(folder)


def _fetch(into: Path, scratch: Path, fetcher: str | None) -> None:
    fetchers: dict[str, Callable[[Path, Path], None]] = {"mvn": _fetch_by_maven, "jgo": _fetch_by_jgo}
    names = [fetcher] if fetcher is not None else (["mvn"] if shutil.which("mvn") else []) + ["jgo"]
    failures: list[str] = []
    for name in names:
        try:
            fetchers[name](into, scratch)
        except JarsMissingError as error:
            _log.warning("%s", error)
            failures.append(str(error))
        else:
            _log.info("fetched Kafka %s by %s", KAFKA_VERSION, name)
            return
    raise JarsMissingError("; ".join(failures))


def _stamp(folder: Path) -> None:
    jars = {jar.name: jar.stat().st_size for jar in sorted(folder.glob("*.jar"))}
    needed = {f"{artifact}-{version}.jar" for _, artifact, version in (c.split(":") for c in COORDINATES)}
    if not needed <= jars.keys():
        raise JarsMissingError(f"the fetched jars lack {', '.join(sorted(needed - jars.keys()))}")
    text = json.dumps({"coordinates": COORDINATES, "jars": jars}, indent=1)
    (folder / _STAMP).write_text(text + "\n", encoding="utf-8")


def _pom() -> str:
    """A Maven project that consists of nothing but the wish for our jars."""
    wishes = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>\n"
        for g, a, v in (coordinate.split(":") for coordinate in COORDINATES)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>\n"
        "<groupId>pilotfish</groupId><artifactId>kafka-jars</artifactId><version>1</version>\n"
        f"<packaging>pom</packaging>\n<dependencies>\n{wishes}</dependencies></project>\n"
    )


def _fetch_by_maven(into: Path, scratch: Path) -> None:
    if shutil.which("mvn") is None:
        raise JarsMissingError("Maven (mvn) is not installed")
    pom = scratch / "pom.xml"
    pom.write_text(_pom(), encoding="utf-8")
    _run(
        "Maven",
        [
            "mvn",
            "-B",
            "-q",
            "-f",
            str(pom),
            _COPY_DEPENDENCIES,
            "-DincludeScope=runtime",
            f"-DoutputDirectory={into}",
        ],
    )


def _fetch_by_jgo(into: Path, scratch: Path) -> None:
    """In a process of its own: jgo logs through rich and may end its interpreter."""
    program = (
        "import sys, pathlib, shutil, jgo\n"
        "made = jgo.build(sys.argv[1], cache_dir=pathlib.Path(sys.argv[2]))\n"
        "for jar in made.all_jars: shutil.copy(jar.resolve(), pathlib.Path(sys.argv[3]) / jar.name)\n"
    )
    coordinates = "+".join(COORDINATES)
    _run("jgo", [sys.executable, "-c", program, coordinates, str(scratch / "jgo"), str(into)])


def _run(name: str, command: Sequence[str]) -> None:
    """Runs a fetcher; raises JarsMissingError with its last words."""
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FETCH_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise JarsMissingError(f"{name} did not fetch Kafka's jars within {_FETCH_TIMEOUT_S} s") from error
    except OSError as error:
        raise JarsMissingError(f"{name} could not be started: {error}") from error
    if ran.returncode != 0:
        said = ran.stdout.strip()[-_LAST_WORDS_CHARS:] or "nothing"
        raise JarsMissingError(
            f"{name} could not fetch Kafka's jars from Maven's central repository"
            f" (exit code {ran.returncode}); it said: {said}"
        )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.kafka_jars", description=__doc__.split("\n")[0]
    )
    parser.add_argument("folder", type=Path, nargs="?", default=DEFAULT_FOLDER)
    parser.add_argument(
        "--with", dest="fetcher", choices=("mvn", "jgo"), help="default: mvn where installed, else jgo"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        jars = ensure_jars(options.folder, fetcher=options.fetcher)
    except JarsMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{len(jars)} jars in {os.path.relpath(jars[0].parent)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
