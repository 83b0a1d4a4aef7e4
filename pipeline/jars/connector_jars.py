"""Fetches Spark's Kafka connector and Delta: the jars of pom.xml that pyspark's Spark lacks.

    python -m pipeline.jars.connector_jars .cache/spark/4.0.0 [--with mvn|jgo]
    pilotfish-pipeline jars --to DIR

Files and Parquet need none of them. Jars that Spark already has are left out: two versions of a library on
one class path cause random failures.

Fetches with Maven if it is installed, else with jgo, a resolver in Python. Both use the settings and mirrors
of the machine; no address is written here. The folder appears as a whole: jars are fetched beside it, a stamp
lists the coordinates, names and sizes, and the folder is renamed. A second call that finds a valid stamp does
nothing. Two processes wait for each other. Calls block. Needs only the standard library, and jgo if there is
no Maven. `tests/support/kafka_jars.py` uses it too.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import logging
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


POM: Final = Path(__file__).with_name("pom.xml")
_NAMESPACE: Final = {"m": "http://maven.apache.org/POM/4.0.0"}


_log = logging.getLogger(__name__)

FETCHERS: Final = ("mvn", "jgo")
STAMP: Final = "jars.json"
_COPY_DEPENDENCIES: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
#: 54 MB in 92 jars took 5 s from a near mirror; a slow connection may take a quarter of an hour.
_FETCH_TIMEOUT_S: Final = 900
_LAST_WORDS_CHARS: Final = 2_000
#: The files in which Debian, Fedora and openSUSE keep the trusted certificate authorities.
#: A Python with its own OpenSSL uses none of them.
_SYSTEM_AUTHORITIES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
)
#: The messages of OpenSSL, Python's requests and Java for an unknown certificate authority.
_UNKNOWN_AUTHORITY: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED|PKIX path building failed")
#: Precedes a version of digits and points, but not the 0-10_2.13 in some artifacts' names.
_VERSION_ON: Final = re.compile(r"-(?=\d+\.)")


class JarsMissingError(PipelineError):
    """The jars could not be fetched; the message lists each attempt and its error."""


@dataclass(frozen=True, slots=True)
class WantedJars:
    """The required content of a folder."""

    #: For messages: "could not fetch {title} from Maven's central repository".
    title: str
    #: `group:artifact:version` of the required jars; their dependencies are fetched too.
    coordinates: tuple[str, ...]
    #: A Maven project that depends on these, for what coordinates can't express: exclusions.
    pom: str | None = None
    #: Artifacts that are removed although they are dependencies, because Spark already has them.
    left_out: frozenset[str] = frozenset()

    @property
    def file_names(self) -> frozenset[str]:
        return frozenset("{1}-{2}.jar".format(*coordinate.split(":")) for coordinate in self.coordinates)


def ensure_jars(wanted: WantedJars, folder: Path, *, fetcher: str | None = None) -> tuple[Path, ...]:
    """Returns the wanted jars in `folder`, fetching them if they are missing. Raises JarsMissingError.

    `fetcher` is "mvn" or "jgo"; None tries Maven if it is installed, then jgo.
    """
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(folder.name + ".lock")):
        jars = stamped_jars(wanted, folder)
        if jars is None:
            _fetch_into_place(wanted, folder, fetcher)
            jars = stamped_jars(wanted, folder)
        if jars is None:
            raise JarsMissingError(
                f"{folder} does not hold what was just put there: is another process clearing it?"
            )
    return jars


def stamped_jars(wanted: WantedJars, folder: Path) -> tuple[Path, ...] | None:
    """Returns the jars that the folder's stamp names; None without a valid stamp."""
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        if stamp["coordinates"] != list(wanted.coordinates):
            return None
        jars = {folder / name: size for name, size in stamp["jars"].items()}
        whole = all(jar.stat().st_size == size for jar, size in jars.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return tuple(sorted(jars)) if whole and jars else None


def fetch_from_command_line(
    wanted: WantedJars, default_folder: Path, arguments: Sequence[str], *, program: str
) -> int:
    """Runs `PROGRAM [FOLDER] [--with mvn|jgo]`; prints the result and returns 0, or the error and 1."""
    parser = argparse.ArgumentParser(prog=program, description=f"Fetches {wanted.title} into a folder, once.")
    parser.add_argument("folder", type=Path, nargs="?", default=default_folder)
    parser.add_argument(
        "--with", dest="fetcher", choices=FETCHERS, help="default: mvn where installed, else jgo"
    )
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        jars = ensure_jars(wanted, options.folder, fetcher=options.fetcher)
    except JarsMissingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{len(jars)} jars in {os.path.relpath(jars[0].parent)}\n")
    return 0


@contextlib.contextmanager
def _alone(lock_path: Path) -> Iterator[None]:
    """Holds a lock between processes; the system releases it when the holder ends."""
    with lock_path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_into_place(wanted: WantedJars, folder: Path, fetcher: str | None) -> None:
    """Fetches beside the folder and renames; on JarsMissingError it leaves nothing behind."""
    if folder.exists() and not (folder / STAMP).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise JarsMissingError(
            f"{folder} holds files that this program did not put there: name another folder"
        )
    with tempfile.TemporaryDirectory(prefix=folder.name + ".", dir=folder.parent) as scratch:
        fetched = Path(scratch) / "jars"
        fetched.mkdir()
        _fetch(wanted, fetched, Path(scratch), fetcher)
        _remove_what_others_bring(wanted, fetched)
        _stamp(wanted, fetched)
        if folder.exists():
            folder.rename(Path(scratch) / "replaced")
        fetched.rename(folder)


def _fetch(wanted: WantedJars, into: Path, scratch: Path, fetcher: str | None) -> None:
    fetchers: dict[str, Callable[[WantedJars, Path, Path], None]] = {
        "mvn": _fetch_by_maven,
        "jgo": _fetch_by_jgo,
    }
    names = [fetcher] if fetcher is not None else (["mvn"] if shutil.which("mvn") else []) + ["jgo"]
    failures: list[str] = []
    for name in names:
        try:
            fetchers[name](wanted, into, scratch)
        except JarsMissingError as error:
            _log.warning("%s", error)
            failures.append(str(error))
        else:
            _log.info("fetched %s by %s", wanted.title, name)
            return
    raise JarsMissingError("; ".join(failures))


def _remove_what_others_bring(wanted: WantedJars, folder: Path) -> None:
    for jar in folder.glob("*.jar"):
        if artifact_of(jar.name) in wanted.left_out:
            jar.unlink()


def artifact_of(file_name: str) -> str:
    """Returns a jar's file name without version: "delta-spark_2.13" of "delta-spark_2.13-4.0.0.jar"."""
    return _VERSION_ON.split(file_name.removesuffix(".jar"), maxsplit=1)[0]


def _stamp(wanted: WantedJars, folder: Path) -> None:
    jars = {jar.name: jar.stat().st_size for jar in sorted(folder.glob("*.jar"))}
    if not wanted.file_names <= jars.keys():
        raise JarsMissingError(f"the fetched jars lack {', '.join(sorted(wanted.file_names - jars.keys()))}")
    text = json.dumps({"coordinates": wanted.coordinates, "jars": jars}, indent=1)
    (folder / STAMP).write_text(text + "\n", encoding="utf-8")


def _pom_of(coordinates: Sequence[str]) -> str:
    """Returns a Maven project that only depends on these jars."""
    wishes = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>\n"
        for g, a, v in (coordinate.split(":") for coordinate in coordinates)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>\n"
        "<groupId>pilotfish</groupId><artifactId>jars</artifactId><version>1</version>\n"
        f"<packaging>pom</packaging>\n<dependencies>\n{wishes}</dependencies></project>\n"
    )


