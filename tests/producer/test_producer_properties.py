"""Each ticket ends once and in time, whatever callers, brokers and time do (producer_machine.py)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from client_core.errors import ProducerClosedError
from client_core.producer.results.results import MetadataResult
from client_core.producer.results.ticket import RecordFailure
from tests.producer.producer_machine import (
    UNKNOWN_TOPIC,
    IdempotentMachine,
    PlainMachine,
    ProducerMachine,
    walk,
)
from tests.support.model_brokers import TOPIC


@pytest.mark.parametrize("kind", [IdempotentMachine, PlainMachine])
def test_each_ticket_ends_once_and_what_it_says_is_true(kind: type[ProducerMachine]) -> None:
    run_state_machine_as_test(kind, settings=settings(max_examples=40, stateful_step_count=40))


@pytest.mark.parametrize("kind", [IdempotentMachine, PlainMachine])
@pytest.mark.parametrize("first", [0, 8])
def test_a_long_way_changes_nothing_of_that(kind: type[ProducerMachine], first: int) -> None:
    walked = [walk(kind(), Random(seed), 300) for seed in range(first, first + 8)]
    assert sum(walked) > 200, "it did not get far"


def test_closing_a_producer_completes_all_pending_calls() -> None:
    machine = PlainMachine()
    machine.begin(batch_bytes=150, buffer_bytes=3_000, linger_ms=20, in_flight=5)
    machine.submit(TOPIC, None, 0, [20], 300, 2_000)
    machine.submit(UNKNOWN_TOPIC, None, None, [20], 300, 2_000)
    machine.look_up(UNKNOWN_TOPIC, 1_000)
    machine.rig.producer.close(0)
    for request in machine.requests:
        (outcome,) = request.outcomes
        assert isinstance(outcome, RecordFailure)
        assert isinstance(outcome.error, ProducerClosedError)
    (result,) = machine.look_ups[0].results
    assert isinstance(result, MetadataResult)
    assert isinstance(result.error, ProducerClosedError)
