"""Connections are renewed when credentials change: one by one, after a trial, with no loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from client_core.client.credential_renewal import (
    LOOK_MS,
    PAUSE_MS,
    RETRY_MS,
    SETTLE_MS,
    Act,
    Stale,
    Step,
    next_step,
)
from client_core.client.node_connection_state import TRIAL_NODE_ID
from client_core.events import NodeDisconnected, SecretReloaded
from client_core.network.selectable import CredentialsVersion
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.produce_response import ProduceResponse
from tests.client.client_builders import NODE, NODE_1, NODE_2, Bench, RecordingUpdater, api_versions_response
from tests.support.mock_selector import MockSelector

if TYPE_CHECKING:
    from client_core.client.kafka_client import ClientResponse
    from client_core.cluster import Node

NODES: Final = (NODE, NODE_1, NODE_2)
OTHERS: Final = CredentialsVersion(sasl=1)
IDLE: Final = [Stale(node.id, 0) for node in NODES]
#: From a change of a file until it counts.
TAKEN_MS: Final = LOOK_MS + 2 * SETTLE_MS


class Given(NamedTuple):
    """The input of a decision."""

    stale: list[Stale]
    held: int | None = None
    is_under_way: bool = False
    is_proved: bool = True
    may_begin: bool = True
    tried_last: int | None = None


def test_what_is_decided() -> None:
    decisions: dict[str, tuple[Given, Step]] = {
        "where all is new there is nothing to do": (Given([]), Step(Act.REST)),
        "the next one waits until the last is there": (Given(IDLE, is_under_way=True), Step(Act.WAIT)),
        "the next one waits for the pause": (Given(IDLE, may_begin=False), Step(Act.REST)),
        "what nobody has taken yet is tried at the least busy one": (
            Given([Stale(1, 3), Stale(2, 1)], is_proved=False),
            Step(Act.TRY, 2),
        ),
        "another trial is made elsewhere": (Given(IDLE, is_proved=False, tried_last=0), Step(Act.TRY, 1)),
        "if it can be": (Given(IDLE[:1], is_proved=False, tried_last=0), Step(Act.TRY, 0)),
        "one without requests is made anew at once": (Given([Stale(0, 2), Stale(1, 0)]), Step(Act.RENEW, 1)),
        "of busy ones the least busy gets no more to do": (
            Given([Stale(0, 2), Stale(1, 1)]),
            Step(Act.HOLD, 1),
        ),
        "one that is held is waited for": (Given([Stale(0, 2), Stale(1, 0)], held=0), Step(Act.WAIT)),
        "and then made anew": (Given([Stale(0, 0), Stale(1, 0)], held=0), Step(Act.RENEW, 0)),
    }
    for name, (given, wanted) in decisions.items():
        assert next_step(**given._asdict()) == wanted, name


class RenewalBench(Bench):
    """A client with connections to all nodes, whose credentials a test changes."""

    def __init__(self, *nodes: Node, selector_class: type[MockSelector] = MockSelector) -> None:
        nodes = nodes or NODES
        super().__init__(
            RecordingUpdater(nodes),
            credentials_change=True,
            request_timeout_ms=600_000,
            selector_class=selector_class,
        )
        for node in nodes:
            self.ready(node)
        self.poll()
        self.responses: list[ClientResponse] = []

    def change(self, version: CredentialsVersion = OTHERS) -> None:
        self.selector.credentials = version

    def turn(self, ms: int) -> None:
        """Polls for so long; a node that is asked for its versions answers."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            before = {node_id: len(self.headers(node_id)) for node_id in self.ids}
            self.responses += self.poll(min(100, until_ms - self.now_ms))
            for node_id, count in before.items():
                for index in range(count, len(self.headers(node_id))):
                    if self.headers(node_id)[index].api is ApiKey.API_VERSIONS and self.is_open(node_id):
                        self.answer(node_id, api_versions_response(), request=index)

    @property
    def ids(self) -> list[int]:
        return [*(node.id for node in self.recorded.fetch_nodes()), TRIAL_NODE_ID]

    def is_open(self, node_id: int) -> bool:
        return self.selector.is_open(node_id)

    def attempts(self, first: int = len(NODES)) -> list[int]:
        """Which nodes were connected to since the beginning."""
        return [attempt.node_id for attempt in self.selector.attempts[first:]]

    def answer_produce(self, node: Node, request: int = -1) -> None:
        self.answer(node.id, ProduceResponse(), request=request)


