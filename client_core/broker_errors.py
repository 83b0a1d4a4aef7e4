"""The classes of Kafka's error codes that a producer rarely meets. Generated: do not edit.

By `python -m client_core.protocol.generate`, from the table in `error_codes.py`. `errors.py` has the others,
and `error_for`, which finds the class of a code.
"""

from __future__ import annotations

from client_core.error_codes import Errors
from client_core.errors import ApiError, AuthorizationError, InvalidMetadataError, RetriableError

__all__ = [
    "BrokerIdNotRegisteredError",
    "BrokerNotAvailableError",
    "ControllerMovedError",
    "DelegationTokenAuthorizationError",
    "DelegationTokenDisabledError",
    "DelegationTokenExpiredError",
    "DelegationTokenNotFoundError",
    "DelegationTokenOwnerMismatchError",
    "DuplicateBrokerRegistrationError",
    "DuplicateResourceError",
    "DuplicateVoterError",
    "ElectionNotNeededError",
    "EligibleLeadersNotAvailableError",
    "FeatureUpdateFailedError",
    "FencedInstanceIdError",
    "FencedMemberEpochError",
    "FencedStateEpochError",
    "FetchSessionIdNotFoundError",
    "FetchSessionTopicIdError",
    "GroupAuthorizationError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "GroupNotEmptyError",
    "GroupSubscribedToTopicError",
    "IllegalGenerationError",
    "InconsistentClusterIdError",
    "InconsistentGroupProtocolError",
    "InconsistentVoterSetError",
    "IneligibleReplicaError",
    "InvalidCommitOffsetSizeError",
    "InvalidConfigurationError",
    "InvalidFetchSessionEpochError",
    "InvalidFetchSizeError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidPidMappingError",
    "InvalidPrincipalTypeError",
    "InvalidRecordStateError",
    "InvalidRegistrationError",
    "InvalidRegularExpressionError",
    "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidSessionTimeoutError",
    "InvalidShareSessionEpochError",
    "InvalidTxnStateError",
    "InvalidTxnTimeoutError",
    "InvalidUpdateVersionError",
    "InvalidVoterKeyError",
    "LogDirNotFoundError",
    "MemberIdRequiredError",
    "MismatchedEndpointTypeError",
    "NewLeaderElectedError",
    "NoReassignmentInProgressError",
    "NotControllerError",
    "NotCoordinatorError",
    "OffsetMetadataTooLargeError",
    "OffsetMovedToTieredStorageError",
    "OffsetNotAvailableError",
    "OffsetOutOfRangeError",
    "OperationNotAttemptedError",
    "PositionOutOfRangeError",
    "PreferredLeaderNotAvailableError",
    "PrincipalDeserializationError",
    "ReassignmentInProgressError",
    "RebalanceInProgressError",
    "ResourceNotFoundError",
    "SecurityDisabledError",
    "ShareSessionLimitReachedError",
    "ShareSessionNotFoundError",
    "SnapshotNotFoundError",
    "StaleBrokerEpochError",
    "StaleMemberEpochError",
    "StreamsInvalidTopologyEpochError",
    "StreamsInvalidTopologyError",
    "StreamsTopologyFencedError",
    "TelemetryTooLargeError",
    "TopicDeletionDisabledError",
    "TransactionAbortableError",
    "TransactionCoordinatorFencedError",
    "TransactionalIdAuthorizationError",
    "TransactionalIdNotFoundError",
    "UnacceptableCredentialError",
    "UnknownControllerIdError",
    "UnknownLeaderEpochError",
    "UnknownMemberIdError",
    "UnknownSubscriptionIdError",
    "UnreleasedInstanceIdError",
    "UnstableOffsetCommitError",
    "UnsupportedAssignorError",
    "UnsupportedByAuthenticationError",
    "UnsupportedEndpointTypeError",
    "VoterNotFoundError",
]


class BrokerIdNotRegisteredError(ApiError):
    error = Errors.BROKER_ID_NOT_REGISTERED


class BrokerNotAvailableError(ApiError):
    error = Errors.BROKER_NOT_AVAILABLE


class ControllerMovedError(ApiError):
    error = Errors.STALE_CONTROLLER_EPOCH


class DelegationTokenAuthorizationError(AuthorizationError):
    error = Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED


class DelegationTokenDisabledError(ApiError):
    error = Errors.DELEGATION_TOKEN_AUTH_DISABLED


class DelegationTokenExpiredError(ApiError):
    error = Errors.DELEGATION_TOKEN_EXPIRED


class DelegationTokenNotFoundError(ApiError):
    error = Errors.DELEGATION_TOKEN_NOT_FOUND


class DelegationTokenOwnerMismatchError(ApiError):
    error = Errors.DELEGATION_TOKEN_OWNER_MISMATCH


