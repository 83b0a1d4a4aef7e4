"""Probes and metrics on the admin listener."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from client_core import ClientStatus, NodeStatus
from service.admission.caller import ANYONE
from service.process.admin import AdminApp, make_registry
from service.process.health import Health
from tests.support.coroutine_tests import run
from tests.support.fake_producer import FakeProducer, with_status
from tests.support.http_app import NativeApp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import httpx
    from prometheus_client.core import Metric

    from tests.support.fake_producer import FakeTicket


async def probe(web: NativeApp, path: str, *, listening: bool = True, method: str = "GET") -> httpx.Response:
    health = Health(web.app.sidecar, asyncio.get_running_loop(), lambda: listening)
    async with web.client(AdminApp(make_registry(web.app), health)) as client:
        return await client.request(method, path)


def ask(web: NativeApp, path: str, **how: Any) -> httpx.Response:
    return run(probe(web, path, **how))


@pytest.fixture
def web() -> NativeApp:
    app = NativeApp(liveness_timeout_ms=50)
    app.producer.set_topics({"orders": 3})
    app.producer.start()
    return app


# -- livez ---------------------------------------------------------------------------------------------------


def test_it_lives_while_both_loops_turn(web: NativeApp) -> None:
    assert (ask(web, "/livez").status_code, ask(web, "/livez").text) == (200, "ok\n")
    assert ask(web, "/livez").headers["cache-control"] == "no-store"


def test_it_lives_without_kafka() -> None:
    assert ask(NativeApp(), "/livez").status_code == 200


def test_a_poll_loop_that_does_not_turn_when_woken_is_dead(web: NativeApp) -> None:
    web.producer.turns_when_woken = False
    answer = ask(web, "/livez")
    assert (answer.status_code, answer.text) == (503, "the poll loop did not complete a turn within 50 ms\n")


async def test_an_event_loop_that_does_not_turn_is_dead(web: NativeApp) -> None:
    stuck = asyncio.new_event_loop()
    try:
        assert (
            await Health(web.app.sidecar, stuck, lambda: True).fault_of_life()
            == "the event loop did not complete a turn within 50 ms"
        )
    finally:
        stuck.close()


def test_a_client_that_failed_is_dead_at_once(web: NativeApp) -> None:
    web.producer.state = "failed"
    assert ask(web, "/livez").text == "the client has failed\n"


def test_a_client_that_closes_is_not_dead(web: NativeApp) -> None:
    web.producer.turns_when_woken = False
    web.app.sidecar.drain.begun = True
    assert ask(web, "/livez").status_code == 200


# -- readyz --------------------------------------------------------------------------------------------------


def test_it_is_ready_when_metadata_is_there(web: NativeApp) -> None:
    assert ask(web, "/readyz").status_code == 200
    assert ask(NativeApp(), "/readyz").text == "no metadata yet\n"


def node(state: str, error_age_ms: int | None) -> NodeStatus:
    error = None if error_age_ms is None else "refused"
    return NodeStatus(1, "host", 9092, state, 0, None, 0, 0, error, error_age_ms)


def test_it_is_not_ready_when_every_broker_has_gone(web: NativeApp) -> None:
    web.producer.clock.advance(1_000)
    for nodes, ready in (
        ((node("ready", None), node("disconnected", 5)), True),
        ((node("disconnected", None),), True),
        ((node("disconnected", 500),), False),
        ((node("disconnected", 1_500),), True),
        ((node("disconnected", 1_500), node("disconnected", 500)), False),
        ((node("disconnected", 500), node("disconnected", 1_500)), False),
        ((node("disconnected", 1_500), node("disconnected", 1_600)), True),
    ):
        with_status(web.producer, nodes=nodes)
        assert (ask(web, "/readyz").status_code == 200) is ready, nodes


def test_a_refresh_that_failed_after_the_last_good_one_is_not_ready(web: NativeApp) -> None:
    web.producer.clock.advance(1_000)
    reported: ClientStatus = web.producer.status()
    with_status(web.producer, metadata=replace(reported.metadata, last_error="x", last_error_age_ms=10))
    assert ask(web, "/readyz").status_code == 503


def asked(oldest_in_flight_ms: int | None) -> NodeStatus:
    return replace(node("ready", None), oldest_in_flight_age_ms=oldest_in_flight_ms)


@pytest.mark.parametrize(
    ("nodes", "answered_ms", "refreshes"),
    [
        ((asked(None),), 3_600_000, 0),  # an idle sidecar asks nothing
        ((asked(6_000),), 4_999, 0),  # another node answers
        ((asked(4_999), asked(None)), 6_000, 0),
        ((asked(6_000), asked(None)), 6_000, 1),
        ((asked(6_000), asked(6_000)), None, 1),
    ],
)
def test_it_is_not_ready_when_no_broker_has_answered_for_long_while_one_was_asked(
    nodes: tuple[NodeStatus, ...], answered_ms: int | None, refreshes: int
) -> None:
    web = NativeApp(lookup_refresh_wait_ms=0)
    web.producer.set_topics({"orders": 3})
    with_status(web.producer, nodes=nodes, last_answer_age_ms=answered_ms)
    answer = ask(web, "/readyz")
    assert answer.status_code == (503 if refreshes else 200)
    if refreshes:
        assert answer.text == "no broker has answered for 6000 ms; metadata is still served\n"
    assert [ticket.asked["names"] for ticket in web.producer.refreshes] == [[]] * refreshes


def test_where_one_broker_hangs_and_no_other_one_was_asked_the_probe_asks_another() -> None:
    web = NativeApp(lookup_refresh_wait_ms=60_000)
    web.producer.set_topics({"orders": 3})

    class Answering(FakeProducer):
        def refresh_topics(self, names: Iterable[str], **sent: Any) -> FakeTicket:
            with_status(web.producer, nodes=(asked(6_000),), last_answer_age_ms=3)
            return FakeProducer.refresh_topics(self, names, **sent)

    web.producer.__class__ = Answering
    with_status(web.producer, nodes=(asked(6_000),), last_answer_age_ms=6_000)
    assert ask(web, "/readyz").status_code == 200
    assert len(web.producer.refreshes) == 1


def test_it_is_not_ready_once_it_is_asked_to_end(web: NativeApp) -> None:
    web.app.sidecar.drain.announced = True
    assert ask(web, "/readyz").text == "shutting down\n"


# -- startupz ------------------------------------------------------------------------------------------------


def test_it_has_started_when_it_listens_and_knows_the_cluster(web: NativeApp) -> None:
    assert ask(web, "/startupz").status_code == 200
    assert ask(web, "/startupz", listening=False).text == "the API does not listen yet\n"


async def test_without_metadata_it_starts_as_the_policy_says() -> None:
    for policy, waited_ms, started in (
        ("wait", 29_999, False),
        ("wait", 30_000, True),
        ("strict", 9_000_000, False),
        ("none", 0, True),
    ):
        web = NativeApp(startup_require_metadata=policy)
        health = Health(web.app.sidecar, asyncio.get_running_loop(), lambda: True)
        web.producer.clock.advance(waited_ms)
        assert (health.fault_of_startup() is None) is started, (policy, waited_ms)


# -- metrics, and the rest -----------------------------------------------------------------------------------


def test_metrics_are_text_that_prometheus_reads(web: NativeApp) -> None:
    answer = ask(web, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "pilotfish_build_info{" in answer.text
    assert "process_resident_memory_bytes" in answer.text


async def test_callers_whose_answers_go_on_are_counted_while_they_do(web: NativeApp) -> None:
    sidecar = web.app.sidecar

    async def counted() -> list[float]:
        """Requests, their bytes, watchers, streams."""
        lines = (await probe(web, "/metrics")).text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        names = ("waiting_requests", "waiting_bytes", "watchers", "produce_streams")
        return [float(values[f"pilotfish_{name}"]) for name in names]

    streams, feed = sidecar.streams, sidecar.feed
    with feed.subscribe(ANYONE, None), feed.subscribe(ANYONE, None):
        assert await counted() == [0, 0, 2, 0]
        with streams.open("orders", ANYONE, lambda: sidecar.producing.times):
            assert await counted() == [1, 0, 2, 1]
            with sidecar.admission.acquire(700), sidecar.admission.acquire(70):
                assert await counted() == [3, 770, 2, 1]
    assert await counted() == [0, 0, 0, 0]


class GaugeOfOne(Collector):
    """A collector without a bug."""

    def collect(self) -> list[Metric]:
        return [GaugeMetricFamily("behind_the_bug", "A metric.", value=1)]


class Broken(Collector):
    """A collector with a bug: the second of its metrics raises."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("before_the_bug", "The first metric.", value=1)
        raise ZeroDivisionError


async def test_a_collector_that_raises_costs_a_scrape_only_its_own_metrics(
    web: NativeApp, caplog: pytest.LogCaptureFixture
) -> None:
    registry = make_registry(web.app, [Broken(), GaugeOfOne()])
    health = Health(web.app.sidecar, asyncio.get_running_loop(), lambda: True)
    async with web.client(AdminApp(registry, health)) as client:
        first, second = await client.get("/metrics"), await client.get("/metrics")
    for name in (
        "pilotfish_build_info{",
        "before_the_bug 1",
        "behind_the_bug 1",
        "process_start_time_seconds",
    ):
        assert name in first.text
    assert 'pilotfish_loop_failed_turns_total{loop="scrape"} 1.0' in first.text
    assert 'pilotfish_loop_failed_turns_total{loop="scrape"} 2.0' in second.text
    (logged,) = [record for record in caplog.records if record.exc_info]
    assert logged.message == "Uncaught error in the metrics"


def test_an_unknown_path_is_404_and_nothing_can_be_posted(web: NativeApp) -> None:
    assert ask(web, "/").status_code == 404
    assert ask(web, "/v1/topics/orders").status_code == 404
    assert ask(web, "/metrics", method="POST").status_code == 405
