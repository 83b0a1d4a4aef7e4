"""Lines out of a folder, as a batch and as a stream, and the error when a source can't be read.

Kafka itself is used in tests/kafka/test_pipeline_sources.py; here no broker listens.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest

from client_core.testing.free_ports import free_ports
from pipeline import bronze
from pipeline.sources import FilesSource, KafkaCheckError, KafkaSource, SourceError
from tests.pipeline.event_lines import line

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_WRITTEN_AT: Final = datetime(2026, 11, 21, 10, 0, 5, tzinfo=UTC)
_SECRET: Final = "correct-horse-8Wq"
_JAAS: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="pipeline" password="{_SECRET}"'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files of events in two folders, and three that are none: hidden, in the making, a checkpoint."""
    events = tmp_path / "events"
    for name, content in {
        "events-a-01.jsonl": b"one\r\ntwo\n\xff three\n\nfour",
        "node-2/events-b-01.jsonl": b"five\n",
        "events-c-01.jsonl": b"",
        ".events-a-02.jsonl": b"half a li",
        "_notes/readme.txt": b"no event\n",
        ".checkpoint/offsets": b"no event\n",
    }.items():
        path = events / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (_WRITTEN_AT.timestamp(), _WRITTEN_AT.timestamp()))
    return events


def _found(raw: DataFrame) -> list[tuple[bytes, str, datetime]]:
    """The lines as bytes, by the file's name."""
    rows = raw.selectExpr("CAST(line AS BINARY) AS line", "source", "received_at").collect()
    return sorted(
        (bytes(row["line"]), row["source"].rpartition("/")[2], row["received_at"].astimezone(UTC))
        for row in rows
    )


def _streamed(
    spark: SparkSession, source: FilesSource, checkpoint: Path
) -> list[tuple[bytes, str, datetime]]:
    """What a query that reads all there is, and ends, gets to see."""
    found: list[tuple[bytes, str, datetime]] = []

    def batch(raw: DataFrame, _number: int) -> None:
        found.extend(_found(raw))

    writer = source.stream(spark).writeStream.option("checkpointLocation", str(checkpoint))
    query = writer.foreachBatch(batch).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return sorted(found)


_LINES: Final = [
    (b"", "events-a-01.jsonl", _WRITTEN_AT),
    (b"five", "events-b-01.jsonl", _WRITTEN_AT),
    (b"four", "events-a-01.jsonl", _WRITTEN_AT),
    (b"one\r", "events-a-01.jsonl", _WRITTEN_AT),
    (b"two", "events-a-01.jsonl", _WRITTEN_AT),
    (b"\xff three", "events-a-01.jsonl", _WRITTEN_AT),
]


def test_a_batch_has_the_bytes_of_every_line_its_file_and_when_that_was_written(
    spark: SparkSession, folder: Path
) -> None:
    assert _found(FilesSource(str(folder)).batch(spark)) == _LINES


