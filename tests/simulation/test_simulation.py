"""Seeds that keep every rule, a judge that notices each broken one, and a run that repeats itself exactly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from service.spool.reader import Stored
from tests.simulation.callers import Outcome, value_of
from tests.simulation.copies import _reasons
from tests.simulation.drawing import plan_of
from tests.simulation.judge import came_first_where_all_was_forgotten
from tests.simulation.plan import FaultPlan, Plan, RecordPlan, RequestPlan, TopicPlan
from tests.simulation.run import Run, run
from tests.simulation.sequences import judge_sequences
from tests.simulation.shrink import shrunk
from tests.simulation.wire import Append, Refusal, Sent, WireTrace
from tests.simulation.world import SimulatedClock, SimulatedLoop, SimulationError, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.simulation.brokers import ReplicatedBrokers

#: One in eight of them is in `make test`; `make simulate` runs others, by the thousand.
SEEDS = range(48)


@cache
def quiet() -> Plan:
    """A plan without faults: all that is wrong is a test's own doing."""
    plans = (plan_of(seed) for seed in range(1_000))
    plan = next(
        plan
        for plan in plans
        if plan.is_idempotent
        and not plan.faults
        and not any(topic.created_ms for topic in plan.topics)
        and {"json", "spool"} <= {request.form for request in plan.requests[:20]}
    )
    return plan.without(requests=plan.requests[40:])


@pytest.mark.parametrize("seed", SEEDS)
def test_every_rule_is_kept(seed: int) -> None:
    assert run(plan_of(seed)).requests


def test_a_seed_runs_in_the_same_way_each_time() -> None:
    plan = _with_an_end_of_the_process()
    first, again = _story(plan), _story(plan)
    assert any("power cut" in what for _, _, what in first)
    assert first == again


def test_the_event_loop_may_run_where_an_io_thread_reads_the_clock() -> None:
    world = World(0)
    world._interrupted = 1.0
    clock, loop, ran = SimulatedClock(world), SimulatedLoop(world), list[str]()

    class _IoThread:
        name, kind = "a thread", "io"

        def due_ms(self, now_ms: int) -> int | None:
            return None if ran else now_ms

        def run(self) -> None:
            ran.append("begins")
            loop.call_soon(ran.append, "amid")
            clock.now_ms()
            ran.append("ends")

    world.add(_IoThread())
    world.add(loop)
    world.run_until(lambda: "ends" in ran, 10)
    assert ran == ["begins", "amid", "ends"]


def _with_an_end_of_the_process() -> Plan:
    """A short plan with a power cut."""
    plan = next(
        plan
        for seed in range(1_000)
        if (plan := plan_of(seed)).has_spool
        and plan.sidecars == 1
        and any(fault.kind == "power cut" and not fault.when for fault in plan.faults)
    )
    return plan.without(requests=plan.requests[20:])


def _story(plan: Plan) -> list[tuple[int, str, str]]:
    kept: list[Run] = []
    run(plan, keep=kept, story=True)
    return kept[0].world.story or []


# -- what seeds have found, each as a plan of its own --------------------------------------------------------


def _request(number: int, at_ms: int, records: list[RecordPlan], **changes: Any) -> RequestPlan:
    quiet = RequestPlan(number, at_ms, "c1", "orders", "json", records, 3_000, 500, False, [0], None, 0, 0)
    return quiet._replace(**changes)


def _plan(requests: list[RequestPlan], faults: list[FaultPlan]) -> Plan:
    """A plan for one topic of one partition, which broker 1 leads at first."""
    kafka = {
        **plan_of(0).kafka,
        "acks": "all",
        "enable.idempotence": "true",
        "linger.ms": "0",
        "batch.size": "16384",
        "buffer.memory": "1000000",
        "compression.type": "none",
        "request.timeout.ms": "300",
        "delivery.timeout.ms": "3000",
        "retries": "2147483647",
        "metadata.max.age.ms": "500",
    }
    settings = {"drain_timeout_ms": 300, "spool_topic_wait_ms": 1_000}
    topics = [TopicPlan("orders", 1, 2, False, 0, None)]
    return Plan(0, kafka, settings, False, 1, 0, topics, requests, faults)


