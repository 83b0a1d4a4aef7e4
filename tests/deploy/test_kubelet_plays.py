"""A pod's life as in the examples, played on fake brokers: every record acknowledged to the app is stored.

tests/kafka/test_kubelet.py has on real ones a deployment, a job that ends its sidecar itself, and secrets
that are rotated meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from client_core.testing import FakeCluster
from tests.deploy.play import LAST_RECORDS, Play, legacy_job, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC: Final = "orders"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=3) as running:
        running.create_topic(TOPIC, partitions=1)
        yield running


def stored(cluster: FakeCluster) -> list[str]:
    return [(record.value or b"").decode() for record in cluster.records(TOPIC)]


def test_a_job_with_a_native_sidecar_completes(cluster: FakeCluster, tmp_path: Path) -> None:
    play = Play(
        tmp_path,
        "cronjob.yaml",
        bootstrap_servers=cluster.bootstrap_servers,
        topic=TOPIC,
        app={"APP_RECORDS": "100"},
        app_command="app",
    )
    with play.kubelet() as kubelet:
        kubelet.start()
        kubelet.wait_until_completed()
        assert kubelet.reported[-3:] == ["ended nightly 0", "terminated pilotfish", "ended pilotfish 0"]
        assert kubelet.failures == []
    assert stored(cluster) == play.acknowledged() == numbers(100)


def test_in_the_older_form_the_sidecar_serves_on_while_the_app_drains(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """Both get SIGTERM at once: the delay leaves time for the app's last records."""
    play = legacy_job(
        tmp_path,
        bootstrap_servers=cluster.bootstrap_servers,
        topic=TOPIC,
        app={"APP_LAST_RECORDS": str(LAST_RECORDS)},
        sidecar={"PILOTFISH_DRAIN_DELAY_MS": "3000"},
        app_command="exec app",
    )
    with play.kubelet() as kubelet:
        kubelet.start()
        play.wait_for_records(20)
        before = len(play.acknowledged())
        kubelet.delete()
        assert {"ended once 0", "ended pilotfish 0"} <= set(kubelet.reported), kubelet.log("once")
        assert kubelet.failures == []
    acknowledged = play.acknowledged()
    assert len(acknowledged) >= before + LAST_RECORDS
    assert stored(cluster) == acknowledged == numbers(len(acknowledged))