def test_a_stream_reads_each_file_once_however_old_a_late_one_is(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    source = FilesSource(str(folder), max_files_per_batch=1)
    assert _streamed(spark, source, tmp_path / "checkpoint") == _LINES
    late = folder / "events-late-01.jsonl"
    late.write_bytes(b"six\n")
    long_ago = _WRITTEN_AT.replace(year=2025)
    os.utime(late, (long_ago.timestamp(), long_ago.timestamp()))
    assert _streamed(spark, source, tmp_path / "checkpoint") == [(b"six", late.name, long_ago)]


def test_an_empty_folder_has_no_lines(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    assert _found(FilesSource(str(tmp_path / "events")).batch(spark)) == []


@pytest.mark.parametrize("name", ["node[1]", "{a,b}", "what?*", "back\\slash", "per%20cent #1"])
def test_a_folder_whose_name_looks_like_a_pattern_is_read(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "events.jsonl").write_bytes(b"one\n")
    source = FilesSource(str(tmp_path / name))
    for found in (_found(source.batch(spark)), _streamed(spark, source, tmp_path / "checkpoint")):
        assert [text for text, _, _ in found] == [b"one"]


def test_a_link_that_leads_nowhere_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "events.jsonl").write_bytes(b"one\n")
    assert FilesSource(str(tmp_path)).local_bytes() == 4


def test_lines_of_files_become_events(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(f"{line()}\n\n{line()[:90]}\n", encoding="utf-8")
    classified = bronze.parse(FilesSource(str(tmp_path)).batch(spark))
    rows = classified.select("source", bronze.REJECT_REASON).collect()
    assert {row[bronze.REJECT_REASON] for row in rows} == {None, "not_json"}
    assert {row["source"].rpartition("/")[2] for row in rows} == {"events.jsonl"}


def test_a_folder_that_is_not_there_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for name in ("nowhere", "file"):
        with pytest.raises(SourceError, match=f"{name} is no folder: make it"):
            FilesSource(str(tmp_path / name)).check()


def test_a_file_that_spark_would_pass_over_because_of_its_name_is_refused(tmp_path: Path) -> None:
    def touch(name: bytes) -> None:
        os.close(os.open(os.fsencode(tmp_path) + b"/" + name, os.O_CREAT))

    source = FilesSource(str(tmp_path))
    (tmp_path / "gr\u00fcn").mkdir()
    for read_by_nobody in (b"_\xfc", "gr\u00fcn/.".encode() + b"\xfc"):
        touch(read_by_nobody)
    source.check()
    touch(b"events-\xfc.jsonl")
    for address in (tmp_path, tmp_path.as_uri()):
        with pytest.raises(SourceError, match=r"name of 'events-\\udcfc\.jsonl' in .* is not UTF-8: rename"):
            FilesSource(str(address)).check()


def test_a_folder_is_known_by_its_whole_path_and_an_address_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert FilesSource("events").reads == str(tmp_path / "events")
    assert FilesSource("s3a://bucket/events").reads == "s3a://bucket/events"


def test_a_setting_that_spark_makes_itself_is_refused() -> None:
    with pytest.raises(SourceError, match=r"auto\.offset\.reset, value\.deserializer itself"):
        KafkaSource("kafka:9092", settings={"value.deserializer": "x", "auto.offset.reset": "latest"})


def test_a_kafka_source_shows_the_names_of_its_settings_and_no_value() -> None:
    source = KafkaSource("kafka:9092", "t", settings={"sasl.jaas.config": _JAAS, "client.id": "pipe"})
    assert repr(source) == "<KafkaSource t at kafka:9092 (client.id, sasl.jaas.config)>"


def test_brokers_that_do_not_answer_are_named_in_one_sentence(spark: SparkSession) -> None:
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    patience = {"default.api.timeout.ms": "600", "request.timeout.ms": "300"}
    with pytest.raises(KafkaCheckError) as caught:
        KafkaSource(servers, "t", settings=patience).check()
    assert str(caught.value).startswith(
        f"No broker at {servers} answered within 600 ms: look at the addresses"
    )
    assert spark.range(1).count() == 1


_LOGIN: Final = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": _JAAS}
_TLS: Final = {
    "security.protocol": "SSL",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": _SECRET,
}


def test_settings_that_make_no_client_are_refused_without_their_secrets(spark: SparkSession) -> None:
    cases: dict[str, tuple[dict[str, str], str]] = {
        "a login without its semicolon": (_LOGIN, "JAAS"),
        "a password for certificate": (_TLS | {"ssl.key.password": _SECRET}, "made or used"),
        "a word for a number": ({"request.timeout.ms": "soon"}, "request.timeout.ms"),
    }
    for name, (settings, said) in cases.items():
        with pytest.raises(KafkaCheckError) as caught:
            KafkaSource("127.0.0.1:9", "t", settings=settings).check()
        assert said in str(caught.value), name
        assert _SECRET not in str(caught.value), name
    assert spark.range(1).count() == 1
