"""Requests in flight: their correlation ids, their queues, and from a frame to its message.

Twins of InFlightRequestsTest, INF-01 to INF-09, NET-11 and NET-24.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.client.in_flight_requests import InFlightLoad, InFlightRequests
from client_core.client.node_connections import NodeConnections
from client_core.client.request_sender import RequestSender
from client_core.client.response_parsing import parse_response
from client_core.errors import CorrelationIdMismatchError, IllegalStateError, ProtocolError, SchemaError
from client_core.events import NO_EVENTS
from client_core.metadata.topic_listing import TopicListingRequestBuilder
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import encode_response_header
from client_core.protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.client_builders import TEST_CONFIG, Bench, PlainBuilder, frame_of, make_in_flight
from tests.support.mock_clock import MockClock
from tests.support.mock_resolver import MockResolver
from tests.support.mock_selector import MockSelector

NODE = 7
OTHER = 8


def ids(requests: InFlightRequests, node_id: int) -> list[int]:
    return [request.request.correlation_id for request in requests.clear_all(node_id)]


def filled(*correlation_ids: int, node_id: int = NODE) -> InFlightRequests:
    requests = InFlightRequests(max_per_connection=12)
    for correlation_id in correlation_ids:
        requests.add(make_in_flight(node_id, correlation_id))
    return requests


def test_a_large_answer_is_read_as_it_comes_where_its_request_can() -> None:
    assert make_in_flight(NODE, 1, builder=TopicListingRequestBuilder()).takes_pieces
    assert not make_in_flight(NODE, 1, builder=PlainBuilder()).takes_pieces


@pytest.mark.behaviour("INF-01", "INF-02", "INF-03", "INF-05")
@pytest.mark.java(
    "InFlightRequestsTest.CompleteNext",
    "InFlightRequestsTest.CompleteLastSent",
    "InFlightRequestsTest.ClearAll",
)
def test_requests_are_answered_oldest_first_and_the_last_sent_is_the_newest() -> None:
    requests = filled(1, 2)
    oldest = requests.oldest(NODE)
    assert oldest is not None
    assert oldest.request.correlation_id == 1
    assert requests.complete_next(NODE) is oldest
    assert requests.complete_next(NODE).request.correlation_id == 2
    assert (requests.oldest(NODE), requests.count()) == (None, 0)

    requests = filled(1, 2)
    assert requests.last_sent(NODE).request.correlation_id == 2
    for correlation_id, left in ((2, 1), (1, 0)):
        assert requests.complete_last_sent(NODE).request.correlation_id == correlation_id
        assert requests.count() == left

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


def timed_out(requests: InFlightRequests, *moments_ms: int) -> list[list[int]]:
    return [list(requests.nodes_with_timed_out_requests(now_ms)) for now_ms in moments_ms]


@pytest.mark.behaviour("INF-06")
@pytest.mark.java("InFlightRequestsTest.TimedOutNodes")
def test_timed_out_nodes() -> None:
    requests = InFlightRequests(max_per_connection=12)
    for correlation_id, (node_id, timeout_ms) in enumerate([(NODE, 50), (OTHER, 200), (OTHER, 100)]):
        requests.add(make_in_flight(node_id, correlation_id, request_timeout_ms=timeout_ms))
    assert timed_out(requests, 50, 75, 125) == [[], [NODE], [NODE, OTHER]]
    newer_first = InFlightRequests(max_per_connection=5)
    newer_first.add(make_in_flight(NODE, 1, request_timeout_ms=1_000, sent_ms=0))
    newer_first.add(make_in_flight(NODE, 2, request_timeout_ms=10, sent_ms=5))
    assert timed_out(newer_first, 16) == [[NODE]]


@pytest.mark.behaviour("INF-07")
def test_a_pause_gives_every_request_of_that_node_more_time() -> None:
    requests = InFlightRequests(max_per_connection=5)
    for node_id, correlation_id in ((NODE, 1), (NODE, 2), (OTHER, 3)):
        requests.add(make_in_flight(node_id, correlation_id, request_timeout_ms=100))
    requests.increment_throttle_ms(NODE, 30)
    requests.increment_throttle_ms(99, 30)
    assert timed_out(requests, 101, 130, 131) == [[OTHER], [OTHER], [NODE, OTHER]]
    requests.increment_throttle_ms(NODE, 20)
    assert timed_out(requests, 150, 151) == [[OTHER], [NODE, OTHER]]


@pytest.mark.behaviour("INF-09")
def test_load_shows_how_busy_a_connection_is() -> None:
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
    """The bound that saves the walk over all queues must agree with a walk, after any calls."""
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


# -- numbers of requests (NET-24) ----------------------------------------------------------------------------


def make_sender(first_correlation_id: int = 0) -> RequestSender:
    selector = MockSelector(MockClock())
    connections = NodeConnections(selector, TEST_CONFIG, MockResolver("10.0.0.1"), Random(0), NO_EVENTS)
    return RequestSender(selector, connections, TEST_CONFIG, NO_EVENTS, first_correlation_id)


def new_ids(sender: RequestSender, count: int) -> list[int]:
    builder = PlainBuilder()
    return [
        sender.new_client_request(1, builder, 0, expect_response=True).correlation_id for _ in range(count)
    ]


@pytest.mark.behaviour("NET-24")
@pytest.mark.java("NetworkClientTest.CorrelationId")
def test_correlation_ids_count_from_zero_step_over_sasls_and_go_round() -> None:
    assert new_ids(make_sender(), 100) == list(range(100))
    for reserved in (2_147_483_640, 2_147_483_647):
        assert new_ids(make_sender(reserved), 2) == [-2_147_483_648, -2_147_483_647], reserved
    last, smallest = [2_147_483_638, 2_147_483_639], [-2_147_483_648, -2_147_483_647]
    assert new_ids(make_sender(2_147_483_638), 4) == last + smallest
    assert new_ids(make_sender(-2), 4) == [-2, -1, 0, 1]


def test_a_request_has_the_clients_timeout_unless_it_brings_its_own(bench: Bench) -> None:
    make = partial(bench.client.new_client_request, 1, PlainBuilder(), 7)
    request = make(expect_response=False)
    assert (request.request_timeout_ms, request.created_ms, request.expect_response) == (1_000, 7, False)
    assert make(expect_response=True, request_timeout_ms=3).request_timeout_ms == 3


def test_a_request_that_can_not_be_written_is_a_bug_and_no_mismatch(bench: Bench) -> None:
    class Broken(PlainBuilder):
        def encode(self, version: int) -> bytes:
            raise ValueError("a bug")

    request = bench.client.new_client_request(0, Broken(), bench.now_ms, expect_response=True)
    with pytest.raises(ValueError, match="a bug"):
        bench.client.send(request, bench.now_ms)


def test_no_request_is_silent_before_one_is_sent() -> None:
    assert not make_sender().sent_silent


# -- from a frame to its message (NET-11) --------------------------------------------------------------------


ANSWER = ProduceResponse(
    responses=(TopicProduceResponse("orders", partition_responses=(PartitionProduceResponse(0, 0, 42),)),),
    throttle_time_ms=3,
)


def test_a_frame_is_read_by_the_version_of_its_request_whatever_trails_it() -> None:
    for version, trailing in ((3, b""), (8, b""), (9, b""), (12, b""), (12, b"\0\1\2")):
        payload = frame_of(ApiKey.PRODUCE, version, 5, ANSWER) + trailing
        assert parse_response(payload, make_in_flight(1, 5, version=version)) == ANSWER, (version, trailing)


def test_an_answer_may_be_as_large_as_its_api_has_it_and_more_by_what_was_sent() -> None:
    most = {ApiKey.METADATA: 100 * 1_048_576, ApiKey.DESCRIBE_CONFIGS: 4 * 1_048_576, ApiKey.PRODUCE: 65_536}
    waiting = {api: make_in_flight(builder=PlainBuilder(api)) for api in most}
    assert {one.sent_bytes for one in waiting.values()} == {10}
    assert {api: one.most_bytes - 160 for api, one in waiting.items()} == most


class _Joined:
    """Reads an answer as it comes: its bytes. `!` is no answer."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> None:
        if b"!" in piece:
            raise SchemaError("there is a mark")
        self._pieces.append(piece)

    def finish(self) -> tuple[int, bytes]:
        return self._size_bytes, b"".join(self._pieces)


