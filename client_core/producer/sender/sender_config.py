"""What Sender and the settling of its batches must be told, out of ProducerConfig. Defaults are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SenderConfig:
    """What Sender is told. Defaults are Kafka's."""

    acks: str = "all"
    retries: int = 2**31 - 1
    max_request_bytes: int = 1_048_576
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retry_backoff_ms: int = 100
    guarantee_message_order: bool = False  # max.in.flight.requests.per.connection=1
    whole_requests: bool = False  # not Kafka's: see KafkaProducer
