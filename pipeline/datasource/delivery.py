"""Sends a chunk until each record has an outcome, or the time is up.

    send under a key ──▶ written ──▶ some failed, retriable or unknown for good ──▶ those under a new key
           ▲      └────▶ again: broken line, 429, 503, 504; after Retry-After or backoff, the same key
           └──────────────────┘
    refused, or time is up: DeliveryFailedError with rows and reasons

One task, one thread, one request at a time: the records of a topic keep their order in a partition, except
those that were sent again.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from pipeline.datasource.answers import Again, DeliveryOutcome, Item, Patience, Refused, delivery_outcome_of
from pipeline.datasource.chunks import key_of
from pipeline.datasource.sidecar_http import DeliveryFailedError, SidecarUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from pipeline.datasource.chunks import Chunk, Columns
    from pipeline.datasource.sidecar_http import Answer

    class Asks(Protocol):
        """A SidecarConnection, or a test's substitute."""

        def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer: ...


#: Failures that an error lists by row; the others are only counted.
_SHOWN: Final = 5


@dataclass(slots=True)
class Counts:
    """The counters of a task."""

    records: int = 0
    bytes: int = 0
    requests: int = 0
    retries: int = 0
    #: Requests that the sidecar answered from memory: prevented duplicates.
    replayed: int = 0
    #: Records that were sent again although the first attempt may have written them.
    doubtful: int = 0


class TaskKeys(NamedTuple):
    """The beginning of all keys of a task."""

    write_id: str
    partition: int


class Delivery:
    """Writes and counts the chunks of one task."""

    def __init__(
        self,
        sidecar: Asks,
        where: str,
        keys: TaskKeys,
        columns: Columns,
        *,
        timeout_ms: int,
        patience: Callable[[], Patience],
    ) -> None:
        """`where` names the sidecar in errors; `patience` makes a new Patience for each chunk."""
        self._sidecar = sidecar
        self._where = where
        self._keys = keys
        self._columns = columns
        self._timeout_ms = timeout_ms
        self._patience = patience
        self.counts = Counts()

    def write(self, chunk: Chunk) -> None:
        """Returns when all records are acknowledged. Raises DeliveryFailedError."""
        patience = self._patience()
        left, hopeless, resend = chunk, list[tuple[int, Item]](), 0
        while True:
            failed = self._outcome(left, resend, patience)
            self.counts.records += len(left.records) - len(failed)
            hopeless += [(left.rows[item.place], item) for item in failed if not item.retriable]
            again = [item for item in failed if item.retriable]
            if not again:
                break
            if not patience.wait():
                hopeless += [(left.rows[item.place], item) for item in again]
                break
            self.counts.doubtful += sum(item.is_unknown for item in again)
            left, resend = left.only([item.place for item in again]), resend + 1
        self.counts.retries += patience.retries
        if hopeless:
            raise DeliveryFailedError(self._reported_of(chunk, hopeless, patience))

    def _outcome(self, chunk: Chunk, resend: int, patience: Patience) -> Sequence[Item]:
        """Repeats the request until its outcome is known; returns the records that are not written."""
        body = chunk.body(self._columns.key_format, self._columns.value_format)
        key = key_of(self._keys.write_id, self._keys.partition, chunk.number, resend, body)
        path = f"/v1/topics/{quote(chunk.topic, safe='')}/records?timeout_ms={self._timeout_ms}"
        while True:
            answer = self._request(path, body, key, len(chunk.records))
            if isinstance(answer, Refused):
                raise DeliveryFailedError(f"{self._place(chunk)}: {answer.reason}")
            if not isinstance(answer, Again):
                self.counts.bytes += len(body)
                self.counts.replayed += answer.replayed
                return answer.failed
            if not patience.wait(answer.after_ms):
                raise DeliveryFailedError(
                    f"{self._place(chunk)}: {answer.reason}; tried {patience.retries + 1} times in "
                    f"{patience.spent_ms} ms (option retry_timeout_ms)"
                )

    def _request(self, path: str, body: bytes, key: str, records: int) -> DeliveryOutcome:
        self.counts.requests += 1
        try:
            answer = self._sidecar.ask("POST", path, body, {"Idempotency-Key": f'"{key}"'})
        except SidecarUnreachableError as error:
            return Again(0, str(error))
        return delivery_outcome_of(answer, records)

    def _place(self, chunk: Chunk) -> str:
        first, last = chunk.rows[0], chunk.rows[-1]
        return (
            f"rows {first} to {last} of task {self._keys.partition} to topic {chunk.topic} at {self._where}"
        )

    def _reported_of(self, chunk: Chunk, failed: Sequence[tuple[int, Item]], patience: Patience) -> str:
        shown = "; ".join(f"row {row}: {item.message}" for row, item in sorted(failed)[:_SHOWN])
        more = f"; and {len(failed) - _SHOWN} more" if len(failed) > _SHOWN else ""
        return (
            f"{self._place(chunk)}: {len(failed)} of {len(chunk.records)} records were not written, the "
            f"others are ({patience.retries} retries in {patience.spent_ms} ms): {shown}{more}"
        )


def patience_for(retry_timeout_ms: int) -> Callable[[], Patience]:
    """Returns a factory of Patience with that budget, on the real clock."""
    random = Random()
    return lambda: Patience(retry_timeout_ms, random)
