"""Results of tickets: a produce request, a metadata wait, a topic listing, configs.

Immutable once posted, read by any thread. A produce result keeps the spans that batches reported. It builds
one outcome per record on first use, on the reader's thread, to spare the I/O thread.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.producer.results.producer_record import RecordMetadata
from client_core.producer.results.ticket import Phase, RecordFailure, Written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from client_core.errors import KafkaError
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.topic_configs import TopicConfigs
    from client_core.metadata.topic_listing import TopicListing
    from client_core.producer.results.batch_outcome import BatchOutcome

Outcome = RecordMetadata | RecordFailure

_NO_ERRORS: Final[Mapping[str, KafkaError]] = MappingProxyType({})


class BatchSpan(NamedTuple):
    """A batch's outcome for the records `indices` of a request; the first is at `first_in_batch`."""

    indices: Sequence[int]
    first_in_batch: int
    outcome: BatchOutcome


class FailedSpan(NamedTuple):
    """Records without a batch's outcome: never appended, or failed by the request itself."""

    indices: Sequence[int]
    failure: RecordFailure


class Wait(NamedTuple):
    """How long a request was parked before its records could be appended, and its phase."""

    phase: Phase  # METADATA or BUFFER
    waited_ms: int


class AcknowledgedRun(NamedTuple):
    """`records` consecutive acknowledged records, with consecutive offsets.

    `base_offset` None: the broker sent none (acks=0, an old duplicate), so no record has one.
    """

    records: int
    partition: int
    base_offset: int | None
    timestamp_ms: int


class ProduceResult:
    """One RecordMetadata or RecordFailure per record of the request, in order."""

    __slots__ = ("_count", "_outcomes", "_spans", "waited_ms", "waits")

    def __init__(
        self,
        count: int,
        spans: Sequence[BatchSpan | FailedSpan],
        waited_ms: int,
        waits: tuple[Wait, ...] = (),
    ) -> None:
        self._count = count
        self._spans = spans
        self._outcomes: tuple[Outcome, ...] | None = None
        #: The time from submit to the end.
        self.waited_ms = waited_ms
        #: The waits for metadata and for memory, in order; mostly none.
        self.waits = waits

    @property
    def outcomes(self) -> Sequence[Outcome]:
        if self._outcomes is None:
            self._outcomes = self._report()
        return self._outcomes

    @property
    def error(self) -> KafkaError | None:
        """Returns None: each outcome has its own error."""
        return None

    @property
    def any_acknowledged(self) -> bool:
        """Returns whether brokers acknowledged any of the records."""
        for span in self._spans:  # noqa: SIM110 - one generator less per request
            if isinstance(span, BatchSpan) and span.outcome.error is None:
                return True
        return False

    def acknowledged_runs(self) -> list[AcknowledgedRun] | None:
        """Returns the receipts as few runs, in record order; does not create an object per record.

        None if a record failed, or if consecutive records went to several partitions: then use `outcomes`.
        """
        runs: list[AcknowledgedRun] = []
        first = 0
        for span in sorted(self._spans, key=_first_index) if len(self._spans) > 1 else self._spans:
            if not isinstance(span, BatchSpan) or span.outcome.error is not None:
                return None
            indices, first_in_batch, outcome = span
            end = first + len(indices)
            # They are ascending: with these ends, none is missing between.
            if (indices[0], indices[-1]) != (first, end - 1):
                return None
            for run_first, run_end, timestamp_ms in outcome.timestamps_of(first_in_batch, len(indices)):
                base = outcome.base_offset
                offset = None if base is None else base + run_first
                runs.append(AcknowledgedRun(run_end - run_first, outcome.partition, offset, timestamp_ms))
            first = end
        return runs if first == self._count else None

    def _report(self) -> tuple[Outcome, ...]:
        reported: dict[int, Outcome] = {}
        for span in self._spans:
            if isinstance(span, FailedSpan):
                reported.update(dict.fromkeys(span.indices, span.failure))
            else:
                reported.update(zip(span.indices, self._outcomes_of(span), strict=True))
        return tuple([reported[index] for index in range(self._count)])

    def _outcomes_of(self, span: BatchSpan) -> Sequence[Outcome]:
        outcome, first, count = span.outcome, span.first_in_batch, len(span.indices)
        if outcome.error is None:
            return outcome.receipts(first, count)
        errors = [outcome.error_for(position) for position in range(first, first + count)]
        return [
            outcome.metadata_for(position) if error is None else self._failure(error, outcome)
            for position, error in enumerate(errors, first)
        ]

    def _failure(self, error: KafkaError, outcome: BatchOutcome) -> RecordFailure:
        written = outcome.written if outcome.written is not None else Written.UNKNOWN
        return RecordFailure(error, Phase.DELIVERY, written, self.waited_ms, outcome.partition)

    def __repr__(self) -> str:
        return f"<ProduceResult records={self._count} waited_ms={self.waited_ms}>"


