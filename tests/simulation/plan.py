"""What a seed does: settings, topics, requests of callers, faults.

A plan is data, so a failing one can be made smaller: `without` drops faults or requests (shrink.py).
`drawing.py` draws it as a whole before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.testing.controller import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: How long callers send, and faults begin.
BUSY_MS: Final = 4_000
#: How long a sidecar may take for what is left, after the last fault.
QUIET_MS: Final = 60_000
#: The same where a topic lost partitions: the spool's producer keeps records for them for two minutes.
FORGOTTEN_MS: Final = QUIET_MS + 120_000


class RecordPlan(NamedTuple):
    """A record: its value begins with its name, so each has its own. With size 0 it is empty:
    its key has the name. All records of a request are empty, or none.
    """

    name: str
    key: str | None
    partition: int | None
    size: int
    #: Where the request names no topic.
    topic: str = ""


class RequestPlan(NamedTuple):
    """A request, and how its caller behaves. Times in ms; `at_ms` from the start.

    `topic` is empty where each record names its own.
    """

    number: int
    at_ms: int
    caller: str
    topic: str
    form: str
    records: Sequence[RecordPlan]
    timeout_ms: int
    max_block_ms: int
    has_key: bool
    #: The pauses before the parts of the body; one part and no pause: all at once.
    pauses_ms: Sequence[int]
    #: When the caller cuts its connection, in each of its first `leaves_tries` tries; None: never.
    leaves_after_ms: int | None
    #: How often it is sent again at most, and how long after its failure.
    retries: int
    retry_after_ms: int
    #: Which sidecar it is sent to, and which its retries are.
    sidecar: int = 0
    retry_sidecar: int = 0
    #: Whether it sets its times; otherwise it has the sidecar's.
    sets_times: bool = True
    leaves_tries: int = 9
    #: The pauses of its retries; empty: those of its first try.
    retry_pauses_ms: Sequence[int] = ()
    #: Whether its caller has a token, and the number of its Idempotency-Key; None: its own number.
    has_token: bool = False
    key: int | None = None
    #: How often it is sent once more over other connections, a few ms later.
    doubles: int = 0

    def topic_of(self, record: RecordPlan) -> str:
        """Returns the topic of one of its records."""
        return self.topic or record.topic


def plain_request(
    number: int, at_ms: int, topic: str, records: Sequence[RecordPlan], kafka: Mapping[str, str]
) -> RequestPlan:
    """Returns a request of JSON that is whole at once, whose caller waits for its answer."""
    timeout_ms, max_block_ms = int(kafka["delivery.timeout.ms"]), int(kafka["max.block.ms"])
    return RequestPlan(
        number, at_ms, "c0", topic, "json", records, timeout_ms, max_block_ms, False, [0], None, 0, 0
    )


class FaultPlan(NamedTuple):
    """A fault. `target`: a broker, or a number to choose by.

    `when`: a moment of MOMENTS that it waits for, from `at_ms` on. `then`: another fault of the same target
    that follows it; its `at_ms` is the time between them. The kind "nothing" only waits.
    """

    at_ms: int
    kind: str
    target: int
    for_ms: int
    operation: str = ""
    when: str = ""
    then: FaultPlan | None = None

    def __str__(self) -> str:
        lasts = f" for {self.for_ms} ms" if self.for_ms else ""
        when = f" when {self.when}" if self.when else ""
        then = f", then after {self.then.at_ms} ms {self.then}" if self.then else ""
        return f"{self.kind} {self.target}{' ' + self.operation if self.operation else ''}{lasts}{when}{then}"


class TopicPlan(NamedTuple):
    """A topic. `created_ms`: when it comes to be."""

    name: str
    partitions: int
    min_insync_replicas: int
    unclean: bool
    created_ms: int
    #: When it gets one more partition; None: never.
    grows_ms: int | None
    #: Whether that waits until requests wait for the partition, and others for memory.
    grows_when_full: bool = False


@dataclass(frozen=True)
class Plan:
    """See the module."""

    seed: int
    kafka: Mapping[str, str]
    settings: Mapping[str, int]
    has_spool: bool
    #: How many sidecars there are. The first one has the spool.
    sidecars: int
    sync_ms: int
    topics: Sequence[TopicPlan]
    requests: Sequence[RequestPlan]
    faults: Sequence[FaultPlan]

    def without(self, faults: Iterable[FaultPlan] = (), requests: Iterable[RequestPlan] = ()) -> Plan:
        """Returns the plan without these."""
        no_faults, no_requests = set(faults), {request.number for request in requests}
        return replace(
            self,
            faults=[fault for fault in self.faults if fault not in no_faults],
            requests=[request for request in self.requests if request.number not in no_requests],
        )

    def as_idempotent(self) -> Plan:
        """Returns the plan with an idempotent producer."""
        changed = {"acks": "all", "enable.idempotence": "true", "retries": "2147483647"}
        return replace(self, kafka={**self.kafka, **changed})

    @property
    def callers_with_tokens(self) -> set[str]:
        """Returns the names of the callers that have tokens: all of them, or none."""
        return {request.caller for request in self.requests if request.has_token}

    @property
    def is_idempotent(self) -> bool:
        return self.kafka.get("enable.idempotence") != "false"

    def probe(self, number: int, sidecar: int, topic: str, partition: int) -> RequestPlan:
        """Returns a request of one record that is sent again a few times, if it fails."""
        record = RecordPlan(f"r{number}.0", None, partition, 20)
        callers = self.callers_with_tokens
        return plain_request(number, 0, topic, [record], self.kafka)._replace(
            caller=min(callers, default="c0"),
            has_token=bool(callers),
            sidecar=sidecar,
            retry_sidecar=sidecar,
            retries=3,
            retry_after_ms=500,
        )

    def lines(self) -> list[str]:
        """Returns what a person reads of it."""
        return [
            f"kafka: {dict(self.kafka)}",
            f"sidecar: {dict(self.settings)}, spool: {self.has_spool}, fsync: up to {self.sync_ms} ms",
            *(f"topic: {topic}" for topic in self.topics),
            *(f"fault at {fault.at_ms} ms: {fault}" for fault in self.faults),
        ]


def config_of(topic: TopicPlan) -> TopicConfig:
    """Returns the settings of a topic."""
    return TopicConfig(min_insync_replicas=topic.min_insync_replicas)
