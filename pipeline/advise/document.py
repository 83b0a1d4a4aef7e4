"""Advice as sidecars read it, version 1: rows of gold_advice in JSON. Pure.

The one document may hold all services of all clusters; a record of the topic holds one of them in the same
form, so that its value alone is a document, and what a consumer writes into a file a sidecar can read.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VERSION: Final = 1

#: Of a file: a ConfigMap holds no more, and no sidecar reads more.
MAX_BYTES: Final = 1024 * 1024


class NoAdviceError(PipelineError):
    """There is nothing to write, or too much for one file."""


class Entry(NamedTuple):
    """The advice for a service on a cluster, as a document has it."""

    cluster_id: str
    service: str
    advice: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The key of its record."""
        return f"{self.cluster_id}|{self.service}"


def entries_of(
    rows: Iterable[Mapping[str, Any]], cluster_id: str | None = None, service: str | None = None
) -> Sequence[Entry]:
    """The rows of gold_advice by cluster and service; of one cluster or service only, where one is named.

    Raises NoAdviceError where none is left: what was written before is better than nothing.
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
            "There is no advice: no sidecar on a known cluster was heard of. Nothing was written."
        )
    known = ", ".join(f"{entry.service!r} on {entry.cluster_id}" for entry in found[:10])
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    raise NoAdviceError(
        f"There is advice for {known}{more}, and none for what --cluster and --service name. Nothing was"
        " written."
    )


def document(entries: Iterable[Entry]) -> bytes:
    """The document that holds these, with a line's end."""
    held = {"version": VERSION, "advice": [entry.advice for entry in entries]}
    return json.dumps(held, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def file_content(entries: Sequence[Entry]) -> bytes:
    """The same for a file. Raises NoAdviceError where no sidecar would read it."""
    content = document(entries)
    if len(content) > MAX_BYTES:
        raise NoAdviceError(
            f"The advice for {len(entries)} services takes {len(content)} bytes, and sidecars read at"
            f" most {MAX_BYTES}: write a file for each --cluster or --service."
        )
    return content


def _entry(row: Mapping[str, Any]) -> Entry:
    told = {
        **{name: row[name] for name in ("cluster_id", "service", "warm_topics", "refresh_max_age_ms")},
        "computed_at": _rfc3339(row["computed_at"]),
        "ttl_ms": row["ttl_ms"],
        "evidence": row["evidence"],
    }
    return Entry(row["cluster_id"], row["service"], told)


def _rfc3339(at: datetime) -> str:
    """As event v1 writes it: UTC, microseconds. A time without a zone is UTC, as tables have it."""
    utc = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S.%f}Z"
