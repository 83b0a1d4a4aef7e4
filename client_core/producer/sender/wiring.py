"""Builds a producer's parts, their configs from ProducerConfig, and a NetworkClient over sockets.

KafkaProducer calls it once. Lower packages never see ProducerConfig. Source: KafkaProducer's constructor,
ClientUtils.createNetworkClient, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.backoff import ExponentialBackoff
from client_core.client.bootstrap_addresses import (
    ClientDnsLookup,
    check_host_names,
    parse_and_validate_addresses,
    resolve_bootstrap_addresses,
)
from client_core.client.host_resolver import BackgroundResolver, DefaultHostResolver
from client_core.client.metadata_updater import DefaultMetadataUpdater
from client_core.client.network_client import NetworkClient
from client_core.client.network_client_config import (
    AllowedHosts,
    MetadataRecoveryStrategy,
    NetworkClientConfig,
)
from client_core.metadata.metadata import MetadataConfig
from client_core.metadata.producer_metadata import ProducerMetadata
from client_core.network.channel_builder import security_channel_builder
from client_core.network.selector import NetworkConfig, Selector
from client_core.producer.accumulator.buffer_pool import BufferPool
from client_core.producer.accumulator.causes import Causes
from client_core.producer.accumulator.record_accumulator import AccumulatorConfig, RecordAccumulator
from client_core.producer.requests.pending_configs import PendingConfigs
from client_core.producer.requests.pending_metadata import PendingLookups
from client_core.producer.requests.pending_offsets import PendingOffsets
from client_core.producer.requests.refreshes import RefreshFailures
from client_core.producer.requests.submissions import Submissions
from client_core.producer.requests.topic_refreshes import TopicRefreshes
from client_core.producer.results.ticket import Completions
from client_core.producer.sender.batch_settlement import SenderConfig
from client_core.producer.sender.io_thread import IoThread
from client_core.producer.sender.sender import Sender
from client_core.producer.sender.transaction_manager import TransactionManager
from client_core.record.codecs import compression_of

if TYPE_CHECKING:
    from collections.abc import Collection
    from random import Random

    from client_core.client.host_resolver import HostResolver
    from client_core.client.kafka_client import KafkaClient
    from client_core.clock import Clock
    from client_core.events import EventSink
    from client_core.producer.results.ticket import CompletionSink
    from client_core.producer.sender.io_thread import WakeSoon
    from client_core.producer.settings.config import ProducerConfig


IO_THREAD_NAME: Final = "pilotfish-io"

#: The first and the longest pause after a failed turn. Not a setting: only a bug makes a turn fail.
_PAUSES_AFTER_FAILED_TURNS_MS: Final = (100, 1_000)


class Parts(NamedTuple):
    """The parts that the I/O thread drives, and those that they share with callers."""

    metadata: ProducerMetadata
    refreshes: RefreshFailures
    client: KafkaClient
    transaction_manager: TransactionManager | None
    pool: BufferPool
    accumulator: RecordAccumulator
    completions: Completions
    submissions: Submissions
    lookups: PendingLookups
    configs: PendingConfigs
    offsets: PendingOffsets
    topic_refreshes: TopicRefreshes
    causes: Causes
    sender: Sender
    io_thread: IoThread


def wired(
    config: ProducerConfig,
    clock: Clock,
    random: Random,
    events: EventSink,
    sink: CompletionSink,
    wake_soon: WakeSoon,
    *,
    metadata: ProducerMetadata | None,
    client: KafkaClient | None,
    resolves_later: bool,
    spreads_refreshes: bool,
    whole_requests: bool,
) -> Parts:
    """Returns the parts, connected to each other; nothing runs yet. Raises what `network_client` raises.

    For the arguments see KafkaProducer.
    """
    metadata = metadata or ProducerMetadata(
        metadata_config(config, spreads_refreshes=spreads_refreshes), random, clock, events
    )
    refreshes = RefreshFailures(events, clock, metadata)
    client = client or network_client(
        config, metadata, clock, random, refreshes, events, resolves_later=resolves_later
    )
    backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random)
    manager = (
        TransactionManager(backoff, restarts=config.idempotence_restart_enable)
        if config.enable_idempotence
        else None
    )
    pool = BufferPool(config.buffer_memory, config.batch_size, clock, events)
    accumulator = RecordAccumulator(
        accumulator_config(config, whole_requests=whole_requests), pool, backoff, random, manager
    )
    completions = Completions(sink)
    causes = causes_of(metadata, client, manager)
    metadata.cause_of_silence = lambda: causes.of_connections(clock.now_ms())
    submissions = Submissions(
        metadata,
        accumulator,
        pool,
        completions,
        clock,
        events,
        causes,
        ignore_keys=config.partitioner_ignore_keys,
    )
    lookups = PendingLookups(metadata, completions, backoff, submissions.parked.waits_for)
    configs = PendingConfigs(metadata, completions, backoff)
    offsets = PendingOffsets(metadata, completions, backoff)
    topic_refreshes = TopicRefreshes(metadata, completions, events, lookups)
    sender = Sender(
        client,
        metadata,
        accumulator,
        sender_config(config, whole_requests=whole_requests),
        clock,
        events,
        causes,
        manager,
    )
    io_thread = IoThread(
        sender,
        client,
        metadata,
        accumulator,
        submissions.parked,
        lookups,
        configs,
        offsets,
        topic_refreshes,
        completions,
        clock,
        ExponentialBackoff(*_PAUSES_AFTER_FAILED_TURNS_MS, random),
        IO_THREAD_NAME,
        wake_soon,
    )
    submissions.connect(io_thread, lookups)
    return Parts(
        metadata,
        refreshes,
        client,
        manager,
        pool,
        accumulator,
        completions,
        submissions,
        lookups,
        configs,
        offsets,
        topic_refreshes,
        causes,
        sender,
        io_thread,
    )


def causes_of(metadata: ProducerMetadata, client: KafkaClient, manager: TransactionManager | None) -> Causes:
    """Returns what finds the causes of a producer's waits; `manager` is None without idempotence."""
    return Causes(metadata, client, _no_cause if manager is None else manager.init_cause)


