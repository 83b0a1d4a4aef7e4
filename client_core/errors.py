"""The exceptions raised to callers, as one tree. Java's names, with Error for Exception.

    KafkaError                          everything below; .error is the row of Kafka's table, .code its number
    ├── ApiError                        an error code of a broker, or the client's equivalent
    │   ├── RetriableError              the same request may succeed later
    │   │   ├── InvalidMetadataError    ... after a metadata refresh
    │   │   │   ├── UnknownTopicOrPartitionError, LeaderNotAvailableError, NotLeaderOrFollowerError,
    │   │   │   └── NetworkError, DisconnectError, UnknownTopicIdError, FencedLeaderEpochError, ...
    │   │   ├── TimeoutError            a deadline expired (max.block.ms, delivery.timeout.ms, ...)
    │   │   │   └── BufferExhaustedError    no memory of buffer.memory became free in time
    │   │   └── CorruptRecordError, NotEnoughReplicasError, CoordinatorLoadInProgressError, ...
    │   ├── AuthorizationError          TopicAuthorizationError, ClusterAuthorizationError
    │   ├── AuthenticationError         SaslAuthenticationError, SslAuthenticationError, ...
    │   └── InvalidTopicError, RecordTooLargeError, UnsupportedVersionError, OutOfOrderSequenceError, ...
    ├── ConfigError                     a setting is unknown, unsupported or out of range (the caller's fault)
    ├── ProtocolError                   the peer sent unreadable bytes (the peer's fault)
    │   ├── SchemaError                 bytes that violate their schema: truncated, hostile length, bad varint
    │   │   └── TruncatedError              ... or have not all arrived yet
    │   ├── InvalidReceiveError         a frame's size is negative or larger than allowed
    │   └── CorrelationIdMismatchError  a response to another request
    ├── SerializationError              a value can't be serialized
    ├── NoBrokersError                  no broker has answered since the client started
    └── ProducerClosedError             the producer was closed while a record waited
    IllegalStateError (RuntimeError)    a bug in the caller or in this client, never a peer's fault
    IllegalArgumentError (ValueError)   an argument that is invalid in any state

`retriable` and `refreshes_metadata` are attributes, so callers need no isinstance. Codes that a producer
rarely meets have their classes in `broker_errors.py`, generated from the table of codes. A code unknown to
this client becomes an UnknownServerError that keeps the number.

Any thread. Source: Errors, ApiException and its subclasses, Kafka 4.3.
"""

from __future__ import annotations

import builtins
from typing import ClassVar, NamedTuple, Self

from client_core.error_codes import Errors


class Cause(NamedTuple):
    """Why records were not acknowledged before a deadline: the last error of the client's attempts.

    Immutable. HTTP answers, metrics, `/v1/status` and the log use the same names of errors; docs/alerts.md
    lists them.
    """

    #: The broker's error. Without a connection to the leader: NETWORK_EXCEPTION or an authentication error.
    error: Errors
    #: The broker of the last attempt; None if there was none, because there is no leader.
    node_id: int | None
    #: Attempts that failed in a row with this error; 0 while the first one is not answered.
    attempts: int
    #: How long ago the first of these attempts failed. With 0 attempts: how long the records have waited.
    since_ms: int
    #: A sentence for people.
    detail: str
    #: Why the connection failed, as in NodeDisconnected; None if the cause is not a connection's failure.
    reason: str | None = None

    def __str__(self) -> str:
        """Returns the cause in one line, for log lines and messages."""
        where = "" if self.node_id is None else f" from node {self.node_id}"
        tried = f"{self.attempts} attempt{'s' * (self.attempts != 1)} in" if self.attempts else "for"
        return f"{self.error.name}{where}, {tried} {self.since_ms} ms: {self.detail}"


class KafkaError(Exception):
    """Any failure reported by this library. `message` is for people, `error` and `code` for programs."""

    error: Errors = Errors.UNKNOWN_SERVER_ERROR
    #: Why the client's attempts failed before a deadline, or before the client gave up; None if unknown.
    cause: Cause | None = None

    def __init__(self, message: str | None = None, *, code: int | None = None) -> None:
        self.message = message if message is not None else self.error.message
        self.code = code if code is not None else self.error.code
        super().__init__(self.message)

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later without any change."""
        return self.error.retriable

    @property
    def refreshes_metadata(self) -> bool:
        """Whether the error means that the cached metadata is out of date."""
        return self.error.refreshes_metadata

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r})"


class ApiError(KafkaError):
    """An error code from a broker, or the client's equivalent.

    Several classes may have the same `error`, a row of Kafka's table. The first of them is the row's class.
    """

    _by_row: ClassVar[dict[Errors, type[ApiError]]] = {}

    def __init_subclass__(cls, *, of_a_row: bool = True) -> None:
        """`of_a_row`: False if another class is the row's class for this `error`."""
        if of_a_row and "error" in vars(cls):
            ApiError._by_row.setdefault(cls.error, cls)

    def __init__(
        self, message: str | None = None, *, error: Errors | None = None, code: int | None = None
    ) -> None:
        if error is not None:
            self.error = error
        super().__init__(message, code=code)


