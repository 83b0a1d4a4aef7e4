"""The waits in a request's result: for metadata, for memory, for both, or for neither."""

from __future__ import annotations

from client_core import Phase, ProducerRecord, Wait
from tests.support.producer_rig import ProducerRig, full_buffer_rig
from tests.support.sender_rig import ORDERS_0, produced


def test_a_request_that_waited_for_nothing_says_nothing() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", b"a", turns=1)
    rig.clock.advance(50)
    rig.answer(produced(ORDERS_0, offset=0))
    assert waiting.produced.waits == ()


def test_a_wait_for_metadata_is_reported_without_the_delivery_after_it() -> None:
    rig = ProducerRig(topics={})
    waiting = rig.submit("orders", b"a")
    rig.learn({"orders": 1})
    rig.turn_after(300)
    rig.clock.advance(50)
    rig.answer(produced(ORDERS_0, offset=0))
    assert waiting.produced.waits == (Wait(Phase.METADATA, 300),)
    assert waiting.produced.waited_ms == 350


def test_a_wait_for_a_partition_is_one_for_metadata() -> None:
    rig = ProducerRig(topics={"orders": 1})
    waiting = rig.submit("orders", ProducerRecord("orders", b"a", partition=5), block_ms=400, turns=1)
    rig.turn_after(400)
    assert waiting.produced.waits == (Wait(Phase.METADATA, 400),)


def test_a_wait_for_memory_is_reported_as_one() -> None:
    rig = full_buffer_rig()
    waiting = rig.submit("orders", b"y" * 800, turns=1)
    rig.turn_after(10_000)
    rig.answer(produced(ORDERS_0, offset=0), turns=2)
    rig.answer(produced(ORDERS_0, offset=1))
    assert waiting.produced.waits == (Wait(Phase.BUFFER, 10_000),)


def test_a_wait_for_metadata_and_then_for_memory_is_reported_as_two() -> None:
    rig = full_buffer_rig()
    waiting = rig.submit("late", b"y" * 800, block_ms=5_000, turns=1)
    rig.clock.advance(700)
    rig.know({"orders": 1, "other": 1, "late": 1})
    rig.turn()
    assert rig.producer.status().waiting_for_buffer == 1
    rig.turn_after(4_300)
    assert waiting.produced.waits == (Wait(Phase.METADATA, 700), Wait(Phase.BUFFER, 4_300))
