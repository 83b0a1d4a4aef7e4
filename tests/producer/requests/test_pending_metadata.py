"""Look-ups that wait: topics by name, a newer snapshot, the list of all topics."""

from __future__ import annotations

import pytest

from client_core.error_codes import Errors
from client_core.errors import (
    InvalidTopicError,
    KafkaError,
    NoBrokersError,
    SaslAuthenticationError,
    TimeoutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from client_core.metadata.metadata_response import read_metadata_response
from client_core.metadata.topic_listing import TopicListing
from tests.support.metadata_responses import metadata_response
from tests.support.producer_rig import ProducerRig, Waiting

UNKNOWN, INVALID = 3, 17


# -- topics --------------------------------------------------------------------------------------------------


def test_a_known_topic_is_returned_in_one_turn() -> None:
    rig = ProducerRig(topics={"orders": 2})
    waiting = rig.look_up("orders")
    assert waiting.reported == []
    rig.turn()
    assert waiting.looked_up.cache.partition_count("orders") == 2
    assert waiting.looked_up.topic_errors == {}
    assert waiting.looked_up.waited_ms == 0


def test_a_look_up_never_creates_a_topic() -> None:
    rig = ProducerRig(topics={})
    rig.look_up("orders")
    rig.producer.io_thread._take_what_came(rig.clock.now_ms())
    asked = rig.metadata.new_metadata_request_and_version(rig.clock.now_ms())
    assert not asked.builder.allow_auto_topic_creation


def test_a_topic_is_believed_missing_when_brokers_have_said_so_twice() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.look_up("orders")
    rig.learn({}, errors={"orders": UNKNOWN}, turns=2)
    assert waiting.reported == []
    rig.clock.advance(100)
    rig.learn({}, errors={"orders": UNKNOWN}, turns=2)
    assert isinstance(waiting.looked_up.topic_errors["orders"], UnknownTopicOrPartitionError)
    assert waiting.looked_up.error is None
    assert waiting.looked_up.waited_ms == 100


def test_a_topic_that_appears_after_the_first_denial_is_found() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.look_up("orders")
    rig.learn({}, errors={"orders": UNKNOWN})
    rig.learn({"orders": 4}, turns=2)
    assert waiting.looked_up.topic_errors == {}
    assert waiting.looked_up.cache.partition_count("orders") == 4


def test_old_denials_don_t_count_without_a_new_one() -> None:
    rig = ProducerRig(topics={})
    rig.submit("orders", b"keeps the topic held")
    for _ in range(3):
        rig.learn({}, errors={"orders": UNKNOWN}, turns=2)
    waiting = rig.look_up("orders")
    rig.learn({"orders": 1}, turns=2)
    assert waiting.looked_up.topic_errors == {}


def test_nobody_goes_on_asking_for_a_topic_that_was_found_missing() -> None:
    rig = ProducerRig(topics={})
    rig.look_up("orders")
    for _ in range(2):
        rig.learn({}, errors={"orders": UNKNOWN}, turns=2)
    assert not rig.metadata.contains_topic("orders")


def test_a_record_that_waits_for_the_topic_keeps_it_asked_for() -> None:
    rig = ProducerRig(topics={})
    rig.submit("orders", b"a")
    waiting = rig.look_up("orders")
    for _ in range(2):
        rig.learn({}, errors={"orders": UNKNOWN}, turns=2)
    assert waiting.reported
    assert rig.metadata.contains_topic("orders")


def test_without_settling_it_waits_for_the_topic_to_appear_until_its_deadline() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.look_up("orders", wait_ms=5_000, settle=False)
    for _ in range(4):
        rig.learn({}, errors={"orders": UNKNOWN}, turns=2)
    assert waiting.reported == []
    rig.clock.advance(5_000)
    rig.learn({}, errors={"orders": UNKNOWN})
    error = waiting.looked_up.topic_errors["orders"]
    assert str(error) == "Topic orders not present in metadata after 5000 ms."
    assert isinstance(error.__cause__, UnknownTopicOrPartitionError)


def test_several_topics_are_settled_one_by_one() -> None:
    rig = ProducerRig(topics={"a": 1})
    waiting = rig.look_up("a", "b", "c d")
    rig.learn({"a": 1, "b": 1}, errors={"c d": INVALID}, turns=2)
    assert {topic: type(error) for topic, error in waiting.looked_up.topic_errors.items()} == {
        "c d": InvalidTopicError
    }


def test_where_no_broker_answers_that_is_the_error() -> None:
    rig = ProducerRig()
    rig.client.backoff(rig.client.least_loaded_node(0).node or pytest.fail("no node"), 60_000)
    waiting = rig.look_up("orders", wait_ms=800)
    rig.turn()
    rig.turn_after(800)
    assert isinstance(waiting.looked_up.error, NoBrokersError)
    assert "within 800 ms" in str(waiting.looked_up.error)


def test_a_cancelled_look_up_is_forgotten() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.look_up("orders")
    rig.learn({}, errors={"orders": UNKNOWN})
    assert rig.producer.status().waiting_for_metadata == 1
    waiting.cancel()
    waiting.cancel()
    rig.learn({}, errors={"orders": UNKNOWN})
    assert rig.producer.status().waiting_for_metadata == 0
    rig.clock.advance(100_000)
    rig.learn({}, errors={"orders": UNKNOWN})
    assert waiting.reported == []


def test_a_fatal_error_ends_all_look_ups() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.look_up("orders")
    rig.learn({}, errors={"orders": UNKNOWN})
    rig.metadata.fatal_error(SaslAuthenticationError("wrong password"))
    rig.learn({}, errors={"orders": UNKNOWN})
    assert str(waiting.looked_up.error) == "wrong password"


def test_a_thousand_look_ups_of_one_missing_topic_are_one_request_for_it() -> None:
    rig = ProducerRig(topics={})
    waiting = [rig.look_up("orders") for _ in range(1_000)]
    for _ in range(2):
        rig.learn({}, errors={"orders": UNKNOWN}, turns=2)
    assert all(one.looked_up.topic_errors for one in waiting)


# -- updates -------------------------------------------------------------------------------------------------


def update(
    rig: ProducerRig, *, min_version: int | None = None, max_age_ms: int | None = None, wait_ms: int = 1_000
) -> Waiting:
    waiting = Waiting()
    waiting.ticket = rig.producer.request_update(
        min_version=min_version,
        max_age_ms=max_age_ms,
        deadline_ms=rig.clock.now_ms() + wait_ms,
        done=waiting,
    )
    return waiting


def test_a_refresh_ends_with_a_later_snapshot() -> None:
    rig = ProducerRig(topics={"orders": 1})
    before = rig.producer.cache.update_version
    waiting = update(rig)
    rig.clock.advance(100)
    rig.learn({"orders": 1}, turns=2)
    assert waiting.looked_up.cache.update_version == before + 1
    assert not rig.client.has_pending_metadata_updates


def test_the_answer_to_a_question_before_it_ends_no_refresh() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.client.backoff(rig.client.least_loaded_node(0).node or pytest.fail("no node"), 60_000)
    rig.metadata.request_update(True)
    under_way = rig.metadata.new_metadata_request_and_version(rig.clock.now_ms())
    waiting = update(rig)
    rig.turn()
    response = read_metadata_response(metadata_response(nodes=1, topics={"orders": 1}), 13)
    rig.metadata.update(under_way.request_version, response, under_way.is_partial, rig.clock.now_ms())
    rig.turn()
    assert waiting.reported == []
    rig.know({"orders": 1})
    rig.turn()
    assert waiting.looked_up.error is None


def test_metadata_that_is_new_enough_is_returned_without_asking_anybody() -> None:
    rig = ProducerRig(topics={"orders": 1})
    version = rig.producer.cache.update_version
    rig.clock.advance(50)
    waiting = [update(rig, min_version=version), update(rig, max_age_ms=50)]
    rig.turn()
    assert [one.looked_up.cache.update_version for one in waiting] == [version, version]
    assert not rig.metadata.update_requested


@pytest.mark.parametrize("demand", ["min_version", "max_age_ms"])
def test_metadata_that_is_too_old_is_requested(demand: str) -> None:
    rig = ProducerRig(topics={"orders": 1})
    version = rig.producer.cache.update_version
    rig.clock.advance(200)
    waiting = update(rig, min_version=version + 1) if demand == "min_version" else update(rig, max_age_ms=50)
    rig.learn({"orders": 1})
    assert waiting.reported == []
    rig.turn()
    assert waiting.looked_up.cache.update_version == version + 1


def test_the_addresses_that_were_given_are_not_new_enough_for_any_version() -> None:
    rig = ProducerRig()
    waiting = update(rig, min_version=0)
    rig.learn({"orders": 1})
    assert waiting.reported == []
    rig.turn()
    assert not waiting.looked_up.cache.is_bootstrap


def test_an_update_that_does_not_come_times_out_with_the_snapshot_that_there_is() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.client.backoff(rig.client.least_loaded_node(0).node or pytest.fail("no node"), 60_000)
    waiting = update(rig)
    rig.turn()
    rig.turn_after(1_000)
    assert isinstance(waiting.looked_up.error, TimeoutError)
    assert waiting.looked_up.cache.partition_count("orders") == 1


# -- the list ------------------------------------------------------------------------------------------------


def list_all(rig: ProducerRig, *, wait_ms: int = 1_000) -> Waiting:
    waiting = Waiting()
    waiting.ticket = rig.producer.list_topics(deadline_ms=rig.clock.now_ms() + wait_ms, done=waiting)
    return waiting


def test_the_list_is_one_request_for_all_callers_and_leaves_the_cache_alone() -> None:
    rig = ProducerRig(topics={"orders": 1})
    cache = rig.producer.cache
    waiting = [list_all(rig), list_all(rig)]
    rig.turn(2)
    assert [request.builder.api.name for request in rig.client.requests] == ["Metadata"]
    listing = TopicListing({})
    rig.answer(listing)
    assert [one.listed.listing for one in waiting] == [listing, listing]
    assert rig.producer.cache is cache


def test_a_call_during_a_listing_gets_the_next_one() -> None:
    rig = ProducerRig(topics={"orders": 1})
    early = list_all(rig)
    rig.turn()
    late = list_all(rig)
    rig.turn()
    rig.answer(TopicListing({}))
    assert early.reported
    assert late.reported == []
    rig.turn()
    rig.answer(TopicListing({}))
    assert late.listed.error is None


def test_while_a_list_is_not_answered_another_node_is_asked_once() -> None:
    rig = ProducerRig(topics={"orders": 1})
    early = list_all(rig, wait_ms=60_000)
    rig.turn()
    rig.turn_after(1_000)
    late = list_all(rig, wait_ms=60_000)
    for after_ms, in_flight in ((999, 1), (1, 2)):
        rig.turn_after(after_ms)
        assert rig.client.in_flight_request_count() == in_flight, after_ms
    first, second = rig.client.requests
    rig.client.respond_to_request(first, TopicListing({}))
    rig.turn(2)
    assert early.listed.error is None
    assert late.reported == [], "the list was asked for before its call"
    rig.client.respond_to_request(second, TopicListing({}))
    rig.turn(2)
    assert late.listed.error is None
    assert rig.client.in_flight_request_count() == 0


def test_a_list_that_was_lost_is_asked_for_again_after_a_pause() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = list_all(rig)
    rig.turn()
    rig.client.disconnect(rig.client.requests[0].destination)
    rig.turn(2)
    assert rig.client.in_flight_request_count() == 0
    rig.turn_after(100)
    rig.answer(TopicListing({}))
    assert waiting.listed.error is None


def test_the_pauses_before_a_list_is_asked_for_again_grow_and_begin_anew_after_a_success() -> None:
    rig = ProducerRig(topics={"orders": 1}, retry_backoff_max_ms=10_000)
    for failures in (3, 1):
        waiting = list_all(rig, wait_ms=60_000)
        rig.turn()
        for attempt in range(failures):
            rig.answer(TopicListing({}, error_code=Errors.LEADER_NOT_AVAILABLE.code))
            rig.turn_after(79 << attempt)  # the jitter is a fifth
            assert rig.client.in_flight_request_count() == 0
            rig.turn_after(42 << attempt)
            assert rig.client.in_flight_request_count() == 1
        rig.answer(TopicListing({}))
        assert waiting.listed.error is None


@pytest.mark.parametrize(
    ("code", "reported"),
    [(Errors.CLUSTER_AUTHORIZATION_FAILED.code, True), (Errors.LEADER_NOT_AVAILABLE.code, False)],
)
def test_a_list_that_is_refused_is_an_error_unless_it_may_be_retried(code: int, reported: bool) -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = list_all(rig)
    rig.turn()
    rig.answer(TopicListing({}, error_code=code))
    assert bool(waiting.reported) is reported
    if reported:
        error = waiting.listed.error
        assert isinstance(error, KafkaError)
        assert error.code == code


def test_a_list_that_no_broker_can_give_says_so() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = list_all(rig)
    rig.client.prepare_unsupported_version_response()
    rig.turn()
    assert isinstance(waiting.listed.error, UnsupportedVersionError)


def test_a_list_that_does_not_come_times_out() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = list_all(rig)
    rig.turn()
    rig.turn_after(1_000)
    assert str(waiting.listed.error) == "Topics were not listed within 1000 ms."
    assert waiting.listed.listing is None
