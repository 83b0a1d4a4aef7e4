"""The data source in a real session: against a real sidecar on the embedded cluster, and one with faults."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pipeline.datasource import register
from service.process.embedded import EmbeddedCluster
from tests.support.fake_sidecar_api import HANG_UP, HANG_UP_WHEN_STORED, FakeSidecarApi, Fault
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from client_core.testing import StoredRecord

TOPICS: Final = ("orders", "orders-eu", "customers", "streamed")
PATIENCE_S: Final = patient(20.0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics=TOPICS) as running:
        yield running


@pytest.fixture(scope="module")
def sidecar(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("sidecar")
    with Sidecar(folder, bootstrap_servers=cluster.bootstrap_servers) as running:
        yield running


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def records_of(cluster: EmbeddedCluster, topic: str, count: int) -> Sequence[StoredRecord]:
    """The records of a topic, which must be so many."""
    records = cluster.kafka.records(topic)
    assert len(records) == count, "the log holds another number of records"
    return records


def read(source: SparkSession, sidecar: Sidecar, table: str, **options: str) -> DataFrame:
    return source.read.format("pilotfish").options(url=sidecar.api_url, table=table, **options).load()


def test_tables_are_what_the_http_api_answers(source: SparkSession, sidecar: Sidecar) -> None:
    topics = [row.asDict() for row in read(source, sidecar, "topics").orderBy("name").collect()]
    assert topics == sidecar.api.get("/v1/topics").json()["topics"]
    cluster = sidecar.api.get("/v1/cluster").json()
    brokers = [row.asDict() for row in read(source, sidecar, "brokers").orderBy("id").collect()]
    assert brokers == [{"cluster_id": cluster["cluster_id"], **broker} for broker in cluster["brokers"]]
    rows = read(source, sidecar, "partitions", topics="orders*, customers", splits="2").collect()
    answered = {name: sidecar.api.get(f"/v1/topics/{name}").json() for name in TOPICS[:3]}
    found: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows):
        one = row.asDict(recursive=True)
        name, topic_id, refreshed_at = one.pop("topic"), one.pop("topic_id"), one.pop("refreshed_at")
        assert topic_id == answered[name]["id"]
        assert refreshed_at is not None
        found.setdefault(name, []).append(one)
    assert found == {name: topic["partitions"] for name, topic in answered.items()}


def test_bytes_nulls_and_large_rows_arrive_as_they_are(
    source: SparkSession, sidecar: Sidecar, cluster: EmbeddedCluster
) -> None:
    at = datetime(2026, 11, 21, 10, 0, 0, 123_000, tzinfo=UTC)
    rows = [
        (b"\xff\xfe\x00", b"\x80", 0, [("trace", b"\xc3("), ("flag", None)], at),
        (None, b"customer-7", 1, None, None),
        (b"no key", None, 2, [], None),
        (b"", b"", 2, None, None),
        (b"x" * 700_000, b"large", 3, None, None),
    ]
    frame = source.createDataFrame(
        rows,
        "value binary, key binary, partition int, headers array<struct<key:string,value:binary>>,"
        " timestamp timestamp",
    )
    options = {"url": sidecar.api_url, "topic": "orders", "batch_bytes": "1000"}
    frame.coalesce(1).write.format("pilotfish").options(**options).mode("append").save()
    found = sorted(
        (record.partition, record.offset, record.value, record.key, record.headers)
        for record in records_of(cluster, "orders", len(rows))
    )
    assert found == [
        (0, 0, b"\xff\xfe\x00", b"\x80", (("trace", b"\xc3("), ("flag", None))),
        (1, 0, None, b"customer-7", ()),
        (2, 0, b"no key", None, ()),
        (2, 1, b"", b"", ()),
        (3, 0, b"x" * 700_000, b"large", ()),
    ]
    (stamped,) = (m for m in records_of(cluster, "orders", len(rows)) if m.partition == 0)
    assert stamped.timestamp_ms == int(at.timestamp() * 1000)


def test_a_batch_that_a_restarted_query_repeats_is_written_once(
    source: SparkSession, sidecar: Sidecar, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()

    def run() -> None:
        lines = source.readStream.schema("value string").text(str(folder))
        written = lines.withColumn("topic", F.lit("streamed")).writeStream.format("pilotfish")
        options = {"url": sidecar.api_url, "checkpointLocation": str(checkpoint), "batch_records": "2"}
        written.options(**options).trigger(availableNow=True).start().awaitTermination()

    (folder / "1.txt").write_text("a\nb\nc\n")
    run()
    # As a driver leaves it that is killed when the sink is done and its own commit is not.
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink()
    (folder / "2.txt").write_text("d\ne\n")
    run()
    values = sorted(record.value or b"" for record in records_of(cluster, "streamed", 5))
    assert values == [b"a", b"b", b"c", b"d", b"e"]
    assert sidecar.metric("pilotfish_idempotency_replays_total") == 2


def test_a_write_survives_a_broken_line_and_doubles_nothing(source: SparkSession) -> None:
    with FakeSidecarApi([HANG_UP_WHEN_STORED, HANG_UP, Fault(503), HANG_UP_WHEN_STORED]) as fake:
        frame = source.range(6, numPartitions=1).selectExpr("cast(id as string) value", "'orders' topic")
        options = {"url": fake.url, "batch_records": "2"}
        frame.write.format("pilotfish").options(**options).mode("append").save()
    assert fake.values() == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert len({asked.key for asked in fake.requests}) == 3


def test_a_record_that_is_refused_fails_the_task_by_row_and_reason(source: SparkSession) -> None:
    problem = (("message", "too large"), ("retriable", False), ("written", "no"))
    with FakeSidecarApi([Fault(200), Fault(207, fails=(1,), problem=problem)]) as fake:
        frame = source.range(4, numPartitions=1).selectExpr("cast(id as string) value")
        write = frame.write.format("pilotfish").options(url=fake.url, topic="orders", batch_records=2)
        with pytest.raises(PySparkException) as raised:
            write.mode("append").save()
    assert "1 of 2 records were not written" in str(raised.value)
    assert "row 3: too large" in str(raised.value)
    assert fake.values() == [b"0", b"1", b"2"]


def test_an_option_that_makes_no_sense_is_refused_before_any_request(source: SparkSession) -> None:
    with FakeSidecarApi() as fake:
        frame = source.range(1).selectExpr("cast(id as string) value")
        wrong = [
            (frame.selectExpr("value payload"), {"topic": "t"}, "column payload is none of value, key"),
            (frame, {}, "set the option topic, or add a column topic to the rows"),
            (frame, {"topic": "t", "batch_size": "5"}, "a write has no option batch_size; it has url"),
        ]
        for rows, options, sentence in wrong:
            write = rows.write.format("pilotfish").options(url=fake.url, **options).mode("append")
            with pytest.raises(PySparkException) as raised:
                write.save()
            assert sentence in str(raised.value)
        with pytest.raises(PySparkException, match="option table is missing"):
            source.read.format("pilotfish").option("url", fake.url).load()
    assert not fake.requests
