"""Refreshes outside the schedule: of known topics, and of new ones while its request is not answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.errors import NoBrokersError, ProducerClosedError, TimeoutError, UnsupportedVersionError
from client_core.events import MetadataRefreshed, MetadataRefreshFailed, PartitionCountChanged
from client_core.metadata.leader_epochs import LeaderIdAndEpoch
from client_core.metadata.metadata_request import MetadataRequestBuilder
from tests.support.metadata_responses import read
from tests.support.producer_rig import ProducerRig, Waiting

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN = Errors.UNKNOWN_TOPIC_OR_PARTITION.code


def refresh(rig: ProducerRig, *topics: str, wait_ms: int = 250, turns: int = 2) -> Waiting:
    waiting = Waiting()
    deadline_ms = rig.clock.now_ms() + wait_ms
    waiting.ticket = rig.producer.refresh_topics(topics, deadline_ms=deadline_ms, done=waiting)
    rig.turn(turns)
    return waiting


def asked(rig: ProducerRig) -> list[MetadataRequestBuilder]:
    return [r.builder for r in rig.client.requests if isinstance(r.builder, MetadataRequestBuilder)]


def answer(
    rig: ProducerRig, topics: Mapping[str, int], *, errors: Mapping[str, int] | None = None, turns: int = 2
) -> None:
    rig.answer(read(1, topics, errors=errors, known_topics=rig.metadata.cache.topics), turns)


def age_ms(rig: ProducerRig, topic: str) -> int:
    refreshed_ms = rig.producer.cache.refreshed_ms(topic)
    assert refreshed_ms is not None
    return rig.clock.now_ms() - refreshed_ms


def test_a_refresh_asks_for_its_topics_alone_and_creates_none() -> None:
    rig = ProducerRig(topics={"orders": 1, "audit": 1})
    waiting = refresh(rig, "orders", "never-heard-of")
    (builder,) = asked(rig)
    assert (builder.topics, builder.allow_auto_topic_creation) == (("orders",), False)
    rig.clock.advance(7)
    answer(rig, {"orders": 2})
    assert waiting.looked_up.error is None
    assert waiting.looked_up.cache.partition_count("orders") == 2
    assert waiting.looked_up.waited_ms == 7
    assert (age_ms(rig, "orders"), age_ms(rig, "audit")) == (0, 7)
    refreshed = [e for e in rig.events.events if isinstance(e, MetadataRefreshed)]
    assert (refreshed[-1].reason, refreshed[-1].is_partial, refreshed[-1].duration_ms) == ("age", True, 7)


def test_a_refresh_leaves_the_schedule_of_metadata_alone() -> None:
    rig = ProducerRig(topics={"orders": 1})
    due_ms = rig.metadata.time_to_next_update(rig.clock.now_ms())
    rig.clock.advance(1_000)
    refresh(rig, "orders")
    answer(rig, {"orders": 1})
    assert rig.metadata.time_to_next_update(rig.clock.now_ms()) == due_ms - 1_000
    rig.metadata.add("new", rig.clock.now_ms())
    refresh(rig, "orders", turns=0)
    assert rig.metadata.update_requested
    rig.producer.io_thread._take_what_came(rig.clock.now_ms())
    rig.metadata.update_topics(read(1, {"orders": 1}), rig.clock.now_ms())
    assert rig.metadata.update_requested, "the new topic is still to be asked for"
    assert rig.metadata.new_topics == {"new"}


def test_without_topics_a_refresh_asks_for_the_brokers() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = refresh(rig)
    assert [builder.topics for builder in asked(rig)] == [()]
    rig.clock.advance(5)
    answer(rig, {})
    answered = waiting.looked_up.cache.answered
    assert answered is not None
    assert answered.now_ms == rig.clock.now_ms()
    assert waiting.looked_up.cache.partition_count("orders") == 1


def test_two_refreshes_do_not_wait_for_each_other() -> None:
    """A broker that hangs holds the first one up."""
    rig = ProducerRig(topics={"orders": 1})
    first, second = refresh(rig, "orders"), refresh(rig, "orders")
    assert len(asked(rig)) == 2
    rig.client.respond_to_request(rig.client.requests[1], read(1, {"orders": 1}))
    rig.turn(2)
    assert (first.reported, second.looked_up.error) == ([], None)


def test_a_refresh_ends_at_its_deadline_and_a_late_answer_counts_all_the_same() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = refresh(rig, "orders")
    rig.turn_after(250, times=2)
    assert isinstance(waiting.looked_up.error, TimeoutError)
    assert waiting.looked_up.waited_ms == 250
    assert waiting.looked_up.cache.partition_count("orders") == 1
    rig.clock.advance(5)
    answer(rig, {"orders": 3})
    assert rig.producer.cache.partition_count("orders") == 3
    assert age_ms(rig, "orders") == 0


def test_a_very_late_answer_does_not_replace_a_newer_one() -> None:
    rig = ProducerRig(topics={"orders": 1})
    refresh(rig, "orders")
    rig.clock.advance(600)
    rig.know({"orders": 4})
    rig.clock.advance(600)
    answer(rig, {"orders": 2})
    assert rig.producer.cache.partition_count("orders") == 4


def test_a_lost_connection_is_a_failure_after_which_a_node_is_asked_again() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = refresh(rig, "orders")
    rig.client.respond(None, disconnected=True)
    rig.turn(2)
    failed = [e for e in rig.events.events if isinstance(e, MetadataRefreshFailed)]
    assert [(e.reason, e.outcome, e.detail) for e in failed] == [("age", "error", "the connection ended")]
    assert len(asked(rig)) == 1
    answer(rig, {"orders": 1})
    assert waiting.looked_up.error is None


def test_a_starting_broker_without_brokers_is_no_answer() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = refresh(rig, "orders")
    rig.answer(read(0, {}), turns=2)
    assert rig.producer.cache.partition_count("orders") == 1
    answer(rig, {"orders": 1})
    assert waiting.looked_up.error is None


def test_where_no_node_is_available_it_is_tried_again_until_the_deadline() -> None:
    rig = ProducerRig(topics={"orders": 1})
    node = rig.client.least_loaded_node(0).node
    assert node is not None
    rig.client.set_unreachable(node, 100)
    waiting = refresh(rig, "orders")
    assert asked(rig) == []
    assert rig.producer.io_thread.poll_limit_ms(rig.clock.now_ms()) == 10
    rig.turn_after(150, times=2)
    assert len(asked(rig)) == 1
    answer(rig, {"orders": 1})
    assert waiting.looked_up.error is None


def test_a_version_that_no_broker_knows_is_not_tried_again() -> None:
    rig = ProducerRig(topics={"orders": 1})
    rig.client.prepare_unsupported_version_response()
    waiting = refresh(rig, "orders", turns=3)
    assert isinstance(waiting.looked_up.error, UnsupportedVersionError)
    assert asked(rig) == []


def test_before_the_first_answer_the_error_is_that_no_broker_has_answered() -> None:
    rig = ProducerRig()
    waiting = refresh(rig, wait_ms=0, turns=0)
    rig.producer.io_thread._take_what_came(rig.clock.now_ms())
    rig.producer.io_thread._topic_refreshes.expire(rig.clock.now_ms())
    rig.producer.io_thread._completions.post()
    assert isinstance(waiting.looked_up.error, NoBrokersError)


# -- the schedule's request is not answered ------------------------------------------------------------------


def ask_for(rig: ProducerRig, topic: str, *, create: bool = False) -> Waiting:
    waiting = Waiting()
    rig.producer.request_topics([topic], deadline_ms=rig.clock.now_ms() + 60_000, create=create, done=waiting)
    rig.turn(2)
    return waiting


def waiting_for_one_that_hangs(*topics: str, create: bool = False) -> tuple[ProducerRig, list[Waiting]]:
    """Look-ups of new topics, which the schedule's request does not get."""
    rig = ProducerRig(topics={"known": 1})
    rig.client.answers_metadata, rig.client.is_a_node_silent = False, True
    rig.metadata.add("first", rig.clock.now_ms(), may_create=False)
    return rig, [ask_for(rig, topic, create=create) for topic in topics]


