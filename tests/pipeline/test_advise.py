"""Advice from the table to a file and to a topic, and how a sidecar reads it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet as pq

from pipeline.advise.document import (
    MAX_BYTES,
    FileNotWrittenError,
    NoAdviceError,
    document,
    entries_of,
    file_content,
    write_whole,
)
from pipeline.advise.topic import RECORDS_PER_REQUEST, NotPublishedError, publish
from pipeline.cli import main
from pipeline.datasource.answers import Patience
from pipeline.datasource.sidecar_http import Answer, SidecarUnreachableError
from pipeline.gold.advice import MOST_WARM_TOPICS, TTL_MS
from pipeline.stores.formats import open_store
from pipeline.stores.store import DELTA
from pipeline.tables import GOLD_ADVICE
from service.process import advice_document as sidecars
from tests.service.process.advice_documents import HOUR_MS
from tests.support.fake_sidecar_api import FakeSidecarApi

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
COMPUTED_AT = datetime(2026, 11, 21, 10, 0, 0, 123_456, tzinfo=UTC)


def row(cluster_id: str = "east", service: str = "billing", **changed: Any) -> dict[str, Any]:
    """A row of gold_advice."""
    right = {
        "cluster_id": cluster_id,
        "service": service,
        "warm_topics": ["orders", "refunds"],
        "refresh_max_age_ms": 60_000,
        "computed_at": COMPUTED_AT,
        "ttl_ms": HOUR_MS,
        "evidence": {"boots": 3, "staleness_permille": None},
    }
    return {**right, **changed}


ROWS = [row("west"), row("east", "search", warm_topics=[]), row("east")]


# -- the document --------------------------------------------------------------------------------------------


def test_a_sidecar_reads_what_the_pipeline_writes() -> None:
    content = document(entries_of(ROWS))
    schema = json.loads((ROOT / "docs/advice.schema.json").read_bytes())
    jsonschema_rs.validator_for(schema).validate(json.loads(content))
    longest_ms = schema["properties"]["advice"]["items"]["properties"]["ttl_ms"]["maximum"]
    assert longest_ms == sidecars.MAX_TTL_MS > TTL_MS
    computed_ms = 1_795_255_200_123
    assert sidecars.parse_advice(content, "billing") == {
        "east": sidecars.Advice("advice[0]", ("orders", "refunds"), 60_000, computed_ms, HOUR_MS),
        "west": sidecars.Advice("advice[2]", ("orders", "refunds"), 60_000, computed_ms, HOUR_MS),
    }
    assert sidecars.parse_advice(content, "search")["east"].warm_topics == ()


def test_what_one_writes_at_most_the_other_takes() -> None:
    assert json.loads(document([]))["version"] == sidecars.VERSION
    assert sidecars.MAX_BYTES == MAX_BYTES
    assert sidecars.MAX_TOPICS >= MOST_WARM_TOPICS


def test_the_same_rows_in_any_order_are_the_same_bytes() -> None:
    assert document(entries_of(ROWS)) == document(entries_of(ROWS[::-1]))


def test_times_are_written_in_utc_with_microseconds() -> None:
    for computed_at in (
        COMPUTED_AT.replace(tzinfo=None),
        COMPUTED_AT.astimezone(timezone(timedelta(hours=-5))),
    ):
        (entry,) = entries_of([row(computed_at=computed_at)])
        assert entry.advice["computed_at"] == "2026-11-21T10:00:00.123456Z", computed_at


def test_one_cluster_or_service_can_be_chosen() -> None:
    chosen = {
        (None, None): ["east|billing", "east|search", "west|billing"],
        ("east", None): ["east|billing", "east|search"],
        (None, "billing"): ["east|billing", "west|billing"],
        ("west", "billing"): ["west|billing"],
    }
    assert {words: [entry.key for entry in entries_of(ROWS, *words)] for words in chosen} == chosen


def test_the_error_about_missing_advice_lists_what_there_is() -> None:
    with pytest.raises(
        NoAdviceError, match=r"for 'billing' on east, 'search' on east, 'billing' on west: name one of these"
    ):
        entries_of(ROWS, "west", "search")
    with pytest.raises(NoAdviceError, match="no sidecar of a known cluster was seen"):
        entries_of([])


def test_a_file_that_no_sidecar_would_read_is_not_written() -> None:
    topics = [f"{number:0240}" for number in range(MOST_WARM_TOPICS)]
    entries = entries_of(row(service=str(number), warm_topics=topics) for number in range(50))
    with pytest.raises(NoAdviceError, match=r"at most 1048576: write a file for each"):
        file_content(entries)
    assert len(file_content(entries[:40])) < MAX_BYTES


# -- the file ------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "advice.json"
    path.write_bytes(b"before")
    before = os.umask(0o022)
    try:
        with path.open("rb") as reader:
            write_whole(path, b"after")
            assert reader.read() == b"before"
    finally:
        os.umask(before)
    assert path.read_bytes() == b"after"
    assert [found.name for found in tmp_path.iterdir()] == ["advice.json"]
    assert path.stat().st_mode & 0o044 == 0o044


def test_a_file_that_can_not_be_written_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "folder" / "held").mkdir(parents=True)
    for name in ("no/such/folder/advice.json", "folder"):
        with pytest.raises(FileNotWrittenError, match=rf"--out {tmp_path}/{name} can't be written: "):
            write_whole(tmp_path / name, b"x")
        assert [found.name for found in tmp_path.iterdir()] == ["folder"]


# -- the topic -----------------------------------------------------------------------------------------------


class Scripted:
    """A sidecar that first gives the prepared answers, then accepts everything."""

    def __init__(self, *answers: Answer | SidecarUnreachableError) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def ask(self, method: str, path: str, body: bytes) -> Answer:
        self.asked.append((method, path, json.loads(body)))
        if not self.answers:
            return Answer(200, {}, json.dumps({"results": json.loads(body)["records"]}).encode())
        answer = self.answers.pop(0)
        if isinstance(answer, SidecarUnreachableError):
            raise answer
        return answer


def problem(status: int, **members: Any) -> Answer:
    return Answer(status, {}, json.dumps({"status": status, **members}).encode())


def results(*errors: dict[str, Any] | None) -> Answer:
    reported = [{"offset": 1} if error is None else {"error": error} for error in errors]
    return Answer(207, {}, json.dumps({"results": reported}).encode())


@pytest.fixture
def patience() -> Callable[[int], Patience]:
    """One that waits in no time; so many milliseconds of it."""
    now_ms = 0

    def sleep(ms: int) -> None:
        nonlocal now_ms
        now_ms += ms

    return lambda budget_ms: Patience(budget_ms, Random(1), now_ms=lambda: now_ms, sleep_ms=sleep)


def test_each_record_is_a_document_under_the_key_of_its_cluster_and_service(
    patience: Callable[[int], Patience],
) -> None:
    sidecar = Scripted()
    publish(sidecar, "pilotfish.advice", entries_of(ROWS), patience(0))
    ((method, path, body),) = sidecar.asked
    assert (method, path) == ("POST", "/v1/topics/pilotfish.advice/records")
    assert (body["key_format"], body["value_format"]) == ("text", "text")
    assert [record["key"] for record in body["records"]] == ["east|billing", "east|search", "west|billing"]
    (taken,) = sidecars.parse_advice(body["records"][2]["value"].encode(), "billing").items()
    assert taken[0] == "west"


def test_many_services_go_in_several_requests(patience: Callable[[int], Patience]) -> None:
    sidecar = Scripted()
    entries = entries_of(row(service=f"{number:04}") for number in range(2 * RECORDS_PER_REQUEST + 1))
    publish(sidecar, "t", entries, patience(0))
    sent = [[record["key"] for record in body["records"]] for _, _, body in sidecar.asked]
    assert [len(keys) for keys in sent] == [RECORDS_PER_REQUEST, RECORDS_PER_REQUEST, 1]
    assert [key for keys in sent for key in keys] == [entry.key for entry in entries]


def test_a_failure_that_may_pass_is_tried_again(patience: Callable[[int], Patience]) -> None:
    for first in (
        SidecarUnreachableError("nobody answers"),
        problem(503, detail="shutting down", retriable=True),
        problem(429, detail="no room"),
        Answer(502, {}, b"<html>"),
        results(None, {"message": "not enough replicas", "retriable": True}, None),
        results(None, {"message": "timed out", "written": "unknown"}, None),
    ):
        sidecar = Scripted(first)
        publish(sidecar, "t", entries_of(ROWS), patience(60_000))
        assert len(sidecar.asked) == 2, first
        assert sidecar.asked[0] == sidecar.asked[1]
        with pytest.raises(NotPublishedError, match="The advice is not all in topic t: "):
            publish(Scripted(*[first] * 9), "t", entries_of(ROWS), patience(400))


def test_a_lasting_failure_is_raised_at_once(patience: Callable[[int], Patience]) -> None:
    slow, large = {"message": "slow", "retriable": True}, {"message": "too large", "retriable": False}
    for answer, reported in (
        (problem(404, detail="topic t does not exist"), r"404: topic t does not exist; create the topic"),
        (problem(403, detail="billing may not"), r"403: billing may not"),
        (
            Answer(200, {}, b"<html>"),
            r"200, but not in the form of Pilotfish's API, so nothing may be written",
        ),
        (results(slow, None, large), r"2 of 3 failed, west\|billing: too large"),
    ):
        sidecar = Scripted(answer)
        with pytest.raises(NotPublishedError, match=reported):
            publish(sidecar, "t", entries_of(ROWS), patience(60_000))
        assert len(sidecar.asked) == 1, reported


# -- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder as `run` leaves it, with the one table that matters."""
    folder = tmp_path / "tables"
    (folder / "gold_advice").mkdir(parents=True)
    (folder / "_pilotfish.json").write_text('{"store": "parquet", "layout": 1}')
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "gold_advice" / "part-0.parquet")
    (folder / "gold_advice" / "_SUCCESS").touch()
    return folder


