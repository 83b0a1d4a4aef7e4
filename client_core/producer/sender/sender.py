"""Drains batches into Produce requests, one per node, and handles the responses.

`run_once` is one turn, in Java's order (SND-01): idempotence upkeep, missing leaders, ready nodes, drain,
expiry, requests, poll. One deviation: batches expire before the drain, not after it, so that no batch is both
failed and sent, and no expired batch uses up a sequence number. Expiry also runs while the producer id is
awaited: Java's batches never expire when the cluster is down from the start.

I/O thread only; `io_thread.py` runs it. Source: Sender, Kafka 4.3.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from client_core.client.kafka_client import ASK_ANOTHER_MS
from client_core.clock import FOREVER_MS
from client_core.error_codes import Errors
from client_core.errors import KafkaError, TimeoutError, error_for
from client_core.events import NO_EVENTS, BatchSent
from client_core.producer.accumulator.producer_batch import ProducerIdAndEpoch
from client_core.producer.sender.batch_settlement import BatchSettlement, InFlightBatches
from client_core.producer.sender.produce_request import (
    NOTHING_SAID,
    PartitionRecords,
    ProduceRequestBuilder,
    failure,
    leader_nodes,
    partition_responses,
)
from client_core.producer.sender.transaction_manager import InitProducerIdRequestBuilder, State
from client_core.protocol.messages.init_producer_id_response import InitProducerIdResponse
from client_core.protocol.messages.produce_response import ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from client_core.client.kafka_client import ClientResponse, KafkaClient
    from client_core.clock import Clock
    from client_core.cluster import Node, TopicPartition
    from client_core.errors import Cause
    from client_core.events import EventSink
    from client_core.metadata.leader_epochs import LeaderIdAndEpoch
    from client_core.metadata.metadata_cache import MetadataCache
    from client_core.metadata.producer_metadata import ProducerMetadata
    from client_core.producer.accumulator.causes import Causes
    from client_core.producer.accumulator.producer_batch import ProducerBatch
    from client_core.producer.accumulator.record_accumulator import RecordAccumulator
    from client_core.producer.sender.batch_settlement import SenderConfig
    from client_core.producer.sender.transaction_manager import TransactionManager

_log: Final = logging.getLogger(__name__)

#: The shortest pause of the poll while something must be retried. An estimate: nobody notices it, and it is
#: about a hundred times as long as a turn.
_SHORTEST_PAUSE_MS: Final = 10

#: A quicker answer to a Produce request shows no overload.
_SLOW_MS: Final = 1_000


class Sender:
    """The producer's turn of the I/O thread."""

    def __init__(
        self,
        client: KafkaClient,
        metadata: ProducerMetadata,
        accumulator: RecordAccumulator,
        config: SenderConfig,
        clock: Clock,
        events: EventSink,
        causes: Causes,
        transaction_manager: TransactionManager | None = None,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._accumulator = accumulator
        self._config = config
        self._clock = clock
        self._events = events
        self._causes = causes
        self._transaction_manager = transaction_manager
        #: A node that has too much to do, and how long its last answer took. IoThread resets it.
        self.overloaded: tuple[int, int] | None = None
        #: Since when the answers of a node are slow.
        self._slow_since_ms: dict[int, int] = {}
        #: Overloaded nodes that get no request while one is in flight.
        self._one_at_a_time: set[int] = set()
        #: Returns the longest sleep of a poll, given now_ms. IoThread sets this, because others also wait for
        #: the I/O thread.
        self.poll_limit_ms: Callable[[int], int] | None = None
        # The longest sleep of a poll by default. retry.backoff.ms may be 0, which must not make the loop
        # spin.
        self._pause_ms = max(config.retry_backoff_ms, _SHORTEST_PAUSE_MS)
        #: When InitProducerId is due for another node.
        self._second_init_ms = FOREVER_MS
        self._lost_leaders = accumulator.lost_leaders
        self._undrained = accumulator.undrained
        #: The snapshot that topics were last checked against.
        self._tidied_for: MetadataCache | None = None
        self._in_flight = InFlightBatches(config.delivery_timeout_ms)
        self._settlement = BatchSettlement(
            metadata, accumulator, self._in_flight, config, events, causes, transaction_manager
        )

    def __repr__(self) -> str:
        return f"<Sender in_flight={len(self._in_flight)} {self._transaction_manager!r}>"

    @property
    def in_flight_batches(self) -> int:
        """The number of sent batches that are not settled. A plain read."""
        return len(self._in_flight)

    def in_flight_batches_of(self, topic_partition: TopicPartition) -> Sequence[ProducerBatch]:
        """Returns the batches of a partition that are in flight, oldest first."""
        return self._in_flight.of(topic_partition)

    # -- a turn ----------------------------------------------------------------------------------------------

    def fail_lost_batches(self, now_ms: int) -> None:
        """Fails batches that are neither queued nor in flight, after a turn that raised.

        A bug, or a lack of memory, may come between any two lines. A batch that nobody has would block its
        partition and keep its memory for good. Java loses it.
        """
        self._fail_unbuildable(now_ms)
        for batch in self._accumulator.lost():
            self._settlement.fail_lost(batch, now_ms)
        self._accumulator.unmute_settled()

    def run_once(self, now_ms: int | None = None) -> None:
        """Sends what can be sent, settles the answers, and sleeps if there is no work. `now_ms`: the time, if
        the caller has just read it.
        """
        if now_ms is None:
            now_ms = self._clock.now_ms()
        manager = self._transaction_manager
        if manager is None or manager.is_at_rest:
            timeout_ms = self._send_producer_data(now_ms)
        else:
            timeout_ms = self._run_idempotent(manager, now_ms)
        if self.poll_limit_ms is not None:
            timeout_ms = min(timeout_ms, self.poll_limit_ms(now_ms))
        self._client.poll(max(timeout_ms, 0), now_ms)
        if self._settlement.may_have_lost:
            self._settlement.may_have_lost = False
            self.fail_lost_batches(self._clock.now_ms())

    def _run_idempotent(self, manager: TransactionManager, now_ms: int) -> int:
        """Runs the turn of an idempotent producer: nothing is drained before it has an id (IDM-01)."""
        manager.maybe_resolve_sequences()
        if manager.has_fatal_error:
            if manager.last_error is not None:
                self._abort_batches(manager.last_error)
            if not manager.can_restart:
                return FOREVER_MS  # the next batch wakes the poll, to be failed as well
            manager.restart(now_ms)
        manager.bump_epoch_if_required()
        if manager.has_producer_id:
            return self._send_producer_data(now_ms)
        if manager.state is State.UNAUTHORIZED:
            if manager.last_error is not None:
                self._abort_batches(manager.last_error)
            manager.waiting_batches_failed()
        if self._expire_batches(now_ms):
            return 0
        return min(self._ask_for_producer_id(manager, now_ms), self._until_next_expiry(now_ms))

    # -- sending ---------------------------------------------------------------------------------------------

    def _send_producer_data(self, now_ms: int) -> int:
        """Sends ready batches; returns how long the poll may sleep (SND-01, SND-02)."""
        expired = self._expire_batches(now_ms)
        cache = self._metadata.cache
        if cache is not self._tidied_for:
            self._tidied_for = cache
            self._accumulator.forget_topics(self._metadata.contains_topic)
        lost_before = self._lost_leaders.node_ids
        if lost_before:
            self._keep_away_from_lost_leaders(cache, now_ms)
        ready = self._accumulator.ready(cache, now_ms)
        if ready.unknown_leader_topics:
            # An election is pending, or the topic has expired from the metadata. The metadata must contain a
            # topic, or it is not requested (ACC-07).
            for topic in ready.unknown_leader_topics:
                # A topic that is already in the metadata keeps its permission to be created.
                self._metadata.add(topic, now_ms, may_create=False)
            _log.debug("Requesting metadata for topics without leader: %s", ready.unknown_leader_topics)
            self._metadata.request_update(False, "leader_error")
        able: list[Node] = []
        not_ready_ms = FOREVER_MS
        for node in ready.ready_nodes:
            if node.id in self._one_at_a_time and self._client.has_in_flight_requests(node.id):
                continue  # its answer wakes the poll
            can_drain = self._client.ready(node, now_ms)
            self._accumulator.update_node_latency_stats(node.id, now_ms, can_drain=can_drain)
            if can_drain:
                if lost_before:
                    self._lost_leaders.found(node.id)
                able.append(node)
            else:
                if self._client.connection_failed(node):
                    self._lost_leaders.lost(node.id, now_ms)
                not_ready_ms = min(not_ready_ms, self._client.poll_delay_ms(node, now_ms))
        sent, unbuildable = self._drain_to(able, cache, now_ms) if able else (False, False)
        more_waits = bool(self._undrained)
        lost_changed = self._lost_leaders.node_ids is not lost_before
        if (sent and more_waits) or expired or unbuildable or lost_changed:
            # There may be more for these nodes, or blocked batches may continue. If nothing is left, one poll
            # writes the requests and waits for their answers. Java does one more turn between the two.
            return 0
        # Batches that lingered when `ready` looked may have been sent with others. Then there is nothing to
        # check again.
        next_check_ms = ready.next_ready_check_delay_ms if more_waits else FOREVER_MS
        timeout_ms = min(next_check_ms, not_ready_ms, self._until_next_expiry(now_ms))
        if lost_before:
            timeout_ms = min(timeout_ms, max(self._lost_leaders.next_probe_ms - now_ms, 0))
        if able and more_waits:
            # The batches of these nodes wait for their turn in the sequence, or for a backoff. `ready` did
            # not check that backoff, because it already knew that the node is ready. An answer wakes the
            # poll; Java would spin.
            timeout_ms = min(timeout_ms, self._pause_ms)
        return timeout_ms

    def _drain_to(self, able: Sequence[Node], cache: MetadataCache, now_ms: int) -> tuple[bool, bool]:
        """Sends to the nodes what they accept.

        Returns whether any request was sent, and whether any batch could not be built.
        """
        sent = False
        by_node = self._accumulator.drain(cache, able, self._config.max_request_bytes, now_ms)
        for node_id, batches in by_node.items():
            if batches:
                self._send_produce_request(node_id, batches, cache, now_ms)
                sent = True
        return sent, self._fail_unbuildable(now_ms)

    def _fail_unbuildable(self, now_ms: int) -> bool:
        """Fails the batches that could not be made into bytes; returns whether there were any."""
        if not self._accumulator.unbuildable:
            return False
        for batch, error in self._accumulator.take_unbuildable():
            self._settlement.fail_unsendable(batch, error, now_ms)
        return True

    def _keep_away_from_lost_leaders(self, cache: MetadataCache, now_ms: int) -> None:
        """Tries the lost brokers that are due, and moves batches away from the others."""
        lost = self._lost_leaders
        for node_id in lost.due(now_ms):
            node = cache.cluster.nodes_by_id.get(node_id)
            if node is None or self._client.ready(node, now_ms):
                lost.found(node_id)
            elif self._undrained:
                # Records wait for another leader: metadata is requested as often as this broker is tried.
                # In Java, the pause grows up to retry.backoff.max.ms while the answers stay the same.
                self._metadata.request_update(True, "leader_error")
        if lost.node_ids:
            self._accumulator.leave_lost_leaders(cache)

    def _send_produce_request(
        self, node_id: int, batches: Sequence[ProducerBatch], cache: MetadataCache, now_ms: int
    ) -> None:
        by_partition: dict[TopicPartition, ProducerBatch] = {}
        topic_ids: dict[str, UUID] = {}
        to_send: list[PartitionRecords] = []
        for batch in batches:
            by_partition[batch.topic_partition] = batch
            topic_id = cache.topic_id(batch.topic_partition.topic)
            if topic_id is not None:
                topic_ids[batch.topic_partition.topic] = topic_id
            to_send.append(PartitionRecords(batch.topic_partition, batch.records()))
        builder = ProduceRequestBuilder(
            self._config.acks, self._config.request_timeout_ms, to_send, topic_ids
        )
        # The names of the ids are fixed now: a topic may be re-created before the answer comes (SND-08).
        topic_names = builder.topic_names()
        for batch, (_, records) in zip(batches, to_send, strict=True):
            self._in_flight.add(batch)
            if self._config.guarantee_message_order:
                self._accumulator.mute_partition(batch.topic_partition)
            if self._events is not NO_EVENTS:
                self._events.emit(
                    BatchSent(
                        node_id=node_id,
                        records=batch.record_count,
                        batch_bytes=len(records),
                        raw_bytes=batch.uncompressed_size_bytes,
                        queue_ms=batch.queue_time_ms,
                        attempt=batch.attempts,
                    )
                )
        request = self._client.new_client_request(
            node_id,
            builder,
            now_ms,
            expect_response=self._config.acks != "0",
            request_timeout_ms=self._config.request_timeout_ms,
            on_complete=partial(self._handle_produce_response, by_partition, topic_names),
        )
        try:
            for batch in batches:
                batch.is_in_flight = True
                batch.sent_to = node_id
            self._client.send(request, now_ms)
        except Exception as error:  # noqa: BLE001 -- batches of other nodes must still be sent
            for batch in batches:
                self._settlement.fail_unsendable(batch, error, now_ms)
            return

    # -- idempotence -----------------------------------------------------------------------------------------

    def _ask_for_producer_id(self, manager: TransactionManager, now_ms: int) -> int:
        """Sends InitProducerId to the least loaded node if allowed; returns how long the poll may sleep.

        If it is unanswered for ASK_ANOTHER_MS, another node is asked, too, and the first answer counts.
        Java blocks here for up to request.timeout.ms. Others wait for this thread, so it returns each turn.
        """
        delay_ms = self._until_init_ms(manager, now_ms)
        if delay_ms > 0:
            return delay_ms
        node = self._client.answering_node(now_ms)
        if node is None:
            return self._pause_ms
        if not self._client.ready(node, now_ms):
            # While the node connects, its connection wakes the poll. If metadata is due, it is requested
            # before the producer id.
            return min(max(self._client.poll_delay_ms(node, now_ms), 1), self._pause_ms)
        request = self._client.new_client_request(
            node.id,
            InitProducerIdRequestBuilder(),
            now_ms,
            expect_response=True,
            request_timeout_ms=self._config.request_timeout_ms,
            on_complete=self._handle_init_producer_id_response,
        )
        self._client.send(request, now_ms)
        if manager.init_in_flight:
            self._second_init_ms = FOREVER_MS
        else:
            manager.init_sent()
            self._second_init_ms = now_ms + ASK_ANOTHER_MS
        _log.debug("Sent InitProducerId to node %s, correlation id %s", node.id, request.correlation_id)
        return self._second_init_ms - now_ms

    def _until_init_ms(self, manager: TransactionManager, now_ms: int) -> int:
        """Returns the time until InitProducerId is due; FOREVER_MS if something else wakes the poll."""
        if self._metadata.cache.is_bootstrap:
            # The first metadata response wakes it. Asking an address of bootstrap.servers would leave the
            # client without a connection to a broker when that address is left.
            return FOREVER_MS
        if manager.init_in_flight:
            return self._second_init_ms - now_ms
        if manager.init_was_refused and not self._accumulator.has_incomplete:
            return FOREVER_MS  # no id is needed now
        return manager.init_delay_ms(now_ms)

    def _handle_init_producer_id_response(self, response: ClientResponse) -> None:
        manager = self._transaction_manager
        if manager is None or not manager.init_in_flight:
            return  # another node has answered
        now_ms = self._clock.now_ms()
        body = response.body
        if response.version_mismatch is not None:
            manager.init_failed(response.version_mismatch, now_ms)
        elif not isinstance(body, InitProducerIdResponse):
            manager.init_failed(error_for(Errors.NETWORK_EXCEPTION.code, _disconnected(response)), now_ms)
        elif body.error_code:
            manager.init_failed(error_for(body.error_code), now_ms)
        elif body.producer_id < 0 or body.producer_epoch < 0:
            # No batch can carry such an id. Java accepts it, and fails at every drain.
            said = f"producer id {body.producer_id} with epoch {body.producer_epoch}"
            message = f"Node {response.destination} gave {said}, which can't be used"
            manager.init_failed(error_for(Errors.NETWORK_EXCEPTION.code, message), now_ms)
        else:
            manager.init_succeeded(ProducerIdAndEpoch(body.producer_id, body.producer_epoch))

    def _abort_batches(self, error: KafkaError) -> None:
        if self._accumulator.has_incomplete:
            _log.error("Aborting producer batches due to a fatal error: %s", error)
            self._accumulator.abort_incomplete_batches(error)
            self._in_flight.clear()

    # -- expiry ----------------------------------------------------------------------------------------------

    def _until_next_expiry(self, now_ms: int) -> int:
        queued_ms = self._accumulator.next_batch_expiry_ms
        return max(min(queued_ms, self._in_flight.next_expiry_ms) - now_ms, 0)

    def _expire_batches(self, now_ms: int) -> bool:
        """Fails batches that are older than delivery.timeout.ms, queued or in flight (ACC-11, SND-03).

        Returns whether there were any: batches behind them may continue in the next turn.
        """
        self._accumulator.next_batch_expiry_ms = FOREVER_MS
        queued = self._accumulator.expired_batches(now_ms) if self._undrained else ()
        on_their_way = self._in_flight.expired(now_ms) if now_ms >= self._in_flight.next_expiry_ms else ()
        if not queued and not on_their_way:
            return False
        for batches, is_in_flight in ((queued, False), (on_their_way, True)):
            causes = self._causes.of_batches(batches, now_ms)
            for batch, cause in zip(batches, causes, strict=True):
                self._expire(batch, cause, now_ms, is_in_flight=is_in_flight)
        return True

    def _expire(self, batch: ProducerBatch, cause: Cause | None, now_ms: int, *, is_in_flight: bool) -> None:
        age_ms = now_ms - batch.created_ms
        error = TimeoutError(
            f"Expiring {batch.record_count} record(s) for {batch.topic_partition}:{age_ms} ms has passed "
            "since batch creation. The request has not been sent, or no server response has been received "
            "yet."
        ).because_of(cause)
        # The memory of a batch in flight is counted until its request is answered or lost (SND-14,
        # KAFKA-19012).
        self._settlement.fail(
            batch, error, adjust_sequences=False, deallocate=not is_in_flight, now_ms=now_ms
        )
        if self._transaction_manager is not None and batch.base_sequence is not None:
            # The batch was sent, so nothing new is sent to its partition until the outcome of its sequences
            # is known. Java does this only for batches that were retried. After the other batches, its
            # sequence has a gap.
            self._transaction_manager.mark_sequence_unresolved(batch)

    # -- answers ---------------------------------------------------------------------------------------------

    def _handle_produce_response(
        self,
        batches: Mapping[TopicPartition, ProducerBatch],
        topic_names: Mapping[UUID, str],
        response: ClientResponse,
    ) -> None:
        try:
            _landed(batches)
            self._settle_all(response, batches, topic_names)
        except BaseException:  # the client logs it, and goes on
            _landed(batches)  # a lack of memory may have come within it
            self._settlement.may_have_lost = True
            raise

    def _settle_all(
        self,
        response: ClientResponse,
        batches: Mapping[TopicPartition, ProducerBatch],
        topic_names: Mapping[UUID, str],
    ) -> None:
        now_ms = self._clock.now_ms()
        body = response.body
        node_id = response.destination
        if response.disconnected:
            self._lost_leaders.lost(node_id, now_ms)
            self._not_slow(node_id)
        if response.timed_out:
            said = failure(Errors.REQUEST_TIMED_OUT, f"{_disconnected(response)} due to timeout")
        elif response.disconnected:
            said = failure(Errors.NETWORK_EXCEPTION, _disconnected(response))
        elif response.version_mismatch is not None:
            mismatch = response.version_mismatch
            _log.warning("Produce was not sent to node %s: %s", node_id, mismatch)
            said = failure(Errors.UNSUPPORTED_VERSION, mismatch.message)
        elif isinstance(body, ProduceResponse):
            self._note_latency(node_id, response.latency_ms, now_ms)
            self._handle_answer(node_id, body, batches, topic_names, now_ms)
            return
        else:
            said = NOTHING_SAID
        for batch in batches.values():
            self._settlement.settle(batch, said, node_id, now_ms)

    def _note_latency(self, node_id: int, latency_ms: int, now_ms: int) -> None:
        """Notes an overloaded node: its answer is slow, to a request that was sent after a slow answer.

        A broker that only paused answers those late that were sent before.
        """
        if latency_ms <= _SLOW_MS:
            self._not_slow(node_id)
        elif now_ms - latency_ms >= self._slow_since_ms.setdefault(node_id, now_ms):
            self.overloaded = node_id, latency_ms

    def _not_slow(self, node_id: int) -> None:
        self._slow_since_ms.pop(node_id, None)
        self._one_at_a_time.discard(node_id)

    def send_one_at_a_time(self, node_id: int) -> None:
        """Has an overloaded node get one request at a time, until an answer is quick or the connection ends.

        A broker takes the next request of a connection when it has answered the one before. So more of them
        in flight only wait in its queues, where the time of their records runs out and none can be taken
        back. Java sends up to max.in.flight.requests.per.connection.
        """
        self._one_at_a_time.add(node_id)

    def _handle_answer(
        self,
        node_id: int,
        body: ProduceResponse,
        batches: Mapping[TopicPartition, ProducerBatch],
        topic_names: Mapping[UUID, str],
        now_ms: int,
    ) -> None:
        """Settles each batch by its partition's answer; a partition missing in the answer is retried."""
        leaders: dict[TopicPartition, LeaderIdAndEpoch] = {}
        unanswered = dict(batches)
        for topic_partition, said in partition_responses(body, topic_names):
            batch = unanswered.pop(topic_partition, None)
            if batch is None:
                _log.error("Node %s answered for %s, which it was not asked for", node_id, topic_partition)
                continue
            if said.error in _LEADER_HAS_MOVED and said.current_leader is not None:
                leaders[topic_partition] = said.current_leader
            self._settlement.settle(batch, said, node_id, now_ms)
        for topic_partition, batch in unanswered.items():
            message = f"Node {node_id} did not answer for partition {topic_partition}"
            self._settlement.settle(batch, failure(Errors.NETWORK_EXCEPTION, message), node_id, now_ms)
        if leaders:
            # Only the addresses of the new leaders are useful, and a broker could invent any number of
            # others. Java accepts all of them.
            leader_ids = {leader.leader_id for leader in leaders.values()}
            nodes = [node for node in leader_nodes(body) if node.id in leader_ids]
            updated = self._metadata.update_partition_leadership(leaders, nodes)
            _log.debug("Leaders were updated for %s", updated)


#: With these errors a broker may name the leader (KIP-951). Retry and refresh: `batch_settlement.py`.
_LEADER_HAS_MOVED: Final = frozenset({Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH})


def _landed(batches: Mapping[TopicPartition, ProducerBatch]) -> None:
    for batch in batches.values():
        batch.is_in_flight = False
        batch.sent_to = None


def _disconnected(response: ClientResponse) -> str:
    return f"Disconnected from node {response.destination}"