def test_a_new_topic_is_asked_for_elsewhere_while_the_schedules_request_is_not_answered() -> None:
    rig, (waiting,) = waiting_for_one_that_hangs("new")
    for after_ms, count in ((999, 0), (1, 1)):
        rig.turn_after(after_ms)
        assert len(asked(rig)) == count
    (builder,) = asked(rig)
    assert (set(builder.topics or ()), builder.allow_auto_topic_creation) == ({"first", "new"}, False)
    assert rig.producer.io_thread.poll_limit_ms(rig.clock.now_ms()) == 1_000
    answer(rig, {"new": 3})
    assert waiting.looked_up.cache.partition_count("new") == 3
    refreshed = [e for e in rig.events.events if isinstance(e, MetadataRefreshed)]
    assert refreshed[-1].reason == "topic_missing"
    rig.turn_after(1_000, times=2)
    assert [set(builder.topics or ()) for builder in asked(rig)] == [{"first"}], (
        "what is known is not asked for"
    )


def test_while_nobody_answers_the_pauses_grow() -> None:
    rig, _ = waiting_for_one_that_hangs("new")
    counts = []
    for _ in range(5):
        rig.turn_after(1_000, times=2)
        counts.append(len(asked(rig)))
    assert counts == [1, 2, 2, 3, 3]


