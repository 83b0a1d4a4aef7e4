"""A Kafka cluster in this process, over real TCP on loopback, that a test steers: see cluster.py."""

from __future__ import annotations

from tests.support.fake_cluster.api_versions import KAFKA_2_1, KAFKA_4_3
from tests.support.fake_cluster.cluster import FakeCluster
from tests.support.fake_cluster.controller import TopicConfig
from tests.support.fake_cluster.partition_log import StoredBatch, StoredRecord
from tests.support.fake_cluster.reactions import (
    BehindTheNext,
    Delay,
    Disconnect,
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
from tests.support.fake_cluster.requests import SeenRequest
from tests.support.fake_cluster.sasl_handshake import SaslDemand

__all__ = [
    "KAFKA_2_1",
    "KAFKA_4_3",
    "BehindTheNext",
    "Delay",
    "Disconnect",
    "FakeCluster",
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
]
