"""Many topics go while their records are on their way: nothing of it holds up another topic for long.

The spool over a whole KafkaProducer and brokers in this process, in simulated time.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.spool_bench import SpoolBench
from tests.support.spooling import record

if TYPE_CHECKING:
    from pathlib import Path

#: More than the batches that Kafka's default buffer.memory has room for, at the spool's batch.size.
GONE: Final = tuple(f"gone-{number}" for number in range(300))
#: delivery.timeout.ms, then the wait for the topic, with room for pauses.
UNTIL_SET_ASIDE_MS: Final = 120_000 + 60_000 + 30_000


@pytest.fixture
def bench(tmp_path: Path) -> SpoolBench:
    """All topics are known, since a record of each was delivered; then of each but one a record is sent."""
    bench = SpoolBench(tmp_path / "spool")
    for topic in ("orders", *GONE):
        bench.brokers.state.controller.create_topic(topic, partitions=1, replication_factor=1)
    bench.rig.spool_in([record("known", topic) for topic in ("orders", *GONE)])
    bench.live(10_000)
    assert bench.rig.spool.entries == 0
    assert bench.held_bytes == 0
    bench.rig.spool_in([record("late", topic) for topic in GONE])
    bench.rig.spool.delivery.turn(bench.clock.now_ms())
    for topic in GONE:
        bench.brokers.state.controller.delete_topic(topic)
    return bench


def test_hundreds_of_deleted_topics_do_not_stop_the_delivery_of_another(bench: SpoolBench) -> None:
    for second in range(1, 31):
        bench.rig.spool_in([record(f"{second}")])
        bench.live(1_000)
        assert bench.stored("orders") == 1 + second
    assert bench.rig.spool.entries == len(GONE)


def test_their_records_are_set_aside_and_the_producer_keeps_nothing_of_them(bench: SpoolBench) -> None:
    bench.live(5_000)
    assert bench.held_bytes > 0
    bench.live(UNTIL_SET_ASIDE_MS)
    counted = {labels: counter.value for labels, counter in bench.rig.spool.delivery.set_aside.items()}
    assert Counter({reason: value for (reason,), value in counted.items() if value}) == {
        "topic_gone": len(GONE)
    }
    assert bench.rig.spool.entries == 0
    assert bench.held_bytes == 0
    bench.rig.spool_in([record("afterwards")])
    bench.live(5_000)
    assert bench.stored("orders") == 2
