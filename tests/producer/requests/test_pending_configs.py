"""Calls that wait for the configs of a topic, and the requests that fetch them."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from client_core.error_codes import Errors
from client_core.errors import (
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    NoBrokersError,
    ProducerClosedError,
    SaslAuthenticationError,
    TimeoutError,
    TopicAuthorizationError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from client_core.metadata.topic_configs import (
    DescribedTopics,
    TopicConfig,
    TopicConfigs,
    TopicConfigsFailure,
    TopicConfigsRequestBuilder,
)
from client_core.producer.requests.pending_configs import MAX_TOPICS_PER_REQUEST
from client_core.producer.results.results import TopicConfigsResult
from tests.support.producer_rig import ProducerRig, Waiting

CONFIGS: TopicConfigs = MappingProxyType({"retention.ms": TopicConfig("17")})


def ask(rig: ProducerRig, topic: str = "orders", *, wait_ms: int = 1_000) -> Waiting:
    waiting = Waiting()
    deadline_ms = rig.clock.now_ms() + wait_ms
    waiting.ticket = rig.producer.describe_topic_configs(topic, deadline_ms=deadline_ms, done=waiting)
    return waiting


def reported(waiting: Waiting) -> TopicConfigsResult:
    (result,) = waiting.reported
    assert isinstance(result, TopicConfigsResult)
    return result


def asked_topics(rig: ProducerRig) -> list[tuple[str, ...]]:
    """The topics of each request that waits for an answer."""
    return [
        r.builder.topics for r in rig.client.requests if isinstance(r.builder, TopicConfigsRequestBuilder)
    ]


def answer(rig: ProducerRig, **by_topic: TopicConfigs | Errors) -> None:
    """Answers the request that is under way, and lets it be heard."""
    said = {
        topic: TopicConfigsFailure(one.code, one.message) if isinstance(one, Errors) else one
        for topic, one in by_topic.items()
    }
    rig.answer(DescribedTopics(said, 0))


def test_configs_come_with_how_long_they_took() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    rig.clock.advance(40)
    answer(rig, orders=CONFIGS)
    assert reported(waiting).configs == CONFIGS
    assert reported(waiting).error is None
    assert reported(waiting).waited_ms == 40
    assert repr(reported(waiting)) == "<TopicConfigsResult configs=1 error=None waited_ms=40>"


def test_one_request_is_for_all_who_wait_and_has_each_topic_once() -> None:
    rig = ProducerRig(topics={"orders": 1})
    cache = rig.producer.cache
    waiting = [ask(rig, "orders"), ask(rig, "audit"), ask(rig, "orders")]
    assert rig.producer.status().waiting_for_metadata == 0  # they have not reached the I/O thread
    rig.turn(2)
    assert rig.producer.status().waiting_for_metadata == 3
    assert asked_topics(rig) == [("orders", "audit")]
    answer(rig, orders=CONFIGS, audit=MappingProxyType({}))
    assert [reported(one).configs for one in waiting] == [CONFIGS, {}, CONFIGS]
    assert rig.producer.cache is cache
    assert rig.producer.status().waiting_for_metadata == 0


def test_a_call_during_a_request_gets_the_next_one() -> None:
    rig = ProducerRig(topics={"orders": 1})
    early = ask(rig)
    rig.turn()
    late = ask(rig)
    rig.turn()
    answer(rig, orders=Errors.UNKNOWN_TOPIC_OR_PARTITION)
    assert early.reported
    assert not late.reported
    rig.turn()
    answer(rig, orders=CONFIGS)
    assert reported(late).configs == CONFIGS


def test_a_request_is_for_a_bounded_number_of_topics_the_oldest_first() -> None:
    rig = ProducerRig(topics={"orders": 1})
    names = [f"t{n}" for n in range(MAX_TOPICS_PER_REQUEST + 1)]
    waiting = [ask(rig, name) for name in names]
    rig.turn()
    assert asked_topics(rig) == [tuple(names[:-1])]
    answer(rig, **dict.fromkeys(names, CONFIGS))
    rig.turn()
    assert asked_topics(rig) == [(names[-1],)]
    answer(rig, **dict.fromkeys(names, CONFIGS))
    assert all(reported(one).configs == CONFIGS for one in waiting)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Errors.TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationError),
        (Errors.UNKNOWN_TOPIC_OR_PARTITION, UnknownTopicOrPartitionError),
        (Errors.INVALID_TOPIC_EXCEPTION, InvalidTopicError),
    ],
)
def test_a_brokers_refusal_of_one_topic_is_final_for_that_topic_only(
    error: Errors, kind: type[KafkaError]
) -> None:
    rig = ProducerRig(topics={"orders": 1})
    refused, given = ask(rig, "orders"), ask(rig, "audit")
    rig.turn()
    answer(rig, orders=error, audit=CONFIGS)
    assert isinstance(reported(refused).error, kind)
    assert reported(refused).configs is None
    assert reported(given).configs == CONFIGS


def test_a_retriable_error_is_tried_again_after_a_pause() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting, given = ask(rig, "orders"), ask(rig, "audit")
    rig.turn()
    answer(rig, orders=Errors.REQUEST_TIMED_OUT, audit=CONFIGS)
    assert reported(given).configs == CONFIGS
    rig.turn()
    assert asked_topics(rig) == []
    assert rig.producer.io_thread.poll_limit_ms(rig.clock.now_ms()) <= 100
    rig.turn_after(100)
    assert asked_topics(rig) == [("orders",)]
    answer(rig, orders=CONFIGS)
    assert reported(waiting).configs == CONFIGS


def test_a_request_that_was_lost_is_made_again() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    rig.client.disconnect(rig.client.requests[0].destination)
    rig.turn(2)
    rig.turn_after(100)
    answer(rig, orders=CONFIGS)
    assert reported(waiting).configs == CONFIGS


def test_a_broker_that_can_not_be_asked_is_reported() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.client.prepare_unsupported_version_response()
    rig.turn()
    assert isinstance(reported(waiting).error, UnsupportedVersionError)


def test_an_answer_that_leaves_a_topic_out_is_an_error() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    answer(rig, other=CONFIGS)
    assert isinstance(reported(waiting).error, UnknownServerError)
    assert "orders" in str(reported(waiting).error)


def test_configs_that_do_not_come_time_out_and_a_late_answer_is_nobodys() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    rig.turn_after(1_000)
    assert isinstance(reported(waiting).error, TimeoutError)
    assert str(reported(waiting).error) == "The configs of topic orders were not received within 1000 ms."
    answer(rig, orders=CONFIGS)
    assert len(waiting.reported) == 1


def test_without_any_broker_it_is_said_that_none_has_answered() -> None:
    rig = ProducerRig()
    rig.client.backoff(rig.client.least_loaded_node(0).node or pytest.fail("no node"), 60_000)
    waiting = ask(rig)
    rig.turn()
    rig.turn_after(1_000)
    assert isinstance(reported(waiting).error, NoBrokersError)


def test_a_wait_that_is_cancelled_ends_without_a_word_and_the_others_go_on() -> None:
    rig = ProducerRig(topics={"orders": 1})
    gone, stays = ask(rig), ask(rig)
    rig.turn()
    gone.cancel()
    gone.cancel()
    rig.turn()
    answer(rig, orders=CONFIGS)
    assert gone.reported == []
    assert reported(stays).configs == CONFIGS


def test_a_refused_login_ends_the_wait() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.turn()
    rig.metadata.fatal_error(SaslAuthenticationError("no"))
    rig.turn()
    assert isinstance(reported(waiting).error, SaslAuthenticationError)


def test_closing_ends_all_waits_and_takes_no_new_one() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = ask(rig)
    rig.producer.close(0)
    assert isinstance(reported(waiting).error, ProducerClosedError)
    with pytest.raises(IllegalStateError):
        ask(rig)


def test_a_name_that_can_not_be_put_on_the_wire_is_refused_at_the_door() -> None:
    rig = ProducerRig(topics={"orders": 1})
    with pytest.raises(InvalidTopicError):
        ask(rig, "\ud800")
