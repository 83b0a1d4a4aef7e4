"""Interceptors and serializers, as users of both public APIs of the producer see them."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import pytest

from client_core import (
    AsyncKafkaProducer,
    IllegalArgumentError,
    InvalidTopicError,
    KafkaProducer,
    ProducerConfig,
    ProducerInterceptor,
    ProducerRecord,
    RecordFailure,
    RecordMetadata,
    RecordTooLargeError,
    SerializationError,
)
from client_core.cluster import TopicPartition
from client_core.error_codes import Errors
from client_core.latch import Latch
from client_core.producer.requests.preparation import Preparation
from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster, Hold
from tests.support.coroutine_tests import run, until
from tests.support.live_producer import PATIENCE_MS, PATIENCE_S, QUICK, Outcome
from tests.support.producer_rig import ProducerRig
from tests.support.sender_rig import produced

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

Given = dict[str, int] | None
Record = ProducerRecord[str, Given]
#: The outcome of each record: its receipt, or an error, raised or set in the future.
Outcomes = list[RecordMetadata | BaseException]
Way = Callable[[FakeCluster, "Sequence[Seen | Raises]", "Sequence[Record]"], Outcomes]

TOPIC: Final = "orders"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as running:
        running.create_topic(TOPIC)
        yield running


def as_json(value: Given) -> bytes:
    return json.dumps(value).encode()


class Seen(ProducerInterceptor[str, Given]):
    """Keeps what it sees, and on which thread."""

    def __init__(self, name: str = "a") -> None:
        self.name = name
        self.sent: list[Record] = []
        self.ended: list[tuple[RecordMetadata, Exception | None]] = []
        self.threads: set[int] = set()
        self.closes = 0

    def on_send(self, record: Record) -> Record:
        self.sent.append(record)
        return record._replace(headers=(*record.headers, (self.name, b"")))

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.ended.append((metadata, error))
        self.threads.add(threading.get_ident())

    def close(self) -> None:
        self.closes += 1


class Raises(ProducerInterceptor[str, Given]):
    def on_send(self, record: Record) -> Record:
        raise ValueError("from on_send")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise ValueError("from on_acknowledgement")

    def close(self) -> None:
        raise ValueError("from close")


class Leaves(Raises):
    """Its methods end like a task that was cancelled, or a program."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_send(self, record: Record) -> Record:
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise self.error

    def close(self) -> None:
        raise self.error


class Forgets(Raises):
    """Its on_send lacks a `return`."""

    def on_send(self, record: Record) -> Record:
        return None  # type: ignore[return-value]


def _config(cluster: FakeCluster) -> ProducerConfig:
    given = {**QUICK, "bootstrap.servers": cluster.bootstrap_servers, "max.request.size": 1_000}
    return ProducerConfig.from_mapping({name: str(value) for name, value in given.items()})


def _producer(cluster: FakeCluster, interceptors: Sequence[Seen | Raises]) -> KafkaProducer[str, Given]:
    return KafkaProducer(
        _config(cluster), key_serializer=str.encode, value_serializer=as_json, interceptors=interceptors
    )


def _async_producer(
    cluster: FakeCluster, interceptors: Sequence[Seen | Raises]
) -> AsyncKafkaProducer[str, Given]:
    return AsyncKafkaProducer(
        _config(cluster), key_serializer=str.encode, value_serializer=as_json, interceptors=interceptors
    )


def _by_send(
    cluster: FakeCluster, interceptors: Sequence[Seen | Raises], records: Sequence[Record]
) -> Outcomes:
    outcomes: Outcomes = []
    with _producer(cluster, interceptors) as producer:
        for record in records:
            try:
                outcomes.append(producer.send(record).result(PATIENCE_S))
            except Exception as error:  # noqa: BLE001 - it is what the test looks at
                outcomes.append(error)
        producer.close()
    return outcomes


def _by_submit(
    cluster: FakeCluster, interceptors: Sequence[Seen | Raises], records: Sequence[Record]
) -> Outcomes:
    async def scenario() -> Outcomes:
        outcomes: Outcomes = []
        async with _async_producer(cluster, interceptors) as producer:
            for record in records:
                try:
                    (outcome,) = (await producer.submit(TOPIC, [record])).outcomes
                    outcomes.append(outcome.error if isinstance(outcome, RecordFailure) else outcome)
                except Exception as error:  # noqa: BLE001 - it is what the test looks at
                    outcomes.append(error)
        return outcomes

    return run(scenario())


def _by_async_send(
    cluster: FakeCluster, interceptors: Sequence[Seen | Raises], records: Sequence[Record]
) -> Outcomes:
    async def scenario() -> Outcomes:
        async with _async_producer(cluster, interceptors) as producer:
            sends = [producer.send_and_wait(record) for record in records]
            return await asyncio.gather(*sends, return_exceptions=True)

    return run(scenario())