class RetriableError(ApiError):
    """The same request may succeed later."""


class InvalidMetadataError(RetriableError):
    """The same request may succeed after a metadata refresh."""


class UnknownServerError(ApiError):
    """The broker failed for an unspecified reason, or with a code newer than this client."""

    error = Errors.UNKNOWN_SERVER_ERROR


# -- out-of-date metadata ------------------------------------------------------------------------------------


class UnknownTopicOrPartitionError(InvalidMetadataError):
    error = Errors.UNKNOWN_TOPIC_OR_PARTITION


class LeaderNotAvailableError(InvalidMetadataError):
    error = Errors.LEADER_NOT_AVAILABLE


class NotLeaderOrFollowerError(InvalidMetadataError):
    error = Errors.NOT_LEADER_OR_FOLLOWER


class ReplicaNotAvailableError(InvalidMetadataError):
    error = Errors.REPLICA_NOT_AVAILABLE


class NetworkError(InvalidMetadataError):
    """The connection broke while the request was in flight."""

    error = Errors.NETWORK_EXCEPTION


class DisconnectError(InvalidMetadataError):
    """The connection to a node ended, or this client is closing."""

    error = Errors.NETWORK_EXCEPTION


class KafkaStorageError(InvalidMetadataError):
    error = Errors.KAFKA_STORAGE_ERROR


class ListenerNotFoundError(InvalidMetadataError):
    error = Errors.LISTENER_NOT_FOUND


class FencedLeaderEpochError(InvalidMetadataError):
    error = Errors.FENCED_LEADER_EPOCH


class UnknownTopicIdError(InvalidMetadataError):
    error = Errors.UNKNOWN_TOPIC_ID


class InconsistentTopicIdError(InvalidMetadataError):
    error = Errors.INCONSISTENT_TOPIC_ID


# -- retriable -----------------------------------------------------------------------------------------------


class TimeoutError(RetriableError, builtins.TimeoutError):
    """A deadline expired. The message has the deadline's name and length.

    `cause` is the last error of the client's attempts, if there was one; `__cause__` is its exception.
    """

    error = Errors.REQUEST_TIMED_OUT

    def because_of(self, cause: Cause | None) -> Self:
        """Returns this error, with its cause."""
        self.cause = cause
        if cause is not None:
            self.__cause__ = error_for(cause.error.code, cause.detail)
        return self


class BufferExhaustedError(TimeoutError):
    """buffer.memory stayed full until the caller's deadline."""


class CorruptRecordError(RetriableError):
    error = Errors.CORRUPT_MESSAGE


class CoordinatorLoadInProgressError(RetriableError):
    error = Errors.COORDINATOR_LOAD_IN_PROGRESS


class CoordinatorNotAvailableError(RetriableError):
    error = Errors.COORDINATOR_NOT_AVAILABLE


class NotEnoughReplicasError(RetriableError):
    error = Errors.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(RetriableError):
    error = Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class ConcurrentTransactionsError(RetriableError):
    error = Errors.CONCURRENT_TRANSACTIONS


class ThrottlingQuotaExceededError(RetriableError):
    error = Errors.THROTTLING_QUOTA_EXCEEDED


# -- not allowed ---------------------------------------------------------------------------------------------


class AuthorizationError(ApiError):
    """Kafka's ACLs deny the request."""


class TopicAuthorizationError(AuthorizationError):
    error = Errors.TOPIC_AUTHORIZATION_FAILED


class ClusterAuthorizationError(AuthorizationError):
    error = Errors.CLUSTER_AUTHORIZATION_FAILED


class AuthenticationError(ApiError, of_a_row=False):
    """Authentication failed.

    Waiters are woken at once; the client reconnects after the backoff.
    """

    error = Errors.SASL_AUTHENTICATION_FAILED


class SaslAuthenticationError(AuthenticationError):
    error = Errors.SASL_AUTHENTICATION_FAILED


class UnsupportedSaslMechanismError(AuthenticationError):
    error = Errors.UNSUPPORTED_SASL_MECHANISM


class IllegalSaslStateError(AuthenticationError):
    error = Errors.ILLEGAL_SASL_STATE


class SslAuthenticationError(AuthenticationError):
    """The TLS handshake failed, and a retry alone won't help (certificate, protocol)."""

    error = Errors.NETWORK_EXCEPTION


