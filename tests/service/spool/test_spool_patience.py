"""How long a refusal by brokers is waited out, what is said of it meanwhile, and what ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core import (
    ApiError,
    Errors,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    NotEnoughReplicasError,
    Phase,
    PolicyViolationError,
    ProducerRecord,
    RecordFailure,
    RecordTooLargeError,
    SerializationError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from service.spool.delivery_outcome import delivery_outcome_of
from service.spool.lanes import Patience
from service.spool.spool_metrics import SpoolMetrics
from tests.support.spooling import (
    SpoolRig,
    acknowledged,
    aside,
    fail_values,
    failure,
    record,
    records,
    timed_out,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_producer import Outcome

WAIT_MS = 60_000


@pytest.fixture
def rig(tmp_path: Path) -> SpoolRig:
    return SpoolRig(tmp_path / "spool")


def refused_while(rig: SpoolRig, seconds: int) -> None:
    """Delivers now, and every second for so long."""
    rig.deliver()
    for _ in range(seconds):
        rig.deliver_after(1_000)


def too_large_above(rig: SpoolRig, most: int) -> None:
    """Brokers refuse a request that has a record with a larger value."""

    def report(index: int, one: ProducerRecord) -> Outcome:
        if any(len(other.value or b"") > most for other in rig.producer.submitted[-1]):
            return failure(RecordTooLargeError())
        return rig.producer.receipt(index, one)

    rig.producer.outcome_of = report


# -- how long ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        TopicAuthorizationError(),
        RecordTooLargeError(),
        InvalidRecordError(),
        PolicyViolationError(),
        InvalidTopicError(),
    ],
    ids=lambda error: error.error.name,
)
def test_a_refusal_is_waited_for_to_the_last_second_and_no_longer(rig: SpoolRig, error: KafkaError) -> None:
    fail_values(rig, failure(error), "orders-0")
    rig.spool_in(records(1))
    refused_while(rig, seconds=59)
    assert (aside(rig), rig.spool.entries) == ([], 1)
    rig.deliver_after(1_000)
    assert ([value for value, _ in aside(rig)], rig.spool.entries) == (["orders-0"], 0)


def test_it_is_tried_once_a_second_meanwhile(rig: SpoolRig) -> None:
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    rig.spool_in(records(1))
    rig.deliver()
    assert len(rig.producer.submitted) == 1
    rig.deliver_after(999)
    assert len(rig.producer.submitted) == 1
    rig.deliver_after(1)
    assert len(rig.producer.submitted) == 2


def test_the_wait_is_the_one_for_a_missing_topic(tmp_path: Path) -> None:
    rig = SpoolRig(tmp_path / "spool", spool_topic_wait_ms=3_000)
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    rig.spool_in(records(1))
    refused_while(rig, seconds=2)
    assert aside(rig) == []
    rig.deliver_after(1_000)
    assert aside(rig) == [("orders-0", "forbidden")]


def test_after_a_restart_the_wait_begins_anew(rig: SpoolRig) -> None:
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    rig.spool_in(records(1))
    refused_while(rig, seconds=59)
    rig = rig.again()
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    refused_while(rig, seconds=59)
    assert aside(rig) == []
    rig.deliver_after(1_000)
    assert aside(rig) == [("orders-0", "forbidden")]


@pytest.mark.parametrize(
    "error", [NotEnoughReplicasError(), UnsupportedVersionError()], ids=lambda error: error.error.name
)
def test_what_is_no_refusal_waits_for_days_and_has_the_next_refusal_begin_anew(
    rig: SpoolRig, error: KafkaError
) -> None:
    rig.spool_in(records(1))
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    refused_while(rig, seconds=59)
    fail_values(rig, failure(error), "orders-0")
    rig.deliver_after(1_000)
    assert rig.spool.delivery.view.refused == []
    for _ in range(100):
        rig.deliver_after(3_600_000)
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    refused_while(rig, seconds=60)
    assert aside(rig) == []
    rig.deliver_after(1_000)
    assert aside(rig) == [("orders-0", "forbidden")]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (failure(SerializationError("no bytes")), "invalid"),  # this client never takes it
        (timed_out(UnknownTopicOrPartitionError()), "topic_gone"),  # it has waited for it already
    ],
    ids=["invalid", "topic_gone"],
)
def test_what_a_wait_would_not_mend_is_set_aside_at_once(
    rig: SpoolRig, error: RecordFailure, reason: str
) -> None:
    fail_values(rig, error, "orders-0")
    rig.spool_in(records(1))
    rig.deliver()
    assert aside(rig) == [("orders-0", reason)]


def test_a_record_for_a_missing_partition_of_a_forbidden_topic_is_not_set_aside_as_that() -> None:
    forbidden = RecordFailure(TopicAuthorizationError(), Phase.METADATA, timed_out().written, 5)
    assert delivery_outcome_of(forbidden, 1, lacks_partition=True).reason == "forbidden"
    assert delivery_outcome_of(timed_out(), 1, lacks_partition=True).reason == "partition_gone"
    appended = failure(UnknownTopicOrPartitionError())
    assert delivery_outcome_of(appended, 1, lacks_partition=True).reason is None


def test_an_error_that_nobody_knows_is_refused_from_the_tenth_time_on() -> None:
    unknown = failure(ApiError())
    assert unknown.error.error is Errors.UNKNOWN_SERVER_ERROR
    assert delivery_outcome_of(unknown, 9, lacks_partition=False).reason is None
    assert delivery_outcome_of(unknown, 10, lacks_partition=False).reason == "refused"


# -- the next records ----------------------------------------------------------------------------------------


def test_the_next_records_of_a_topic_that_stays_forbidden_are_not_waited_for_again(rig: SpoolRig) -> None:
    fail_values(rig, failure(TopicAuthorizationError()), *(f"orders-{n}" for n in range(1_200)))
    rig.spool_in(records(1_200))  # several requests
    rig.wait_out()
    assert (len(aside(rig)), rig.spool.entries) == (1_200, 0)


def test_a_topic_that_was_allowed_in_between_is_waited_for_anew(rig: SpoolRig) -> None:
    """Of one request some are refused and one is delivered: the right comes and goes."""
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0", "orders-2")
    rig.spool_in(records(1))
    refused_while(rig, seconds=59)
    rig.spool_in(records(3)[1:])
    rig.producer.outcome_of = None
    rig.deliver_after(1_000)
    assert rig.sent[-3:] == ["orders-0", "orders-1", "orders-2"]
    fail_values(rig, failure(TopicAuthorizationError()), "orders-0")
    rig.spool_in(records(1))
    refused_while(rig, seconds=59)
    assert aside(rig) == []


def test_of_many_records_that_are_too_large_only_the_first_is_waited_for(rig: SpoolRig) -> None:
    too_large_above(rig, 20)
    values = [("L" * 30 if n % 3 == 1 else "s") + f"{n:03d}" for n in range(60)]
    found = acknowledged(rig)
    rig.spool_in([record(value) for value in values])
    rig.wait_out()
    assert found == [value for value in values if value[0] == "s"]
    assert aside(rig) == [(value, "too_large") for value in values if value[0] == "L"]


def test_after_a_while_without_such_records_one_is_waited_for_again(rig: SpoolRig) -> None:
    """A topic that is never quite empty: another record is always behind."""
    too_large_above(rig, 20)
    rig.spool_in([record("L" * 30), record("s")])
    rig.wait_out()
    assert len(aside(rig)) == 1
    patience = Patience()
    assert not patience.is_over("too_large", "", 0, WAIT_MS)
    assert patience.is_over("too_large", "", WAIT_MS, WAIT_MS)
    patience.delivered()
    assert patience.is_over("too_large", "", 2 * WAIT_MS - 1, WAIT_MS)
    assert not patience.is_over("too_large", "", 3 * WAIT_MS - 1, WAIT_MS)


def test_another_reason_has_a_wait_of_its_own() -> None:
    patience = Patience()
    assert not patience.is_over("too_large", "", 0, WAIT_MS)
    assert not patience.is_over("forbidden", "", WAIT_MS, WAIT_MS)
    assert patience.is_over("forbidden", "", 2 * WAIT_MS, WAIT_MS)
    assert not patience.is_over("too_large", "", 2 * WAIT_MS, WAIT_MS)


def test_records_that_come_back_are_waited_for_whatever_was_set_aside_before() -> None:
    patience = Patience()
    patience.is_over("too_large", "", 0, WAIT_MS)
    assert patience.is_over("too_large", "", WAIT_MS, WAIT_MS)
    patience.begin_anew()
    assert not patience.is_over("too_large", "", WAIT_MS, WAIT_MS)


# -- alone ---------------------------------------------------------------------------------------------------


def test_a_request_is_halved_until_the_record_at_fault_is_alone_and_doubled_again(rig: SpoolRig) -> None:
    too_large_above(rig, 20)
    rig.spool_in([record("s" * 5 if n != 9 else "L" * 30) for n in range(64)])
    rig.wait_out()
    sizes = [len(chunk) for chunk in rig.producer.submitted]
    assert sizes[:4] == [64, 32, 16, 8]
    # Eight were delivered, so sixteen are tried, of which the tenth is at fault.
    assert sizes[4:9] == [16, 8, 4, 2, 1]
    assert sizes[9:13] == [2, 1, 1, 1]
    assert sizes[-5:] == [2, 4, 8, 16, 23]
    assert aside(rig) == [("L" * 30, "too_large")]


def test_nothing_of_the_topic_is_sent_while_a_record_is_tried_alone(rig: SpoolRig) -> None:
    too_large_above(rig, 20)
    found = acknowledged(rig)
    rig.spool_in([record("before"), record("L" * 30), record("behind")])
    rig.spool_in([record("other", "payments")])
    refused_while(rig, seconds=30)
    assert found == ["other", "before"] or found == ["before", "other"]
    rig.producer.outcome_of = None
    found = acknowledged(rig)
    rig.deliver_after(1_000)
    assert (found, aside(rig)) == (["L" * 30, "behind"], [])


def test_others_of_the_topic_that_come_in_meanwhile_do_not_prolong_the_wait(rig: SpoolRig) -> None:
    """They would be delivered to other partitions."""
    fail_values(rig, failure(InvalidRecordError()), "at fault")
    found = acknowledged(rig)
    rig.spool_in([record("at fault")])
    rig.deliver()
    for n in range(60):
        rig.spool_in([record(f"{n}")])
        rig.deliver_after(1_000)
    assert found == [f"{n}" for n in range(60)]
    assert aside(rig) == [("at fault", "invalid")]
    assert [value for value in rig.sent if value == "at fault"] == rig.sent[:61]


def test_a_record_that_does_not_fit_behind_the_others_goes_in_a_request_of_its_own(rig: SpoolRig) -> None:
    small, large = "s" * 1_000, "L" * 131_000
    rig.spool_in([record(small), record(large), record(small)])
    rig.deliver()
    assert [[len(one.value or b"") for one in chunk] for chunk in rig.producer.submitted] == [
        [1_000],
        [131_000],
        [1_000],
    ]


def test_a_request_is_no_larger_than_the_client_may_send(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "localhost:9092", "max.request.size": "5000"}
    rig = SpoolRig(tmp_path / "spool", kafka=kafka)
    rig.spool_in([record("s" * 1_000) for _ in range(10)])
    rig.deliver()
    assert [len(chunk) for chunk in rig.producer.submitted] == [4, 4, 2]


# -- what is said of it --------------------------------------------------------------------------------------


def test_the_status_names_the_topics_whose_records_are_refused_the_longest_first(rig: SpoolRig) -> None:
    error = TopicAuthorizationError("not allowed")
    fail_values(rig, failure(error), "payments-0", "payments-1", "orders-0")
    rig.spool_in(records(2, "payments"))
    rig.deliver()
    rig.spool_in(records(1))
    rig.deliver_after(5_000)
    rig.clock.advance(500)
    status = rig.spool.status(lambda _: True)
    reported = status["refused"]
    assert (status["last_error"], status["last_error_age_ms"]) == ("TOPIC_AUTHORIZATION_FAILED", 500)
    detail = "TopicAuthorizationError: not allowed"
    assert reported == [
        {"topic": "payments", "records": 2, "reason": "forbidden", "detail": detail, "refused_ms": 5_500},
        {"topic": "orders", "records": 1, "reason": "forbidden", "detail": detail, "refused_ms": 500},
    ]
    only = rig.spool.status(lambda topic: topic == "orders")["refused"]
    assert [topic["topic"] for topic in only] == ["orders"]
    assert refused_topics(rig) == {"forbidden": 2}
    rig.producer.outcome_of = None
    rig.deliver_after(1_000)
    assert rig.spool.status(lambda _: True)["refused"] == []
    assert refused_topics(rig) == {}


def test_the_status_names_fifty_topics_at_most(rig: SpoolRig) -> None:
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    rig.spool_in([record("x", f"topic-{n}") for n in range(60)])
    rig.deliver()
    assert len(rig.spool.status(lambda _: True)["refused"]) == 50
    assert rig.spool.status(lambda _: True)["last_error_age_ms"] == 0
    assert refused_topics(rig) == {"forbidden": 60}


def refused_topics(rig: SpoolRig) -> dict[str, float]:
    """pilotfish_spool_refused_topics by its reason, where it is not 0."""
    (family,) = [
        family
        for family in SpoolMetrics(rig.spool).collect()
        if family.name == "pilotfish_spool_refused_topics"
    ]
    return {sample.labels["reason"]: sample.value for sample in family.samples if sample.value}
