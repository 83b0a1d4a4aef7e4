"""The part of ProducerConfig that Sender and the settlement of its batches use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SenderConfig:
    """Times in ms, sizes in bytes. Immutable."""

    acks: str
    retries: int
    max_request_bytes: int
    request_timeout_ms: int
    delivery_timeout_ms: int
    retry_backoff_ms: int
    guarantee_message_order: bool  # max.in.flight.requests.per.connection=1
    whole_requests: bool  # not Kafka's: see KafkaProducer
