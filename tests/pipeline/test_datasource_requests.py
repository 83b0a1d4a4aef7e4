"""The data source without Spark: options, columns, chunks, the meaning of answers, and retries."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pipeline.datasource.answers import (
    CHECK_URL,
    Again,
    Item,
    Patience,
    Refused,
    Written,
    asked,
    delivery_outcome_of,
)
from pipeline.datasource.chunks import Chunk, Record, chunks_of, columns_of, key_of, records_of
from pipeline.datasource.delivery import Counts, Delivery, TaskKeys
from pipeline.datasource.options import WriteOptions, address_of, read_options, write_options
from pipeline.datasource.sidecar_http import (
    Answer,
    DeliveryFailedError,
    InvalidOptionError,
    SidecarConnection,
    SidecarRefusedError,
    SidecarUnreachableError,
)
from pipeline.datasource.source import slices_of
from pipeline.datasource.tables import Listed, Sidecar
from pipeline.datasource.writer import Delivered, RecordsWriter
from tests.support.certificates import by_keytool, write_pem
from tests.support.oauth_endpoint import OAuthEndpoint
from tests.support.tls_peers import server_context

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def schema_of(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


TEXT = StringType()
HEADERS = ArrayType(schema_of(key=TEXT, value=BinaryType()))
VALUE = schema_of(value=TEXT)
COLUMNS = columns_of(VALUE, "orders")


def problem(status: int, retry_after: str | None = None, **members: Any) -> Answer:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return Answer(status, headers, json.dumps({"status": status, "detail": "why", **members}).encode())


def results(status: int, *items: dict[str, Any], replayed: bool = False) -> Answer:
    headers = {"pilotfish-replayed": "true"} if replayed else {}
    return Answer(status, headers, json.dumps({"topic": "t", "results": list(items)}).encode())


def error(written: str, *, retriable: bool = True) -> dict[str, Any]:
    return {"error": {"kafka_error": "NAME", "message": "why", "retriable": retriable, "written": written}}


NOT_ITS = f"nothing may be written; {CHECK_URL}"
OK: dict[str, Any] = {"partition": 0, "offset": 1, "timestamp": 2}


# -- options and columns -------------------------------------------------------------------------------------


def test_an_option_that_makes_no_sense_is_refused_with_a_sentence() -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({"table": "topic"}, "option table can't be 'topic'; it is one of topics, partitions, brokers"),
        ({"table": "topics", "topics": "a*b"}, "has a star inside"),
        ({"table": "brokers", "topics": "a"}, "leave it out"),
        ({"table": "topics", "internal": "yes"}, "true or false"),
        ({"table": "topics", "splits": "0"}, "a whole number from 1 to 1000, not '0'"),
        ({"table": "topics", "timeout_ms": "1e3"}, "a whole number from 100"),
        ({"table": "topics", "token": "a", "token_file": "b"}, "both given"),
        ({"table": "topics", "token": "a b"}, "is not a token"),
        ({"table": "topics", "path": "x"}, "takes no path"),
        ({"table": "topics", "topic": "x"}, "a read has no option topic; it has url"),
    ]
    for given_options, sentence in cases:
        with pytest.raises(InvalidOptionError) as raised:
            read_options(given_options)
        assert sentence in str(raised.value)


def test_a_write_id_must_fit_into_a_key() -> None:
    for write_id in ("", "a b", "x" * 121, "ä"):
        with pytest.raises(InvalidOptionError, match="write_id"):
            write_options({"write_id": write_id})


def test_names_count_without_case_and_sparks_own_pass() -> None:
    options = write_options({"Batch_Records": "7", "checkpointLocation": "x", "queryName": "y"})
    assert options.batch_records == 7


def test_an_address_is_a_host_and_port_or_a_socket() -> None:
    addresses = {
        "http://127.0.0.1:8085": "http://127.0.0.1:8085",
        "http://sidecar/": "http://sidecar:8085",
        "https://[::1]:9443": "https://[::1]:9443",
        "unix:/run/p.sock": "unix:/run/p.sock",
        "unix:///run/p.sock": "unix:/run/p.sock",
    }
    assert {url: str(address_of(url)) for url in addresses} == addresses
    for url in ("", "sidecar:8085", "ftp://x", "http://x/v1", "http://u@x", "http://x:99999", "unix:"):
        with pytest.raises(InvalidOptionError, match="not the address of a sidecar"):
            address_of(url)


def test_a_token_shows_nowhere_and_is_read_from_its_file_each_time(tmp_path: Path) -> None:
    assert "secret" not in repr(write_options({"token": "secret"}))
    file = tmp_path / "token"
    access = write_options({"token_file": str(file)}).access
    with pytest.raises(InvalidOptionError, match="can't be read here"):
        access.current_token()
    for token in ("old", "new"):
        file.write_text(f"{token}\n")
        assert access.current_token() == token


def test_rows_that_can_be_no_records_are_refused() -> None:
    cases: list[tuple[dict[str, DataType], str]] = [
        ({"key": TEXT}, "there is no column value; the columns are key"),
        ({"value": LongType()}, "column value is bigint, and must be string or binary; cast it"),
        ({"value": TEXT, "Keys": TEXT}, "column Keys is none of value, key"),
        ({"value": TEXT, "partition": LongType()}, "column partition is bigint, and must be int"),
        ({"value": TEXT, "timestamp": TimestampNTZType()}, "must be timestamp"),
        (
            {"value": TEXT, "headers": MapType(TEXT, BinaryType())},
            "must be array<struct<key:string,value:binary>>",
        ),
    ]
    for columns, sentence in cases:
        with pytest.raises(InvalidOptionError) as raised:
            columns_of(schema_of(**columns), "orders")
        assert sentence in str(raised.value)


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(InvalidOptionError, match="can't be overwritten"):
        RecordsWriter(write_options({"topic": "t"}), VALUE, overwrite=True)


def test_a_row_becomes_the_json_that_the_http_api_takes() -> None:
    schema = schema_of(
        KEY=TEXT,
        value=BinaryType(),
        headers=HEADERS,
        partition=IntegerType(),
        timestamp=TimestampType(),
        topic=TEXT,
    )
    rows = [
        (
            'k"\u00e4',
            b"\xff",
            [{"key": "h", "value": b"\x00"}, {"key": "n", "value": None}],
            3,
            1_500_999,
            "a",
        ),
        (None, None, None, None, None, "b"),
    ]
    kinds = [
        pa.string(),
        pa.binary(),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.int32(),
        pa.timestamp("us", "UTC"),
        pa.string(),
    ]
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=schema.fieldNames())
    columns = columns_of(schema, None)
    assert (columns.key_format, columns.value_format) == ("text", "base64")
    made = list(records_of(columns, None, batch, 0))
    assert [record.topic for record in made] == ["a", "b"]
    assert [json.loads(record.json) for record in made] == [
        {
            "key": 'k"\u00e4',
            "value": "/w==",
            "headers": [{"key": "h", "value": "AA=="}, {"key": "n", "value": None}],
            "partition": 3,
            "timestamp": 1500,
        },
        {"value": None},
    ]
    assert {record.topic for record in records_of(columns_of(schema, "c"), "c", batch, 0)} == {"c"}


def test_a_string_that_is_no_utf8_is_reported_with_its_place() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"a", b"\xff"]).view(pa.string())], names=["value"])
    with pytest.raises(
        DeliveryFailedError, match=r"column value: a string in rows 10 to 11 .* cast the column"
    ):
        list(records_of(COLUMNS, "orders", batch, 10))


# -- chunks --------------------------------------------------------------------------------------------------


@given(
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40)), max_size=60),
    max_records=st.integers(1, 7),
    max_bytes=st.integers(1, 60),
)
def test_chunks_hold_every_row_once_in_order_within_their_bounds(
    rows: list[tuple[str, int]], max_records: int, max_bytes: int
) -> None:
    records = [Record(topic, b"x" * size) for topic, size in rows]
    chunks = list(chunks_of(records, max_records, max_bytes))
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    for topic in "abc":
        reported = [row for chunk in chunks if chunk.topic == topic for row in chunk.rows]
        assert reported == [row for row, (name, _) in enumerate(rows) if name == topic]
    for chunk in chunks:
        assert [records[row].json for row in chunk.rows] == chunk.records
        assert len(chunk.records) <= max_records
        assert len(chunk.records) == 1 or sum(map(len, chunk.records)) <= max_bytes


def test_a_row_without_a_topic_is_an_error() -> None:
    with pytest.raises(DeliveryFailedError, match="row 1 of the task has no topic"):
        list(chunks_of([Record("a", b"{}"), Record(None, b"{}")], 10, 10))


def test_a_key_is_of_the_write_the_place_and_the_rows() -> None:
    assert key_of("w", 3, 7, 0, b"{}") == "spark-w-3-7.0-44136fa355b3678a"
    assert len(key_of("w" * 120, 10**6, 10**9, 10**3, b"")) <= 255
    assert len({key_of("w", 3, 7, 0, b"a"), key_of("w", 3, 7, 0, b"b"), key_of("w", 3, 7, 1, b"a")}) == 3


# -- meaning of answers --------------------------------------------------------------------------------------


def test_the_meaning_of_each_answer() -> None:
    cases: list[tuple[Answer, object]] = [
        (results(200, OK, OK), Written((), False)),
        (results(202, OK, OK, replayed=True), Written((), True)),
        (Answer(202, {}, b'{"topic":"t","spooled":2}'), Written((), False)),
        *(
            (
                Answer(status, {}, body),
                Refused(f"{status}, but not in the form of Pilotfish's API, so {NOT_ITS}"),
            )
            for status in (200, 202)
            for body in (b"<html>", b"", b"[]", b"{}", b'{"spooled":1}', b'{"results":[{}]}')
        ),
        (results(207, OK, error("no")), Written([Item(1, "why [NAME]", True, False)], False)),
        (
            results(207, OK, error("no", retriable=False)),
            Written([Item(1, "why [NAME]", False, False)], False),
        ),
        (results(207, OK, error("unknown")), Again(0, "the outcome of some records is not known yet")),
        (
            results(207, OK, error("unknown", retriable=False), replayed=True),
            Written([Item(1, "why [NAME]", True, True)], True),
        ),
        # Of results that are too few or too many nobody knows whose they are.
        *((results(207, *some), Refused("207: no reason given")) for some in ((OK,), (OK, OK, error("no")))),
        (problem(429, "3"), Again(3000, "429: why")),
        (problem(503, "Fri, 21 Nov 2026 10:00:00 GMT"), Again(0, "503: why")),
        (problem(504, written="unknown"), Again(0, "504: why")),
        (problem(500, retriable=True, kafka_error="X"), Again(0, "500: why [X]")),
        (problem(500, retriable=False), Refused("500: why")),
        (
            problem(404, retriable=True, results=[error("no"), error("no")]),
            Refused("404: why; create the topic, or name another"),
        ),
        (
            problem(401),
            Refused("401: why; give a token of its tokens file, with the option token_file"),
        ),
        (Answer(502, {}, b"<html>"), Again(0, f"502, but not in the form of Pilotfish's API; {CHECK_URL}")),
        (Answer(404, {}, b"[]"), Refused(f"404, but not in the form of Pilotfish's API; {CHECK_URL}")),
    ]
    for answer, outcome in cases:
        assert delivery_outcome_of(answer, 2) == outcome, answer


# -- a chunk until it has an outcome -------------------------------------------------------------------------


class Clock:
    """Advances only by sleeps, which it keeps."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.slept: list[int] = []

    def sleep_ms(self, ms: int) -> None:
        self.slept.append(ms)
        self.now_ms += ms


