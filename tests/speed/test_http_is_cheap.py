"""The cost of a look-up, a produce request and an idle sidecar, in counts: calls, memory, wakeups.

`benchmarks/lookups.py`, `produce_http.py` and `footprint.py` have the seconds. Bounds are between the
measured count and twice as much: if one is exceeded, a request does some work once more.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from random import Random
from typing import Final

import pytest

from client_core import LoopCompletions, ProducerConfig
from service.base.settings import Settings
from service.process.app import App
from tests.speed.asgi_call import JSON, Call
from tests.speed.counted_calls import Calls, calls_of
from tests.support.coroutine_tests import run, until
from tests.support.counted_work import kept_blocks, python_calls
from tests.support.fake_cluster.in_process import FIRST_PORT, HOST, InProcessBrokers
from tests.support.fake_producer import FakeResult
from tests.support.hostile_load import hostile_producer
from tests.support.hostile_network import HostileNetwork
from tests.support.http_app import HttpApp
from tests.support.mock_clock import MockClock
from tests.support.producer_rig import ProducerRig
from tests.support.sender_rig import ORDERS_0, produced, producer_id_given
from tests.support.wired import Wired

LOOK_UPS: Final = 1_000
SECOND_MS: Final = 1_000
HOUR_MS: Final = 60 * 60 * SECOND_MS
LEADER: Final = "/v1/topics/orders/leader?partition=0"


def prepared(target: str = LEADER, *, topics: int = 1) -> tuple[HttpApp, Call]:
    """An app, and a look-up whose answer lies ready there."""
    with_app = HttpApp()
    with_app.producer.set_topics({"orders": 3} | {f"other-{n}": 3 for n in range(topics - 1)})
    call = Call(with_app.app, target)
    call.look_up(2)
    assert call.status == 200
    return with_app, call


def not_modified() -> Call:
    """A look-up by one who has the answer already."""
    with_app, call = prepared()
    again = Call(with_app.app, LEADER, (b"if-none-match", call.headers[b"etag"]))
    again.look_up(2)
    assert again.status == 304
    return again


# -- look-ups ------------------------------------------------------------------------------------------------


def test_a_prepared_look_up_enters_few_functions() -> None:
    """Thirteen: four of this test's own, the app, guards, table and fast metrics, and the test's clock."""
    for target in (LEADER, "/v1/topics/orders", "/v1/topics/orders/partitions/0"):
        _, call = prepared(target)
        assert python_calls(partial(call.look_up, LOOK_UPS)) <= 16 * LOOK_UPS, target
    again = not_modified()  # one more: the comparison of tags
    assert python_calls(lambda: again.look_up(LOOK_UPS)) <= 17 * LOOK_UPS


def wired(with_app: HttpApp, request: bytes) -> Wired:
    """A connection on which this request is answered at once."""
    made = Wired(with_app.app, with_app.app.answer_at_once)

    async def asked() -> None:
        made.connect()
        made.send(request)  # the first one shows that its Host is allowed
        await until(lambda: not made.tasks)

    run(asked())
    made.send(request)
    assert (made.tasks, made.taken()[:9]) == (0, b"HTTP/1.1 ")
    return made


#: Of each API, with links and without; and a caller that has the answer.
AT_ONCE: Final = (
    LEADER,
    "/v1/topics/orders",
    "/topics/orders/partitions/1",
    "/brokers",
    "/v3/clusters/cluster/topics/orders",
    "/v3/clusters/cluster/topics/orders/partitions/0/replicas",
)


def test_a_look_up_on_a_connection_costs_few_calls_and_no_task_in_each_api() -> None:
    """Twenty-two to twenty-five with those of the test, two of them for headers."""
    with_app = HttpApp()
    with_app.producer.set_topics({"orders": 3})
    for target in AT_ONCE:
        request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode()
        connection = wired(with_app, request)

        def ask(connection: Wired = connection, request: bytes = request) -> None:
            for _ in range(LOOK_UPS):
                connection.send(request)

        assert python_calls(ask) <= 26 * LOOK_UPS, target
        assert connection.tasks == 0
        connection.hang_up()


def test_many_leaders_in_one_request_cost_as_many_calls_as_one() -> None:
    """None for a leader that was asked for before: 130 for the request, where each of 100 took 20."""
    with_app = HttpApp()
    with_app.producer.set_topics({"orders": 100})

    def cost_of(leaders: int) -> int:
        lookups = [{"topic": "orders", "partition": number} for number in range(leaders)]
        body = json.dumps({"lookups": lookups})
        head = f"POST /v1/leaders HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        request = f"{head}Content-Type: application/json\r\n\r\n{body}".encode()

        async def ask() -> None:
            connection = Wired(with_app.app, with_app.app.answer_at_once)
            connection.connect()
            connection.send(request)
            await until(lambda: not connection.tasks)
            answer = connection.taken()
            assert (answer[:15], answer.count(b'"leader_epoch"')) == (b"HTTP/1.1 200 OK", leaders)
            connection.hang_up()

        run(ask())  # what is made once
        return python_calls(lambda: run(ask()))

    assert cost_of(100) - cost_of(1) <= 50


def test_prepared_look_ups_keep_no_memory() -> None:
    """Ninety blocks, which the interpreter keeps for its next dicts: after a hundred, or ten thousand."""
    _, call = prepared()
    again = not_modified()
    assert kept_blocks(lambda: call.look_up(LOOK_UPS)) <= LOOK_UPS // 5
    assert kept_blocks(lambda: again.look_up(LOOK_UPS)) <= LOOK_UPS // 5


def test_the_first_look_up_behind_a_refresh_costs_the_same_with_hundreds_of_topics() -> None:
    """The table is not walked, and no answer is built that nobody asks for."""
    calls = {}
    for topics in (1, 300):
        with_app, call = prepared(topics=topics)
        for n in range(topics - 1):
            Call(with_app.app, f"/v1/topics/other-{n}").look_up()
        with_app.producer.set_topics(dict.fromkeys(with_app.producer.cache.topics, 3))
        calls[topics] = python_calls(call.look_up)
    assert calls[300] == calls[1] <= 50


def test_a_new_second_costs_one_look_up_its_headers_and_the_others_nothing() -> None:
    with_app, call = prepared()
    usual = python_calls(call.look_up)
    with_app.producer.clock.advance(SECOND_MS)
    assert python_calls(call.look_up) <= usual + 25
    assert python_calls(call.look_up) == usual


def _asked(call: Call) -> None:
    run(call.ask())


def test_the_first_request_that_a_route_answers_costs_hardly_more_than_the_next() -> None:
    """At most 290 calls more, out of 1,900. It was 45,000 more when each route was made anew for it."""
    for target in ("/v1/status", "/v1.0/metadata"):
        HttpApp().get(target)  # what is made once in a process
        call = Call(HttpApp().app, target)
        first, second = (python_calls(partial(_asked, call)) for _ in range(2))
        assert call.status == 200, target
        assert first <= 1.3 * second, target


# -- produce -------------------------------------------------------------------------------------------------


def idempotent_rig() -> ProducerRig:
    """A producer that has its id, and whose batches take a thousand records."""
    rig = ProducerRig(topics={"orders": 1}, batch_size=1_000_000, enable_idempotence=True)
    rig.client.prepare_response(producer_id_given())
    rig.turn(3)
    return rig


def posts(rig: ProducerRig, *, requests: int, records: int) -> list[Call]:
    """Calls of as many produce requests, to an app over the rig's producer."""
    app = App(Settings(kafka={"bootstrap.servers": "localhost:9092"}), rig.producer)
    body = json.dumps({"records": [{"value": "x" * 100}] * records, "value_format": "text"}).encode()
    return [Call(app, "/v1/topics/orders/records", JSON, body=body) for _ in range(requests)]


