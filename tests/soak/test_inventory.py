"""An inventory counts objects by type, and what our own objects hold in their containers."""

from __future__ import annotations

import os

from client_core.producer.accumulator.topic_queues import WaitingQueues
from client_core.producer.sender.batch_settlement import InFlightBatches
from tests.soak.inventory import take_inventory
from tests.soak.process_sizes import sizes_of
from tests.support.producer_rig import ProducerRig


class Kept:
    """Something to be counted."""


def test_objects_are_counted_by_type() -> None:
    kept = [Kept() for _ in range(7)]
    assert take_inventory().objects[f"{__name__}.Kept"] == len(kept)
    kept.clear()
    assert f"{__name__}.Kept" not in take_inventory().objects


def test_containers_of_our_objects_are_measured_all_instances_together() -> None:
    before = take_inventory().containers
    batches = [InFlightBatches(1_000) for _ in range(2)]
    for number, one in enumerate(batches):
        one._batches.update({("orders", n): [] for n in range(number + 3)})  # type: ignore[misc]
    name = "client_core.producer.sender.batch_settlement.InFlightBatches._batches"
    assert take_inventory().containers[name] - before.get(name, 0) == 3 + 4


def test_containers_in_slots_are_measured_too() -> None:
    name = f"{WaitingQueues.__module__}.WaitingQueues.topics"
    before = take_inventory().containers.get(name, 0)
    rig = ProducerRig(topics={"orders": 1})
    rig.submit("orders", b"a")
    assert take_inventory().containers[name] == before + 1


def test_the_system_tells_the_sizes_of_a_process() -> None:
    sizes = sizes_of(os.getpid())
    assert sizes.rss_bytes >= sizes.uss_bytes > 0
    assert sizes.rss_bytes >= sizes.anonymous_bytes > 0
    assert min(sizes.threads, sizes.descriptors) > 0
