"""A few faults of tests/chaos, played as `make chaos` plays all of them, without Java's client beside."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from tests.chaos.faults import all_faults
from tests.chaos.play import play
from tests.chaos.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.chaos_kraft import ChaosCluster
    from tests.support.kafka_home import KafkaHome

SEED: Final = 7
SHORT: Final = {fault.name: fault for fault in all_faults(SEED) if fault.short}


@pytest.fixture(scope="module")
def stage(
    kafka_home: KafkaHome, chaos_cluster: ChaosCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    with Stage(chaos_cluster, kafka_home, folder, Random(SEED), has_java=False) as stage:
        yield stage


@pytest.mark.parametrize("name", SHORT)
def test_a_fault_under_load_breaks_no_promise(stage: Stage, name: str) -> None:
    row = play(stage, SHORT[name])
    assert row.withstood, "\n".join(row.sentences)
    assert row.acknowledged > 0
