"""Kafka 2.1, 2.8 and 3.9: records in every codec, with idempotence and without, look-ups, and new topics.

What is written is read by librdkafka and compared field by field. Kafka 4.3 is what tests/kafka/ runs on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core import ListingResult, MetadataResult, OffsetsResult, TopicConfigsResult
from tests.support.consumed_records import as_read, assert_same, records_of_all_kinds
from tests.support.kafka_admin import KafkaAdmin, read_back
from tests.support.live_producer import PATIENCE_MS, Outcome, live_producer, submit
from tests.support.older_kafka import VERSIONS, OlderKafka
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module", params=list(VERSIONS))
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OlderKafka]:
    with OlderKafka(request.param, tmp_path_factory.mktemp("older-kafka")) as running:
        yield running


@pytest.mark.parametrize("idempotence", [True, False])
def test_records_of_every_codec_are_written_as_they_were_sent(kafka: OlderKafka, idempotence: bool) -> None:
    for codec in _CODECS:
        topic = f"{codec}-{'idempotent' if idempotence else 'plain'}"
        records = records_of_all_kinds(topic, many=200)
        settings: dict[str, str | int] = {
            "compression.type": codec,
            "enable.idempotence": str(idempotence).lower(),
            "batch.size": 150_000,
            "linger.ms": 20,
        }
        with live_producer(kafka.bootstrap_servers, settings) as producer:
            reported = Outcome()
            deadline_ms = producer.clock.now_ms() + PATIENCE_MS
            producer.submit(
                topic, records, block_deadline_ms=deadline_ms, deadline_ms=deadline_ms, done=reported
            )
            assert list(reported.offsets()) == list(range(len(records))), codec
            assert (producer.status().producer_id is not None) is idempotence
        assert_same(read_back(kafka.bootstrap_servers, topic), as_read(records))


def test_leaders_topics_and_configs_are_looked_up(kafka: OlderKafka) -> None:
    with live_producer(kafka.bootstrap_servers) as producer:
        submit(producer, "looked-up", [b"1"]).offsets()
        (partition,) = producer.partitions_for("looked-up")
        assert partition.leader is not None
        assert f"{partition.leader.host}:{partition.leader.port}" == kafka.bootstrap_servers
        deadline_ms = producer.clock.now_ms() + PATIENCE_MS
        listed, described, missing, offsets = Outcome(), Outcome(), Outcome(), Outcome()
        producer.list_topics(deadline_ms=deadline_ms, done=listed)
        producer.describe_topic_configs("looked-up", deadline_ms=deadline_ms, done=described)
        producer.request_topics(["nobody-made-it"], deadline_ms=deadline_ms, done=missing)
        producer.list_offsets("looked-up", 0, deadline_ms=deadline_ms, done=offsets)
        listing = listed.result(ListingResult).listing
        assert listing is not None
        assert "looked-up" in listing.topics
        configs = described.result(TopicConfigsResult).configs
        assert configs is not None
        assert configs["retention.ms"].value == "604800000"
        assert set(missing.result(MetadataResult).topic_errors) == {"nobody-made-it"}
        found = offsets.result(OffsetsResult)
        assert (found.error, found.beginning_offset, found.end_offset) == (None, 0, 1)


def test_a_sidecar_finds_leaders_and_produces(kafka: OlderKafka, tmp_path: Path) -> None:
    KafkaAdmin(kafka.bootstrap_servers).create_topic("over-http")
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers) as sidecar:
        produced = sidecar.produce("over-http", [{"key": "k", "value": "v"}]).json()
        assert [(r["partition"], r["offset"]) for r in produced["results"]] == [(0, 0)]
        leader = sidecar.api.get("/v1/topics/over-http/leader?partition=0").json()["leader"]
        assert f"{leader['host']}:{leader['port']}" == kafka.bootstrap_servers
        assert sidecar.api.get("/v1/topics/nobody-made-it/leader?partition=0").status_code == 404
        assert sidecar.terminate() == 0
    (record,) = read_back(kafka.bootstrap_servers, "over-http")
    assert (record.key, record.value) == (b"k", b"v")