class Outcome:
    """Gives the answers one after the other, and the last one for ever."""

    def __init__(self, *answers: Answer | None) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, list[str]]] = []

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        values = [record["value"] for record in json.loads(body)["records"]]
        self.asked.append((headers["Idempotency-Key"].strip('"').rpartition("-")[0], values))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            raise SidecarUnreachableError("no sidecar answers at here")
        return answer


def deliver(reported: Outcome, clock: Clock, budget_ms: int = 60_000) -> Counts:
    def patience() -> Patience:
        return Patience(budget_ms, Random(7), now_ms=lambda: clock.now_ms, sleep_ms=clock.sleep_ms)

    delivery = Delivery(reported, "here", TaskKeys("w", 3), COLUMNS, timeout_ms=1000, patience=patience)
    records = [b'{"value":"a"}', b'{"value":"b"}']
    delivery.write(Chunk("orders", 0, [40, 41], records))
    return delivery.counts


def test_a_broken_request_is_repeated_under_the_same_key_after_retry_after() -> None:
    clock = Clock()
    reported = Outcome(None, problem(429, "3"), results(200, OK, OK, replayed=True))
    counts = deliver(reported, clock)
    assert reported.asked == [("spark-w-3-0.0", ["a", "b"])] * 3
    assert 80 <= clock.slept[0] <= 120
    assert clock.slept[1] == 3000
    assert (counts.records, counts.requests, counts.retries, counts.replayed) == (2, 3, 2, 1)


