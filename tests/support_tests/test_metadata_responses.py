"""The Metadata responses that tests make."""

from __future__ import annotations

from client_core.cluster import Node
from client_core.protocol.messages.metadata_response import MetadataResponse
from client_core.protocol.primitives import ZERO_UUID
from tests.support.metadata_responses import (
    metadata_message,
    metadata_response,
    node,
    partition,
    read,
    topic,
    topic_id_of,
)


def test_numbers_describe_brokers_and_topics() -> None:
    message = MetadataResponse.decode(metadata_response(2, {"t": 3}), 13)
    assert [(b.node_id, b.host, b.port) for b in message.brokers] == [
        (0, "localhost", 9092),
        (1, "localhost", 9093),
    ]
    [described] = message.topics
    assert described.topic_id == topic_id_of("t")
    assert [(p.partition_index, p.leader_id, p.leader_epoch) for p in described.partitions] == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 0, 0),
    ]


def test_topics_in_full_are_taken_as_they_are() -> None:
    described = topic("t", [partition(7, leader=None, epoch=None, isr=(1,), offline=(2,), error=5)])
    message = metadata_message([node(4, rack="r")], [described], errors={"missing": 3})
    assert message.brokers[0].rack == "r"
    assert message.topics[0] is described
    assert described.topic_id == ZERO_UUID
    assert described.partitions[0][:4] == (5, 7, -1, -1)
    assert (message.topics[1].name, message.topics[1].error_code) == ("missing", 3)


def test_ids_depend_on_names_alone() -> None:
    assert topic_id_of("t") == topic_id_of("t")
    assert topic_id_of("t") != topic_id_of("u")


def test_reading_gives_what_metadata_takes() -> None:
    response = read([node(9)], {"t": 1}, version=12, cluster_id="c", controller_id=9)
    assert response.brokers == {9: Node(9, "localhost", 9101)}
    assert response.cluster_id == "c"
    assert response.controller == node(9)
    assert [found.name for found in response.topics] == ["t"]
