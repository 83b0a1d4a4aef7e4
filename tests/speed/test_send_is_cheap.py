"""The cost of a record in the producer, in counts: calls, memory, locks, wakeups, requests.

`benchmarks/produce_library.py` has the seconds. Bounds are between the measured count and twice as much: if
one is exceeded, a record does some work once more, and the benchmark shows its cost.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from client_core import ProducerRecord
from client_core.clock import SystemClock
from client_core.network.channel_builder import PlaintextChannelBuilder
from client_core.network.selector import NetworkConfig, Selector
from client_core.producer.requests.deadlines import TopicQueue
from client_core.producer.requests.ordering_gate import OrderingGate
from client_core.producer.requests.pending_request import PendingRequest
from client_core.record.memory_records_builder import MemoryRecordsBuilder
from tests.speed.counted_calls import calls_of
from tests.support.counted_work import CountedLocks, kept_blocks, no_collector, python_calls
from tests.support.producer_rig import ProducerRig, Waiting
from tests.support.sender_rig import ORDERS_0, produced, producer_id_given
from tests.support.tcp_peers import TcpPeer, frame, receive_frame
from tests.support.traced_memory import least_peak_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from client_core import FutureRecordMetadata

RECORDS: Final = 1_000
RECORD: Final = ProducerRecord("orders", b"x" * 100)
LINGER_MS: Final = 1_000
MINUTE_MS: Final = 60_000


def rig_with_producer_id() -> ProducerRig:
    """An idempotent producer that lingers, and whose batches take all of RECORDS."""
    rig = ProducerRig(
        topics={"orders": 1}, linger_ms=LINGER_MS, batch_size=2 * RECORDS * 128, enable_idempotence=True
    )
    rig.client.prepare_response(producer_id_given())
    rig.turn(3)
    return rig


def rig_with_open_batch() -> ProducerRig:
    """And one record is in a batch that waits for more."""
    rig = rig_with_producer_id()
    rig.producer.send(RECORD)
    rig.turn()
    return rig


def send_all(rig: ProducerRig) -> list[FutureRecordMetadata]:
    send = rig.producer.send
    return [send(RECORD) for _ in range(RECORDS)]


def linger_and_turn(rig: ProducerRig) -> None:
    rig.clock.advance(LINGER_MS)
    rig.turn()


def sent_together(rig: ProducerRig) -> list[FutureRecordMetadata]:
    """All of RECORDS in one request, whose answer has come and was not read yet."""
    futures = send_all(rig)
    linger_and_turn(rig)
    rig.respond(produced(ORDERS_0, offset=0))
    return futures


def submitted_together(rig: ProducerRig) -> Waiting:
    """The same as one ticket."""
    waiting = rig.submit("orders", *[RECORD] * RECORDS)
    linger_and_turn(rig)
    rig.respond(produced(ORDERS_0, offset=0))
    return waiting


# -- the caller's side ---------------------------------------------------------------------------------------


def test_a_record_into_an_open_batch_enters_few_functions() -> None:
    """Ten: `send`, a future, the short way, the clock (two, being a test's), batch, builder, partitioner."""
    rig = rig_with_open_batch()
    assert python_calls(lambda: send_all(rig)) <= 15 * RECORDS


def test_a_record_in_a_batch_keeps_few_blocks_of_memory() -> None:
    """Under three: its future, its span, and now and then a piece that is in no table."""
    rig = rig_with_open_batch()
    assert kept_blocks(lambda: send_all(rig)) <= 3.5 * RECORDS


def test_a_record_into_an_open_batch_takes_one_lock() -> None:
    locks = CountedLocks("client_core")
    with locks.made_here():
        rig = rig_with_open_batch()
    before = locks.taken
    send_all(rig)
    assert locks.taken - before <= 1.5 * RECORDS


def test_records_for_one_batch_wake_the_io_thread_twice_at_most() -> None:
    """When the batch begins, and when it is full."""
    rig = rig_with_producer_id()
    before = rig.client.wakeups
    send_all(rig)
    assert rig.client.wakeups - before <= 2


def test_records_that_are_appended_make_no_event() -> None:
    rig = rig_with_open_batch()
    before = len(rig.events.events)
    send_all(rig)
    assert len(rig.events.events) == before


def test_a_ticket_enters_few_functions_however_many_records_it_has() -> None:
    """Seventy, for a thousand records."""
    rig = rig_with_open_batch()
    assert python_calls(lambda: rig.submit("orders", *[RECORD] * RECORDS)) <= 130


# -- the I/O thread's side -----------------------------------------------------------------------------------


def test_records_of_one_batch_go_out_in_one_request() -> None:
    rig = rig_with_open_batch()
    send_all(rig)
    linger_and_turn(rig)
    rig.turn(3)
    assert len(rig.client.requests) == 1


def test_making_a_request_does_nothing_per_record() -> None:
    """About 170 functions and four locks, for a batch of a thousand as for one of one."""
    locks = CountedLocks("client_core")
    with locks.made_here():
        rig = rig_with_open_batch()
    send_all(rig)
    before = locks.taken
    assert python_calls(lambda: linger_and_turn(rig)) <= 260
    assert locks.taken - before <= 7


def test_an_acknowledged_batch_enters_few_functions_per_future_and_takes_few_locks() -> None:
    """One for each future, and two locks for all."""
    locks = CountedLocks("client_core")
    with locks.made_here():
        rig = rig_with_open_batch()
    futures = sent_together(rig)
    before = locks.taken
    assert python_calls(rig.turn) <= 2 * RECORDS
    assert locks.taken - before <= 3
    assert all(future.done() for future in futures)


def test_an_acknowledged_ticket_is_reported_once_and_costs_nothing_per_record() -> None:
    """About 110 functions for a thousand records, and one post."""
    rig = rig_with_producer_id()
    waiting = submitted_together(rig)
    assert python_calls(rig.turn) <= 180
    assert len(waiting.offsets) == RECORDS
    assert rig.posts.sizes == [1]


def test_a_batch_makes_two_events_whatever_it_holds() -> None:
    """That it was sent, and that it is finished."""
    rig = rig_with_open_batch()
    before = len(rig.events.events)
    sent_together(rig)
    rig.turn()
    assert len(rig.events.events) - before == 2


def test_a_turn_with_nothing_to_do_does_next_to_nothing_and_sleeps_long() -> None:
    """35 functions, no lock, no event, no request; and no tick: the next turn is minutes away."""
    locks = CountedLocks("client_core")
    with locks.made_here():
        rig = rig_with_open_batch()
    sent_together(rig)
    rig.turn()
    locks_before, events_before = locks.taken, len(rig.events.events)
    rig.client.advance_time_during_poll = True
    fell_asleep_ms = rig.clock.now_ms()
    assert python_calls(rig.turn) <= 50
    assert locks.taken == locks_before
    assert len(rig.events.events) == events_before
    assert not rig.client.requests
    assert rig.clock.now_ms() - fell_asleep_ms >= MINUTE_MS


# -- the network ---------------------------------------------------------------------------------------------


def test_a_new_send_is_written_without_asking_the_system_first() -> None:
    """So a request costs one wait: that for its answer."""
    peer = TcpPeer()
    selector = Selector(NetworkConfig(), PlaintextChannelBuilder(), SystemClock())
    try:
        selector.connect(1, "localhost", peer.address, 65_536, 65_536)
        while not selector.is_channel_ready(1):
            selector.poll(1_000)
        answerer = peer.accept()
        answerer.sendall(frame(b"answer"))
        selector.send(1, [b"question"])
        waits = calls_of(lambda: selector.poll(10_000, writes_end_it=False)).c["poll"]
        assert receive_frame(answerer) == b"question"
        assert [receive.payload for receive in selector.completed_receives] == [b"answer"]
        assert waits == 1
    finally:
        selector.close()
        peer.close()


def test_a_start_loads_no_codec_that_is_not_asked_for() -> None:
    """Their library takes a megabyte and a half."""
    script = "import sys, client_core, service.process.app; print('cramjam' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


# -- a batch is encoded by look-ups, one join and one checksum -----------------------------------------------

LIMIT_BYTES: Final = 1 << 20
TIMESTAMP_MS: Final = 1_750_000_000_000
#: Pieces of a record: head, both deltas, key and its length, value and its length, no headers. A list takes
#: eight bytes for each, and grows an eighth ahead.
MOST_PIECES: Final = 8
BYTES_A_PIECE: Final = 9


def _records(count: int, key: bytes | None = None) -> list[ProducerRecord]:
    return [ProducerRecord("t", b"v" * 100, key) for _ in range(count)]


def _filled(records: Sequence[ProducerRecord]) -> MemoryRecordsBuilder:
    builder = MemoryRecordsBuilder(LIMIT_BYTES)
    assert builder.append_many(records, range(len(records)), 0, TIMESTAMP_MS) == len(records)
    return builder


def test_appending_calls_no_python_function_for_a_record() -> None:
    for key in (None, b"key"):
        few, many = (calls_of(partial(_filled, _records(count, key))) for count in (10, RECORDS))
        assert many.python == few.python, key


def test_building_costs_as_many_calls_for_a_thousand_records_as_for_ten() -> None:
    few, many = _filled(_records(10)), _filled(_records(RECORDS))

    assert calls_of(many.build) == calls_of(few.build)


def test_a_batch_is_joined_once_and_gone_over_once_for_its_checksum() -> None:
    calls = calls_of(_filled(_records(RECORDS)).build)

    assert 1 <= calls.c["crc32c"] <= 2  # the head's, which goes on over the records
    assert 1 <= calls.c["join"] <= 2  # the records' pieces, and the head before them


def test_building_twice_encodes_once() -> None:
    builder = _filled(_records(10))
    built = builder.build()

    calls = calls_of(builder.build)

    assert builder.build() is built
    assert not calls.c


def test_a_record_appended_takes_its_places_in_a_list_and_nothing_else() -> None:
    for key in (None, b"key"):
        fill = partial(_filled, _records(RECORDS, key))
        assert least_peak_bytes(fill) <= MOST_PIECES * BYTES_A_PIECE * RECORDS, key


def _parked(count: int) -> list[PendingRequest]:
    return [
        PendingRequest(
            "orders",
            (RECORD,),
            Waiting(),
            lambda ended, done, then: None,
            submitted_ms=0,
            block_deadline_ms=0,
            deadline_ms=0,
        )
        for _ in range(count)
    ]


def _leave_gate(count: int) -> Callable[[], None]:
    """Returns what unblocks so many requests, the oldest first."""
    gate, requests = OrderingGate(lambda _: 1), _parked(count)
    for request in requests:
        gate.block(request)

    def leave() -> None:
        for request in requests:
            gate.remove(request)

    return leave


def _leave_queue(count: int) -> Callable[[], None]:
    queue = TopicQueue()
    queue.requests.update(dict.fromkeys(_parked(count)))

    def leave() -> None:
        while queue.requests:
            del queue.requests[queue.first]

    return leave


@pytest.mark.parametrize("filled", [_leave_gate, _leave_queue])
def test_one_of_many_parked_requests_leaves_as_cheaply_as_one_of_few(
    filled: Callable[[int], Callable[[], None]],
) -> None:
    """By CPU time, since the interpreter counts no steps within a dict; the best of a few rounds."""
    few, many = 1_000, 30_000

    def s_per_request(count: int) -> float:
        leave = filled(count)
        begun_s = time.thread_time()
        leave()
        return (time.thread_time() - begun_s) / count

    with no_collector():
        assert any(s_per_request(many) < 3 * s_per_request(few) for _ in range(5))
