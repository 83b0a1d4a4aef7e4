"""Watching real brokers: their changes are sent to watchers that stay and to those that come again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.event_stream import EventReader
from tests.support.plain_http import NO_TLS
from tests.support.shared_sidecar import SharedSidecar
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.kafka.conftest import NewTopic
    from tests.support.event_stream import ServerSentEvent
    from tests.support.kraft import KraftCluster
    from tests.support.sidecar import Sidecar

#: A killed broker is fenced after nine seconds; nothing here takes longer than that and a bit.
PATIENCE_S = patient(60.0)


@pytest.fixture(scope="module")
def shared_sidecar(
    kafka_of_the_session: KraftCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedSidecar]:
    settings = {"metadata.max.age.ms": "1000"}
    with SharedSidecar(tmp_path_factory.mktemp("watch"), kafka_of_the_session, settings=settings) as shared:
        yield shared


@pytest.fixture
def sidecar(kafka: KraftCluster, shared_sidecar: SharedSidecar) -> Sidecar:
    return shared_sidecar.running()


class LiveWatch:
    """An event stream over a socket."""

    def __init__(self, answer: httpx.Response) -> None:
        self._chunks = answer.iter_raw()
        self._reader = EventReader()
        self._events: list[ServerSentEvent] = []

    def next(self, event: str) -> ServerSentEvent:
        """The next event of this kind; what else comes before it is passed over."""
        while True:
            found = self.take()
            if found.event == event:
                return found

    def take(self) -> ServerSentEvent:
        """The next event."""
        while not self._events:
            self._events += self._reader.feed(next(self._chunks))
        return self._events.pop(0)


@contextmanager
def watching(sidecar: Sidecar, query: str, headers: Mapping[str, str] | None = None) -> Iterator[LiveWatch]:
    with sidecar.api.stream("GET", f"/v1/watch?{query}", headers=headers, timeout=PATIENCE_S) as answer:
        assert answer.status_code == 200
        yield LiveWatch(answer)


def leader_of(event: ServerSentEvent) -> Any:
    """The leader of the only partition of an event or a snapshot."""
    partitions = event.data["topics"][0]["partitions"] if "topics" in event.data else event.data["partitions"]
    (found,) = partitions
    return found["leader"]


def test_a_killed_leader_is_sent_with_its_successor_and_explains_a_produce_that_waits_for_it(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    """Another topic has replication factor 1, so no other broker can take over."""
    topic = new_topic(assignment=[[3, 2, 1]], min_insync_replicas=2)
    alone = new_topic(assignment=[[3]])
    assert sidecar.produce(alone, [{"value": "first"}]).status_code == 200
    produced = sidecar.api.get("/v1/status").json()["produce"]["requests"]
    with watching(sidecar, f"topics={topic}&status_ms=1000") as watch:
        assert leader_of(watch.next("snapshot")) == 3
        kafka.kill(3)
        with httpx.Client(base_url=sidecar.api_url, timeout=PATIENCE_S, verify=NO_TLS) as another:
            url, body = f"/v1/topics/{alone}/records?timeout_ms=4000", {"records": [{"value": 1}]}
            with watching(sidecar, "status_ms=250") as statuses:
                waiting = another.build_request("POST", url, json=body)
                reported: list[Any] = []
                answer = _while_sending(another, waiting, statuses, reported)
        change = watch.next("leader")
        assert change.data["partitions"][0]["previous_leader"] == 3
        assert leader_of(change) == kafka.admin.wait_for_leader_other_than(topic, 0, 3)
        assert leader_of(change) in {1, 2}
        status = watch.next("status").data
        assert (topic, 3) in {(m["topic"], m["old_leader"]) for m in status["leader_changes"]}
    assert answer.status_code in (503, 504)
    details = [finding["detail"] for slow in reported for finding in slow if finding["phase"] != "metadata"]
    assert any("1 record of 1 partition waits for" in detail for detail in details), reported
    assert any(finding["node"] == 3 for slow in reported for finding in slow), reported
    assert sidecar.api.get("/v1/status").json()["produce"]["requests"] == produced + 1


def _while_sending(
    client: httpx.Client, request: httpx.Request, watch: LiveWatch, reported: list[Any]
) -> httpx.Response:
    """Sends a request, and collects the findings of each status until its answer."""
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(client.send, request)
        while not sending.done():
            reported.append(watch.next("status").data["slow"])
        return sending.result()


def test_a_watcher_that_comes_again_hears_what_it_missed(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=1)
    with watching(sidecar, f"topics={topic}") as watch:
        last_id = watch.next("snapshot").last_id
    kafka.admin.add_partitions(topic, total=3)
    with watching(sidecar, f"topics={topic}", {"Last-Event-ID": last_id}) as again:
        grew = again.take()
        assert (grew.event, grew.data["change"], grew.data["partition_count"]) == ("topic", "grew", 3)
        assert [p["partition"] for p in again.next("leader").data["partitions"]] == [1, 2]
    with watching(sidecar, f"topics={topic}", {"Last-Event-ID": "00000000-1"}) as foreign:
        assert foreign.take().data["reason"] == "other_process"
        assert len(foreign.next("snapshot").data["topics"][0]["partitions"]) == 3


def test_a_topic_that_is_created_later_is_sent_and_so_is_its_end(
    kafka: KraftCluster, topic_name: Callable[[], str], sidecar: Sidecar
) -> None:
    topic = topic_name()
    with watching(sidecar, f"topics={topic}") as watch:
        (error,) = watch.next("snapshot").data["errors"]
        assert error["error"]["kafka_error"] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert topic not in kafka.admin.topics(), "a watch must not create a topic"
        kafka.admin.create_topic(topic, partitions=2, replication_factor=1)
        assert watch.next("topic").data["change"] == "appeared"
        assert len(watch.next("leader").data["partitions"]) == 2
        kafka.admin.delete_topic(topic)
        assert watch.next("topic").data["change"] == "gone"


def test_a_long_poll_is_answered_by_the_next_change(
    kafka: KraftCluster, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=1)
    query = {"topics": topic, "max_block_ms": "30000"}
    headers = {"accept": "application/json"}
    snapshot = sidecar.api.get("/v1/watch", params={"topics": topic}, headers=headers).json()
    kafka.admin.add_partitions(topic, total=2)
    boot, _, number = snapshot["version"].rpartition("-")
    answer = sidecar.api.get(
        "/v1/watch", params={**query, "min_version": f"{boot}-{int(number) + 1}"}, headers=headers
    ).json()
    assert not answer["reset"]
    assert answer["changes"][0]["data"]["change"] == "grew"


def test_a_look_up_waits_for_the_next_metadata_version_and_no_longer_than_it_may(
    new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=1)
    boot, _, number = (
        sidecar.api.get(f"/v1/topics/{topic}").headers["pilotfish-metadata-version"].rpartition("-")
    )
    answer = sidecar.api.get(f"/v1/topics/{topic}", params={"min_version": f"{boot}-{int(number) + 1}"})
    assert answer.status_code == 200
    assert int(answer.headers["pilotfish-metadata-version"].rpartition("-")[2]) > int(number)
    late = sidecar.api.get(
        f"/v1/topics/{topic}", params={"min_version": f"{boot}-{int(number) + 10**6}", "max_block_ms": 300}
    )
    assert late.status_code == 503
    assert 300 <= late.json()["waited_ms"] < patient(30_000)  # and not the default of max.block.ms


def test_a_watch_ends_in_good_order_with_the_sidecar(new_topic: NewTopic, sidecar: Sidecar) -> None:
    topic = new_topic(partitions=1)
    with watching(sidecar, f"topics={topic}") as watch:
        watch.next("snapshot")
        sidecar.process.terminate()
        assert watch.next("end").data["reason"] == "shutting_down"
    assert sidecar.process.wait(timeout=patient(30)) == 0
