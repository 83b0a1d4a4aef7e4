"""The wire trace: what each client sent, what brokers stored, refused and acknowledged, and when.

The judge explains by it why a record is in the log twice, and whether a record was ever on its way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from client_core.error_codes import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_request_header
from client_core.protocol.messages.produce_request import ProduceRequest
from client_core.testing import requests
from client_core.testing.partition_log import read_batch, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from client_core import ProducerRecord
    from client_core.testing.partition_log import StoredRecord
    from tests.simulation.replication import Place

    #: Topic, partition, producer id, epoch and sequence of a record.
    Write = tuple[object, ...]

#: The checksum and the header of a batch.
IDENTITY: Final = slice(17, 61)
_PRODUCE: Final = int(ApiKey.PRODUCE.id).to_bytes(2)
#: Answers after which a producer sends a batch again under another sequence, or in parts.
RENUMBERS: Final = frozenset(
    {Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, Errors.UNKNOWN_PRODUCER_ID, Errors.MESSAGE_TOO_LARGE}
)


class Append(NamedTuple):
    """A record that a leader stored at `at_ms`. `client`: that which sent it, at `sent_ms`."""

    client: str
    place: Place
    offset: int
    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None
    sent_ms: int = 0
    at_ms: int = 0
    #: The checksum and the header of its batch: a batch that is sent again has the same.
    batch: bytes = b""

    @property
    def write(self) -> tuple[Place, int | None, int | None, int | None]:
        """What a broker knows it by, if it comes again."""
        return self.place, self.producer_id, self.producer_epoch, self.sequence


class Refusal(NamedTuple):
    """A batch that a broker refused with an answer of RENUMBERS."""

    at_ms: int
    client: str
    place: Place
    error: Errors
    values: frozenset[bytes]
    #: See `Append`.
    batch: bytes = b""
    #: Whether it was a leader that did not know of a later one.
    was_cut_off: bool = False


class Sent(NamedTuple):
    """A batch that a client sent at `at_ms`. `lane`: its partition, producer id and epoch."""

    at_ms: int
    lane: tuple[object, ...]
    sequence: int
    values: tuple[bytes, ...]
    #: See `Append`.
    batch: bytes


class WireTrace:
    """See the module."""

    def __init__(self) -> None:
        #: Each append of each value, in order.
        self.appends: dict[bytes, list[Append]] = {}
        self.refusals: list[Refusal] = []
        #: When a client first got the answer that a batch was stored.
        self.acked_ms: dict[tuple[str, Place, bytes], int] = {}
        #: The errors that brokers answered with, in any answer.
        self.errors: set[str] = set()
        #: If it is kept: the value of a record (None: all), and a label of delivery_model.py.
        self.trace: list[tuple[bytes | None, tuple[Any, ...]]] | None = None
        #: How often the dead letters of a value were put back into the spool.
        self.requeued: Counter[bytes] = Counter()
        self._produced: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self._values: dict[str, dict[bytes, int]] = {}
        self._sends: dict[str, list[Sent]] = {}

    def sent(self, client: str, now_ms: int, frame: bytes) -> None:
        """Notes what a client passed to its network: before it can be lost."""
        if is_produce(frame):
            self._produced[client].append((now_ms, frame))
            if self.trace is not None:
                for batch in batches_of(_decoded(frame)):
                    self.note("send", batch, number_of(client))

    def note(self, kind: str, batch: Mapping[bytes, Write], *details: object) -> None:
        """Adds a label for each record of a batch to the trace, if it is kept."""
        if self.trace is not None:
            self.trace += [(value, (kind, *details, write)) for value, write in batch.items()]

    def note_one(self, value: bytes | None, *label: object) -> None:
        """Adds a label to the trace, if it is kept."""
        if self.trace is not None:
            self.trace.append((value, label))

    def first_sent_ms(self, client: str, value: bytes) -> int | None:
        """Returns when a client first sent a record; None: never. Called when the run is over."""
        known = self._values.get(client)
        if known is None:
            known = self._values[client] = {}
            for at_ms, frame in self._produced[client]:
                for one in _values_in(frame):
                    known.setdefault(one, at_ms)
        return known.get(value)

    def times_sent(self, client: str) -> Counter[bytes]:
        """Returns how often a client sent each record. Called when the run is over."""
        return Counter(value for _, frame in self._produced[client] for value in _values_in(frame))

    def sends(self, client: str) -> list[Sent]:
        """Returns the batches that an idempotent client sent, in order. Called when the run is over."""
        known = self._sends.get(client)
        if known is None:
            known = self._sends[client] = [
                Sent(at_ms, lane, sequence, tuple(values_of(data)), data[IDENTITY])
                for at_ms, frame in self._produced[client]
                for lane, sequence, data in _numbered(_decoded(frame))
            ]
        return known


def is_produce(frame: bytes) -> bool:
    """Returns whether a frame, without its size, is a produce request."""
    return frame[:2] == _PRODUCE


def number_of(client: str) -> int:
    """Returns the number of the process that a client is of."""
    return int(client.rpartition(" ")[2])


def _decoded(frame: bytes) -> ProduceRequest:
    request = requests.decode(decode_request_header(frame), frame)
    assert isinstance(request, ProduceRequest)
    return request


def _values_in(frame: bytes) -> Iterator[bytes]:
    """Yields the values of a produce request."""
    for topic in _decoded(frame).topic_data:
        for data in topic.partition_data:
            yield from values_of(data.records)


def batches_of(request: ProduceRequest) -> Iterator[dict[bytes, Write]]:
    """Yields the records of each batch, and what a broker knows each by."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            batch = read_batch(data.records)
            place = str(topic.name or topic.topic_id), data.partition_index
            known = batch.producer_id, batch.producer_epoch
            yield {
                identity_of(record): (*place, *known, (batch.base_sequence or 0) + index)
                for index, record in enumerate(records_of(batch))
            }


def _numbered(request: ProduceRequest) -> Iterator[tuple[tuple[object, ...], int, bytes]]:
    """Yields the batches of an idempotent producer, each behind its lane and its sequence."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            batch = read_batch(data.records)
            if batch.base_sequence is not None and data.records is not None:
                lane = (
                    topic.name or topic.topic_id,
                    data.partition_index,
                    batch.producer_id,
                    batch.producer_epoch,
                )
                yield lane, batch.base_sequence, data.records


def values_of(data: bytes | None) -> Iterator[bytes]:
    """Yields what the records of a batch are known by."""
    return map(identity_of, records_of(read_batch(data)))


def identity_of(record: StoredRecord | ProducerRecord) -> bytes:
    """Returns what a record is known by here: its value, or the key of one without a value."""
    return record.value or record.key or b""