def test_every_connection_is_made_anew_after_one_trial_beside_them_and_that_is_no_failure() -> None:
    bench = RenewalBench()
    bench.change()
    bench.turn(TAKEN_MS + 10 * PAUSE_MS)
    assert bench.attempts() == [TRIAL_NODE_ID, 0, 1, 2]
    assert {bench.selector.credentials_of(node.id) for node in NODES} == {OTHERS}
    assert not bench.is_open(TRIAL_NODE_ID)
    assert all(bench.client.is_ready(node, bench.now_ms) for node in NODES)
    ended = [event for event in bench.sink.of(NodeDisconnected) if isinstance(event, NodeDisconnected)]
    assert [(event.node_id, event.reason) for event in ended] == [(node.id, "local") for node in NODES]
    assert {event.backoff_ms for event in ended} == {0}
    assert {event.detail for event in ended} == {
        "the client replaces the connection by one with the current credentials"
    }
    statuses = bench.client.node_statuses(bench.now_ms)
    assert [(status.node_id, status.last_error) for status in statuses] == [(node.id, None) for node in NODES]
    assert bench.recorded.disconnected == []
    bench.turn(60_000)
    assert len(bench.attempts()) == 4, "what was done is done"


def attempts_at(bench: RenewalBench, ms: int, first: int) -> list[int]:
    """When each connection was begun from now on, in steps of 20 ms."""
    began_ms, at_ms = bench.now_ms, list[int]()
    known = len(bench.attempts(first))
    while bench.now_ms < began_ms + ms:
        bench.turn(20)
        at_ms += [bench.now_ms - began_ms] * (len(bench.attempts(first)) - known - len(at_ms))
    return at_ms


def test_no_step_waits_for_the_next_look_at_the_files_but_there_is_a_pause_between_two_of_them() -> None:
    """Whatever part of LOOK_MS has passed: a trial's outcome, and a new connection's, are seen at once."""
    for offset_ms in range(0, LOOK_MS, 460):
        bench = RenewalBench()
        bench.turn(offset_ms)
        bench.change()
        trial, first, second, third = attempts_at(bench, TAKEN_MS + 10 * PAUSE_MS, first=3)
        assert first - trial <= 100
        assert PAUSE_MS * 0.5 <= second - first <= PAUSE_MS * 1.5 + 100
        assert PAUSE_MS * 0.5 <= third - second <= PAUSE_MS * 1.5 + 100


def test_one_that_is_held_is_made_anew_as_soon_as_its_answer_came() -> None:
    for offset_ms in range(0, LOOK_MS, 460):
        bench = RenewalBench(NODE)
        bench.send()
        bench.change()
        bench.turn(TAKEN_MS + 5 * PAUSE_MS + offset_ms)
        bench.answer_produce(NODE)
        [renewed] = attempts_at(bench, 2 * LOOK_MS, first=1)
        assert renewed <= 100


@pytest.mark.parametrize("under_way", ["trial", "held", "renewal"])
def test_while_something_is_under_way_the_client_sleeps(under_way: str) -> None:
    """It has stale connections then, and nothing to do before the network moves."""
    bench = RenewalBench(NODE, NODE_1)
    for node in (NODE, NODE_1) if under_way == "held" else ():
        bench.send(node)
    bench.selector.never_ready({"trial": TRIAL_NODE_ID, "held": 99, "renewal": NODE.id}[under_way])
    bench.change()
    begun = 2 + (1 if under_way != "renewal" else 2)
    while len(bench.attempts(0)) < begun:
        bench.turn(20)
    bench.turn(200)
    bench.selector.polls.clear()
    until_ms = bench.now_ms + 3_000
    while bench.now_ms < until_ms:
        bench.poll(300_000)
    assert len(bench.selector.polls) <= 10


