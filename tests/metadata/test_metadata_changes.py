"""The events that a metadata update emits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.cluster import TopicPartition
from client_core.events import BrokersChanged, Event, LeaderChange, LeadersChanged, PartitionCountChanged
from client_core.metadata.leader_epochs import LeaderIdAndEpoch
from client_core.metadata.metadata import Metadata, MetadataConfig
from client_core.metadata.metadata_response import read_metadata_response
from tests.metadata.test_refresh_schedule import Unjittered
from tests.support.metadata_responses import metadata_response, node, partition, topic, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from client_core.cluster import Node
    from client_core.protocol.messages.metadata_response import MetadataResponseTopic


class Recorder:
    """Metadata, and the events of its last update."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.metadata = Metadata(MetadataConfig(), Unjittered(0), self)
        self.metadata.bootstrap([("boot", 9092)])

    def emit(self, event: Event, /) -> None:
        self.events.append(event)

    def update(
        self,
        nodes: int | Iterable[Node],
        topics: Iterable[MetadataResponseTopic],
        *,
        is_partial: bool = False,
    ) -> list[Event]:
        self.events.clear()
        body = metadata_response(nodes, topics)
        response = read_metadata_response(body, 13, self.metadata.cache.topics)
        self.metadata.update(0, response, is_partial, 0)
        return self.events


@pytest.fixture
def recorder() -> Recorder:
    """Three brokers, a topic with two partitions on 0 and 1, epochs 5."""
    recorder = Recorder()
    recorder.update(3, [topic("t", 2, nodes=(0, 1), epoch=5)])
    return recorder


def test_the_first_answer_emits_brokers_and_topics() -> None:
    """The bootstrap addresses were no brokers: nobody left."""
    assert Recorder().update(3, [topic("t", 2)]) == [
        BrokersChanged((0, 1, 2), (), ()),
        PartitionCountChanged("t", None, 2),
    ]


def test_an_equal_answer_emits_nothing(recorder: Recorder) -> None:
    assert recorder.update(3, [topic("t", 2, nodes=(0, 1), epoch=5)]) == []


def test_the_cluster_id_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    recorder = Recorder()
    for _ in range(2):
        recorder.update(3, [topic("t", 2)])
    assert caplog.text.count("Cluster ID: ") == 1


def test_brokers_join_leave_and_move(recorder: Recorder) -> None:
    nodes = [node(0), node(1, host="elsewhere"), node(7)]
    assert recorder.update(nodes, [topic("t", 2, nodes=(0, 1), epoch=5)]) == [
        BrokersChanged(joined=(7,), left=(2,), moved=(1,))
    ]


@pytest.mark.parametrize(
    ("nodes", "emitted"),
    [
        ([node(0), node(1), node(2, host="elsewhere")], BrokersChanged((), (), moved=(2,))),
        ([node(0), node(1)], BrokersChanged((), left=(2,), moved=())),
        ([*map(node, range(4))], BrokersChanged(joined=(3,), left=(), moved=())),
    ],
)
def test_each_of_these_changes_is_emitted_alone(
    recorder: Recorder, nodes: list[Node], emitted: BrokersChanged
) -> None:
    assert recorder.update(nodes, [topic("t", 2, nodes=(0, 1), epoch=5)]) == [emitted]


def test_a_changed_leader_or_greater_epoch_is_emitted(recorder: Recorder) -> None:
    moved = [
        partition(0, leader=2, epoch=6, replicas=(0, 1)),
        partition(1, leader=1, epoch=6, replicas=(0, 1)),
    ]
    assert recorder.update(3, [topic("t", moved)]) == [
        LeadersChanged("t", [(0, (0, 5), (2, 6)), (1, (1, 5), (1, 6))])
    ]


def test_a_greater_epoch_is_emitted_whatever_the_ids_of_leaders(recorder: Recorder) -> None:
    recorder.update(8, [topic("u", 1, nodes=(7,), epoch=0)])
    assert recorder.update(8, [topic("u", 1, nodes=(7,), epoch=1)]) == [
        LeadersChanged("u", [(0, (7, 0), (7, 1))])
    ]


def test_a_lost_leader_is_emitted(recorder: Recorder) -> None:
    lost = [partition(0, leader=None, epoch=5, error=5), partition(1, leader=1, epoch=5)]
    assert recorder.update(3, [topic("t", lost)]) == [LeadersChanged("t", [(0, (0, 5), (-1, 5))])]


def test_a_stale_answer_is_not_believed_and_emits_nothing(recorder: Recorder) -> None:
    assert recorder.update(3, [topic("t", 2, nodes=(2, 2), epoch=4)]) == []


def test_a_topic_grows(recorder: Recorder) -> None:
    """The new partition has no change of leader: it had none before."""
    grown = [partition(p, leader=p % 2, epoch=5) for p in range(3)]
    assert recorder.update(3, [topic("t", grown)]) == [PartitionCountChanged("t", 2, 3)]


def test_a_topic_is_recreated_with_as_many_partitions(recorder: Recorder) -> None:
    """Its epochs begin anew, which is no change of leaders."""
    assert recorder.update(3, [topic("t", 2, nodes=(0, 1), epoch=0, topic_id=topic_id_of("t"))]) == [
        PartitionCountChanged("t", 2, 2)
    ]


def test_a_topic_goes(recorder: Recorder) -> None:
    assert recorder.update(3, []) == [PartitionCountChanged("t", 2, None)]


def test_other_topics_stay_over_a_partial_answer(recorder: Recorder) -> None:
    assert recorder.update(3, [topic("new", 1)], is_partial=True) == [PartitionCountChanged("new", None, 1)]


def test_a_leader_named_by_a_produce_answer_is_emitted(recorder: Recorder) -> None:
    recorder.events.clear()
    recorder.metadata.update_partition_leadership({TopicPartition("t", 1): LeaderIdAndEpoch(2, 9)}, [])
    assert recorder.events == [LeadersChanged("t", [(1, (1, 5), (2, 9))])]
    assert recorder.update(3, [topic("t", 2, nodes=(0, 1), epoch=5)]) == []


def test_a_rebootstrap_emits_nothing_if_the_cluster_is_still_the_same(recorder: Recorder) -> None:
    recorder.events.clear()
    recorder.metadata.rebootstrap()
    assert recorder.events == []
    assert recorder.update(3, [topic("t", 2, nodes=(0, 1), epoch=5)]) == []


# -- the event -----------------------------------------------------------------------------------------------


def test_leader_changes_are_read_with_none_for_no_leader_and_no_epoch() -> None:
    changed = LeadersChanged("t", [(0, (-1, -1), (2, 6)), (3, (1, 5), (-1, -1))])
    assert len(changed) == 2
    assert changed.changes() == [LeaderChange(0, None, 2, 6), LeaderChange(3, 1, None, None)]


@pytest.mark.parametrize(("last", "partitions"), [(0, []), (1, [2]), (2, [1, 2]), (9, [0, 1, 2])])
def test_the_last_few_leader_changes_can_be_had(last: int, partitions: list[int]) -> None:
    changed = LeadersChanged("t", [(number, (0, 5), (1, 6)) for number in range(3)])
    assert [change.partition for change in changed.changes(last)] == partitions