def _by_submit_of_a_thread(
    cluster: FakeCluster, interceptors: Sequence[Seen | Raises], records: Sequence[Record]
) -> Outcomes:
    outcomes: Outcomes = []
    with _producer(cluster, interceptors) as producer:
        by_ms = producer.clock.now_ms() + PATIENCE_MS
        for record in records:
            done = Outcome()
            try:
                producer.submit(TOPIC, [record], block_deadline_ms=by_ms, deadline_ms=by_ms, done=done)
                (outcome,) = done.outcomes()
                outcomes.append(outcome.error if isinstance(outcome, RecordFailure) else outcome)
            except Exception as error:  # noqa: BLE001 - it is what the test looks at
                outcomes.append(error)
    return outcomes


@pytest.fixture(
    params=[_by_send, _by_submit, _by_submit_of_a_thread, _by_async_send], ids=lambda way: way.__name__[1:]
)
def send(request: pytest.FixtureRequest) -> Way:
    way: Way = request.param
    return way


@pytest.mark.behaviour("INT-01")
@pytest.mark.java(
    "ProducerInterceptorsTest.OnSendChain",
    "KafkaProducerTest.ConstructorWithSerializers",
    "KafkaProducerTest.InterceptorConstructClose",
)
def test_interceptors_see_records_before_the_serializers_each_what_the_one_before_it_made(
    cluster: FakeCluster, send: Way
) -> None:
    first, second = Seen("a"), Seen("b")
    record = ProducerRecord(TOPIC, {"n": 1}, key="k")
    (receipt,) = send(cluster, [first, second], [record])
    assert first.sent == [record]
    assert second.sent == [record._replace(headers=(("a", b""),))]
    (stored,) = cluster.records(TOPIC)
    assert (stored.key, stored.value) == (b"k", b'{"n": 1}')
    assert stored.headers == (("a", b""), ("b", b""))
    assert first.ended == second.ended == [(receipt, None)]
    assert (first.closes, second.closes) == (1, 1)


@pytest.mark.behaviour("INT-01")
@pytest.mark.java("ProducerInterceptorsTest.OnAcknowledgementChain")
def test_an_interceptor_that_raises_is_logged_once_and_ignored(
    cluster: FakeCluster, send: Way, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    records = [ProducerRecord(TOPIC, {"n": n}, key="k") for n in range(3)]
    receipts = send(cluster, [Raises(), seen], records)
    assert seen.sent == records
    assert sorted(seen.ended) == sorted((receipt, None) for receipt in receipts)
    assert [line.getMessage() for line in caplog.records if line.exc_info] == [
        f"Interceptor Raises.{method} raised an exception, which is ignored; later ones are not logged"
        for method in ("on_send", "on_acknowledgement", "close")
    ]


@pytest.mark.behaviour("INT-01")
@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1)], ids=repr)
def test_an_interceptor_that_leaves_costs_neither_the_records_nor_the_other_interceptors(
    cluster: FakeCluster, send: Way, error: BaseException
) -> None:
    seen = Seen()
    records = [ProducerRecord(TOPIC, {"n": n}, key="k") for n in range(3)]
    receipts = send(cluster, [Leaves(error), seen], records)
    assert sorted(seen.ended) == sorted((receipt, None) for receipt in receipts)
    assert seen.closes == 1


@pytest.mark.behaviour("INT-01")
def test_an_interceptor_that_returns_no_record_is_named_in_the_records_error(
    cluster: FakeCluster, send: Way
) -> None:
    seen = Seen()
    record: Record = ProducerRecord(TOPIC, {"n": 1}, partition=0)
    (error,) = send(cluster, [seen, Forgets()], [record])
    assert isinstance(error, IllegalArgumentError)
    assert str(error) == (
        "Interceptor Forgets.on_send returned a NoneType for topic orders; it must return a ProducerRecord"
    )
    assert seen.sent == [record]
    assert seen.ended == [(RecordMetadata(TOPIC, 0, None, -1), error)]
    assert not cluster.records(TOPIC)


@pytest.mark.behaviour("INT-01")
def test_of_a_request_with_a_refused_record_interceptors_hear_of_each_that_they_saw(
    cluster: FakeCluster,
) -> None:
    class Skips(Forgets):
        def on_send(self, record: Record) -> Record:
            return super().on_send(record) if record.value == {"n": 1} else record

    seen = Seen()
    with _producer(cluster, [seen, Skips()]) as producer, pytest.raises(IllegalArgumentError) as refused:
        producer.submit(
            TOPIC,
            [ProducerRecord(TOPIC, {"n": n}) for n in range(3)],
            block_deadline_ms=PATIENCE_MS,
            deadline_ms=PATIENCE_MS,
            done=print,
        )
    assert [record.value for record in seen.sent] == [{"n": 0}, {"n": 1}]
    assert [error for _, error in seen.ended] == [refused.value] * 2
    assert not cluster.records(TOPIC)


