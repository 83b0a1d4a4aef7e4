"""The wire trace: what each client sent, what brokers stored, refused and acknowledged, and when.

The judge explains by it why a record is in the log twice, and whether a record was ever on its way.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.error_codes import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_request_header
from client_core.protocol.messages.produce_request import ProduceRequest
from client_core.testing import requests
from client_core.testing.partition_log import read_batch, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.replication import Place

_PRODUCE: Final = int(ApiKey.PRODUCE.id).to_bytes(2)
#: Answers after which a producer sends a batch again under another sequence, or in parts.
RENUMBERS: Final = frozenset(
    {Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, Errors.UNKNOWN_PRODUCER_ID, Errors.MESSAGE_TOO_LARGE}
)


class Append(NamedTuple):
    """A record that a leader stored. `client`: that which sent it. `sent_ms`: when it did; `at_ms`: stored."""

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
        self._produced: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self._values: dict[str, dict[bytes, int]] = {}

    def sent(self, client: str, now_ms: int, frame: bytes) -> None:
        """Notes what a client passed to its network: before it can be lost."""
        if is_produce(frame):
            self._produced[client].append((now_ms, frame))

    def first_sent_ms(self, client: str, value: bytes) -> int | None:
        """Returns when a client first sent a record; None: never. Called when the run is over."""
        known = self._values.get(client)
        if known is None:
            known = self._values[client] = {}
            for at_ms, frame in self._produced[client]:
                for one in _values_in(frame):
                    known.setdefault(one, at_ms)
        return known.get(value)


def is_produce(frame: bytes) -> bool:
    """Returns whether a frame, without its size, is a produce request."""
    return frame[:2] == _PRODUCE


def _values_in(frame: bytes) -> Iterator[bytes]:
    """Yields the values of a produce request."""
    request = requests.decode(decode_request_header(frame), frame)
    assert isinstance(request, ProduceRequest)
    for topic in request.topic_data:
        for data in topic.partition_data:
            yield from values_of(data.records)


def values_of(data: bytes | None) -> Iterator[bytes]:
    """Yields the values of a batch."""
    return (record.value or b"" for record in records_of(read_batch(data)))