def test_backoff_doubles_up_to_five_seconds() -> None:
    clock = Clock()
    with pytest.raises(DeliveryFailedError, match=r"no sidecar answers at here; tried \d+ times in \d+ ms"):
        deliver(Outcome(None), clock)
    assert all(0.8 * base <= ms <= 1.2 * base for ms, base in zip(clock.slept, (100, 200, 400), strict=False))
    assert max(clock.slept) <= 6_000
    assert sum(clock.slept) <= 60_000


def test_a_retry_after_beyond_the_budget_is_not_waited_for() -> None:
    clock = Clock()
    with pytest.raises(DeliveryFailedError, match="503: why; tried 1 times in 0 ms"):
        deliver(Outcome(problem(503, "30")), clock, budget_ms=20_000)
    assert clock.slept == []


def test_only_what_failed_is_sent_again_under_a_new_key() -> None:
    reported = Outcome(results(207, OK, error("no")), results(200, OK))
    counts = deliver(reported, Clock())
    assert reported.asked == [("spark-w-3-0.0", ["a", "b"]), ("spark-w-3-0.1", ["b"])]
    assert (counts.records, counts.doubtful) == (2, 0)


def test_an_unknown_outcome_is_asked_for_until_it_is_final_and_then_risks_a_double() -> None:
    unknown = (OK, error("unknown", retriable=False))
    reported = Outcome(results(504, *unknown), results(207, *unknown, replayed=True), results(200, OK))
    counts = deliver(reported, Clock())
    assert reported.asked == [("spark-w-3-0.0", ["a", "b"])] * 2 + [("spark-w-3-0.1", ["b"])]
    assert counts.doubtful == 1


