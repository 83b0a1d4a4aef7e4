"""The brokers of the simulation: the fake cluster's checks and answers over replicated partitions.

A request with acks=all is answered when all in-sync replicas have its records (replication.py), or times out.
A leader that is cut off from the controller takes requests and acknowledges none. Requests are checked and
stored by client_core/testing, as in the fake cluster. Source: ReplicaManager, DelayedProduce, Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.errors import error_for
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_request_header, encode_response_header
from client_core.protocol.messages.produce_request import ProduceRequest
from client_core.protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from client_core.testing import api_versions, requests
from client_core.testing.broker import EndConnectionError
from client_core.testing.partition_log import PartitionLog, read_batch, records_of
from client_core.testing.sasl import SaslSession
from client_core.testing.state import ClusterState
from tests.simulation.replication import Place, Replication
from tests.simulation.wire import (
    IDENTITY,
    RENUMBERS,
    Append,
    Refusal,
    batches_of,
    identity_of,
    number_of,
    values_of,
)
from tests.simulation.world import SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from tests.simulation.network import Connection
    from tests.simulation.world import World

_SIZE: Final = struct.Struct(">i")
#: Where the number of records is in a batch.
_COUNT: Final = slice(57, 61)
#: Where its producer id, epoch, base sequence and number of records are; and from the checksum on to there.
_SEQUENCES: Final = slice(43, 61)


@dataclass(eq=False, slots=True)
class _Waiting:
    """A produce request with acks=all, until all that it stored is replicated."""

    connection: Connection
    broker_id: int
    version: int
    correlation_id: int
    response: ProduceResponse
    #: The partition of each batch, in the order of the response.
    places: Sequence[Place]
    #: What is still to be replicated: the topic, the leader epoch, and the offset behind the last record.
    needs: dict[Place, tuple[UUID | None, int, int]]
    #: Which batches were stored: see Append.
    stored: dict[Place, bytes]
    errors: dict[Place, Errors] = field(default_factory=dict)
    #: Its records, if a trace is kept.
    batches: dict[Place, dict[bytes, tuple[object, ...]]] = field(default_factory=dict)


def _label_of(partition: PartitionProduceResponse, *, is_new: bool) -> str:
    """Returns what a broker did with a batch: see delivery_model.py."""
    error = Errors.of(partition.error_code)
    if error is Errors.NONE:
        return "store" if is_new else "known"
    is_clear = not error_for(error.code, None).retriable and error is not Errors.UNKNOWN_SERVER_ERROR
    return "refuse" if is_clear else "fail"


class _State(ClusterState):
    """The state of the fake cluster, with the log of the broker that answers now."""

    brokers: ReplicatedBrokers
    answering: int = 0

    def log(self, topic: str, partition: int) -> PartitionLog:
        return self.brokers.replica(self.answering, (topic, partition)).log

    def wall_ms(self) -> int:
        return self.brokers.wall_ms()


class ReplicatedBrokers(Replication):
    """See the module."""

    def __init__(self, world: World, random: Random, count: int = 3) -> None:
        state = _State(Random(random.random()), cluster_id="simulated")
        state.brokers = self
        super().__init__(world, random, state, count)
        self._state = state
        #: The times that brokers answered with for batches that they had already.
        self.times_of_known_batches_ms: set[int] = set()
        #: A topic that may be written to again when one request was refused.
        self.writable_again = ""
        #: How many requests each broker stores and answers with UNKNOWN_SERVER_ERROR.
        self.unknown_errors: Counter[int] = Counter()
        self._waiting: dict[int, list[_Waiting]] = {broker_id: [] for broker_id in self.running}

    def wall_ms(self) -> int:
        """The brokers' wall clock, which does not jump."""
        return self.world.now_ms + 1_700_000_000_000 - 1_000_000

    # -- requests --------------------------------------------------------------------------------------------

    def take(self, connection: Connection, payload: bytes, sent_ms: int) -> None:
        """A broker takes a request, and answers it now or when it is replicated."""
        broker_id = connection.broker_id
        if broker_id not in self.running:
            return
        header = decode_request_header(payload)
        api, version = header.api, header.version
        if api is ApiKey.API_VERSIONS:
            response, version = api_versions.answer(
                api_versions.KAFKA_4_3, payload, version, header.body_offset
            )
            self._send(connection, api, version, header.correlation_id, response)
            return
        try:
            request = requests.decode(header, payload)
            places = self._places_of(broker_id, request) if isinstance(request, ProduceRequest) else {}
            ends = {place: self.replica(broker_id, place).log.end_offset for place in places}
            self._state.answering = broker_id
            answer = requests.answer(self.state, broker_id, request, version, SaslSession())
        except EndConnectionError:
            connection.network.broker_ended(broker_id)
            return
        for place, end in ends.items():
            self._note(connection, place, end, sent_ms)
        if answer is None:
            connection.network.answered(connection, None)
        elif isinstance(request, ProduceRequest) and isinstance(answer, ProduceResponse):
            self._stored(connection, version, header.correlation_id, request, places, answer, ends)
        else:
            self._send(connection, api, version, header.correlation_id, answer)

    def _places_of(self, broker_id: int, request: ProduceRequest) -> dict[Place, int]:
        """Returns the partitions of a request, and how many records it has for each."""
        names = self.state.caches[broker_id]
        return {
            (
                topic.name or names.name_of(topic.topic_id) or f"{topic.topic_id}",
                data.partition_index,
            ): int.from_bytes((data.records or b"")[_COUNT])
            for topic in request.topic_data
            for data in topic.partition_data
        }

    def _send(
        self,
        connection: Connection,
        api: ApiKey,
        version: int,
        correlation_id: int,
        response: requests.Response,
        arrives: Callable[[], None] = lambda: None,
    ) -> None:
        """Sends an answer. `arrives` is called if and when the client has it."""
        frame = encode_response_header(api, version, correlation_id) + response.encode(version)
        connection.network.answered(connection, _SIZE.pack(len(frame)) + frame, arrives)

    def _stored(
        self,
        connection: Connection,
        version: int,
        correlation_id: int,
        request: ProduceRequest,
        places: dict[Place, int],
        response: ProduceResponse,
        ends: dict[Place, int],
    ) -> None:
        """Replicates what a request has stored; with acks=all the answer waits for that."""
        broker_id = connection.broker_id
        needs: dict[Place, tuple[UUID | None, int, int]] = {}
        stored: dict[Place, bytes] = {}
        answers = [partition for topic in response.responses for partition in topic.partition_responses]
        batches = [data.records for topic in request.topic_data for data in topic.partition_data]
        for (place, count), partition, batch in zip(places.items(), answers, batches, strict=True):
            if partition.error_code:
                self._refused(connection, place, Errors.of(partition.error_code), batch)
                continue
            if partition.log_append_time_ms >= 0:
                self.times_of_known_batches_ms.add(partition.log_append_time_ms)
            end = partition.base_offset + count
            topic_id, view = self.topic_id(broker_id, place[0]), self.view(broker_id, place)
            needs[place] = topic_id, view.leader_epoch, end
            stored[place] = (batch or b"")[IDENTITY]
            self.replicate(broker_id, place)
        waiting = _Waiting(
            connection, broker_id, version, correlation_id, response, list(places), needs, stored
        )
        if self.wire.trace is not None:
            waiting.batches = dict(zip(places, batches_of(request), strict=True))
            for (place, records), partition in zip(waiting.batches.items(), answers, strict=True):
                is_new = self.replica(broker_id, place).log.end_offset > ends[place]
                self.wire.note(_label_of(partition, is_new=is_new), records)
        if request.acks != -1 or not needs:
            self._finish(waiting)
            return
        self._waiting[broker_id].append(waiting)
        self.world.at(request.timeout_ms, lambda: self._give_up(waiting))
        for place in list(needs):
            self.advance(broker_id, place)

    def _refused(self, connection: Connection, place: Place, error: Errors, data: bytes | None) -> None:
        """Notes a refusal. A batch that is out of order may not be in the log: its broker would know it."""
        broker_id, client = connection.broker_id, connection.network.name
        self.world.log(f"broker {broker_id}", f"refuses {place[0]}-{place[1]}: {error.name}")
        self.wire.errors.add(error.name)
        if error is Errors.TOPIC_AUTHORIZATION_FAILED:
            self.state.unwritable.discard(self.writable_again)
        if error not in RENUMBERS:
            return
        values = frozenset(values_of(data))
        if error is Errors.MESSAGE_TOO_LARGE:
            self.wire.note_one(None, "forget")
        was_cut_off = self.is_cut_off(broker_id, place)
        self.wire.refusals.append(
            Refusal(self.world.now_ms, client, place, error, values, (data or b"")[IDENTITY], was_cut_off)
        )
        if error is not Errors.OUT_OF_ORDER_SEQUENCE_NUMBER or self.forgot.get(place):
            return
        if not connection.is_open:
            return  # the network delivers late what the client has sent again meanwhile
        batch = read_batch(data)
        for known in self.replica(broker_id, place).log.batches:
            if known.data[_SEQUENCES] == batch.data[_SEQUENCES]:
                self.world.failure = self.world.failure or SimulationError(
                    "sequence",
                    f"{client} sends sequence {batch.base_sequence} of {place} again, which "
                    f"broker {broker_id} has and does not remember any more: too many batches came since",
                )

    def _note(self, connection: Connection, place: Place, end: int, sent_ms: int) -> None:
        """Notes what was appended behind `end`."""
        log = self.replica(connection.broker_id, place).log
        if log.end_offset == end:
            return
        batch = log.batches[-1]
        if self.is_stray(connection.broker_id, place[0]):
            self.lost_by_kafka.update(values_of(batch.data))
            self.world.reach("a record was stored in a topic that was deleted")
            return
        values = []
        for index, record in enumerate(records_of(batch, place[1])):
            values.append(identity_of(record))
            self.wire.appends.setdefault(values[-1], []).append(
                Append(
                    connection.network.name,
                    place,
                    record.offset,
                    batch.producer_id,
                    batch.producer_epoch,
                    None if batch.base_sequence is None else batch.base_sequence + index,
                    sent_ms,
                    self.world.now_ms,
                    batch.data[IDENTITY],
                )
            )
        self.world.moment("a batch is stored", connection.broker_id)
        if self.world.story is not None:
            names = " ".join(shown(value) for value in values)
            self.world.log(
                f"broker {connection.broker_id}",
                f"stores {place[0]}-{place[1]} from offset {batch.base_offset}, producer {batch.producer_id} "
                f"epoch {batch.producer_epoch} sequence {batch.base_sequence}, of {connection.network.name}: "
                f"{names}",
            )

    # -- acknowledgements ------------------------------------------------------------------------------------

    def answer_waiting(self, broker_id: int, place: Place) -> None:
        view, replica = self.view(broker_id, place), self.replica(broker_id, place)
        for waiting in list(self._waiting[broker_id]):
            need = waiting.needs.get(place)
            if need is None:
                continue
            topic_id, epoch, end = need
            if topic_id != self.topic_id(broker_id, place[0]):
                waiting.errors[place] = Errors.UNKNOWN_TOPIC_OR_PARTITION
            elif view.leader != broker_id or view.leader_epoch != epoch:
                waiting.errors[place] = Errors.NOT_LEADER_OR_FOLLOWER
            elif replica.hw < end:
                continue
            elif self.is_under_min_isr(broker_id, place):
                waiting.errors[place] = Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            del waiting.needs[place]
            if not waiting.needs:
                self._finish(waiting)

    def topic_is_gone(self, broker_id: int) -> None:
        cache = self.state.caches[broker_id]
        for waiting in list(self._waiting[broker_id]):
            for place, (topic_id, _, _) in list(waiting.needs.items()):
                known = cache.topic(place[0])
                if known is None or known.topic_id != topic_id:
                    waiting.errors[place] = Errors.UNKNOWN_TOPIC_OR_PARTITION
                    del waiting.needs[place]
            if not waiting.needs:
                self._finish(waiting)

    def forget_waiting(self, broker_id: int) -> None:
        self._waiting[broker_id].clear()

    def _give_up(self, waiting: _Waiting) -> None:
        if waiting not in self._waiting[waiting.broker_id]:
            return
        self.world.reach("a broker gave up waiting for replicas")
        for place in waiting.needs:
            waiting.errors[place] = Errors.REQUEST_TIMED_OUT
        self._finish(waiting)

    def _finish(self, waiting: _Waiting) -> None:
        if waiting in self._waiting[waiting.broker_id]:
            self._waiting[waiting.broker_id].remove(waiting)
        response = waiting.response
        if waiting.stored and self.unknown_errors[waiting.broker_id]:
            self.unknown_errors[waiting.broker_id] -= 1
            waiting.errors = dict.fromkeys(waiting.stored, Errors.UNKNOWN_SERVER_ERROR) | waiting.errors
            self.world.reach("a batch was stored, and its broker did not know")
        acked = [(place, batch) for place, batch in waiting.stored.items() if place not in waiting.errors]
        self.wire.errors.update(error.name for error in waiting.errors.values())
        if waiting.errors:
            places = iter(waiting.places)
            response = response._replace(
                responses=tuple(
                    topic._replace(
                        partition_responses=tuple(
                            _failed(partition, waiting.errors.get(next(places)))
                            for partition in topic.partition_responses
                        )
                    )
                    for topic in response.responses
                )
            )
        connection = waiting.connection
        client = connection.network.name

        throttle_ms = self.throttle_ms.get(waiting.broker_id, 0)
        if throttle_ms:
            self.world.reach("a client was throttled")
            response = response._replace(throttle_time_ms=throttle_ms)
            connection.muted_until_ms = self.world.now_ms + throttle_ms

        def arrives() -> None:
            connection.throttled_until_ms = self.world.now_ms + throttle_ms
            for place, records in waiting.batches.items():
                kind = "ok" if place in dict(acked) else "bad"
                self.wire.note(kind, records, number_of(client))
            self.world.moment("a batch is acknowledged", waiting.broker_id)
            for place, batch in acked:
                self.wire.acked_ms.setdefault((client, place, batch), self.world.now_ms)

        self._send(
            connection, ApiKey.PRODUCE, waiting.version, waiting.correlation_id, response, arrives=arrives
        )


def shown(value: bytes) -> str:
    """Returns the name of a record, which its value begins with."""
    return value.decode().strip('"').partition(" ")[0]


def _failed(partition: PartitionProduceResponse, error: Errors | None) -> PartitionProduceResponse:
    return partition if error is None else partition._replace(error_code=error.code, base_offset=-1)