class _InPieces(PlainBuilder):
    def response_reader(self, size_bytes: int, version: int) -> _Joined:
        return _Joined(size_bytes)


def test_an_answer_in_pieces_is_one_and_what_is_wrong_with_it_names_its_request() -> None:
    body = b"x" * 5_000
    payload = encode_response_header(ApiKey.METADATA, 12, 5) + body
    waiting = make_in_flight(1, 5, version=12, builder=_InPieces(ApiKey.METADATA))
    for begin in range(0, len(payload), 700):
        waiting.feed(payload[begin : begin + 700], len(payload))
    assert parse_response(b"", waiting) == (len(body), body)
    with pytest.raises(SchemaError, match=r"^unreadable response to Metadata v12 request 5: there is a mark"):
        waiting.feed(b"!", len(payload))


def test_the_first_piece_is_read_once_it_has_a_header_of_any_size() -> None:
    waiting = make_in_flight(1, 5, version=12, builder=PlainBuilder(ApiKey.METADATA))
    header = encode_response_header(ApiKey.METADATA, 12, 5)
    waiting.feed(header + bytes(1_023 - len(header)), 5_000)
    with pytest.raises(IllegalStateError, match="Metadata v12 request 5 is not read in chunks"):
        waiting.feed(b"x", 5_000)


def test_an_answer_in_pieces_that_is_another_requests_is_no_answer() -> None:
    waiting = make_in_flight(1, 5, version=12, builder=_InPieces(ApiKey.METADATA))
    with pytest.raises(CorrelationIdMismatchError, match=r"\(4\) does not match request \(5\), Metadata v12"):
        waiting.feed(encode_response_header(ApiKey.METADATA, 12, 4) + bytes(2_000), 2_010)


@pytest.mark.java("SaslAuthenticatorTest.ConvertListOffsetResponseToSaslHandshakeResponse")
def test_another_correlation_id_is_named_with_the_request_and_an_unexpected_frame_is_an_error() -> None:
    payload = frame_of(ApiKey.PRODUCE, 12, 4, ANSWER)
    with pytest.raises(CorrelationIdMismatchError) as caught:
        parse_response(payload, make_in_flight(1, 5, version=12))
    assert caught.value.message == (
        "Correlation id for response (4) does not match request (5), Produce v12 request 5"
    )
    with pytest.raises(ProtocolError, match=r"^3 bytes arrived without a request$"):
        parse_response(b"abc", None)


def test_every_truncation_is_a_schema_error() -> None:
    payload = frame_of(ApiKey.PRODUCE, 12, 5, ANSWER)
    waiting = make_in_flight(1, 5, version=12)
    for size in range(len(payload)):
        with pytest.raises(SchemaError, match=r"^unreadable response to Produce v12 request 5: "):
            parse_response(payload[:size], waiting)


@given(garbage=st.binary(max_size=200), version=st.integers(3, 12))
def test_garbage_is_read_or_is_a_protocol_error(garbage: bytes, version: int) -> None:
    with suppress(ProtocolError):
        parse_response(garbage, make_in_flight(1, 0, version=version))