def test_a_change_is_taken_when_it_has_stood_still_and_what_was_refused_is_tried_again_after_so_long() -> (
    None
):
    for offset_ms in range(0, LOOK_MS, 460):
        bench = RenewalBench(NODE)
        bench.turn(offset_ms)
        bench.change()
        trial, _ = attempts_at(bench, TAKEN_MS + PAUSE_MS, first=1)
        assert SETTLE_MS <= trial <= LOOK_MS + SETTLE_MS + 100
    bench = RenewalBench(NODE)
    bench.selector.never_ready(TRIAL_NODE_ID)
    bench.change()
    trial, *_ = attempts_at(bench, TAKEN_MS, first=1)
    bench.selector.fail_authentication(TRIAL_NODE_ID)
    again, *_ = attempts_at(bench, RETRY_MS + LOOK_MS, first=1)
    assert trial > 0
    assert RETRY_MS == 10_000, "docs/security.md says so"
    assert RETRY_MS <= again <= RETRY_MS + 100


def test_one_with_requests_in_flight_is_made_anew_after_the_last_answer_and_none_is_lost() -> None:
    bench = RenewalBench(NODE)
    bench.send()
    bench.send()
    bench.change()
    bench.turn(TAKEN_MS + 5 * PAUSE_MS)
    assert bench.attempts(1) == [TRIAL_NODE_ID]
    assert not bench.client.ready(NODE, bench.now_ms), "nothing more is sent to it"
    assert not bench.client.can_send_request(NODE.id, bench.now_ms)
    assert bench.client.least_loaded_node(bench.now_ms).has_node_available_or_connection_ready

    bench.answer_produce(NODE, request=-2)
    bench.turn(PAUSE_MS)
    assert bench.attempts(1) == [TRIAL_NODE_ID], "the second one is still out"
    bench.answer_produce(NODE)
    bench.turn(PAUSE_MS)
    assert bench.attempts(1) == [TRIAL_NODE_ID, NODE.id]
    assert [response.disconnected for response in bench.responses] == [False, False]
    assert bench.client.is_ready(NODE, bench.now_ms)
    assert bench.selector.credentials_of(NODE.id) == OTHERS


def test_while_one_is_held_the_others_go_on() -> None:
    bench = RenewalBench(NODE, NODE_1)
    for node in (NODE, NODE_1):
        bench.send(node)
    bench.change()
    bench.turn(TAKEN_MS + 10 * PAUSE_MS)
    assert [bench.client.is_ready(node, bench.now_ms) for node in (NODE, NODE_1)] == [False, True]


def held() -> RenewalBench:
    """A client whose only connection is held for an answer."""
    bench = RenewalBench(NODE)
    bench.send()
    bench.change()
    bench.turn(TAKEN_MS + PAUSE_MS)
    assert not bench.client.is_ready(NODE, bench.now_ms)
    return bench


def test_one_that_ends_while_it_is_held_is_connected_to_as_ever() -> None:
    bench = held()
    bench.selector.disconnect(NODE.id)
    bench.turn(20_000)
    bench.connect()
    bench.answer(NODE.id, api_versions_response())
    bench.poll()
    assert bench.client.is_ready(NODE, bench.now_ms)


def test_a_held_trial_is_dropped_when_the_credentials_change_again_and_the_new_ones_are_tried_first() -> None:
    bench = held()
    bench.change(CredentialsVersion(sasl=2))
    for _ in range(200):
        if len(bench.attempts(1)) > 1:
            break
        bench.turn(100)
    assert bench.attempts(1) == [TRIAL_NODE_ID, TRIAL_NODE_ID]
    assert bench.client.is_ready(NODE, bench.now_ms), "while nobody knows whether they are any good"