def _fetch_by_maven(wanted: WantedJars, into: Path, scratch: Path) -> None:
    if shutil.which("mvn") is None:
        raise JarsMissingError("Maven (mvn) is not installed")
    pom = scratch / "pom.xml"
    pom.write_text(wanted.pom or _pom_of(wanted.coordinates), encoding="utf-8")
    command = ["mvn", "-B", "-q", "-f", str(pom), _COPY_DEPENDENCIES, "-DincludeScope=runtime"]
    _run("Maven", [*command, f"-DoutputDirectory={into}"], wanted.title)


def _fetch_by_jgo(wanted: WantedJars, into: Path, scratch: Path) -> None:
    """Runs jgo in a separate process, because it logs through rich and may end its interpreter."""
    program = (
        "import sys, pathlib, shutil, jgo\n"
        "made = jgo.build(sys.argv[1], cache_dir=pathlib.Path(sys.argv[2]))\n"
        "for jar in made.all_jars: shutil.copy(jar.resolve(), pathlib.Path(sys.argv[3]) / jar.name)\n"
    )
    coordinates = "+".join(wanted.coordinates)
    command = [sys.executable, "-c", program, coordinates, str(scratch / "jgo"), str(into)]
    _run("jgo", command, wanted.title, os.environ | _trust_the_system())