def _no_cause(now_ms: int) -> None:
    """Returns None: no producer id is needed."""


def metadata_config(config: ProducerConfig, *, spreads_refreshes: bool = False) -> MetadataConfig:
    return MetadataConfig(
        refresh_backoff_ms=config.retry_backoff_ms,
        refresh_backoff_max_ms=config.retry_backoff_max_ms,
        max_age_ms=config.metadata_max_age_ms,
        max_idle_ms=config.metadata_max_idle_ms,
        spreads_refreshes=spreads_refreshes,
    )


def accumulator_config(config: ProducerConfig, *, whole_requests: bool) -> AccumulatorConfig:
    return AccumulatorConfig(
        batch_bytes=config.batch_size,
        submit_batch_bytes=min(config.submit_batch_size, config.max_request_size),
        linger_ms=config.linger_ms,
        delivery_timeout_ms=config.delivery_timeout_ms,
        compression=compression_of(
            config.compression_type,
            gzip_level=config.compression_gzip_level,
            lz4_level=config.compression_lz4_level,
            zstd_level=config.compression_zstd_level,
        ),
        adaptive_partitioning=config.partitioner_adaptive_partitioning_enable,
        partition_availability_timeout_ms=config.partitioner_availability_timeout_ms,
        lost_leader_probe_interval_ms=config.partitioner_lost_leader_probe_interval_ms,
        whole_requests=whole_requests,
    )


def sender_config(config: ProducerConfig, *, whole_requests: bool) -> SenderConfig:
    return SenderConfig(
        acks=config.acks,
        retries=config.retries,
        max_request_bytes=config.max_request_size,
        request_timeout_ms=config.request_timeout_ms,
        delivery_timeout_ms=config.delivery_timeout_ms,
        retry_backoff_ms=config.retry_backoff_ms,
        guarantee_message_order=config.max_in_flight_requests_per_connection == 1,
        whole_requests=whole_requests,
    )


def network_client_config(
    config: ProducerConfig, bootstrap_hosts: Collection[str] = ()
) -> NetworkClientConfig:
    """Returns the config. `bootstrap_hosts` are those of bootstrap.servers, and their addresses."""
    allowed = AllowedHosts.parse(config.allowed_broker_hosts)
    return NetworkClientConfig(
        client_id=config.client_id,
        max_in_flight_requests_per_connection=config.max_in_flight_requests_per_connection,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        send_buffer_bytes=_or_system(config.send_buffer_bytes),
        receive_buffer_bytes=_or_system(config.receive_buffer_bytes),
        request_timeout_ms=config.request_timeout_ms,
        connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
        metadata_recovery_strategy=MetadataRecoveryStrategy(config.metadata_recovery_strategy),
        rebootstrap_trigger_ms=config.metadata_recovery_rebootstrap_trigger_ms,
        uses_sasl=config.security.protocol.uses_sasl,
        allowed_hosts=allowed.with_bootstrap(bootstrap_hosts),
    )


def _or_system(buffer_bytes: int | None) -> int:
    return -1 if buffer_bytes is None else buffer_bytes


def network_client(
    config: ProducerConfig,
    metadata: ProducerMetadata,
    clock: Clock,
    random: Random,
    refreshes: RefreshFailures,
    events: EventSink,
    *,
    resolves_later: bool = False,
    resolver: HostResolver | None = None,
) -> KafkaClient:
    """Returns a client that begins with bootstrap.servers; see KafkaProducer for `resolves_later`.

    `resolver` replaces the system's, for tests. Raises ConfigError if none of bootstrap.servers is an
    address, or if a certificate, key or credential can't be read.
    """
    resolver = resolver if resolver is not None else DefaultHostResolver()
    addresses = parse_and_validate_addresses(config.bootstrap_servers)
    named = {host for host, _ in addresses}
    dns_lookup = ClientDnsLookup(config.client_dns_lookup)
    canonical: Collection[str] = ()
    if resolves_later:
        check_host_names(addresses)
        if dns_lookup is ClientDnsLookup.RESOLVE_CANONICAL_BOOTSTRAP_SERVERS_ONLY:
            canonical = tuple(named)
    else:
        addresses = resolve_bootstrap_addresses(addresses, resolver, dns_lookup)
    channel_builder = security_channel_builder(
        config.security, client_id=config.client_id, clock=clock, random=random, events=events
    )
    metadata.bootstrap(addresses)
    settings = network_client_config(config, named.union(host for host, _ in addresses))
    updater = DefaultMetadataUpdater(metadata, settings, refreshes)
    refreshes.updater = updater
    try:
        selector = Selector(
            NetworkConfig(connections_max_idle_ms=config.connections_max_idle_ms),
            channel_builder,
            clock,
        )
    except OSError:  # no sockets are left
        channel_builder.close()
        raise
    return NetworkClient(
        selector,
        updater,
        settings,
        BackgroundResolver(resolver, selector.wakeup, canonical),
        random,
        refreshes,
        credentials=channel_builder.credentials,
    )