def test_a_refused_renewal_costs_no_connection_and_is_logged_once() -> None:
    bench = RenewalBench()
    bench.selector.never_ready(TRIAL_NODE_ID)
    bench.change()
    for _ in range(60):
        bench.turn(RETRY_MS // 10)
        if bench.is_open(TRIAL_NODE_ID):
            bench.selector.fail_authentication(TRIAL_NODE_ID)
    trials = bench.attempts()
    assert set(trials) == {TRIAL_NODE_ID}
    assert len(trials) == pytest.approx(60 / 10, abs=2), "it is tried again, and not all the time"
    assert all(bench.client.is_ready(node, bench.now_ms) for node in NODES)
    reported = bench.sink.of(SecretReloaded)
    assert len(reported) == 1
    assert "Authentication failed" in str(reported[0])
    assert "refused by node 0: " in str(reported[0]), "the first trial was there"
    assert bench.recorded.disconnected == []
    assert bench.recorded.fatal is None, "no caller that waits for metadata gets the error"

    bench.selector.become_ready(TRIAL_NODE_ID)
    bench.turn(2 * RETRY_MS)
    assert bench.attempts()[-3:] == [0, 1, 2]
    assert bench.sink.of(SecretReloaded)[1:] == [SecretReloaded("credentials", None)]


def test_a_broker_that_can_not_be_reached_is_no_refusal() -> None:
    bench = RenewalBench()
    bench.selector.hold_connect(TRIAL_NODE_ID)
    bench.change()
    bench.turn(TAKEN_MS)
    bench.selector.refuse(TRIAL_NODE_ID)
    bench.turn(RETRY_MS // 2)
    assert bench.sink.of(SecretReloaded) == []
    assert bench.attempts() == [TRIAL_NODE_ID]
    bench.turn(RETRY_MS + 5 * PAUSE_MS)
    assert bench.attempts() == [TRIAL_NODE_ID, TRIAL_NODE_ID, 0, 1, 2]


def test_a_trial_that_can_not_even_begin_is_made_again() -> None:
    class Routeless(MockSelector):
        has_route = True

        def connect(self, *to: Any, also: bool = False) -> None:
            if not self.has_route:
                raise OSError("no route to host")
            super().connect(*to)

    bench = RenewalBench(selector_class=Routeless)
    bench.change()
    Routeless.has_route = False
    bench.turn(TAKEN_MS)
    Routeless.has_route = True
    bench.turn(RETRY_MS + 5 * PAUSE_MS)
    assert bench.attempts()[-3:] == [0, 1, 2]
    assert bench.sink.of(SecretReloaded) == []


def test_a_change_made_right_is_tried_at_once() -> None:
    bench = RenewalBench(NODE)
    bench.selector.never_ready(TRIAL_NODE_ID)
    bench.change()
    bench.turn(TAKEN_MS)
    bench.selector.fail_authentication(TRIAL_NODE_ID)
    bench.turn(100)
    bench.selector.become_ready(TRIAL_NODE_ID)
    bench.change(CredentialsVersion(sasl=2))
    bench.turn(TAKEN_MS + PAUSE_MS)
    assert bench.attempts(1) == [TRIAL_NODE_ID, TRIAL_NODE_ID, NODE.id]


def test_a_connection_that_fails_after_a_good_trial_stops_the_others() -> None:
    """A broker that has not heard of the new password yet, while another one has."""
    bench = RenewalBench(NODE, NODE_1)
    bench.change()
    bench.selector.never_ready(NODE.id)
    while NODE.id not in bench.attempts(2):
        bench.turn(100)
    bench.selector.never_ready(TRIAL_NODE_ID)
    bench.selector.fail_authentication(NODE.id)
    bench.turn(10 * PAUSE_MS)
    assert bench.attempts(2) == [TRIAL_NODE_ID, NODE.id, TRIAL_NODE_ID]
    assert bench.client.is_ready(NODE_1, bench.now_ms)
    assert bench.selector.credentials_of(NODE_1.id) == CredentialsVersion()


def test_a_change_followed_at_once_by_another_does_not_count() -> None:
    """A name and its password in two files, read between two writes: no half-changed pair is tried."""
    bench = RenewalBench(NODE)
    bench.turn(LOOK_MS)
    for number in range(1, 20):
        bench.change(CredentialsVersion(sasl=number))
        bench.turn(SETTLE_MS // 2)
    assert bench.attempts(1) == []
    bench.turn(TAKEN_MS)
    assert bench.attempts(1) == [TRIAL_NODE_ID, NODE.id]


def test_a_broker_that_metadata_has_forgotten_is_left() -> None:
    bench = RenewalBench(NODE, NODE_1)
    bench.recorded.set_nodes([NODE])
    bench.change()
    bench.turn(TAKEN_MS + 10 * PAUSE_MS)
    assert not bench.is_open(NODE_1.id)
    assert bench.attempts(2) == [TRIAL_NODE_ID, NODE.id]


def test_a_client_that_idles_looks_now_and_then_if_its_credentials_can_change() -> None:
    fixed = Bench(request_timeout_ms=600_000)
    fixed.ready()
    fixed.poll(300_000)
    assert fixed.selector.polls[-1] == 300_000
    bench = RenewalBench(NODE)
    bench.selector.polls.clear()
    bench.turn(LOOK_MS)
    for _ in range(3):
        bench.poll(300_000)
    assert bench.selector.polls[-1] == LOOK_MS
