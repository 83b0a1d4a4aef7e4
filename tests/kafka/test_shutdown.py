"""SIGTERM: accepted records are flushed, those that can't be are reported, and the exit code is 0.

acks=all, replication factor 3, min.insync.replicas 2.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import httpx

from tests.support.plain_http import NO_TLS
from tests.support.sidecar import ANSWER_TIMEOUT_S, Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster


class Asked:
    """A produce on a thread of its own, whose answer is looked at later."""

    def __init__(self, sidecar: Sidecar, topic: str, values: list[str]) -> None:
        self.answer: httpx.Response | None = None
        self._url = f"{sidecar.api_url}/v1/topics/{topic}/records"
        self._body = {"records": [{"value": v} for v in values], "value_format": "text"}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(httpx.TransportError):
            self.answer = httpx.post(self._url, json=self._body, timeout=ANSWER_TIMEOUT_S, verify=NO_TLS)

    def join(self) -> httpx.Response | None:
        """The answer; None where the connection ended without one."""
        self._thread.join(ANSWER_TIMEOUT_S)
        assert not self._thread.is_alive()
        return self.answer

    def answered(self) -> httpx.Response:
        answer = self.join()
        assert answer is not None, "the connection ended without an answer"
        return answer


def test_accepted_records_are_flushed_before_the_end(
    kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    # A linger far beyond the test: only the flush of the shutdown can send these.
    settings = {"linger.ms": "60000", "delivery.timeout.ms": "120000"}
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, kafka=settings) as sidecar:
        asked = Asked(sidecar, topic, ["a", "b", "c"])
        wait_until(
            lambda: sidecar.api.get("/v1/status").json()["buffer"]["records"] == 3,
            what="three lingering records",
        )
        assert sidecar.terminate() == 0
        answer = asked.answered()
        assert answer.status_code == 200, answer.text
    assert [r.value for r in kafka.read_back(topic)] == [b"a", b"b", b"c"]


def test_records_that_can_not_be_flushed_are_named_and_the_exit_code_is_still_0(
    kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    flags = ["--drain-timeout-ms", "1000"]
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=flags) as sidecar:
        assert sidecar.produce(topic, [{"value": "warm"}]).status_code == 200
        for broker_id in kafka.broker_ids:
            kafka.pause(broker_id)
        asked = Asked(sidecar, topic, ["x", "y"])
        wait_until(
            lambda: sidecar.api.get("/v1/status").json()["buffer"]["records"] == 2,
            what="two records under way",
        )
        assert sidecar.terminate() == 0
        answer = asked.answered()
        assert answer.status_code in {503, 504}, answer.text
        log = sidecar.log()
    assert f"2 records of {topic}-0" in log


def test_new_work_is_refused_while_the_old_is_flushed(
    kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    flags = ["--drain-timeout-ms", "20000"]
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=flags) as sidecar:
        assert sidecar.produce(topic, [{"value": "warm"}]).status_code == 200
        for broker_id in kafka.broker_ids:
            kafka.pause(broker_id)
        asked = Asked(sidecar, topic, ["old"])
        wait_until(
            lambda: sidecar.api.get("/v1/status").json()["buffer"]["records"] == 1, what="a record under way"
        )
        sidecar.process.terminate()
        wait_until(
            lambda: "no new requests" in sidecar.log(), what="the drain in the log", last_seen=sidecar.log
        )
        refused = sidecar.produce(topic, [{"value": "new"}], timeout_ms=500)
        assert refused.status_code == 503
        assert refused.headers["connection"] == "close"
        for broker_id in kafka.broker_ids:
            kafka.resume(broker_id)
        assert sidecar.process.wait(timeout=patient(60)) == 0
        assert asked.answered().status_code == 200
    values = [r.value for r in kafka.read_back(topic)]
    assert b"old" in values


def test_a_second_sigterm_ends_at_once(kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    flags = ["--drain-timeout-ms", "60000"]
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=flags) as sidecar:
        assert sidecar.produce(topic, [{"value": "warm"}]).status_code == 200
        for broker_id in kafka.broker_ids:
            kafka.pause(broker_id)
        asked = Asked(sidecar, topic, ["x"])
        wait_until(lambda: sidecar.api.get("/v1/status").json()["buffer"]["records"] == 1, what="a record")
        sidecar.process.terminate()
        wait_until(
            lambda: "no new requests" in sidecar.log(), what="the drain in the log", last_seen=sidecar.log
        )

        def asked_again() -> bool:
            sidecar.process.terminate()  # counts as the first one for a while
            return not sidecar.is_running

        wait_until(asked_again, what="the end")
        assert asked.join() is None, "the connection ended without an answer"