def _first_index(span: BatchSpan | FailedSpan) -> int:
    return span.indices[0]


class _Asked:
    """The result of a request to the brokers: no records, and an error if there is no answer."""

    __slots__ = ("error", "waited_ms")

    def __init__(self, error: KafkaError | None, waited_ms: int) -> None:
        self.error = error
        #: The time from the request to the end.
        self.waited_ms = waited_ms

    @property
    def outcomes(self) -> Sequence[Outcome]:
        return ()

    @property
    def any_acknowledged(self) -> bool:
        return False


class MetadataResult(_Asked):
    """The snapshot after a wait for metadata, and the errors of topics that were requested by name.

    `error` is set if no snapshot can satisfy the request: no answer came, or the wait was for a version.
    """

    __slots__ = ("cache", "topic_errors")

    def __init__(
        self,
        cache: MetadataCache,
        *,
        topic_errors: Mapping[str, KafkaError] = _NO_ERRORS,
        error: KafkaError | None = None,
        waited_ms: int = 0,
    ) -> None:
        super().__init__(error, waited_ms)
        self.cache = cache
        self.topic_errors = topic_errors

    def __repr__(self) -> str:
        return (
            f"<MetadataResult version={self.cache.update_version} topic_errors={len(self.topic_errors)} "
            f"error={self.error!r} waited_ms={self.waited_ms}>"
        )


class ListingResult(_Asked):
    """All topics of the cluster, or why there is no list."""

    __slots__ = ("listing",)

    def __init__(
        self, listing: TopicListing | None, *, error: KafkaError | None = None, waited_ms: int
    ) -> None:
        super().__init__(error, waited_ms)
        self.listing = listing

    def __repr__(self) -> str:
        topics = None if self.listing is None else len(self.listing.topics)
        return f"<ListingResult topics={topics} error={self.error!r} waited_ms={self.waited_ms}>"


class OffsetsResult(_Asked):
    """The offset of a partition's first record and of its next one, or why they are not known."""

    __slots__ = ("beginning_offset", "end_offset")

    def __init__(
        self,
        beginning_offset: int | None,
        end_offset: int | None,
        *,
        error: KafkaError | None = None,
        waited_ms: int,
    ) -> None:
        super().__init__(error, waited_ms)
        self.beginning_offset = beginning_offset
        self.end_offset = end_offset

    def __repr__(self) -> str:
        return (
            f"<OffsetsResult {self.beginning_offset}-{self.end_offset} error={self.error!r} "
            f"waited_ms={self.waited_ms}>"
        )


class TopicConfigsResult(_Asked):
    """All configs of a topic by name, or why there are none."""

    __slots__ = ("configs",)

    def __init__(
        self, configs: TopicConfigs | None, *, error: KafkaError | None = None, waited_ms: int = 0
    ) -> None:
        super().__init__(error, waited_ms)
        self.configs = configs

    def __repr__(self) -> str:
        configs = None if self.configs is None else len(self.configs)
        return f"<TopicConfigsResult configs={configs} error={self.error!r} waited_ms={self.waited_ms}>"