def test_rows_that_can_not_be_delivered_fail_when_the_others_are_done() -> None:
    reported = Outcome(results(207, error("no"), error("no", retriable=False)), results(200, OK))
    with pytest.raises(DeliveryFailedError) as raised:
        deliver(reported, Clock())
    assert str(raised.value).startswith(
        "rows 40 to 41 of task 3 to topic orders at here: 1 of 2 records were not written"
    )
    assert "row 41: why [NAME]" in str(raised.value)
    assert reported.asked[1] == ("spark-w-3-0.1", ["a"])


def test_a_refusal_is_not_asked_again() -> None:
    reported = Outcome(problem(403))
    with pytest.raises(DeliveryFailedError, match="403: why; the token's entry"):
        deliver(reported, Clock())
    assert len(reported.asked) == 1


def test_a_look_up_honours_retry_after_too() -> None:
    clock = Clock()
    answers = iter([problem(503, "2"), problem(200)])
    patience = Patience(9_000, Random(1), now_ms=lambda: clock.now_ms, sleep_ms=clock.sleep_ms)
    assert asked(lambda: next(answers), patience).status == 200
    assert clock.slept == [2000]


# -- the rest ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 1000), max_size=300), st.integers(1, 20))
def test_slices_hold_every_topic_once_and_are_about_as_large(partitions: list[int], splits: int) -> None:
    listed = [Listed(f"t{index}", count) for index, count in enumerate(partitions)]
    slices = slices_of(listed, splits)
    assert sorted(name for names in slices for name in names) == sorted(one.name for one in listed)
    assert len(slices) == max(min(splits, -(-len(listed) // 100)), 1)
    counts = {one.name: one.partitions + 1 for one in listed}
    loads = [sum(counts[name] for name in names) for names in slices]
    assert max(loads) - min(loads) <= max(counts.values(), default=0)


def test_a_large_topic_has_a_slice_of_its_own() -> None:
    listed = [Listed("large", 1000), *(Listed(f"t{index:03}", 1) for index in range(200))]
    assert ("large",) in slices_of(listed, 3)


def test_a_topic_that_is_gone_since_it_was_listed_has_no_rows() -> None:
    partition = {
        "partition": 0,
        "leader": None,
        "leader_epoch": None,
        "replicas": [1],
        "isr": [],
        "error": None,
        "offline_replicas": [1],
    }
    topic = {"name": "there", "id": None, "internal": False, "partitions": [partition]}
    at = {"pilotfish-metadata-refreshed-at": "2026-01-31T09:26:53.589Z"}

    def ask(method: str, path: str, body: bytes | None) -> Answer:
        if path == "/v1/leaders":
            lookups = json.loads(body or b"")["lookups"]
            assert [lookup["topic"] for lookup in lookups] == ["gone", "there"]
            return Answer(200, {}, b'{"results":[]}')
        return problem(404) if path.endswith("gone") else Answer(200, at, json.dumps(topic).encode())

    (row,) = Sidecar("here", ask).partitions(["gone", "there"])
    assert row[:5] == ("there", None, 0, None, None)
    assert row[-1] == datetime(2026, 1, 31, 9, 26, 53, 589_000, tzinfo=UTC)


def test_an_answer_of_something_else_than_a_sidecar_is_said_to_be_so() -> None:
    for body in (b"<html>", b"[]", b"{}", b'{"topics":1,"brokers":null}'):
        other = Sidecar("here", lambda *_, body=body: Answer(200, {}, body))
        for read in (other.topics((), internal=False), other.brokers(), other.partitions(["t"])):
            with pytest.raises(SidecarRefusedError, match=re.escape(CHECK_URL)):
                list(read)


def test_an_authority_as_keytool_makes_them_is_accepted(tmp_path: Path) -> None:
    """Since Python 3.13 default contexts refuse it."""
    authority, identity = by_keytool("localhost")
    ca_file = write_pem(tmp_path / "ca.pem", authority)
    with OAuthEndpoint({}, tls=server_context(identity)) as endpoint:
        url = f"https://localhost:{urlsplit(endpoint.url).port}"
        access = write_options({"url": url, "ca_file": str(ca_file)}).access
        with SidecarConnection(access) as sidecar:
            assert sidecar.ask("POST", "/token", b"").status >= 400


def test_a_read_gives_up_sooner_than_a_write() -> None:
    assert read_options({"table": "topics"}).access.retry_timeout_ms == 10_000
    assert read_options({"table": "topics", "retry_timeout_ms": "1"}).access.retry_timeout_ms == 1
    assert write_options({}).access.retry_timeout_ms == 300_000


def test_a_commit_reports_the_sums_over_tasks(caplog: pytest.LogCaptureFixture) -> None:
    writer = RecordsWriter(write_options({"topic": "t"}), VALUE, overwrite=False)
    messages: Sequence[Delivered | None] = [
        Delivered(Counts(records=2, requests=1)),
        None,
        Delivered(Counts(3)),
    ]
    with caplog.at_level(logging.INFO):
        writer.commit(messages)
        writer.abort(messages)
    reported = "tasks=2 records=5 bytes=0 requests=1 retries=0 replayed=0 doubtful=0"
    assert [record.getMessage() for record in caplog.records] == [
        f"written: {reported}",
        f"the write failed; what finished tasks wrote stays: {reported}",
    ]


def test_each_job_has_keys_of_its_own_unless_a_write_id_is_given() -> None:
    def write_id(options: WriteOptions) -> str:
        return RecordsWriter(options, VALUE, overwrite=False)._write_id

    assert write_id(write_options({"topic": "t"})) != write_id(write_options({"topic": "t"}))
    assert write_id(write_options({"topic": "t", "write_id": "night-7"})) == "night-7"