@pytest.mark.parametrize(("requests", "records"), [(1, 1), (1, 1_000), (64, 1)])
def test_produce_requests_wake_the_io_thread_once_and_come_back_together(requests: int, records: int) -> None:
    """One crossing each way: for one record, a thousand of a request, or the requests of many callers."""
    rig = idempotent_rig()
    woken, posted = rig.client.wakeups, len(rig.posts.sizes)
    calls = posts(rig, requests=requests, records=records)

    async def scenario() -> None:
        asked = [asyncio.create_task(call.ask()) for call in calls]
        await until(lambda: rig.producer.status().buffer.records == requests * records)
        await until(lambda: rig.client.wakeups > woken)
        assert rig.client.wakeups - woken == 1
        rig.turn()
        rig.respond(produced(ORDERS_0, offset=0))
        rig.turn()
        await asyncio.gather(*asked)

    run(scenario())
    assert [call.status for call in calls] == [200] * requests
    # For each request, that it is answered, and that nothing of it is with the client any more.
    assert rig.posts.sizes[posted:] == [2 * requests]


def produce_calls(requests: int) -> Calls:
    """What so many produce requests call that wait at the same time, on connections of their own."""
    with_app = HttpApp()
    with_app.producer.set_topics({"orders": 3})
    with_app.producer.holds_records = True
    body = b'{"records":[{"value":1}]}'
    head = b"POST /v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)

    async def ask(connections: int) -> None:
        callers = [Wired(with_app.app) for _ in range(connections)]
        for caller in callers:
            caller.connect()
            caller.send(request)
        await until(lambda: len(with_app.producer.waiting) == connections)
        for ticket in list(with_app.producer.waiting):
            with_app.producer.acknowledge(ticket)
        await until(lambda: not any(caller.tasks for caller in callers))
        assert [caller.taken()[:15] for caller in callers] == [b"HTTP/1.1 200 OK"] * connections
        for caller in callers:
            caller.hang_up()

    run(ask(1))  # what is made once
    return calls_of(lambda: run(ask(requests)))