def test_a_part_of_a_batch_that_a_lost_leader_has_stored_may_be_written() -> None:
    """Seed 2202: the new leader refuses a record as too large; that it is not written was said of it."""
    large = [RecordPlan(f"r1.{index}", None, 0, size) for index, size in enumerate((20, 500))]
    plan = _plan(
        [_request(0, 20, [RecordPlan("r0.0", None, 0, 20)]), _request(1, 120, large)],
        [FaultPlan(100, "isolate broker", 1, 1_200), FaultPlan(200, "too large", 1, 1_500)],
    )
    kept: list[Run] = []
    run(plan, keep=kept)
    outcomes = [attempt.outcomes() for attempt in kept[0].attempts[:2]]
    assert [[outcome.what for outcome in each] for each in outcomes] == [
        ["acknowledged"],
        ["acknowledged", "unknown"],
    ]


def test_the_time_of_a_streams_record_begins_with_its_line() -> None:
    """Seeds 2734, 4090 and 9897: a body whose parts come late is no late answer."""
    records = [RecordPlan(f"r0.{index}", None, 0, 20) for index in range(2)]
    stream = _request(0, 20, records, form="ndjson", pauses_ms=[0, 400], timeout_ms=300, max_block_ms=300)
    kept: list[Run] = []
    run(_plan([stream], []), keep=kept)
    attempt = kept[0].attempts[0]
    began_ms, ended_ms = attempt.began_ms(), attempt.ended_ms()
    assert [at_ms - attempt.since_ms >= 400 for at_ms in began_ms] == [False, True]
    assert [0 < end - begin < 300 for begin, end in zip(began_ms, ended_ms, strict=True)] == [True, True]


def test_tries_that_are_numbered_again_at_once_may_all_be_stored_again() -> None:
    """Seed 103809: brokers forget the producer, and refuse the oldest of several batches in flight."""
    first = _request(0, 20, [RecordPlan("r0.0", "k1", None, 20)])
    again = _request(1, 120, [RecordPlan("r1.0", "k1", None, 20)], timeout_ms=50, retries=2, retry_after_ms=1)
    plan = _plan(
        [first, _request(2, 60, [RecordPlan("r2.0", "k1", None, 20)]), again],
        [FaultPlan(50, "answers vanish", 1, 700), FaultPlan(100, "forget producers", 1, 0)],
    )
    kept: list[Run] = []
    run(plan, keep=kept)
    (tried,) = (value_of(record) for record in plan.requests[2].records)
    assert len({append.write for append in kept[0].brokers.wire.appends[tried]}) == 6


def test_a_write_that_only_a_leader_that_was_cut_off_had_is_no_copy() -> None:
    """Seed 201903: the next leader does not know the second sequence, because the first batch failed."""
    requests = [
        _request(number, at_ms, [RecordPlan(f"r{number}.0", "k1", None, 20)], timeout_ms=1_500)
        for number, at_ms in enumerate((20, 40, 302, 400))
    ]
    faults = [
        FaultPlan(300, "isolate broker", 1, 1_300),
        FaultPlan(730, "no right to write", 1, 2_140, "once"),
    ]
    kept: list[Run] = []
    run(_plan(requests, faults), keep=kept)
    (second,) = (value_of(record) for record in requests[3].records)
    assert len({append.write for append in kept[0].brokers.wire.appends[second]}) == 2


def test_a_batch_that_was_stored_after_the_refusal_of_an_earlier_one_may_be_written_again() -> None:
    """Seed 213605: three batches waited in a broker that refused the oldest; all were numbered again."""
    place = ("orders", 0)
    wire = WireTrace()
    wire.refusals.append(
        Refusal(200, "sidecar 1", place, Errors.OUT_OF_ORDER_SEQUENCE_NUMBER, frozenset({b"oldest"}))
    )
    brokers = SimpleNamespace(wire=wire, forgot={place: [50]})
    one = cast("Run", SimpleNamespace(brokers=brokers, plan=quiet()))

    def reasons(sent_ms: int) -> int:
        first = Append("sidecar 1", place, 5, 1, 0, 13, sent_ms=sent_ms, at_ms=300, batch=b"first")
        again = Append("sidecar 1", place, 9, 1, 1, 6, sent_ms=400, at_ms=401, batch=b"again")
        return len(_reasons(one, b"value", [first, again]))

    assert (reasons(sent_ms=100), reasons(sent_ms=201)) == (1, 0)