def test_a_topic_that_two_nodes_report_missing_is_not_asked_for_again() -> None:
    rig, (waiting,) = waiting_for_one_that_hangs("typo")
    for _ in range(2):
        rig.turn_after(1_000)
        answer(rig, {"first": 1}, errors={"typo": UNKNOWN})
    assert waiting.looked_up.topic_errors["typo"].error is Errors.UNKNOWN_TOPIC_OR_PARTITION
    rig.turn_after(1_000, times=2)
    assert asked(rig) == []


def test_a_topic_that_may_be_created_is_left_to_the_schedule() -> None:
    rig, _ = waiting_for_one_that_hangs("new", create=True)
    rig.turn_after(1_000, times=2)
    assert [builder.topics for builder in asked(rig)] == [("first",)]


def test_nothing_is_asked_for_elsewhere_after_the_schedules_answer() -> None:
    rig, _ = waiting_for_one_that_hangs("new")
    rig.know({"known": 1, "first": 1, "new": 1})
    rig.turn_after(5_000, times=2)
    assert asked(rig) == []


def test_while_no_node_is_silent_nothing_is_asked_for_elsewhere() -> None:
    """They refuse connections: whoever is back first is asked by the schedule."""
    rig, _ = waiting_for_one_that_hangs("new")
    rig.client.is_a_node_silent = False
    rig.turn_after(5_000, times=2)
    assert asked(rig) == []


def test_the_brokers_are_asked_for_elsewhere_before_the_first_answer() -> None:
    rig = ProducerRig()
    rig.client.answers_metadata, rig.client.is_a_node_silent = False, True
    rig.turn()
    rig.turn_after(1_000, times=2)
    assert [builder.topics for builder in asked(rig)] == [()]
    answer(rig, {})
    assert not rig.producer.cache.is_bootstrap


def test_all_topics_are_asked_for_elsewhere_for_a_demand_that_the_schedule_does_not_meet() -> None:
    rig = ProducerRig(topics={"orders": 1, "audit": 1})
    rig.client.answers_metadata, rig.client.is_a_node_silent = False, True
    rig.clock.advance(60_000)
    young, new = Waiting(), Waiting()
    deadline_ms = rig.clock.now_ms() + 60_000
    version = rig.producer.cache.update_version + 1
    rig.producer.request_update(max_age_ms=0, deadline_ms=deadline_ms, done=young)
    rig.producer.request_update(min_version=version, deadline_ms=deadline_ms, done=new)
    for after_ms, count in ((0, 0), (999, 0), (1, 1)):
        rig.turn_after(after_ms)
        assert len(asked(rig)) == count
    assert set(asked(rig)[0].topics or ()) == {"orders", "audit"}
    answer(rig, {"orders": 1, "audit": 1})
    for waiting in (young, new):
        assert waiting.looked_up.cache.refreshed_ms("audit") == rig.clock.now_ms()
        assert waiting.looked_up.cache.update_version == version
    refreshed = [e for e in rig.events.events if isinstance(e, MetadataRefreshed)]
    assert refreshed[-1].reason == "manual"
    rig.turn_after(5_000, times=2)
    assert asked(rig) == []