def _trust_the_system() -> dict[str, str]:
    """Returns the variable that makes requests trust the system's authorities; empty if the user set one.

    requests has its own list, which lacks the authority of a company's proxy.
    """
    if os.environ.keys() & {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}:
        return {}
    candidates = (ssl.get_default_verify_paths().cafile or "", *_SYSTEM_AUTHORITIES)
    store = next((path for path in candidates if Path(path).is_file()), None)
    return {} if store is None else {"REQUESTS_CA_BUNDLE": store}


def _run(name: str, command: Sequence[str], title: str, environment: dict[str, str] | None = None) -> None:
    """Runs a fetcher. Raises JarsMissingError with the end of its output and a remedy, if known."""
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
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise JarsMissingError(f"{name} did not fetch {title} within {_FETCH_TIMEOUT_S} s") from error
    except OSError as error:
        raise JarsMissingError(f"{name} could not be started: {error}") from error
    if ran.returncode != 0:
        if _UNKNOWN_AUTHORITY.search(ran.stdout):
            raise JarsMissingError(
                f"{name} could not fetch {title}: the server's certificate is from an authority that this"
                " machine does not trust. Add the authority to the system's store (Debian: put its .crt into"
                " /usr/local/share/ca-certificates and run update-ca-certificates), or name a PEM file that"
                " has it: REQUESTS_CA_BUNDLE for jgo; Maven trusts Java's own store"
            )
        said = ran.stdout.strip()[-_LAST_WORDS_CHARS:] or "nothing"
        raise JarsMissingError(
            f"{name} could not fetch {title} from Maven's central repository"
            f" (exit code {ran.returncode}); it said: {said}"
        )


def pom_properties() -> dict[str, str]:
    """Returns the properties of pom.xml: spark.version, delta.version, scala.version."""
    properties = ElementTree.parse(POM).find("m:properties", _NAMESPACE)
    assert properties is not None, f"{POM} has no properties"
    return {element.tag.partition("}")[2]: (element.text or "").strip() for element in properties}


def coordinates() -> tuple[str, ...]:
    """Returns `group:artifact:version` of pom.xml's dependencies."""
    properties = pom_properties()
    return tuple(
        ":".join(
            _filled(dependency.findtext(f"m:{part}", "", _NAMESPACE), properties)
            for part in ("groupId", "artifactId", "version")
        )
        for dependency in ElementTree.parse(POM).iterfind("m:dependencies/m:dependency", _NAMESPACE)
    )


def default_folder(root: Path = Path()) -> Path:
    """Returns the default folder of the jars: `.cache/spark/<version>` below the root."""
    return root / ".cache" / "spark" / pom_properties()["spark.version"]


def wanted_jars() -> WantedJars:
    """Returns the connectors, without the jars of the installed pyspark."""
    return WantedJars(
        "Spark's Kafka connector and Delta",
        coordinates(),
        pom=POM.read_text(encoding="utf-8"),
        left_out=frozenset(artifact_of(jar.name) for jar in spark_jars()),
    )


def spark_jars() -> list[Path]:
    """Returns the jars of Spark, including those that an image added to them."""
    # Kafka's jars are fetched where there is no pyspark: benchmarks, the lowest versions.
    from pyspark.find_spark_home import _find_spark_home

    return sorted(Path(str(_find_spark_home()), "jars").glob("*.jar"))  # type: ignore[no-untyped-call]


def ensure_connector_jars(folder: Path) -> tuple[Path, ...]:
    """Returns the connectors' jars in `folder`; fetches missing ones. Raises JarsMissingError."""
    return ensure_jars(wanted_jars(), folder)


def connector_jars(folder: Path) -> tuple[Path, ...]:
    """Returns the connectors' jars in `folder`. JarsMissingError says how to fetch missing ones."""
    jars = stamped_jars(wanted_jars(), folder)
    if jars is None:
        raise JarsMissingError(
            f"{folder} does not hold {', '.join(coordinates())}."
            f" Fetch them with: pilotfish-pipeline jars --to {folder}"
        )
    return jars


def _filled(text: str, properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        text = text.replace(f"${{{name}}}", value)
    return text.strip()


if __name__ == "__main__":
    sys.exit(
        fetch_from_command_line(
            wanted_jars(), default_folder(), sys.argv[1:], program="python -m pipeline.jars.connector_jars"
        )
    )
