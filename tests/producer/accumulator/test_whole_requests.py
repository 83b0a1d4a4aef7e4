"""`whole_requests`: what one submit has for a partition is written or refused together."""

from __future__ import annotations

import pytest

from client_core.error_codes import Errors
from client_core.producer.results.producer_record import ProducerRecord, RecordMetadata
from tests.support.producer_rig import ProducerRig
from tests.support.sender_rig import ORDERS_0, produced

BATCH_BYTES = 500


def rig_of(*, whole_requests: bool, codec: str = "none") -> ProducerRig:
    return ProducerRig(
        topics={"orders": 1}, whole_requests=whole_requests, batch_size=BATCH_BYTES, compression_type=codec
    )


def keyed(count: int) -> list[ProducerRecord]:
    return [ProducerRecord("orders", bytes([n]) * 100, b"k") for n in range(count)]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_the_records_of_a_request_for_a_partition_are_one_batch_whatever_its_size(codec: str) -> None:
    rig = rig_of(whole_requests=True, codec=codec)
    result = rig.submit("orders", *keyed(40), turns=1)
    rig.answer(produced(ORDERS_0, offset=7))
    assert result.offsets == list(range(7, 47))


def test_otherwise_they_are_as_many_batches_as_it_takes() -> None:
    rig = rig_of(whole_requests=False)
    result = rig.submit("orders", *keyed(40), turns=1)
    rig.answer(produced(ORDERS_0, offset=7))
    assert result.reported == []


def test_a_batch_that_is_too_large_is_refused_whole_and_nothing_of_it_is_sent_again() -> None:
    rig = rig_of(whole_requests=True)
    result = rig.submit("orders", *keyed(4), turns=1)
    rig.answer(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE), turns=3)
    assert [failure.error.error for failure in result.failures] == [Errors.MESSAGE_TOO_LARGE] * 4
    assert not rig.client.requests


def test_otherwise_it_is_sent_again_in_parts() -> None:
    rig = rig_of(whole_requests=False)
    result = rig.submit("orders", *keyed(2), turns=1)
    rig.respond(produced(ORDERS_0, error=Errors.MESSAGE_TOO_LARGE))
    for offset in (7, 8):
        rig.turn(2)
        rig.respond(produced(ORDERS_0, offset=offset))
    rig.turn()
    assert [
        outcome.offset for outcome in result.produced.outcomes if isinstance(outcome, RecordMetadata)
    ] == [
        7,
        8,
    ]
