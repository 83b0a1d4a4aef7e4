"""Writes `messages/`: one typed module per message, from Kafka's own definitions in the kafka-clients jar.

    python -m client_core.protocol.generate [--jar PATH] [--out FOLDER] [--check]

Writes also `client_core/broker_errors.py`, the classes of error codes. The modules are checked in. `--check`
generates them in memory and compares byte for byte. It exits with 1 when one is missing, changed or
superfluous, and names it. Without `--jar` the jar is the one that `make kafka-jars` fetched. Called by people
and `make check`; never at run time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from client_core.protocol.api_keys import API_KEYS
from client_core.protocol.error_class_code import broker_errors_text
from client_core.protocol.message_code import module_text
from client_core.protocol.schema import read_definitions, snake_case

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KAFKA_VERSION: Final = "4.3.1"
_PROJECT: Final = Path(__file__).resolve().parents[2]
_MESSAGES: Final = Path(__file__).resolve().parent / "messages"
_BROKER_ERRORS: Final = _PROJECT / "client_core" / "broker_errors.py"
_JAR_NAME: Final = f"kafka-clients-{KAFKA_VERSION}.jar"
_REMEDY: Final = "run `python -m client_core.protocol.generate` and check the result in"


def find_jar(project: Path = _PROJECT) -> Path | None:
    """Returns the jar in the project's cache, where `make kafka-jars` puts it; None if it is missing."""
    return next(iter(sorted(project.glob(f".cache/kafka/*/{_JAR_NAME}"))), None)


def generated_files(jar: Path) -> dict[str, str]:
    """Returns the text of every module by file name."""
    definitions = [definition for api in API_KEYS for definition in read_definitions(jar, api.name)]
    return {
        f"{snake_case(definition.name)}.py": module_text(definition, KAFKA_VERSION)
        for definition in definitions
    }


def differences(wanted: Mapping[str, str], folder: Path) -> list[str]:
    """Returns one line for each file of a folder that differs from the generated ones."""
    found = {path.name: path.read_bytes().decode(errors="replace") for path in folder.glob("*.py")}
    found.pop("__init__.py", None)
    lines = [f"{name}: missing" for name in wanted.keys() - found.keys()]
    lines += [f"{name}: not a generated message" for name in found.keys() - wanted.keys()]
    lines += [
        f"{name}: {_first_difference(wanted[name], found[name])}"
        for name in wanted.keys() & found.keys()
        if wanted[name] != found[name]
    ]
    return sorted(lines)


def _first_difference(wanted: str, found: str) -> str:
    wanted_lines, found_lines = wanted.split("\n"), found.split("\n")
    for number, (expected, actual) in enumerate(zip(wanted_lines, found_lines, strict=False), start=1):
        if expected != actual:
            return f"line {number} is {actual!r}, generated {expected!r}"
    return f"{len(found_lines)} lines, generated {len(wanted_lines)}"


def write(files: Mapping[str, str], folder: Path) -> None:
    """Writes every module, and removes those no longer generated."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in {path.name for path in folder.glob("*.py")} - files.keys() - {"__init__.py"}:
        (folder / stale).unlink()
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m client_core.protocol.generate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--jar", type=Path, help=f"{_JAR_NAME}; else the one that `make kafka-jars` fetched")
    parser.add_argument("--out", type=Path, default=_MESSAGES, help="where the modules are")
    parser.add_argument("--errors", type=Path, default=_BROKER_ERRORS, help="the module of error classes")
    parser.add_argument("--check", action="store_true", help="compare only; exit with 1 on a difference")
    options = parser.parse_args(arguments)
    jar: Path | None = options.jar or find_jar()
    if jar is None or not jar.is_file():
        sys.stderr.write(
            f"generate: no {jar or _JAR_NAME} here: run `make kafka-jars`, or name one by --jar\n"
        )
        return 2
    files = generated_files(jar)
    errors: Path = options.errors
    text = broker_errors_text()
    if not options.check:
        write(files, options.out)
        errors.write_bytes(text.encode())
        return 0
    found = differences(files, options.out)
    present = errors.read_bytes().decode(errors="replace") if errors.exists() else ""
    if present != text:
        found.append(f"{errors.name}: {_first_difference(text, present)}")
    for line in found:
        sys.stderr.write(f"generate: {line}\n")
    if found:
        sys.stderr.write(f"generate: {_REMEDY}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
