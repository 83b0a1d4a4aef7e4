"""A Kafka producer client in pure Python, with the Java client's metadata, records and delivery.

    config = ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092"})
    producer = KafkaProducer(config)
    producer.start()
    producer.send(ProducerRecord("orders", b"value", key=b"key")).result(30)
    producer.close(10_000)

This module is the public API: users import from here only. Importing it has no side effect. docs/modules.md
lists the modules behind it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from client_core import broker_errors
from client_core.broker_errors import *  # noqa: F403 -- its __all__ is the list
from client_core.client.bootstrap_addresses import parse_and_validate_addresses
from client_core.clock import FOREVER_MS, Clock, SystemClock
from client_core.cluster import Cluster, Node, PartitionInfo, TopicPartition, TopicPartitions
from client_core.error_codes import Errors
from client_core.errors import (
    ApiError,
    AuthenticationError,
    AuthorizationError,
    BufferExhaustedError,
    Cause,
    ClusterAuthorizationError,
    ConcurrentTransactionsError,
    ConfigError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorrelationIdMismatchError,
    CorruptRecordError,
    DisconnectError,
    DuplicateSequenceError,
    FencedLeaderEpochError,
    IllegalArgumentError,
    IllegalSaslStateError,
    IllegalStateError,
    InconsistentTopicIdError,
    InvalidMetadataError,
    InvalidProducerEpochError,
    InvalidReceiveError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    NetworkError,
    NoBrokersError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    ProducerClosedError,
    ProducerFencedError,
    ProtocolError,
    RebootstrapRequiredError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    ReplicaNotAvailableError,
    RetriableError,
    SaslAuthenticationError,
    SchemaError,
    SerializationError,
    SslAuthenticationError,
    ThrottlingQuotaExceededError,
    TimeoutError,
    TopicAuthorizationError,
    TopicExistsError,
    UnknownProducerIdError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    error_for,
    explains,
)
from client_core.events import (
    NO_EVENTS,
    BatchRetried,
    BatchSent,
    BatchSplit,
    BrokersChanged,
    CertificateLoaded,
    Event,
    EventSink,
    LeaderChange,
    LeadersChanged,
    MetadataRefreshed,
    MetadataRefreshFailed,
    NodeConnecting,
    NodeDisconnected,
    NodeReady,
    NodeThrottled,
    PartitionCountChanged,
    ProduceFinished,
    Rebootstrapped,
    RecordsCancelled,
    RequestCompleted,
    SecretReloaded,
    WaitFinished,
)
from client_core.metadata.metadata_cache import MetadataCache, RefreshTime
from client_core.metadata.metadata_response import ListedTopic
from client_core.metadata.topic_configs import TopicConfig, TopicConfigs
from client_core.metadata.topic_listing import TopicListing
from client_core.metadata.topic_table import TopicTable
from client_core.network.certificate_expiry import certificate_expires_at_s
from client_core.producer.accumulator.backlog import Backlog, BatchCount, TopicWait
from client_core.producer.accumulator.partitioner import murmur2, partition_for_key
from client_core.producer.kafka_producer import KafkaProducer
from client_core.producer.requests.pending_request import ProduceTicket
from client_core.producer.requests.preparation import ProducerInterceptor
from client_core.producer.results.future_record_metadata import FutureRecordMetadata
from client_core.producer.results.producer_record import Headers, ProducerRecord, RecordMetadata
from client_core.producer.results.results import (
    AcknowledgedRun,
    ListingResult,
    MetadataResult,
    OffsetsResult,
    ProduceResult,
    TopicConfigsResult,
    Wait,
)
from client_core.producer.results.status import (
    BufferStatus,
    ClientStatus,
    CloseReport,
    MetadataStatus,
    NodeStatus,
    Unacknowledged,
)
from client_core.producer.results.ticket import (
    CallInline,
    CompletionSink,
    Done,
    Phase,
    RecordFailure,
    Result,
    Ticket,
    Written,
)
from client_core.producer.sender.io_thread import LoopWork
from client_core.producer.sender.wiring import IO_THREAD_NAME
from client_core.producer.settings.config import ProducerConfig
from client_core.producer.settings.config_def import Option
from client_core.producer.settings.config_options import OPTIONS
from client_core.producer.settings.config_refusals import UNSUPPORTED
from client_core.record.record_content import EncodedHeaders
from client_core.uncaught import UncaughtErrors

if TYPE_CHECKING:
    from client_core.async_kafka_producer import AsyncKafkaProducer, LoopCompletions

#: Imported when they are first asked for: asyncio takes as long to import as all the rest.
_OF_ASYNCIO: Final = frozenset({"AsyncKafkaProducer", "LoopCompletions"})


def __getattr__(name: str) -> object:
    if name in _OF_ASYNCIO:
        return getattr(import_module("client_core.async_kafka_producer"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "FOREVER_MS",
    "IO_THREAD_NAME",
    "NO_EVENTS",
    "OPTIONS",
    "UNSUPPORTED",
    "AcknowledgedRun",
    "ApiError",
    "AsyncKafkaProducer",
    "AuthenticationError",
    "AuthorizationError",
    "Backlog",
    "BatchCount",
    "BatchRetried",
    "BatchSent",
    "BatchSplit",
    "BrokersChanged",
    "BufferExhaustedError",
    "BufferStatus",
    "CallInline",
    "Cause",
    "CertificateLoaded",
    "ClientStatus",
    "Clock",
    "CloseReport",
    "Cluster",
    "ClusterAuthorizationError",
    "CompletionSink",
    "ConcurrentTransactionsError",
    "ConfigError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorrelationIdMismatchError",
    "CorruptRecordError",
    "DisconnectError",
    "Done",
    "DuplicateSequenceError",
    "EncodedHeaders",
    "Errors",
    "Event",
    "EventSink",
    "FencedLeaderEpochError",
    "FutureRecordMetadata",
    "Headers",
    "IllegalArgumentError",
    "IllegalSaslStateError",
    "IllegalStateError",
    "InconsistentTopicIdError",
    "InvalidMetadataError",
    "InvalidProducerEpochError",
    "InvalidReceiveError",
    "InvalidRecordError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaProducer",
    "KafkaStorageError",
    "LeaderChange",
    "LeaderNotAvailableError",
    "LeadersChanged",
    "ListedTopic",
    "ListenerNotFoundError",
    "ListingResult",
    "LoopCompletions",
    "LoopWork",
    "MetadataCache",
    "MetadataRefreshFailed",
    "MetadataRefreshed",
    "MetadataResult",
    "MetadataStatus",
    "NetworkError",
    "NoBrokersError",
    "Node",
    "NodeConnecting",
    "NodeDisconnected",
    "NodeReady",
    "NodeStatus",
    "NodeThrottled",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderOrFollowerError",
    "OffsetsResult",
    "Option",
    "OutOfOrderSequenceError",
    "PartitionCountChanged",
    "PartitionInfo",
    "Phase",
    "PolicyViolationError",
    "ProduceFinished",
    "ProduceResult",
    "ProduceTicket",
    "ProducerClosedError",
    "ProducerConfig",
    "ProducerFencedError",
    "ProducerInterceptor",
    "ProducerRecord",
    "ProtocolError",
    "RebootstrapRequiredError",
    "Rebootstrapped",
    "RecordBatchTooLargeError",
    "RecordFailure",
    "RecordMetadata",
    "RecordTooLargeError",
    "RecordsCancelled",
    "RefreshTime",
    "ReplicaNotAvailableError",
    "RequestCompleted",
    "Result",
    "RetriableError",
    "SaslAuthenticationError",
    "SchemaError",
    "SecretReloaded",
    "SerializationError",
    "SslAuthenticationError",
    "SystemClock",
    "ThrottlingQuotaExceededError",
    "Ticket",
    "TimeoutError",
    "TopicAuthorizationError",
    "TopicConfig",
    "TopicConfigs",
    "TopicConfigsResult",
    "TopicExistsError",
    "TopicListing",
    "TopicPartition",
    "TopicPartitions",
    "TopicTable",
    "TopicWait",
    "Unacknowledged",
    "UncaughtErrors",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError",
    "UnsupportedForMessageFormatError",
    "UnsupportedSaslMechanismError",
    "UnsupportedVersionError",
    "Wait",
    "WaitFinished",
    "Written",
    "certificate_expires_at_s",
    "error_for",
    "explains",
    "murmur2",
    "parse_and_validate_addresses",
    "partition_for_key",
]

__all__ += broker_errors.__all__
