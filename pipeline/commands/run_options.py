"""The options of `pilotfish-pipeline run`, and the checks of them that need no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError
from pipeline.stores.folders import MARK, PATTERN, read_json_object, refuse_if_foreign

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RunOptionsError(PipelineError):
    """Options that can't be combined, or a folder that does not exist."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options as given."""

    source: str
    input: str | None
    bootstrap_servers: str | None
    topic: str
    starting: str
    kafka: Mapping[str, str]
    out: str
    store: str
    every_s: float | None
    max_files_per_batch: int | None
    max_records_per_batch: int | None
    master: str | None
    jars: Path | None
    memory: str | None
    rebuilds: bool


def kafka_settings(pairs: Sequence[str], file: Path | None) -> dict[str, str]:
    """Returns the settings of the file, overridden by the command line. RunOptionsError shows no value.

    The file is not all of Java's format: a setting is on one line, and a backslash is part of its value.
    """
    try:
        # Editors on Windows begin a file with a byte order mark, which is no part of the first name.
        lines = [] if file is None else file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        why = (e.strerror or e) if isinstance(e, OSError) else "it is not UTF-8"
        raise RunOptionsError(f"--kafka-file {file} can't be read: {why}.") from e
    named = []
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith(("#", "!")):
            continue
        where = f"{file}, line {number}"
        if line.endswith("\\"):
            raise RunOptionsError(f"{where} ends with a backslash: write the whole setting on one line.")
        named.append((where, line))
    settings = {}
    for where, pair in [*named, *(("--kafka", pair) for pair in pairs)]:
        name, sign, value = pair.partition("=")
        if not sign or not name.strip():
            raise RunOptionsError(f"{where}: a Kafka setting is name=value, as in security.protocol=SSL.")
        settings[name.strip()] = value.strip()
    return settings


def refuse_empty(option: str, value: str | None) -> None:
    """Raises RunOptionsError for an empty text, which would be a path of the current folder."""
    if value == "":
        raise RunOptionsError(f"{option} is empty: is a variable of the shell not set?")


def refuse_what_cannot_be(options: RunOptions) -> None:
    """Raises RunOptionsError for errors that can be found without Spark."""
    if options.source == "files" and options.input is None:
        raise RunOptionsError("--source files reads a folder: give it by --input.")
    if options.source == "kafka" and options.bootstrap_servers is None:
        raise RunOptionsError("--source kafka asks brokers: give them by --bootstrap-servers host:port.")
    refuse_empty("--out", options.out)
    refuse_empty("--input", options.input)
    refuse_empty("--bootstrap-servers", options.bootstrap_servers)
    for option, value, source in (
        ("--input", options.input, "files"),
        ("--bootstrap-servers", options.bootstrap_servers, "kafka"),
        ("--kafka", options.kafka or None, "kafka"),
        ("--max-records-per-batch", options.max_records_per_batch, "kafka"),
    ):
        if value is not None and options.source != source:
            raise RunOptionsError(
                f"{option} is for --source {source}, and this is --source {options.source}."
            )
    if PATTERN.search(options.out if "://" in options.out else str(Path(options.out).resolve())):
        raise RunOptionsError(
            f"--out {options.out}: Spark takes [ ] {{ }} * ? and \\ for a pattern: give another folder."
        )
    if "://" not in options.out:
        _refuse_out(Path(options.out).resolve(), options.store)
        if options.input is not None and "://" not in options.input:
            _refuse_input(Path(options.input).resolve(), Path(options.out).resolve())


def _refuse_out(out: Path, store: str) -> None:
    """Makes the same checks as `open_store`, but before Spark starts."""
    if out.exists() and not out.is_dir():
        raise RunOptionsError(f"--out {out} is a file: give a folder.")
    mark = out / MARK
    if mark.exists():
        try:
            text = mark.read_text("utf-8")
        except (OSError, ValueError) as e:
            raise RunOptionsError(f"{mark} can't be read, or is not Pilotfish's: give another --out.") from e
        refuse_if_foreign(read_json_object(str(mark), text), str(out), store)


def _refuse_input(source: Path, out: Path) -> None:
    if not source.exists():
        raise RunOptionsError(f"--input {source} is not there: it may be empty, but make it first.")
    if not source.is_dir():
        raise RunOptionsError(f"--input {source} is a file: give the folder that it is in.")
    if out.is_relative_to(source):
        raise RunOptionsError(
            f"--out {out} lies in --input {source}, where tables would be read as events: put it elsewhere."
        )