@pytest.mark.behaviour("INT-02")
def test_a_serializer_that_raises_fails_its_record_alone(cluster: FakeCluster, send: Way) -> None:
    seen = Seen()
    circle: dict[str, object] = {}
    circle["n"] = circle
    good = ProducerRecord(TOPIC, {"n": 1}, key="k")
    bad: Record = ProducerRecord(TOPIC, circle, key="k", partition=0)  # type: ignore[arg-type]
    outcomes = send(cluster, [seen], [good, bad, good])
    (error,) = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert isinstance(error, SerializationError)
    assert isinstance(error.__cause__, ValueError)
    assert str(error) == (
        "The serializer of the value failed on a dict for topic orders: Circular reference detected"
    )
    assert [record.value for record in cluster.records(TOPIC)] == [b'{"n": 1}'] * 2
    assert (RecordMetadata(TOPIC, 0, None, -1), error) in seen.ended
    assert len(seen.ended) == 3


@pytest.mark.behaviour("INT-01")
@pytest.mark.java(
    "ProducerInterceptorsTest.OnAcknowledgementWithErrorChain",
    "KafkaProducerTest.InterceptorPartitionSetOnTooLargeRecord",
    "RecordMetadataTest.ConstructionWithMissingBatchIndex",
)
@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (ProducerRecord(TOPIC, {"." * 1_000: 1}), RecordTooLargeError),
        (ProducerRecord(TOPIC, {"n": 1}, partition=-1), IllegalArgumentError),
    ],
    ids=["a future's error", "a raised one"],
)
def test_interceptors_see_a_record_that_was_never_appended(
    record: Record, expected: type[Exception], cluster: FakeCluster, send: Way
) -> None:
    seen = Seen()
    (error,) = send(cluster, [seen], [record])
    assert isinstance(error, expected)
    assert seen.ended == [(RecordMetadata(TOPIC, -1, None, -1), error)]


@pytest.mark.behaviour("INT-01")
def test_interceptors_see_where_a_record_went_that_a_broker_refused(cluster: FakeCluster, send: Way) -> None:
    seen = Seen()
    cluster.fail_next_produces(Errors.INVALID_RECORD)
    (error,) = send(cluster, [seen], [ProducerRecord(TOPIC, {"n": 1})])
    assert seen.ended == [(RecordMetadata(TOPIC, 0, None, -1), error)]


@pytest.mark.behaviour("INT-02")
def test_none_is_no_serializers(cluster: FakeCluster, send: Way) -> None:
    send(cluster, [], [ProducerRecord(TOPIC, None, key=None)])
    (stored,) = cluster.records(TOPIC)
    assert (stored.key, stored.value) == (None, None)


@pytest.mark.behaviour("INT-02")
@pytest.mark.parametrize("what", ["key", "value"])
def test_a_serializer_that_returns_no_bytes_is_named(what: str, cluster: FakeCluster) -> None:
    serializers = {f"{what}_serializer": str.upper}
    with (
        KafkaProducer(_config(cluster), **serializers) as producer,  # type: ignore[arg-type]
        pytest.raises(
            SerializationError, match=f"serializer of the {what} returned a str .* must return bytes"
        ),
    ):
        producer.send(ProducerRecord(TOPIC, "a", key="b"))  # type: ignore[arg-type]


@pytest.mark.behaviour("INT-01")
def test_the_callers_callback_comes_after_the_interceptors(cluster: FakeCluster) -> None:
    seen = Seen()
    ended_before: list[int] = []
    with KafkaProducer(_config(cluster), value_serializer=as_json, interceptors=[seen]) as producer:
        done = producer.send(ProducerRecord(TOPIC, {"n": 1}), lambda _: ended_before.append(len(seen.ended)))
        done.result(PATIENCE_S)
    assert ended_before == [1]


@pytest.mark.java("KafkaProducerTest.CallbackAndInterceptorHandleError")
def test_interceptors_and_the_callback_hear_of_a_record_whose_topic_brokers_refuse(
    cluster: FakeCluster,
) -> None:
    seen = Seen()
    heard: list[Exception | None] = []
    with KafkaProducer(_config(cluster), value_serializer=as_json, interceptors=[seen]) as producer:
        future = producer.send(
            ProducerRecord("topic abc", {"n": 1}), lambda done: heard.append(done.exception())
        )
        error = future.exception(PATIENCE_S)
    assert isinstance(error, InvalidTopicError)
    assert heard == [error]
    assert seen.ended == [(RecordMetadata("topic abc", -1, None, -1), error)]


