"""The fake cluster's DescribeConfigs, asked by librdkafka's AdminClient."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from client_core.testing import FakeCluster, TopicConfig
from tests.support.kafka_admin import KafkaAdmin


def test_another_client_is_told_the_configs_of_a_topic() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders", config=TopicConfig(min_insync_replicas=2, log_append_time=True))
        assert KafkaAdmin(cluster.bootstrap_servers).topic_configs("orders") == {
            "max.message.bytes": "1048588",
            "message.timestamp.type": "LogAppendTime",
            "min.insync.replicas": "2",
        }


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("absent", KafkaError.UNKNOWN_TOPIC_OR_PART),
        ("hidden", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ("secret", KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_another_client_is_refused_as_a_broker_would(topic: str, code: int) -> None:
    with FakeCluster(brokers=1) as cluster:
        for name in ("hidden", "secret"):
            cluster.create_topic(name)
        cluster.forbid("hidden")
        cluster.forbid_configs("secret")
        with pytest.raises(KafkaException) as refused:
            KafkaAdmin(cluster.bootstrap_servers).topic_configs(topic)
        assert refused.value.args[0].code() == code