def test_batches_for_a_topic_that_was_made_again_stay_in_order_though_its_first_leader_hangs() -> None:
    """Seed 242182: the next leader knew no sequence, and stored a later batch than the one on its way."""
    requests = [
        _request(number, at_ms, [RecordPlan(f"r{number}.0", "k1", None, 20)])
        for number, at_ms in enumerate((20, 380, 900, 1_150))
    ]
    faults = [FaultPlan(100, "delete topic", 1, 277), FaultPlan(385, "stuck broker", 1, 1_200)]
    plan = _plan(requests, faults)
    kept: list[Run] = []
    run(replace(plan, kafka={**plan.kafka, "request.timeout.ms": "2500"}), keep=kept)
    said = [outcome.what for attempt in kept[0].attempts[:4] for outcome in attempt.outcomes()]
    assert said == ["acknowledged"] * 4


def test_where_brokers_forgot_the_producer_a_later_batch_may_come_first() -> None:
    """Seed 240485: as above, but the topic stays, and all brokers forget the producer. It can't know."""
    place, wire = ("orders", 0), WireTrace()
    append = Append("sidecar 1", place, 5, 1, 0, 13, at_ms=100)
    wire._values["sidecar 1"] = {b"earlier": 200}
    wire.appends = {
        b"before": [append],
        b"later": [append._replace(offset=6, at_ms=400)],
        b"earlier": [append._replace(offset=7, at_ms=500)],
    }

    def is_explained(expired_ms: int) -> bool:
        brokers = cast("ReplicatedBrokers", SimpleNamespace(wire=wire, expired_ms=[expired_ms]))
        return came_first_where_all_was_forgotten(brokers, "sidecar 1", place, b"later", b"earlier")

    assert [is_explained(expired_ms) for expired_ms in (50, 150, 300, 450)] == [False, True, True, False]
    wire._values["sidecar 1"][b"earlier"] = 450
    assert not is_explained(300), "it was sent after the later one was stored"


def test_a_record_that_is_stored_again_in_a_part_of_its_batch_is_where_it_was_first() -> None:
    """Seed 283370: its acknowledgement was lost, and when it came again the broker took only smaller ones."""
    kept: list[Run] = []
    run(plan_of(283_370), keep=kept)
    assert kept[0].world.reached["stored twice, F: a batch was too large when it came again"]


def test_a_fault_of_a_topic_may_end_after_the_topic_was_deleted() -> None:
    requests = [_request(0, 20, [RecordPlan("r0.0", "k1", None, 20)])]
    faults = [FaultPlan(10, "too large", 1, 200), FaultPlan(100, "delete topic", 1, 400)]
    kept: list[Run] = []
    run(_plan(requests, faults), keep=kept)
    assert kept[0].deleted == {"orders"}


def test_a_request_that_a_leader_that_was_cut_off_stores_late_is_the_first_copy() -> None:
    """Seed 330081: the next leader had stored the same records, and acknowledged them, before."""
    kept: list[Run] = []
    run(plan_of(330_081), keep=kept)
    (value,) = (
        value_of(record)
        for request in kept[0].plan.requests
        for record in request.records
        if record.name == "r19.0"
    )
    first, late = kept[0].brokers.wire.appends[value]
    assert first.at_ms < late.at_ms
    assert first.sent_ms > late.sent_ms


def test_a_record_whose_second_copy_was_dropped_is_where_it_was_first() -> None:
    """Seed 412950: a broker that started again knew the last batch only, and all were numbered again."""
    kept: list[Run] = []
    run(plan_of(412_950), keep=kept)
    value = value_of(kept[0].plan.requests[84].records[0])
    assert [append.offset for append in kept[0].brokers.wire.appends[value]] == [182, 186, 186]


@pytest.mark.parametrize("seed", [403_898, 880_514])
def test_an_attempt_that_is_on_its_way_when_its_batch_is_numbered_again_is_a_copy(seed: int) -> None:
    """Its connection was closed for lack of an answer, and its broker took it later.

    Of the second seed not the batch itself was refused, but the one before it.
    """
    kept: list[Run] = []
    run(plan_of(seed), keep=kept)
    assert kept[0].world.reached[
        "stored twice, H: an earlier attempt came after the batch was refused as out of order"
    ]


def test_a_leader_that_was_cut_off_may_have_a_batch_numbered_again_that_is_stored() -> None:
    """Seed 881542: its answer was lost, and the client knew of no later leader."""
    kept: list[Run] = []
    run(plan_of(881_542), keep=kept)
    assert kept[0].world.reached["stored twice, I: a leader that was cut off refused it as out of order"]