class DuplicateBrokerRegistrationError(ApiError):
    error = Errors.DUPLICATE_BROKER_REGISTRATION


class DuplicateResourceError(ApiError):
    error = Errors.DUPLICATE_RESOURCE


class DuplicateVoterError(ApiError):
    error = Errors.DUPLICATE_VOTER


class ElectionNotNeededError(InvalidMetadataError):
    error = Errors.ELECTION_NOT_NEEDED


class EligibleLeadersNotAvailableError(InvalidMetadataError):
    error = Errors.ELIGIBLE_LEADERS_NOT_AVAILABLE


class FeatureUpdateFailedError(ApiError):
    error = Errors.FEATURE_UPDATE_FAILED


class FencedInstanceIdError(ApiError):
    error = Errors.FENCED_INSTANCE_ID


class FencedMemberEpochError(ApiError):
    error = Errors.FENCED_MEMBER_EPOCH


class FencedStateEpochError(ApiError):
    error = Errors.FENCED_STATE_EPOCH


class FetchSessionIdNotFoundError(RetriableError):
    error = Errors.FETCH_SESSION_ID_NOT_FOUND


class FetchSessionTopicIdError(RetriableError):
    error = Errors.FETCH_SESSION_TOPIC_ID_ERROR


class GroupAuthorizationError(AuthorizationError):
    error = Errors.GROUP_AUTHORIZATION_FAILED


class GroupIdNotFoundError(ApiError):
    error = Errors.GROUP_ID_NOT_FOUND


class GroupMaxSizeReachedError(ApiError):
    error = Errors.GROUP_MAX_SIZE_REACHED


class GroupNotEmptyError(ApiError):
    error = Errors.NON_EMPTY_GROUP


class GroupSubscribedToTopicError(ApiError):
    error = Errors.GROUP_SUBSCRIBED_TO_TOPIC


class IllegalGenerationError(ApiError):
    error = Errors.ILLEGAL_GENERATION


class InconsistentClusterIdError(ApiError):
    error = Errors.INCONSISTENT_CLUSTER_ID


class InconsistentGroupProtocolError(ApiError):
    error = Errors.INCONSISTENT_GROUP_PROTOCOL


class InconsistentVoterSetError(ApiError):
    error = Errors.INCONSISTENT_VOTER_SET


class IneligibleReplicaError(ApiError):
    error = Errors.INELIGIBLE_REPLICA


class InvalidCommitOffsetSizeError(ApiError):
    error = Errors.INVALID_COMMIT_OFFSET_SIZE


class InvalidConfigurationError(ApiError):
    error = Errors.INVALID_CONFIG


class InvalidFetchSessionEpochError(RetriableError):
    error = Errors.INVALID_FETCH_SESSION_EPOCH


class InvalidFetchSizeError(ApiError):
    error = Errors.INVALID_FETCH_SIZE


class InvalidGroupIdError(ApiError):
    error = Errors.INVALID_GROUP_ID


class InvalidPartitionsError(ApiError):
    error = Errors.INVALID_PARTITIONS


class InvalidPidMappingError(ApiError):
    error = Errors.INVALID_PRODUCER_ID_MAPPING


class InvalidPrincipalTypeError(ApiError):
    error = Errors.INVALID_PRINCIPAL_TYPE


class InvalidRecordStateError(ApiError):
    error = Errors.INVALID_RECORD_STATE


class InvalidRegistrationError(ApiError):
    error = Errors.INVALID_REGISTRATION


class InvalidRegularExpressionError(ApiError):
    error = Errors.INVALID_REGULAR_EXPRESSION


class InvalidReplicaAssignmentError(ApiError):
    error = Errors.INVALID_REPLICA_ASSIGNMENT


class InvalidReplicationFactorError(ApiError):
    error = Errors.INVALID_REPLICATION_FACTOR


class InvalidSessionTimeoutError(ApiError):
    error = Errors.INVALID_SESSION_TIMEOUT


class InvalidShareSessionEpochError(RetriableError):
    error = Errors.INVALID_SHARE_SESSION_EPOCH


class InvalidTxnStateError(ApiError):
    error = Errors.INVALID_TXN_STATE


class InvalidTxnTimeoutError(ApiError):
    error = Errors.INVALID_TRANSACTION_TIMEOUT


class InvalidUpdateVersionError(ApiError):
    error = Errors.INVALID_UPDATE_VERSION


class InvalidVoterKeyError(ApiError):
    error = Errors.INVALID_VOTER_KEY


class LogDirNotFoundError(ApiError):
    error = Errors.LOG_DIR_NOT_FOUND


class MemberIdRequiredError(ApiError):
    error = Errors.MEMBER_ID_REQUIRED


