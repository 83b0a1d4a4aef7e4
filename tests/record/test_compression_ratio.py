from __future__ import annotations

import pytest

from client_core.record.compression import Codec
from client_core.record.compression_ratio import CompressionRatioEstimator


def after(expected: float, observed: float) -> float:
    """The ratio that is expected of a topic's next batch after an observed one."""
    ratios = CompressionRatioEstimator()
    ratios.set_estimation("orders", Codec.ZSTD, expected)
    reported = ratios.update_estimation("orders", Codec.ZSTD, observed)
    assert ratios.estimation("orders", Codec.ZSTD) == reported
    return reported


@pytest.mark.behaviour("REC-05")
def test_nothing_is_expected_to_be_packed_before_something_was() -> None:
    assert CompressionRatioEstimator().estimation("orders", Codec.GZIP) == 1.0


@pytest.mark.behaviour("REC-05")
@pytest.mark.java("CompressionRatioEstimatorTest.UpdateEstimation")
@pytest.mark.parametrize(
    ("expected", "observed", "then"),
    [
        (0.8, 0.84, 0.85),  # worse: up by a twentieth at least
        (0.6, 0.7, 0.7),  # much worse: up to what was seen
        (0.6, 0.4, 0.595),  # better: down by a two-hundredth at most
        (0.004, 0.001, 0.001),  # and never below what was seen
        (0.5, 0.5, 0.5),
        (1.0, 1.3, 1.3),  # what can't be packed grows
    ],
)
def test_the_estimate_rises_quickly_and_falls_slowly(expected: float, observed: float, then: float) -> None:
    assert after(expected, observed) == pytest.approx(then)
    assert after(expected, observed) >= observed


def test_topics_and_codecs_do_not_learn_from_each_other() -> None:
    ratios = CompressionRatioEstimator()
    ratios.set_estimation("orders", Codec.GZIP, 0.3)
    assert ratios.estimation("orders", Codec.LZ4) == ratios.estimation("events", Codec.GZIP) == 1.0


def test_a_topic_is_forgotten_for_every_codec() -> None:
    ratios = CompressionRatioEstimator()
    for topic in ("orders", "events"):
        ratios.set_estimation(topic, Codec.GZIP, 0.3)
        ratios.set_estimation(topic, Codec.ZSTD, 0.2)
    ratios.reset_estimation("orders")
    assert [ratios.estimation("orders", codec) for codec in Codec] == [1.0] * 5
    assert ratios.estimation("events", Codec.ZSTD) == 0.2


def test_its_repr_says_what_it_expects() -> None:
    ratios = CompressionRatioEstimator()
    assert repr(ratios) == "<CompressionRatioEstimator>"
    ratios.set_estimation("orders", Codec.GZIP, 0.25)
    assert repr(ratios) == "<CompressionRatioEstimator orders/gzip=0.250>"
