"""Writes the rows of gold_advice as JSON, version 1, to a file for sidecars.

The document may contain all services of all clusters. A record of the topic contains one service in the same
form, so its value alone is a document, and a consumer may write it to a file that a sidecar reads. A Parquet
table on a local disk is read without Spark. The file is replaced as a whole: a sidecar that starts meanwhile
reads the old document or the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipeline.errors import PipelineError
from pipeline.stores.folders import require_mark_on_disk
from pipeline.stores.store import DELTA, PARQUET, StoreError
from pipeline.tables import GOLD_ADVICE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa


VERSION: Final = 1

#: The maximum size of a file: the limit of a ConfigMap, and the most that a sidecar reads.
MAX_BYTES: Final = 1024 * 1024


#: Readable by everyone, within the umask: sidecars run as other users.
_MODE: Final = 0o666


def rows_of_advice(out: str, kind: str = PARQUET, jars: Path | None = None) -> Sequence[dict[str, Any]]:
    """Returns the rows in any order; times have a time zone. `jars`: the folder of Delta's jar; None: the
    default one. Raises StoreError, JarsMissingError.
    """
    is_on_disk = kind == PARQUET and "://" not in out
    table = _without_spark(out, kind) if is_on_disk else _with_spark(out, kind, jars)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _without_spark(out: str, kind: str) -> pa.Table:
    from pyarrow import ArrowException
    from pyarrow import parquet as pq

    require_mark_on_disk(out, kind)
    folder = Path(out, GOLD_ADVICE)
    if not any(folder.glob("*.parquet")):
        raise StoreError(
            f"{out} has no table {GOLD_ADVICE}: `pilotfish-pipeline run` with this --out makes it."
        )
    try:
        return pq.read_table(folder)
    except (OSError, ArrowException) as error:
        raise StoreError(f"{folder} can't be read as Parquet: {error}") from error


def _with_spark(out: str, kind: str, jars: Path | None) -> pa.Table:
    from pipeline.jars.connector_jars import connector_jars, default_folder
    from pipeline.session import is_running, is_submitted, spark_session
    from pipeline.stores.formats import open_store

    needs_jars = kind == DELTA and not is_submitted()
    is_ours = not is_running()
    spark = spark_session(jars=connector_jars(jars or default_folder()) if needs_jars else (), is_short=True)
    try:
        return open_store(spark, out, kind).read(GOLD_ADVICE).toArrow()
    finally:
        if is_ours:
            spark.stop()


class FileNotWrittenError(PipelineError):
    """The file can't be written; the message names it and the reason. The old content is unchanged."""


def write_whole(path: Path, content: bytes) -> None:
    """Writes and syncs a file beside `path`, then renames it to `path`. Raises FileNotWrittenError."""
    beside = path.parent / f".{path.name}.{os.getpid()}.new"
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        reason = error.strerror or str(error)
        raise FileNotWrittenError(
            f"--out {path} can't be written: {reason}. The old content is unchanged."
        ) from error


class NoAdviceError(PipelineError):
    """There is nothing to write, or too much for one file."""


class Entry(NamedTuple):
    """The advice for one service on one cluster, as in the document."""

    cluster_id: str
    service: str
    advice: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The key of the topic's record."""
        return f"{self.cluster_id}|{self.service}"


def entries_of(
    rows: Iterable[Mapping[str, Any]], cluster_id: str | None = None, service: str | None = None
) -> Sequence[Entry]:
    """Returns the rows of gold_advice by cluster and service, limited to `cluster_id` and `service` if given.

    Raises NoAdviceError if none is left: an earlier document is better than an empty one.
    """
    found = sorted((_entry(row) for row in rows), key=lambda entry: entry.key)
    chosen = [
        entry
        for entry in found
        if cluster_id in (None, entry.cluster_id) and service in (None, entry.service)
    ]
    if chosen:
        return chosen
    if not found:
        raise NoAdviceError(
            "There is no advice: no sidecar of a known cluster was seen. Nothing was written."
        )
    known = ", ".join(f"{entry.service!r} on {entry.cluster_id}" for entry in found[:10])
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""

    asked = " ".join(
        f"{option} {value}"
        for option, value in (("--cluster", cluster_id), ("--service", service))
        if value is not None
    )
    raise NoAdviceError(
        f"There is no advice for {asked}. There is advice for {known}{more}: name one of these. Nothing was"
        " written."
    )


def document(entries: Iterable[Entry]) -> bytes:
    """Returns the document with these entries, ending in a newline."""
    held = {"version": VERSION, "advice": [entry.advice for entry in entries]}
    return json.dumps(held, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def file_content(entries: Sequence[Entry]) -> bytes:
    """Returns the document for a file. Raises NoAdviceError if it is larger than sidecars read."""
    content = document(entries)
    if len(content) > MAX_BYTES:
        raise NoAdviceError(
            f"The advice for {len(entries)} services takes {len(content)} bytes, and sidecars read at"
            f" most {MAX_BYTES}: write a file for each --cluster or --service."
        )
    return content


def _entry(row: Mapping[str, Any]) -> Entry:
    reported = {
        **{name: row[name] for name in ("cluster_id", "service", "warm_topics", "refresh_max_age_ms")},
        "computed_at": _rfc3339(row["computed_at"]),
        "ttl_ms": row["ttl_ms"],
        "evidence": row["evidence"],
    }
    return Entry(row["cluster_id"], row["service"], reported)


def _rfc3339(at: datetime) -> str:
    """Returns the time as event v1 writes it: UTC, microseconds. A time without a zone is taken as UTC."""
    utc = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S.%f}Z"