def advise(*words: str | Path) -> tuple[int, str]:
    ran = CliRunner().invoke(main, ["advise", *map(str, words)])
    return ran.exit_code, ran.output


def test_the_command_writes_the_file_without_spark(tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "advice.json"
    assert advise("--tables", tables, "--out", out) == (0, f"advice for 3 services in {out}\n")
    assert out.read_bytes() == document(entries_of(ROWS))
    code, printed = advise("--tables", tables, "--out", "-", "--service", "search")
    assert (code, [entry["service"] for entry in json.loads(printed)["advice"]]) == (0, ["search"])


def test_a_spark_session_that_was_running_reads_a_delta_table_and_goes_on(
    spark: SparkSession, tables: Path, tmp_path: Path
) -> None:
    store = open_store(spark, str(tmp_path / "delta"), DELTA, to_write=True)
    store.replace(GOLD_ADVICE, spark.read.parquet(str(tables / GOLD_ADVICE)))
    from_files = advise("--tables", tables, "--out", "-")
    assert advise("--tables", tmp_path / "delta", "--store", DELTA, "--out", "-") == from_files
    assert spark.range(3).count() == 3


def test_the_command_writes_to_a_topic_through_a_sidecar(tables: Path) -> None:
    with FakeSidecarApi() as fake:
        words = ("--tables", tables, "--topic", "pilotfish.advice", "--sidecar", fake.url)
        assert advise(*words) == (0, "advice for 3 services in topic pilotfish.advice\n")
    assert [(topic, record["key"]) for topic, record in fake.log] == [
        ("pilotfish.advice", b"east|billing"),
        ("pilotfish.advice", b"east|search"),
        ("pilotfish.advice", b"west|billing"),
    ]


def test_a_wrong_word_ends_it_with_2_and_a_sentence(tables: Path) -> None:
    there = ("--topic", "t", "--sidecar")
    for words, reported in {
        (): "say where it is to go: --out FILE, or --topic NAME",
        ("--topic", "t"): "--topic NAME and --sidecar URL go together",
        ("--out", "-", "--sidecar", "http://127.0.0.1:1"): "--topic NAME and --sidecar URL go together",
        ("--out", "-", "--service", "nobody's"): "There is no advice for --service nobody's.",
        ("--out", ""): "--out is empty: is a variable of the shell not set?",
        ("--tables", "", "--out", "-"): "--tables is empty: is a variable of the shell not set?",
        ("--out", "/"): "--out / can't be written: ",
        ("--out", "/no/such/folder/x"): "--out /no/such/folder/x can't be written: No such file",
        ("--out", "-", "--store", "delta", "--jars", "/none"): "pilotfish-pipeline jars --to /none",
        (*there, "127.0.0.1:8085"): "is not the address of a sidecar",
        (*there, "http://127.0.0.1", "--token-file", "/none"): "token_file /none can't be",
    }.items():
        code, said = advise("--tables", tables, *words)
        assert (code, reported in said) == (2, True), (words, said)


def test_a_folder_without_the_table_is_distinguished_from_one_of_another_store(
    tables: Path, tmp_path: Path
) -> None:
    assert "holds no tables" in advise("--tables", tmp_path / "none", "--out", "-")[1]
    (tables / "_pilotfish.json").write_text('{"store": "delta", "layout": 1}')
    code, said = advise("--tables", tables, "--out", "-")
    assert (code, "say --store delta" in said) == (2, True), said
    (tables / "_pilotfish.json").write_text('{"store": "parquet", "layout": 1}')
    (tables / "gold_advice").rename(tables / "gold_other")
    assert "has no table gold_advice" in advise("--tables", tables, "--out", "-")[1]


def test_a_failure_that_nobody_foresaw_is_a_sentence_and_a_log(tables: Path) -> None:
    pq.write_table(pa.table({"service": ["billing"]}), tables / "gold_advice" / "part-0.parquet")
    code, said = advise("--tables", tables, "--out", "-")
    why, where = said.splitlines()
    assert (code, why) == (1, "pilotfish-pipeline: The run failed: 'cluster_id'")
    log = Path(where.rpartition(" ")[2])
    assert "KeyError" in log.read_text()
    log.unlink()


def test_a_table_that_is_no_parquet_is_reported_as_such(tables: Path) -> None:
    (tables / "gold_advice" / "part-0.parquet").write_bytes(b"not at all")
    code, said = advise("--tables", tables, "--out", "-")
    assert (code, "gold_advice can't be read as Parquet" in said) == (2, True), said
