"""Fake brokers in this process, controlled by a test: see cluster.py."""

from __future__ import annotations

from client_core.protocol.api_keys import ApiKey
from client_core.testing.api_versions import KAFKA_2_1, KAFKA_4_3
from client_core.testing.cluster import FakeCluster
from client_core.testing.controller import FakeClusterError, TopicConfig
from client_core.testing.partition_log import BadBatchError, StoredBatch, StoredRecord, read_batch
from client_core.testing.reactions import (
    BehindTheNext,
    Delay,
    Disconnect,
    Disturbance,
    Garbage,
    HalfFrame,
    Hold,
    InPieces,
    Lost,
    Reaction,
    Silence,
    Twice,
    WrongCorrelationId,
    WrongSize,
)
from client_core.testing.requests import SeenRequest
from client_core.testing.sasl import SaslDemand

__all__ = [
    "KAFKA_2_1",
    "KAFKA_4_3",
    "ApiKey",
    "BadBatchError",
    "BehindTheNext",
    "Delay",
    "Disconnect",
    "Disturbance",
    "FakeCluster",
    "FakeClusterError",
    "Garbage",
    "HalfFrame",
    "Hold",
    "InPieces",
    "Lost",
    "Reaction",
    "SaslDemand",
    "SeenRequest",
    "Silence",
    "StoredBatch",
    "StoredRecord",
    "TopicConfig",
    "Twice",
    "WrongCorrelationId",
    "WrongSize",
    "read_batch",
]
