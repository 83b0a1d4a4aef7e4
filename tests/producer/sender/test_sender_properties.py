"""Accumulator, Sender and TransactionManager under any sequence of events: see sender_machine.py."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from client_core.error_codes import Errors
from tests.producer.sender_machine import IdempotentMachine, PlainMachine, RestartingMachine, walk
from tests.support.sender_rig import ORDERS_0, SenderRig, produced

if TYPE_CHECKING:
    from tests.producer.sender_machine import SenderMachine


@pytest.mark.behaviour("BAT-01", "IDM-02", "IDM-03", "SND-14")
def test_whatever_happens_an_idempotent_log_has_each_record_once_and_in_order() -> None:
    run_state_machine_as_test(IdempotentMachine, settings=settings(max_examples=60, stateful_step_count=50))


@pytest.mark.behaviour("BAT-01", "SND-14")
def test_whatever_happens_each_record_is_in_one_place_and_its_owner_hears_once() -> None:
    run_state_machine_as_test(PlainMachine, settings=settings(max_examples=40, stateful_step_count=50))


@pytest.mark.behaviour("BAT-01", "IDM-02")
def test_what_ends_a_producer_for_good_is_survived_by_one_that_restarts() -> None:
    run_state_machine_as_test(RestartingMachine, settings=settings(max_examples=30, stateful_step_count=50))


def acknowledged_on_ten_walks(kind: type[SenderMachine], first: int) -> int:
    walked = [walk(kind(), Random(seed), 400) for seed in range(first, first + 10)]
    return sum(len(machine.places) for machine in walked)


@pytest.mark.behaviour("BAT-01", "IDM-02", "IDM-03")
@pytest.mark.parametrize("first", range(0, 40, 10))
def test_a_long_way_leads_an_idempotent_producer_nowhere_else(first: int) -> None:
    assert acknowledged_on_ten_walks(IdempotentMachine, first) > 250, "it did not get far"


@pytest.mark.behaviour("BAT-01", "IDM-02")
@pytest.mark.parametrize("first", range(0, 20, 10))
def test_a_long_way_leads_a_producer_that_restarts_nowhere_else(first: int) -> None:
    assert acknowledged_on_ten_walks(RestartingMachine, first) > 200, "it did not get far"


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_a_long_way_leads_a_plain_producer_nowhere_else(first: int) -> None:
    assert acknowledged_on_ten_walks(PlainMachine, first) > 250, "it did not get far"


@pytest.mark.behaviour("IDM-03")
def test_a_batch_that_is_tried_again_is_not_pushed_out_of_what_the_broker_remembers() -> None:
    """Found by the walks. A batch is stored, but the answer is a timeout.

    Six batches later the broker no longer recognises it as stored.
    """
    rig = SenderRig(idempotent=True)
    rig.send()
    rig.answer(produced(ORDERS_0, offset=0))  # the first of a producer goes alone
    for _ in range(5):
        rig.send()
    rig.respond(produced(ORDERS_0, error=Errors.REQUEST_TIMED_OUT))
    for offset in range(2, 6):
        rig.respond(produced(ORDERS_0, offset=offset))
    rig.turn()
    rig.back_off()
    rig.send(turns=2)
    assert [rig.sent_sequence(index) for index in range(len(rig.client.requests))] == [(0, 1)]
    rig.answer(produced(ORDERS_0, offset=1), turns=2)
    assert rig.sent_sequence() == (0, 6)
