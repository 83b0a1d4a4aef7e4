"""The cost of a scrape, and its thread: lines and calls are counted.

It has a hundred brokers, every api, a hundred topics by name and every route, as the largest clusters would.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Final

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.registry import Collector

from client_core import Errors, NodeStatus
from client_core import events as e
from client_core.protocol.api_keys import API_KEYS
from service.process.admin import AdminApp, make_registry, start_admin
from service.process.health import Health
from service.process.server import bound_socket
from tests.speed.counted_calls import calls_of
from tests.support.coroutine_tests import run
from tests.support.fake_producer import with_status
from tests.support.http_app import NativeApp
from tests.support.plain_http import NO_TLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric


BROKERS: Final = 100
TOPICS: Final = 100
MOST_LINES: Final = 4_000
#: Functions of Python and of C that collecting a line takes: 4.5.
MOST_CALLS_A_LINE: Final = 7

REASONS: Final = ("refused", "unresolved", "forbidden", "closed", "setup_timeout", "request_timeout", "idle")


@pytest.fixture(scope="module")
def busy() -> NativeApp:
    web = NativeApp(topic_metrics=True, topic_metrics_limit=TOPICS)
    web.producer.set_topics({"orders": 3})
    for event in all_that_happens():
        web.app.events.emit(event)
    states = ("ready", "disconnected", "connecting")
    nodes = [NodeStatus(n, "host", 9092, states[n % 3], n, None, n, 0, None, None) for n in range(BROKERS)]
    with_status(web.producer, nodes=tuple(nodes))
    for path in ("cluster", "brokers/1", "topics/orders", "topics/orders/leader?key=a", "status", "made-up"):
        web.get(f"/v1/{path}")
    web.produce(b'{"records":[{"value":1}]}')
    return web


def all_that_happens() -> Iterator[e.Event]:
    for node_id in range(BROKERS):
        yield e.NodeReady(node_id)
        yield from (e.NodeDisconnected(node_id, reason, "x", 0) for reason in REASONS)
        for api in API_KEYS:
            yield e.RequestCompleted(api.name, node_id, 5, 10, 10)
            yield e.RequestCompleted(api.name, node_id, 5, 10, 10, Errors.REQUEST_TIMED_OUT)
            yield e.RequestCompleted(api.name, node_id, 5, 10, 10, Errors.NETWORK_EXCEPTION)
    for number in range(2 * TOPICS):
        yield e.ProduceFinished(f"topic-{number}", 0, 1, 1, 10, 1, 0, Errors.NONE)
        yield e.ProduceFinished(f"topic-{number}", 0, 1, 1, 10, 1, 0, Errors.MESSAGE_TOO_LARGE)


def test_a_scrape_of_the_largest_stays_below_four_thousand_lines(busy: NativeApp) -> None:
    text = generate_latest(make_registry(busy.app)).decode()
    assert text.count('broker="99"') > 5
    assert text.count('topic="_other"') == 2
    assert len(text.splitlines()) < MOST_LINES


def test_what_a_line_shows_is_collected_in_few_calls(busy: NativeApp) -> None:
    registry = make_registry(busy.app)
    lines = len(generate_latest(registry).splitlines())
    calls = calls_of(lambda: list(registry.collect()))
    assert (sum(calls.python.values()) + sum(calls.c.values())) / lines <= MOST_CALLS_A_LINE


def test_what_the_brokers_of_a_scrape_cost_grows_with_their_number_only(busy: NativeApp) -> None:
    """No metric has a series for a broker and an api, a broker and a topic, or the like."""
    text = generate_latest(make_registry(busy.app)).decode().splitlines()
    of_one = [line for line in text if 'broker="7"' in line]
    of_another = [line for line in text if 'broker="8"' in line]
    assert len(of_one) == len(of_another) <= 22
    assert [line for line in of_one if "topic=" in line or "api=" in line] == []


class Notes(Collector):
    """Notes which thread collects."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def collect(self) -> Iterator[Metric]:
        self.threads.append(threading.current_thread().name)
        return iter(())


def test_a_scrape_is_made_on_the_admin_thread() -> None:
    web, notes = NativeApp(), Notes()

    async def scenario() -> httpx.Response:
        with bound_socket("127.0.0.1", 0, "admin_port") as bound:
            url = f"http://127.0.0.1:{bound.getsockname()[1]}/metrics"
            admin = start_admin(web.app, bound, lambda: True, [notes])
            notes.threads.clear()  # registering looks once, here
            try:
                async with httpx.AsyncClient(verify=NO_TLS) as prometheus:
                    return await prometheus.get(url)
            finally:
                admin.stop(10)

    assert run(scenario()).is_success
    assert notes.threads == ["pilotfish-admin"]


def test_openmetrics_is_sent_on_request(busy: NativeApp) -> None:
    async def scrape() -> httpx.Response:
        registry = make_registry(busy.app)
        health = Health(busy.app.sidecar, asyncio.get_running_loop(), lambda: True)
        async with busy.client(AdminApp(registry, health)) as client:
            return await client.get("/metrics", headers={"accept": "application/openmetrics-text"})

    answer = run(scrape())
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
