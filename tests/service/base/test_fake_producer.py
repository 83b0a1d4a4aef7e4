"""The fake producer has the producer protocol of the real one."""

from __future__ import annotations

import inspect

from client_core import KafkaProducer, MetadataResult, ProducerRecord
from service.base.producer_protocol import Producer
from tests.support.fake_producer import FakeProducer

CALLS = (
    *("start", "close", "wakeup", "status", "configure_topics", "request_topics", "request_update"),
    *("list_topics", "describe_topic_configs", "list_offsets", "check", "submit"),
)


def test_every_call_takes_what_the_producers_own_takes() -> None:
    for name in CALLS:
        for other in (FakeProducer, Producer):
            real = inspect.signature(getattr(KafkaProducer, name)).parameters
            fake = inspect.signature(getattr(other, name)).parameters
            unused = [p for p in real.values() if p.name not in fake]
            assert all(p.default is not p.empty for p in unused), (name, other)
            used = [(p.name, p.kind) for p in real.values() if p.name in fake]
            assert [(p.name, p.kind) for p in fake.values()] == used, (name, other)


def test_a_refresh_keeps_the_tables_of_unchanged_topics() -> None:
    producer = FakeProducer()
    producer.set_topics({"a": 1, "b": 1})
    before = producer.cache
    producer.set_topics({"a": 1, "b": 2})
    assert producer.cache.topics["a"] is before.topics["a"]
    assert producer.cache.topics["b"] is not before.topics["b"]
    assert producer.cache.update_version == before.update_version + 1


def test_a_cancelled_ticket_waits_no_more() -> None:
    producer = FakeProducer(holds_records=True)
    ticket = producer.submit(
        "a", [ProducerRecord("a")], block_deadline_ms=0, deadline_ms=0, done=lambda _: None
    )
    ticket.cancel()
    assert (ticket.cancelled, producer.waiting) == (True, [])


def test_known_topics_are_answered_at_once() -> None:
    producer = FakeProducer(on_brokers={"a": 2})
    results: list[object] = []
    producer.request_topics(["a"], deadline_ms=0, done=results.append)
    [result] = results
    assert isinstance(result, MetadataResult)
    assert result.cache.partition_count("a") == 2
