"""Writes advice to a compacted topic, through a sidecar's HTTP API.

Not through Spark's Kafka writer: there are few records, and a sidecar has an idempotent producer, Kafka's
security and retries. Spark would need fourteen jars, seconds to start and a second copy of the cluster's
credentials. In a compacted topic a duplicate has no effect, so a request is repeated until its
outcome is known.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import quote

from pipeline.advise.document import document
from pipeline.datasource.answers import Again, Patience, Refused, Written, delivery_outcome_of
from pipeline.datasource.options import Access, address_of
from pipeline.datasource.sidecar_http import SidecarConnection, SidecarUnreachableError
from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Protocol

    from pipeline.advise.document import Entry
    from pipeline.datasource.answers import DeliveryOutcome
    from pipeline.datasource.sidecar_http import Answer

    class Asks(Protocol):
        """A SidecarConnection, or a test's substitute."""

        def ask(self, method: str, path: str, body: bytes) -> Answer: ...


#: About 2.5 MB if each has a hundred topics with the longest names: far below a sidecar's max_body_bytes.
RECORDS_PER_REQUEST: Final = 100

#: The timeout of one request, and the time limit of its retries.
_TIMEOUT_MS: Final = 30_000
_RETRY_MS: Final = 60_000


class NotPublishedError(PipelineError):
    """Some advice was not written to the topic; the message says why."""

    exit_code: ClassVar[int] = 1


def publish_by(
    url: str, topic: str, entries: Sequence[Entry], token_file: str | None = None, ca_file: str | None = None
) -> None:
    """Publishes through the sidecar at `url`. Raises PipelineError."""
    access = Access(address_of(url), _TIMEOUT_MS, _RETRY_MS, token_file, ca_file)
    with SidecarConnection(access) as sidecar:
        publish(sidecar, topic, entries, Patience(_RETRY_MS, Random()))


def publish(sidecar: Asks, topic: str, entries: Sequence[Entry], patience: Patience) -> None:
    """Returns when every entry is acknowledged. Raises NotPublishedError."""
    for begin in range(0, len(entries), RECORDS_PER_REQUEST):
        _publish(sidecar, topic, entries[begin : begin + RECORDS_PER_REQUEST], patience)


def _publish(sidecar: Asks, topic: str, entries: Sequence[Entry], patience: Patience) -> None:
    """Repeats one request until each record is acknowledged, or one has failed for good."""
    records = [{"key": entry.key, "value": document([entry]).decode().rstrip("\n")} for entry in entries]
    body = json.dumps({"key_format": "text", "value_format": "text", "records": records}).encode()
    while True:
        outcome = _outcome(sidecar, topic, body, len(records))
        after_ms = outcome.after_ms if isinstance(outcome, Again) else 0
        if isinstance(outcome, Written):
            if not outcome.failed:
                return
            worst = min(outcome.failed, key=lambda item: item.retriable)
            reason = (
                f"{len(outcome.failed)} of {len(records)} failed, {entries[worst.place].key}: {worst.message}"
            )
            is_final = not worst.retriable
        else:
            reason, is_final = outcome.reason, isinstance(outcome, Refused)
        if is_final or not patience.wait(after_ms):
            raise NotPublishedError(f"The advice is not all in topic {topic}: {reason}")


def _outcome(sidecar: Asks, topic: str, body: bytes, records: int) -> DeliveryOutcome:
    path = f"/v1/topics/{quote(topic, safe='')}/records"
    try:
        return delivery_outcome_of(sidecar.ask("POST", path, body), records)
    except SidecarUnreachableError as error:
        return Again(0, str(error))
