"""The outcome of each record by its answer, and answers that no sidecar may give."""

from __future__ import annotations

import json

import pytest

from tests.chaos.answers import End, end_of_result, ends_of_v1, ends_of_v2
from tests.chaos.history import Outcome


def body(**members: object) -> bytes:
    return json.dumps(members).encode()


def test_each_result_of_v1_is_the_end_of_its_record() -> None:
    mixed = body(
        results=[{"partition": 1, "offset": 5}, {"error": {"written": "unknown", "message": "late"}}]
    )
    stored, failed = ends_of_v1(207, mixed, 2)
    assert stored == End(Outcome.STORED, 1, 5)
    assert failed.reported is Outcome.UNKNOWN
    assert "late" in failed.detail


def test_a_problem_of_v1_is_the_end_of_all_its_records() -> None:
    assert [end.reported for end in ends_of_v1(503, body(written="no"), 2)] == [Outcome.NOT_WRITTEN] * 2


def test_the_spool_takes_all_or_none() -> None:
    assert ends_of_v1(202, b"{}", 2) == [End(Outcome.TAKEN)] * 2


def test_failures_of_v2_say_nothing_of_what_was_written() -> None:
    offsets = [{"partition": 0, "offset": 3, "error_code": None}, {"error_code": 2, "error": "x"}]
    stored, failed = ends_of_v2(200, body(offsets=offsets), 2)
    assert stored == End(Outcome.STORED, 0, 3)
    assert failed.reported is Outcome.UNKNOWN
    assert ends_of_v2(500, body(error_code=50003), 1)[0].reported is Outcome.UNKNOWN


def test_a_line_of_a_stream_is_read_as_a_result() -> None:
    assert end_of_result({"index": 0, "partition": 2, "offset": 9}) == End(Outcome.STORED, 2, 9)
    assert end_of_result({"index": 0, "error": {"written": "no"}}).reported is Outcome.NOT_WRITTEN


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, b"Internal Server Error"),
        (200, b"[]"),
        (200, body(results=[])),
        (503, body(detail="who knows")),
        (503, body(written="perhaps")),
    ],
)
def test_an_answer_that_leaves_its_caller_in_the_dark_is_a_fault_of_the_sidecar(
    status: int, answer: bytes
) -> None:
    with pytest.raises(AssertionError):
        ends_of_v1(status, answer, 1)