class MismatchedEndpointTypeError(ApiError):
    error = Errors.MISMATCHED_ENDPOINT_TYPE


class NewLeaderElectedError(ApiError):
    error = Errors.NEW_LEADER_ELECTED


class NoReassignmentInProgressError(ApiError):
    error = Errors.NO_REASSIGNMENT_IN_PROGRESS


class NotControllerError(RetriableError):
    error = Errors.NOT_CONTROLLER


class NotCoordinatorError(RetriableError):
    error = Errors.NOT_COORDINATOR


class OffsetMetadataTooLargeError(ApiError):
    error = Errors.OFFSET_METADATA_TOO_LARGE


class OffsetMovedToTieredStorageError(ApiError):
    error = Errors.OFFSET_MOVED_TO_TIERED_STORAGE


class OffsetNotAvailableError(RetriableError):
    error = Errors.OFFSET_NOT_AVAILABLE


class OffsetOutOfRangeError(ApiError):
    error = Errors.OFFSET_OUT_OF_RANGE


class OperationNotAttemptedError(ApiError):
    error = Errors.OPERATION_NOT_ATTEMPTED


class PositionOutOfRangeError(ApiError):
    error = Errors.POSITION_OUT_OF_RANGE


class PreferredLeaderNotAvailableError(InvalidMetadataError):
    error = Errors.PREFERRED_LEADER_NOT_AVAILABLE


class PrincipalDeserializationError(ApiError):
    error = Errors.PRINCIPAL_DESERIALIZATION_FAILURE


class ReassignmentInProgressError(ApiError):
    error = Errors.REASSIGNMENT_IN_PROGRESS


class RebalanceInProgressError(ApiError):
    error = Errors.REBALANCE_IN_PROGRESS


class ResourceNotFoundError(ApiError):
    error = Errors.RESOURCE_NOT_FOUND


class SecurityDisabledError(ApiError):
    error = Errors.SECURITY_DISABLED


class ShareSessionLimitReachedError(RetriableError):
    error = Errors.SHARE_SESSION_LIMIT_REACHED


class ShareSessionNotFoundError(RetriableError):
    error = Errors.SHARE_SESSION_NOT_FOUND


class SnapshotNotFoundError(ApiError):
    error = Errors.SNAPSHOT_NOT_FOUND


class StaleBrokerEpochError(ApiError):
    error = Errors.STALE_BROKER_EPOCH


class StaleMemberEpochError(ApiError):
    error = Errors.STALE_MEMBER_EPOCH


class StreamsInvalidTopologyEpochError(ApiError):
    error = Errors.STREAMS_INVALID_TOPOLOGY_EPOCH


class StreamsInvalidTopologyError(ApiError):
    error = Errors.STREAMS_INVALID_TOPOLOGY


class StreamsTopologyFencedError(ApiError):
    error = Errors.STREAMS_TOPOLOGY_FENCED


class TelemetryTooLargeError(ApiError):
    error = Errors.TELEMETRY_TOO_LARGE


class TopicDeletionDisabledError(ApiError):
    error = Errors.TOPIC_DELETION_DISABLED


class TransactionAbortableError(ApiError):
    error = Errors.TRANSACTION_ABORTABLE


class TransactionCoordinatorFencedError(ApiError):
    error = Errors.TRANSACTION_COORDINATOR_FENCED


class TransactionalIdAuthorizationError(AuthorizationError):
    error = Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class TransactionalIdNotFoundError(ApiError):
    error = Errors.TRANSACTIONAL_ID_NOT_FOUND


class UnacceptableCredentialError(ApiError):
    error = Errors.UNACCEPTABLE_CREDENTIAL


class UnknownControllerIdError(ApiError):
    error = Errors.UNKNOWN_CONTROLLER_ID


class UnknownLeaderEpochError(RetriableError):
    error = Errors.UNKNOWN_LEADER_EPOCH


class UnknownMemberIdError(ApiError):
    error = Errors.UNKNOWN_MEMBER_ID


class UnknownSubscriptionIdError(ApiError):
    error = Errors.UNKNOWN_SUBSCRIPTION_ID


class UnreleasedInstanceIdError(ApiError):
    error = Errors.UNRELEASED_INSTANCE_ID


class UnstableOffsetCommitError(RetriableError):
    error = Errors.UNSTABLE_OFFSET_COMMIT


class UnsupportedAssignorError(ApiError):
    error = Errors.UNSUPPORTED_ASSIGNOR


class UnsupportedByAuthenticationError(ApiError):
    error = Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


class UnsupportedEndpointTypeError(ApiError):
    error = Errors.UNSUPPORTED_ENDPOINT_TYPE


class VoterNotFoundError(ApiError):
    error = Errors.VOTER_NOT_FOUND
