"""The queues of requests without an answer. Twins of InFlightRequestsTest, and INF-01 to INF-09."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.client.in_flight_requests import InFlightLoad, InFlightRequests
from client_core.errors import IllegalStateError
from client_core.metadata.topic_listing import TopicListingRequestBuilder
from tests.client.client_builders import PlainBuilder, make_in_flight

if TYPE_CHECKING:
    from client_core.protocol.request import RequestBuilder

NODE = 7
OTHER = 8


def ids(requests: InFlightRequests, node_id: int) -> list[int]:
    return [request.request.correlation_id for request in requests.clear_all(node_id)]


def filled(*correlation_ids: int, node_id: int = NODE) -> InFlightRequests:
    requests = InFlightRequests(max_per_connection=12)
    for correlation_id in correlation_ids:
        requests.add(make_in_flight(node_id, correlation_id))
    return requests


@pytest.mark.parametrize(
    ("builder", "takes_pieces"), [(TopicListingRequestBuilder(), True), (PlainBuilder(), False)]
)
def test_a_large_answer_is_read_as_it_comes_where_its_request_can(
    builder: RequestBuilder, takes_pieces: bool
) -> None:
    assert make_in_flight(NODE, 1, builder=builder).takes_pieces is takes_pieces


@pytest.mark.behaviour("INF-01", "INF-02")
@pytest.mark.java("InFlightRequestsTest.CompleteNext")
def test_an_answer_belongs_to_the_oldest_request() -> None:
    requests = filled(1, 2)
    oldest = requests.oldest(NODE)
    assert oldest is not None
    assert oldest.request.correlation_id == 1
    assert requests.complete_next(NODE) is oldest
    assert requests.complete_next(NODE).request.correlation_id == 2
    assert requests.oldest(NODE) is None
    assert requests.count() == 0


@pytest.mark.behaviour("INF-01", "INF-03")
@pytest.mark.java("InFlightRequestsTest.CompleteLastSent")
def test_the_last_sent_is_the_newest() -> None:
    requests = filled(1, 2)
    assert requests.last_sent(NODE).request.correlation_id == 2
    assert requests.complete_last_sent(NODE).request.correlation_id == 2
    assert requests.count() == 1
    assert requests.complete_last_sent(NODE).request.correlation_id == 1
    assert requests.count() == 0


@pytest.mark.behaviour("INF-05")
@pytest.mark.java("InFlightRequestsTest.ClearAll")
def test_clear_all_gives_the_oldest_first_and_leaves_nothing() -> None:
    requests = filled(1, 2, 3)
    assert ids(requests, NODE) == [1, 2, 3]
    assert requests.count() == requests.count(NODE) == 0
    assert requests.is_empty(NODE)
    assert ids(requests, OTHER) == []


@pytest.mark.behaviour("INF-08")
@pytest.mark.java(
    "InFlightRequestsTest.CompleteNextThrowsIfNoInFlights",
    "InFlightRequestsTest.CompleteLastSentThrowsIfNoInFlights",
)
def test_a_node_without_requests_has_no_next_and_no_last() -> None:
    requests = InFlightRequests(max_per_connection=5)
    for ask in (requests.complete_next, requests.complete_last_sent, requests.last_sent):
        with pytest.raises(IllegalStateError, match=r"^There are no in-flight requests for node 7$"):
            ask(NODE)


@pytest.mark.behaviour("INF-04", "NET-26")
def test_more_may_be_sent_once_the_newest_is_out_and_below_the_limit() -> None:
    requests = InFlightRequests(max_per_connection=2)
    assert requests.can_send_more(NODE)
    requests.add(make_in_flight(NODE, 1))
    assert not requests.can_send_more(NODE)
    requests.last_sent(NODE).send_completed = True
    assert requests.can_send_more(NODE)
    requests.add(make_in_flight(NODE, 2))
    requests.last_sent(NODE).send_completed = True
    assert not requests.can_send_more(NODE)
    requests.complete_next(NODE)
    assert requests.can_send_more(NODE)
    assert requests.can_send_more(OTHER)


@pytest.mark.behaviour("INF-06")
def test_one_request_that_is_too_old_names_its_node() -> None:
    requests = InFlightRequests(max_per_connection=5)
    requests.add(make_in_flight(NODE, 1, request_timeout_ms=50, sent_ms=0))
    requests.add(make_in_flight(NODE, 2, request_timeout_ms=1_000, sent_ms=10))
    requests.add(make_in_flight(OTHER, 3, request_timeout_ms=50, sent_ms=10))
    assert list(requests.nodes_with_timed_out_requests(50)) == []  # strict
    assert list(requests.nodes_with_timed_out_requests(51)) == [NODE]
    assert list(requests.nodes_with_timed_out_requests(61)) == [NODE, OTHER]
    requests.clear_all(NODE)
    assert list(requests.nodes_with_timed_out_requests(61)) == [OTHER]
    requests.clear_all(OTHER)
    assert list(requests.nodes_with_timed_out_requests(10_000)) == []


@pytest.mark.behaviour("INF-06")
@pytest.mark.java("InFlightRequestsTest.TimedOutNodes")
def test_timed_out_nodes() -> None:
    requests = InFlightRequests(max_per_connection=12)
    for correlation_id, (node_id, timeout_ms) in enumerate([(NODE, 50), (OTHER, 200), (OTHER, 100)]):
        requests.add(make_in_flight(node_id, correlation_id, request_timeout_ms=timeout_ms))
    assert list(requests.nodes_with_timed_out_requests(50)) == []
    assert list(requests.nodes_with_timed_out_requests(75)) == [NODE]
    assert list(requests.nodes_with_timed_out_requests(125)) == [NODE, OTHER]


def test_a_newer_request_may_time_out_before_an_older_one() -> None:
    requests = InFlightRequests(max_per_connection=5)
    requests.add(make_in_flight(NODE, 1, request_timeout_ms=1_000, sent_ms=0))
    requests.add(make_in_flight(NODE, 2, request_timeout_ms=10, sent_ms=5))
    assert list(requests.nodes_with_timed_out_requests(16)) == [NODE]


@pytest.mark.behaviour("INF-07")
def test_a_pause_gives_every_request_of_that_node_more_time() -> None:
    requests = InFlightRequests(max_per_connection=5)
    for node_id, correlation_id in ((NODE, 1), (NODE, 2), (OTHER, 3)):
        requests.add(make_in_flight(node_id, correlation_id, request_timeout_ms=100))
    requests.increment_throttle_ms(NODE, 30)
    requests.increment_throttle_ms(99, 30)
    assert list(requests.nodes_with_timed_out_requests(101)) == [OTHER]
    assert list(requests.nodes_with_timed_out_requests(130)) == [OTHER]
    assert list(requests.nodes_with_timed_out_requests(131)) == [NODE, OTHER]


@pytest.mark.behaviour("INF-09")
def test_load_tells_how_busy_a_connection_is() -> None:
    requests = InFlightRequests(max_per_connection=5)
    assert requests.load(NODE) == InFlightLoad(0, None)
    requests.add(make_in_flight(NODE, 1, sent_ms=11))
    requests.add(make_in_flight(NODE, 2, sent_ms=22))
    assert requests.load(NODE) == InFlightLoad(2, 11)
    requests.complete_next(NODE)
    assert requests.load(NODE) == InFlightLoad(1, 22)
    requests.complete_next(NODE)
    assert requests.load(NODE) == InFlightLoad(0, None)


@given(
    sent=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 100), st.integers(1, 100), st.integers(0, 50)),
        max_size=30,
    ),
    asked=st.lists(st.integers(0, 300), max_size=20),
)
def test_skipping_the_walk_never_hides_a_timeout(
    sent: list[tuple[int, int, int, int]], asked: list[int]
) -> None:
    """The bound that saves the walk over all queues must agree with a walk, whatever was asked before."""
    requests = InFlightRequests(max_per_connection=100)
    everything = []
    for correlation_id, (node_id, sent_ms, timeout_ms, throttle_ms) in enumerate(sent):
        request = make_in_flight(node_id, correlation_id, request_timeout_ms=timeout_ms, sent_ms=sent_ms)
        requests.add(request)
        everything.append(request)
        requests.increment_throttle_ms(node_id, throttle_ms)
        for now_ms in asked:
            expected = {late.request.destination for late in everything if late.has_timed_out(now_ms)}
            assert set(requests.nodes_with_timed_out_requests(now_ms)) == expected
