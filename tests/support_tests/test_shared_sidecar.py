"""A sidecar that tests share is the same one until it, or what it is connected to, is no longer as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from client_core.testing import FakeCluster
from tests.support.shared_sidecar import SharedSidecar

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class SomeBrokers:
    bootstrap_servers: str
    disturbances: int = 0


def test_it_is_started_again_only_where_it_ended_or_brokers_were_disturbed(tmp_path: Path) -> None:
    with FakeCluster(1) as cluster:
        brokers = SomeBrokers(cluster.bootstrap_servers)
        with SharedSidecar(tmp_path, brokers) as shared:
            first = shared.running()
            assert shared.running() is first
            assert first.terminate() == 0
            second = shared.running()
            assert second is not first
            brokers.disturbances += 1
            third = shared.running()
            assert third is not second
            assert (second.is_running, third.is_running) == (False, True)
            assert third.api.get("/v1/cluster").status_code == 200
        assert not third.is_running