def test_an_age_is_met_only_with_an_answer_about_each_topic() -> None:
    rig = ProducerRig(topics={"orders": 1, "audit": 1})
    rig.client.answers_metadata, rig.client.is_a_node_silent = False, True
    rig.clock.advance(60_000)
    young = Waiting()
    rig.producer.request_update(max_age_ms=500, deadline_ms=rig.clock.now_ms() + 60_000, done=young)
    refresh(rig, "orders")
    answer(rig, {"orders": 1})
    assert young.reported == []
    refresh(rig, "audit")
    answer(rig, {"audit": 1})
    assert young.looked_up.error is None


# -- the end -------------------------------------------------------------------------------------------------


def test_a_refresh_that_was_cancelled_reports_nothing() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = refresh(rig, "orders")
    waiting.cancel()
    answer(rig, {"orders": 2})
    assert waiting.reported == []
    assert rig.producer.io_thread._topic_refreshes.count == 0


def test_a_producer_that_closes_ends_its_refreshes() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = refresh(rig, "orders")
    rig.producer.close(0)
    assert isinstance(waiting.looked_up.error, ProducerClosedError)


# -- a broker that reports a topic missing -------------------------------------------------------------------


def test_a_topic_that_one_broker_denies_stays_readable_and_the_refresh_goes_on() -> None:
    """A broker that has just started may not know any topic."""
    rig = ProducerRig(topics={"orders": 2})
    rig.clock.advance(3_000)
    waiting = refresh(rig, "orders")
    rig.will_know({}, errors={"orders": UNKNOWN})
    answer(rig, {}, errors={"orders": UNKNOWN}, turns=3)
    assert waiting.reported == []
    assert rig.producer.cache.partition_count("orders") == 2
    assert age_ms(rig, "orders") == 3_000
    assert "orders" not in rig.metadata.cache.topics, "records wait for it, as Java's do"
    rig.turn_after(250, times=2)
    assert waiting.looked_up.error is None
    assert waiting.looked_up.cache.refreshed_ms("orders") == rig.clock.now_ms() - 3_250


def test_a_topic_that_is_there_again_was_never_gone() -> None:
    rig = ProducerRig(topics={"orders": 2})
    rig.will_know({"orders": 2})
    waiting = refresh(rig, "orders")
    answer(rig, {}, errors={"orders": UNKNOWN}, turns=3)
    assert waiting.looked_up.cache.partition_count("orders") == 2
    assert "orders" in rig.metadata.cache.topics
    assert not [e for e in rig.events.events if isinstance(e, PartitionCountChanged) and e.old_count]


def test_a_topic_that_is_denied_for_long_enough_is_dropped_with_one_event() -> None:
    rig = ProducerRig(topics={"orders": 2, "audit": 1})
    refresh(rig, "orders")
    for _ in range(60):
        rig.will_know({"audit": 1}, errors={"orders": UNKNOWN})
    answer(rig, {}, errors={"orders": UNKNOWN})
    for _ in range(60):
        rig.turn_after(100)
    assert rig.producer.cache.topics.keys() == {"audit"}
    assert not rig.metadata.contains_topic("orders")
    assert not rig.metadata.update_requested, "nobody waits for it, so nobody asks for it"
    ended = [e for e in rig.events.events if isinstance(e, PartitionCountChanged) and e.new_count is None]
    assert ended == [PartitionCountChanged("orders", 2, None)]


def test_leaders_from_a_produce_response_leave_a_topic_in_doubt_readable() -> None:
    rig = ProducerRig(topics={"orders": 1, "audit": 1})
    rig.will_know({"audit": 1}, errors={"orders": UNKNOWN})
    refresh(rig, "orders")
    answer(rig, {}, errors={"orders": UNKNOWN})
    assert rig.producer.cache.topics.keys() == {"orders", "audit"}
    audit = TopicPartition("audit", 0)
    assert rig.metadata.update_partition_leadership({audit: LeaderIdAndEpoch(0, 9)}, []) == {audit}
    assert rig.producer.cache.topics.keys() == {"orders", "audit"}