# -- fatal for the request -----------------------------------------------------------------------------------


class InvalidTopicError(ApiError):
    error = Errors.INVALID_TOPIC_EXCEPTION


class RecordTooLargeError(ApiError):
    error = Errors.MESSAGE_TOO_LARGE

    #: The record's index in the request, if the client found it before anything was appended.
    record_index: int | None = None


class RecordBatchTooLargeError(ApiError):
    error = Errors.RECORD_LIST_TOO_LARGE


class InvalidRequiredAcksError(ApiError):
    error = Errors.INVALID_REQUIRED_ACKS


class InvalidTimestampError(ApiError):
    error = Errors.INVALID_TIMESTAMP


class InvalidRecordError(ApiError):
    error = Errors.INVALID_RECORD


class InvalidRequestError(ApiError):
    error = Errors.INVALID_REQUEST


class PolicyViolationError(ApiError):
    error = Errors.POLICY_VIOLATION


class UnsupportedVersionError(ApiError):
    """The broker does not support an API version that the request needs."""

    error = Errors.UNSUPPORTED_VERSION


class UnsupportedForMessageFormatError(ApiError):
    error = Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompressionTypeError(ApiError):
    error = Errors.UNSUPPORTED_COMPRESSION_TYPE


class TopicExistsError(ApiError):
    error = Errors.TOPIC_ALREADY_EXISTS


class RebootstrapRequiredError(ApiError):
    error = Errors.REBOOTSTRAP_REQUIRED


class OutOfOrderSequenceError(ApiError):
    error = Errors.OUT_OF_ORDER_SEQUENCE_NUMBER


class DuplicateSequenceError(ApiError):
    error = Errors.DUPLICATE_SEQUENCE_NUMBER


class InvalidProducerEpochError(ApiError):
    error = Errors.INVALID_PRODUCER_EPOCH


class UnknownProducerIdError(ApiError):
    error = Errors.UNKNOWN_PRODUCER_ID


class ProducerFencedError(ApiError):
    error = Errors.PRODUCER_FENCED


# -- not from a wire code ------------------------------------------------------------------------------------


class ConfigError(KafkaError):
    """A setting is unknown, unsupported or out of range. `name` is its Kafka name."""

    error = Errors.INVALID_CONFIG

    def __init__(self, message: str, *, name: str | None = None) -> None:
        self.name = name
        super().__init__(message)


class ProtocolError(KafkaError):
    """The peer sent unreadable bytes: not a Kafka broker, or a broken one. The connection is closed."""

    error = Errors.UNKNOWN_SERVER_ERROR


class SchemaError(ProtocolError):
    """Bytes that violate their schema: truncated, a length beyond the bytes left, a bad varint."""


class TruncatedError(SchemaError):
    """Bytes that end early: more are still to come."""


class InvalidReceiveError(ProtocolError):
    """A frame's size is negative, or larger than this client allows."""


class CorrelationIdMismatchError(ProtocolError):
    """The response's correlation id differs from that of the oldest request in flight."""


class SerializationError(KafkaError):
    """A key, value or header can't be serialized."""


class NoBrokersError(KafkaError):
    """No broker has answered since this client started, so the cluster is unknown."""

    error = Errors.BROKER_NOT_AVAILABLE

    @property
    def retriable(self) -> bool:
        return True


class ProducerClosedError(KafkaError):
    """The producer was closed while a record waited in it."""


class IllegalStateError(RuntimeError):
    """A bug: a call that is invalid in the current state. Never the fault of a peer or a setting."""


class IllegalArgumentError(ValueError):
    """An argument that is invalid in any state of the object."""


# -- from code to class --------------------------------------------------------------------------------------


def class_of(error: Errors) -> type[ApiError]:
    """Returns the class of a row; ApiError for NONE, which has none."""
    return ApiError._by_row.get(error, ApiError)


def error_for(code: int, message: str | None = None) -> ApiError:
    """Returns the exception for a wire code other than 0, with the broker's own text if it sent one.

    Raises IllegalArgumentError for code 0, which is no error. Source: Errors.forCode, Errors.exception.
    """
    if code == 0:
        raise IllegalArgumentError("code 0 is NONE: there is no exception for success")
    row = Errors.of(code)
    if row.code != code:
        return UnknownServerError(
            message or f"The broker answered with the unknown error code {code}.", code=code
        )
    return class_of(row)(message)


def explains(error: BaseException) -> str:
    """Returns `Class: message` of an error and its causes, on one line, for logs and status responses."""
    parts = [f"{type(error).__name__}: {error}"]
    if error.__cause__ is not None:
        parts.append(explains(error.__cause__))
    return "; caused by ".join(parts)
