"""Estimates each topic's compression ratio from its last batches (REC-05).

The estimate limits how much is appended to a batch. It rises fast and falls slowly. A worse ratio raises it
by at least a twentieth, a better one lowers it by at most a two-hundredth. If it is too low, the broker
refuses batches; if it is too high, batches are only small. It is not a metric of bytes saved.

One per producer, where Java has one per process. Any thread reads; only the I/O thread writes, when it closes
and splits batches, so there is no lock. Source: CompressionRatioEstimator, Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from client_core.record.compression import Codec

#: COMPRESSION_RATIO_IMPROVING_STEP, COMPRESSION_RATIO_DETERIORATE_STEP.
IMPROVING_STEP: Final = 0.005
DETERIORATE_STEP: Final = 0.05

#: CompressionType.rate, the same for every codec: no compression.
INITIAL_RATIO: Final = 1.0


class CompressionRatioEstimator:
    """Packed size over plain size of records, by topic and codec."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, Codec], float] = {}

    def __repr__(self) -> str:
        ratios = " ".join(
            f"{topic}/{codec.config_name}={r:.3f}" for (topic, codec), r in self._ratios.items()
        )
        return f"<CompressionRatioEstimator {ratios}>" if ratios else "<CompressionRatioEstimator>"

    def estimation(self, topic: str, codec: Codec) -> float:
        """Returns the expected ratio of the next batch. Any thread."""
        return self._ratios.get((topic, codec), INITIAL_RATIO)

    def update_estimation(self, topic: str, codec: Codec, observed_ratio: float) -> float:
        """Updates the estimate by a batch's ratio; returns the new estimate."""
        expected = self.estimation(topic, codec)
        if observed_ratio > expected:
            expected = max(expected + DETERIORATE_STEP, observed_ratio)
        elif observed_ratio < expected:
            expected = max(expected - IMPROVING_STEP, observed_ratio)
        self._ratios[topic, codec] = expected
        return expected

    def set_estimation(self, topic: str, codec: Codec, ratio: float) -> None:
        """Sets the estimate after a batch was too large: RecordAccumulator.split_and_reenqueue."""
        self._ratios[topic, codec] = ratio

    def reset_estimation(self, topic: str) -> None:
        """Forgets a topic's estimates for every codec."""
        for codec in Codec:
            self._ratios.pop((topic, codec), None)
