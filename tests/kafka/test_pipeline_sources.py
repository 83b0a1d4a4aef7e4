"""Records of a real topic as lines, in a batch and in a stream, and what real brokers refuse."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer

from pipeline import bronze
from pipeline.sources import KafkaCheckError, KafkaSource
from tests.pipeline.event_lines import line
from tests.support.secured_kraft import ALICE, PASSWORDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster
    from tests.support.secured_kraft import SecuredKraft

#: Long before any run: CreateTime is the producer's own, and may be wrong.
_SENT_AT: Final = datetime(2020, 5, 1, 12, tzinfo=UTC)


def _produce(kafka: KraftCluster, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=0, timestamp=int(_SENT_AT.timestamp() * 1_000))
    assert producer.flush(60) == 0


def _found(raw: DataFrame) -> list[tuple[str, bytes | None]]:
    rows = raw.selectExpr("source", "CAST(line AS BINARY) AS line").collect()
    return sorted((row["source"], None if row["line"] is None else bytes(row["line"])) for row in rows)


def test_a_record_is_a_line_that_is_known_by_its_offset(
    spark: SparkSession, kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=1)
    _produce(kafka, topic, b"one", None, b"\xff three")
    source = KafkaSource(kafka.bootstrap_servers, topic, max_records_per_batch=2)
    lines = [(f"{topic}-0@0", b"one"), (f"{topic}-0@1", None), (f"{topic}-0@2", b"\xff three")]
    assert _found(source.batch(spark)) == lines
    batches: list[list[tuple[str, bytes | None]]] = []

    def run() -> None:
        writer = source.stream(spark).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.foreachBatch(lambda raw, _: batches.append(_found(raw)))
        assert query.trigger(availableNow=True).start().awaitTermination(120)

    run()
    assert [each for batch in batches for each in batch] == lines
    assert max(map(len, batches)) == 2
    batches.clear()
    _produce(kafka, topic, b"four")
    run()
    assert batches == [[(f"{topic}-0@3", b"four")]]


def test_a_line_came_when_the_broker_appended_it_and_else_when_it_was_read(
    spark: SparkSession, kafka: KraftCluster, new_topic: NewTopic
) -> None:
    """Never the producer's timestamp, because this time is used to judge its clock."""
    began_at = datetime.now(UTC)
    of_the_broker = new_topic(partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    of_the_producer = new_topic(partitions=1)
    for topic in (of_the_broker, of_the_producer):
        _produce(kafka, topic, line().encode())
    produced_at = datetime.now(UTC)

    def received_at(topic: str) -> datetime:
        (row,) = KafkaSource(kafka.bootstrap_servers, topic).batch(spark).collect()
        at: datetime = row["received_at"]
        return at.astimezone(UTC)

    # The broker's clock is ours, and has milliseconds.
    assert began_at.replace(microsecond=0) <= received_at(of_the_broker) <= produced_at
    assert received_at(of_the_producer) >= produced_at


def test_records_without_a_value_are_nothing_to_bronze(
    spark: SparkSession, kafka: KraftCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=1)
    _produce(kafka, topic, line(observed_at="2026-01-01T00:00:00.000000Z").encode(), None, b"half")
    classified = bronze.parse(KafkaSource(kafka.bootstrap_servers, topic).batch(spark))
    rows = classified.select("source", bronze.REJECT_REASON).collect()
    assert sorted((row["source"], row[bronze.REJECT_REASON]) for row in rows) == [
        (f"{topic}-0@0", None),
        (f"{topic}-0@2", "not_json"),
    ]


def test_a_topic_is_known_by_its_name_and_the_clusters_id(
    spark: SparkSession, kafka: KraftCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=1)
    assert spark.version
    one_of_them = kafka.bootstrap_servers.partition(",")[0]
    assert (
        KafkaSource(one_of_them, topic).reads == f"the topic {topic} of the Kafka cluster {kafka.cluster_id}"
    )


def test_a_topic_that_is_not_there_is_said_so_in_one_sentence(
    spark: SparkSession, kafka: KraftCluster, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    assert spark.version
    with pytest.raises(KafkaCheckError) as caught:
        KafkaSource(kafka.bootstrap_servers, topic).check()
    assert str(caught.value) == (
        f"There is no topic {topic} at {kafka.bootstrap_servers}: create it, or name another."
    )


def test_a_login_is_made_by_kafkas_settings_and_a_wrong_one_refused_without_the_password(
    spark: SparkSession, secured_kafka: SecuredKraft, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)

    def source(password: str) -> KafkaSource:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        settings = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{module} required username="{ALICE}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(secured_kafka.trust_path),
        }
        return KafkaSource(secured_kafka.bootstrap("SASL_SSL"), topic, settings=settings)

    source(PASSWORDS[ALICE]).check()
    assert source(PASSWORDS[ALICE]).batch(spark).count() == 0
    with pytest.raises(KafkaCheckError, match="refused the login: look at sasl") as caught:
        source("looking-glass").check()
    assert "looking-glass" not in str(caught.value)
