"""The cases in which a request may still be written twice under its Idempotency-Key, as docs/http.md lists.

Whole sidecars on a fake cluster: the stored records are counted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from client_core.protocol.api_keys import ApiKey
from client_core.testing import Disconnect, FakeCluster, Lost
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

TOPIC: Final = "orders"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        yield cluster


def sidecar_beside(cluster: FakeCluster, folder: Path, **kafka: str) -> Sidecar:
    settings = {name.replace("_", "."): value for name, value in kafka.items()}
    return Sidecar(folder, bootstrap_servers=cluster.bootstrap_servers, kafka=settings)


def post(sidecar: Sidecar, key: str) -> httpx.Response:
    """One record whose value is its key."""
    return sidecar.api.post(
        f"/v1/topics/{TOPIC}/records",
        json={"value_format": "text", "records": [{"value": key}]},
        headers={"Idempotency-Key": key},
    )


def stored(cluster: FakeCluster) -> list[str]:
    return [record.value.decode() for record in cluster.records(TOPIC) if record.value is not None]


def test_a_restart_forgets_keys_so_a_request_that_comes_again_is_written_again(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with sidecar_beside(cluster, tmp_path) as sidecar:
        assert post(sidecar, "a").status_code == 200
        assert post(sidecar, "a").headers["pilotfish-replayed"] == "true"
        assert stored(cluster) == ["a"]
        sidecar.process.kill()
        sidecar.process.wait(timeout=patient(30))
        sidecar.start()
        again = post(sidecar, "a")
        assert again.status_code == 200
        assert "pilotfish-replayed" not in again.headers
        assert stored(cluster) == ["a", "a"]


def test_an_answer_that_a_broker_could_not_send_writes_nothing_twice_while_it_knows_the_producer(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with sidecar_beside(cluster, tmp_path) as sidecar:
        cluster.react_next(ApiKey.PRODUCE, Disconnect(applied=True), times=3)
        assert post(sidecar, "a").status_code == 200
        assert post(sidecar, "a").headers["pilotfish-replayed"] == "true"
    assert stored(cluster) == ["a"]


def test_brokers_that_recover_the_last_batch_only_may_store_twice_what_was_on_its_way(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    """Two batches are stored and not answered; the brokers come back and know the last of them only."""
    with sidecar_beside(cluster, tmp_path) as sidecar, ThreadPoolExecutor(2) as callers:
        assert post(sidecar, "first").status_code == 200
        cluster.react_next(ApiKey.PRODUCE, Lost())
        cluster.react_next(ApiKey.PRODUCE, Disconnect(applied=True))
        back = cluster.hold_next(ApiKey.API_VERSIONS)
        answers = []
        for key in ("a", "b"):
            answers.append(callers.submit(post, sidecar, key))
            wait_until(partial(_is_stored, cluster, key), what=f"{key} in the log")
        back.wait_until_held()
        cluster.recover_producers()
        back.release()
        assert [answer.result().status_code for answer in answers] == [200, 200]
        assert post(sidecar, "a").headers["pilotfish-replayed"] == "true"
        assert "with epoch 1" in sidecar.log()
    assert stored(cluster)[:3] == ["first", "a", "b"]
    assert stored(cluster)[3:] == ["a", "b"]


def test_without_idempotence_an_answer_that_was_lost_writes_twice(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with sidecar_beside(cluster, tmp_path, enable_idempotence="false") as sidecar:
        cluster.react_next(ApiKey.PRODUCE, Disconnect(applied=True))
        assert post(sidecar, "a").status_code == 200
    assert stored(cluster) == ["a", "a"]


def _is_stored(cluster: FakeCluster, value: str) -> bool:
    return value in stored(cluster)
