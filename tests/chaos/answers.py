"""Reads the outcome of each record from an answer of each dialect, or from a line of a stream. Pure.

Each function gives an End per record, in order. An answer that is no JSON, or has another number of results,
is an AssertionError: that is a fault of the sidecar, whatever else was broken meanwhile.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.chaos.history import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

_OUTCOME_BY_WRITTEN: Final = {"no": Outcome.NOT_WRITTEN, "unknown": Outcome.UNKNOWN}
_DETAIL_CHARACTERS: Final = 300


class End(NamedTuple):
    """Of one record."""

    reported: Outcome
    partition: int | None = None
    offset: int | None = None
    detail: str = ""


def ends_of_v1(status: int, body: bytes, count: int) -> list[End]:
    """Of a produce, of one by the spool, and of CloudEvents."""
    document = _document(status, body)
    results = document.get("results")
    if status == HTTPStatus.ACCEPTED and results is None:
        return [End(Outcome.TAKEN)] * count
    if results is not None:
        assert len(results) == count, f"{len(results)} results for {count} records: {body!r}"
        return [end_of_result(result) for result in results]
    return [_failed(document.get("written"), document)] * count


def end_of_result(result: Mapping[str, Any]) -> End:
    """Of an item of `results`, or a line of a stream's answer."""
    error = result.get("error")
    if error is None:
        return End(Outcome.STORED, result["partition"], result["offset"])
    return _failed(error.get("written"), error)


def ends_of_v2(status: int, body: bytes, count: int) -> list[End]:
    """Of REST Proxy v2's produce, whose failures do not say whether anything was written."""
    document = _document(status, body)
    if status != HTTPStatus.OK:
        return [End(Outcome.UNKNOWN, detail=_short(document))] * count
    offsets = document["offsets"]
    assert len(offsets) == count, f"{len(offsets)} offsets for {count} records: {body!r}"
    return [
        End(Outcome.STORED, each["partition"], each["offset"])
        if each.get("error_code") is None
        else End(Outcome.UNKNOWN, detail=_short(each))
        for each in offsets
    ]


def ends_of_v3(status: int, body: bytes, count: int) -> list[End]:
    """Of REST Proxy v3's delivery reports; its failures do not say whether anything was written."""
    if status != HTTPStatus.OK:
        return [End(Outcome.UNKNOWN, detail=_short(_document(status, body)))] * count
    reports = [json.loads(line) for line in body.splitlines()]
    assert len(reports) == count, f"{len(reports)} reports for {count} records: {body!r}"
    return [
        End(Outcome.STORED, each["partition_id"], each["offset"])
        if each["error_code"] == HTTPStatus.OK
        else End(Outcome.UNKNOWN, detail=_short(each))
        for each in reports
    ]


def ends_of_dapr(status: int, body: bytes, count: int) -> list[End]:
    """Of a Dapr publish, which names no place."""
    if status == HTTPStatus.NO_CONTENT:
        return [End(Outcome.PLACELESS)] * count
    return [End(Outcome.UNKNOWN, detail=_short(_document(status, body)))] * count


def _document(status: int, body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        raise AssertionError(f"{status} with a body that is no JSON: {body!r}") from None
    assert isinstance(document, dict), f"{status} with a body that is no object: {body!r}"
    return document


def _failed(written: str | None, error: Mapping[str, Any]) -> End:
    assert written in _OUTCOME_BY_WRITTEN, f"a failure that does not say whether it was written: {error}"
    return End(_OUTCOME_BY_WRITTEN[written], detail=_short(error))


def _short(error: Mapping[str, Any]) -> str:
    return json.dumps(error)[:_DETAIL_CHARACTERS]
