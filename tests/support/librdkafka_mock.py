"""librdkafka's mock cluster: another broker implementation, whose differences a client must survive.

It refuses ApiVersions 3 and up with error 35 in the form of version 3, puts a stray byte behind flexible
Metadata answers, gives every topic four partitions, and acknowledges records with the timestamp 1234.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def librdkafka_mock(brokers: int, topic: str) -> Iterator[str]:
    """A cluster with a topic; its bootstrap servers."""
    admin = AdminClient(  # which owns the cluster
        {
            "bootstrap.servers": "ignored",
            "test.mock.num.brokers": brokers,
            "allow.auto.create.topics": True,
            "log_level": 0,  # it warns on stderr that mocking is experimental
        }
    )
    wait_until(lambda: admin.list_topics(topic, timeout=patient(10)).topics[topic].partitions, what="a topic")
    found = admin.list_topics(timeout=patient(10)).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in found)
    assert admin is not None  # it lives until here, and the cluster with it