def test_produce_requests_that_wait_have_one_task_each_and_one_timer_together() -> None:
    """Besides those of the test and of each connection, for any number of requests."""
    few, many = produce_calls(2), produce_calls(52)
    tasks = "base_events", "create_task"
    assert many.python[tasks] - few.python[tasks] == 50
    timers = "base_events", "call_later"
    assert many.python[timers] - few.python[timers] == 50, "that of a connection, which is made in this test"


def test_a_produce_request_costs_few_calls_before_the_client_and_after_it() -> None:
    """Some 330, of which a third makes its connection."""
    few, many = produce_calls(2), produce_calls(52)
    assert sum(many.python.values()) - sum(few.python.values()) <= 50 * 400


def test_results_that_come_back_together_wake_the_event_loop_once() -> None:
    class CountedLoop:
        wakeups = 0

        def call_soon_threadsafe(self, *_: object) -> None:
            self.wakeups += 1

    loop, completions = CountedLoop(), LoopCompletions()
    completions.bind(loop)  # type: ignore[arg-type]  # all of a loop that it uses
    completions.post([(lambda _: None, FakeResult())] * 1_000)
    assert loop.wakeups == 1


# -- at rest -------------------------------------------------------------------------------------------------


def test_an_idle_client_turns_for_its_refreshes_only() -> None:
    """An hour in simulated time: every five minutes a request and its answer, and in between a sleep is as
    long as one of Java's client, request.timeout.ms.
    """
    clock, random = MockClock(now_ms=1_000_000), Random(1)
    brokers = InProcessBrokers(3)
    brokers.state.controller.create_topic("orders", partitions=6, replication_factor=3)
    network = HostileNetwork(clock, brokers, random)
    config = ProducerConfig.from_mapping({"bootstrap.servers": f"{HOST}:{FIRST_PORT}"})
    producer = hostile_producer(config, clock, network, random, (HOST, FIRST_PORT))
    producer.configure_topics(["orders"])
    while "orders" not in producer.cache.topics or producer.status().producer_id is None:
        producer.io_thread.turn()
    turns, began_ms = producer.io_thread.turns, clock.now_ms()
    refreshes = producer.cache.update_version
    while clock.now_ms() - began_ms < HOUR_MS:
        producer.io_thread.turn()
    turns = producer.io_thread.turns - turns
    refreshes = producer.cache.update_version - refreshes
    producer.close(0)
    assert refreshes in (11, 12)
    assert turns <= HOUR_MS // config.request_timeout_ms + 6 * refreshes