def test_a_topic_that_was_made_again_smaller_and_grows_has_its_new_partition() -> None:
    """Seed 1013835: its leader epoch was compared with that of the deleted topic, and ignored for good."""
    run(plan_of(1_013_835))


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1_013_396, id="a leader with old metadata counts the replicas that it let in itself"),
        pytest.param(1_012_800, id="a busy loop sends its last answers before the process ends"),
    ],
)
def test_brokers_and_processes_are_as_true_ones(seed: int) -> None:
    run(plan_of(seed))


def test_a_record_may_be_given_up_if_its_partition_went_with_its_topic() -> None:
    """Seed 1010177: the topic was made again with fewer partitions, and the record had its partition."""
    run(plan_of(1_010_177))


def test_a_record_may_be_given_up_if_brokers_forgot_its_producer_and_took_a_later_one() -> None:
    """Seed 1080037: its leader hung, and the next one knew nothing of the producer."""
    run(plan_of(1_080_037))


def test_a_wait_for_memory_may_end_in_the_turn_in_which_the_last_batch_does() -> None:
    """Seed 614480: the callers of the batch had their answers before, and a request's time was over."""
    run(plan_of(614_480))


def test_a_number_may_be_given_again_if_a_power_cut_lost_it_and_the_mark() -> None:
    """Seed 660743: it was that of a record that a killed process had not synced."""
    run(plan_of(660_743))


def test_a_late_body_in_the_turn_of_sigterm_does_not_end_the_drain() -> None:
    """Seed 721758: its time was over, and its task had not run yet."""
    run(plan_of(721_758))


# -- the judge notices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "acked_ms", "given_up_ms", "broken"),
    [
        ({0: 10, 1: 30}, {0: 20}, None, None),
        ({0: 10, 1: 15}, {0: 20}, None, "before any other batch of its epoch is acknowledged"),
        ({1: 10}, {}, None, "before any other batch of its epoch is acknowledged"),
        ({0: 10, 1: 20, 2: 30}, {0: 15}, None, None),
        ({0: 10, 1: 20, 2: 300}, {0: 15}, 290, None),  # it was under way
        ({0: 10, 1: 20, 2: 300}, {0: 15}, 200, "it had given up 1, and nothing behind it"),
        (
            {0: 10, 1: 20, 2: 25, 3: 300},
            {0: 15, 2: 250},
            200,
            None,
        ),  # that is how it learnt what became of it
    ],
)
def test_a_batch_that_was_sent_too_early_is_noticed(
    sent: dict[int, int], acked_ms: dict[int, int], given_up_ms: int | None, broken: str | None
) -> None:
    place, last = ("orders", 0), max(sent)
    wire = WireTrace()
    values = {sequence: b"%d" % sequence for sequence in sent}
    wire._sends["sidecar 1"] = [
        Sent(at_ms, ("lane",), sequence, (values[sequence],), values[sequence])
        for sequence, at_ms in sent.items()
    ]
    wire.acked_ms = {("sidecar 1", place, values[sequence]): at_ms for sequence, at_ms in acked_ms.items()}
    wire.refusals.append(
        Refusal(
            400,
            "sidecar 1",
            place,
            Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
            frozenset({values[last]}),
            values[last],
        )
    )
    attempt = SimpleNamespace(answered_ms=given_up_ms, process=SimpleNamespace(number=1))
    tries: Any = {b"1": [(attempt, Outcome("unknown", detail="Expiring 1 record(s) for orders-0"))]}
    one = cast("Run", SimpleNamespace(brokers=SimpleNamespace(wire=wire, forgot={})))
    if broken is None:
        judge_sequences(one, tries)
    else:
        with pytest.raises(SimulationError, match=broken):
            judge_sequences(one, tries)


def broken_rule(
    tmp_path: Path,
    tamper: Callable[[Run], Any],
    *,
    at_ms: int = 6_000,
    kafka: Mapping[str, str] | None = None,
) -> str:
    """The rule that a run without faults breaks, where something is done to it. `kafka`: more settings."""
    plan = quiet()
    one = Run(replace(plan, kafka={**plan.kafka, **(kafka or {})}), tmp_path)
    one.world.at(at_ms, lambda: tamper(one))
    with pytest.raises(SimulationError) as raised:
        one.execute()
    return raised.value.rule


def test_a_record_that_is_sent_more_often_than_it_may_be_is_noticed(tmp_path: Path) -> None:
    def send_again(one: Run) -> None:
        one.brokers.wire._produced["sidecar 1"] *= 2

    assert broken_rule(tmp_path, send_again, kafka={"retries": "0"}) == "retries"