class Closed(ProducerInterceptor[bytes | None, bytes | None]):
    """Notes outcomes and closes, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.calls.append("failed" if error else "written")

    def close(self) -> None:
        self.calls.append("closed")


@pytest.mark.behaviour("INT-01")
def test_a_close_in_a_callback_closes_the_interceptors_once_after_the_last_outcome(
    cluster: FakeCluster,
) -> None:
    interceptor = Closed()
    with KafkaProducer(_config(cluster), interceptors=[interceptor]) as producer:

        def close(_: object) -> None:
            producer.close(0)

        producer.send(ProducerRecord(TOPIC, b"a"), close).result(PATIENCE_S)
        assert producer.io_thread.join(PATIENCE_MS)
        assert interceptor.calls == ["written", "closed"]
    assert interceptor.calls == ["written", "closed"]


@pytest.mark.behaviour("INT-01")
def test_the_interceptors_of_a_producer_that_nobody_closes_are_closed_after_its_last_outcome(
    cluster: FakeCluster,
) -> None:
    interceptor = Closed()
    producers = [KafkaProducer(_config(cluster), interceptors=[interceptor])]
    producers[0].start()
    producers[0].send(ProducerRecord(TOPIC, b"a"))
    thread = producers[0].io_thread

    def lose() -> None:
        producers.clear()
        gc.collect()

    with pytest.warns(ResourceWarning):
        lose()
    assert thread.join(PATIENCE_MS)
    assert interceptor.calls == ["written", "closed"]


@pytest.mark.behaviour("INT-01")
def test_a_close_that_is_interrupted_closes_the_interceptors_once(cluster: FakeCluster) -> None:
    interceptor, interrupts = Closed(), [KeyboardInterrupt]

    def interrupt(frame: FrameType, *_: object) -> None:
        if interrupts and frame.f_code is Latch.wait.__code__:
            raise interrupts.pop()

    producer = KafkaProducer(_config(cluster), interceptors=[interceptor])
    producer.start()
    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            producer.close()
    finally:
        sys.settrace(before)
    assert interceptor.calls == ["closed"]
    producer.close()
    assert interceptor.calls == ["closed"]


@pytest.mark.behaviour("AIO-01")
async def test_interceptors_of_the_asyncio_face_run_on_the_loop(cluster: FakeCluster) -> None:
    seen = Seen()
    async with AsyncKafkaProducer(
        _config(cluster), interceptors=[seen], value_serializer=as_json
    ) as producer:
        await producer.send_and_wait(ProducerRecord(TOPIC, {"n": 1}))
        await producer.submit(TOPIC, [ProducerRecord(TOPIC, {"n": 1})])
    assert seen.threads == {threading.get_ident()}


@pytest.mark.behaviour("INT-01")
async def test_interceptors_see_the_outcome_of_each_record_of_a_cancelled_call_once(
    cluster: FakeCluster,
) -> None:
    """What was appended is delivered; what was not has failed."""
    seen, hold = Seen(), Hold()
    async with _async_producer(cluster, [seen]) as producer:
        await producer.send_and_wait(ProducerRecord(TOPIC, {"n": 0}))
        cluster.react_next(ApiKey.PRODUCE, hold)
        missing = asyncio.create_task(producer.send(ProducerRecord(TOPIC, {"n": 1}, partition=7)))
        records: list[Record] = [
            ProducerRecord(TOPIC, {"n": 2}),
            ProducerRecord(TOPIC, {"n": 3}, partition=7),
        ]
        half = asyncio.create_task(producer.submit(TOPIC, records))
        await until(lambda: hold.is_held)
        for call in (missing, half):
            call.cancel()
        await asyncio.wait((missing, half))
        hold.release()
        await until(lambda: len(seen.ended) >= 4)
    first, *others = seen.ended
    assert first[1] is None
    assert [metadata.partition for metadata, error in others if error is None] == [0]
    assert [metadata.partition for metadata, error in others if error is not None] == [7, 7]
    assert all("cancelled" in str(error) for _, error in others if error is not None)


@pytest.mark.behaviour("INT-01")
def test_interceptors_see_the_outcomes_of_a_cancelled_request_before_it_is_settled() -> None:
    seen, settled = Seen(), Outcome()
    rig = ProducerRig(topics={TOPIC: 1})
    rig.producer._preparation = Preparation(None, None, [seen])  # type: ignore[list-item]
    waiting = rig.submit(TOPIC, b"a", settled=settled, turns=1)
    assert waiting.ticket is not None
    waiting.ticket.cancel()
    rig.answer(produced(TopicPartition(TOPIC, 0), offset=5))
    assert waiting.reported == []
    assert [metadata.offset for metadata, _ in seen.ended] == [5]
    assert [outcome.offset for outcome in settled.outcomes() if isinstance(outcome, RecordMetadata)] == [5]