def test_a_partition_that_stays_blocked_is_noticed(tmp_path: Path) -> None:
    def block(one: Run) -> None:
        process = one.process
        assert process is not None
        process.producer._accumulator.mute_partition(TopicPartition("orders", 0))

    assert broken_rule(tmp_path, block) == "gave up"


def test_a_topic_that_takes_no_record_when_all_faults_are_over_is_noticed(tmp_path: Path) -> None:
    assert broken_rule(tmp_path, lambda one: one.brokers.state.unwritable.add("orders"), at_ms=6_500) == (
        "works again"
    )


def test_a_record_that_brokers_lose_is_noticed(tmp_path: Path) -> None:
    def lose(one: Run) -> None:
        for (_, _, place), replica in one.brokers._replicas.items():
            if place[0] == one.plan.topics[0].name:
                replica.log.truncate(0)

    assert broken_rule(tmp_path, lose) == "lost"


def test_an_event_loop_that_stands_still_makes_answers_late(tmp_path: Path) -> None:
    def stand_still(one: Run) -> None:
        assert one.process is not None
        one.world._waits_until[one.process.loop] = one.world.now_ms + 60_000

    assert broken_rule(tmp_path, stand_still, at_ms=500) == "late"


def test_memory_that_is_kept_is_noticed(tmp_path: Path) -> None:
    def keep(one: Run) -> None:
        assert one.process is not None
        one.process.sidecar.admission.requests += 1

    assert broken_rule(tmp_path, keep) == "does not settle"


def test_a_record_that_is_stored_once_more_is_noticed(tmp_path: Path) -> None:
    def store_again(one: Run) -> None:
        for appends in list(one.brokers.wire.appends.values()):
            appends.append(appends[0]._replace(offset=10_000, sequence=10_000))

    assert broken_rule(tmp_path, store_again) == "stored twice"


def test_a_stored_record_of_which_no_was_said_is_noticed(tmp_path: Path) -> None:
    """The right to write is taken from everybody: no record is written, and that is said of each."""

    def store(one: Run) -> None:
        attempt = next(a for a in one.attempts if all(o.what == "no" for o in a.outcomes()))
        record = attempt.request.records[0]
        place = attempt.request.topic, 0
        one.brokers.wire.appends[value_of(record)] = [Append("sidecar 1", place, 0, 1, 0, 0)]

    one = Run(quiet(), tmp_path)
    one.began_ms["no right to write"] = 0
    one.world.at(1, lambda: one.brokers.state.unwritable.update(t.name for t in one.plan.topics))
    one.world.at(6_000, lambda: store(one))
    with pytest.raises(SimulationError, match="written no"):
        one.execute()


def test_a_mark_that_is_ahead_is_noticed(tmp_path: Path) -> None:
    def write_ahead(one: Run) -> None:
        mark = tmp_path / "mark.json"
        mark.write_bytes(b'{"done":1000000,"behind":{},"undone":0,"check":0}')
        one.brokers.wire.appends.clear()
        one.judge._mark = 1, {}
        one.judge.look_at_mark(mark)

    assert broken_rule(tmp_path, write_ahead) == "mark"


def test_a_dead_letter_that_nobody_refused_is_noticed(tmp_path: Path) -> None:
    def set_aside(one: Run) -> None:
        assert one.process is not None
        assert one.process.spool is not None
        one.process.spool.dead_letters.add([(Stored(10_000, 1, b"", None), "forbidden", "")], 0)

    assert broken_rule(tmp_path, set_aside, at_ms=500) == "dead letter"


def test_memory_that_no_batch_has_is_noticed(tmp_path: Path) -> None:
    def take(one: Run) -> None:
        assert one.process is not None
        assert one.process.producer._pool.try_allocate(100)

    assert broken_rule(tmp_path, take, at_ms=500) == "memory"


# -- shrinking -----------------------------------------------------------------------------------------------


def test_a_plan_shrinks_to_what_it_fails_for() -> None:
    plan = next(plan for seed in range(100) if len((plan := plan_of(seed)).faults) > 5)
    fault, request = plan.faults[3], plan.requests[7]
    tried = []

    def still_fails(smaller: Plan) -> bool:
        tried.append(smaller)
        return fault in smaller.faults and request in smaller.requests

    small = shrunk(plan, still_fails)
    assert (small.faults, small.requests) == ([fault], [request])
    assert len(tried) < 100
