"""Bodies of POST /v1/leaders."""

from __future__ import annotations

import json

import pytest

from service.native.leaders import MAX_BODY_BYTES, MAX_LOOKUPS, LeaderLookup, parse_lookups
from service.wire.strict_json import BodyError


def test_a_partition_and_a_key_are_looked_up() -> None:
    body = b'{"lookups":[{"topic":"a","partition":3},{"topic":"b","key":"k"}]}'
    assert parse_lookups(body) == [LeaderLookup("a", 3, None), LeaderLookup("b", None, b"k")]


def test_a_json_key_is_compacted_as_on_the_wire() -> None:
    body = b'{"lookups":[{"topic":"b","key":{"a": 1.0},"key_format":"json"}]}'
    assert parse_lookups(body)[0].key == b'{"a":1.0}'


@pytest.mark.parametrize(
    ("body", "status", "place"),
    [
        (b"{}", 422, ""),
        (b'{"lookups":[]}', 422, "lookups"),
        (b'{"lookups":[{"topic":"a","partition":0}],"x":1}', 422, ""),
        (b'{"lookups":[{"topic":"a","partition":0},{"topic":"a"}]}', 422, "lookups[1]"),
        (b'{"lookups":[{"topic":"a","partition":0,"key":"k"}]}', 422, "lookups[0]"),
        (b'{"lookups":[{"topic":"a","partition":-1}]}', 422, "lookups[0].partition"),
        (b'{"lookups":[{"topic":"a","partition":2147483648}]}', 422, "lookups[0].partition"),
        (b'{"lookups":[{"topic":"a","partition":1,"key_format":"x"}]}', 422, "lookups[0].key_format"),
        (b" " * (MAX_BODY_BYTES + 1), 413, ""),
        (b'{"lookups":[{"topic":"a","partition":"1"}]}', 422, "lookups[0].partition"),
        (b'{"lookups":[{"topic":"a","key":null}]}', 422, "lookups[0].key"),
        (b'{"lookups":[{"topic":"a","key":1}]}', 422, "lookups[0].key"),
        (b'{"lookups":[{"topic":"a","key":"k","key_format":"avro"}]}', 422, "lookups[0].key_format"),
        (b'{"lookups":[{"topic":"a","topic":"b","partition":0}]}', 400, "lookups[0].topic"),
        (b'{"lookups":[{"topic":"\xff","partition":0}]}', 400, ""),
    ],
)
def test_what_can_not_be_meant_is_refused_with_its_place(body: bytes, status: int, place: str) -> None:
    with pytest.raises(BodyError) as refused:
        parse_lookups(body)
    assert (refused.value.status, refused.value.place) == (status, place)


def test_too_many_in_one_request_are_refused() -> None:
    most = json.dumps({"lookups": [{"topic": "a", "partition": 0}] * MAX_LOOKUPS}).encode()
    assert len(parse_lookups(most)) == 1_000
    body = json.dumps({"lookups": [{"topic": "a", "partition": 0}] * (MAX_LOOKUPS + 1)}).encode()
    with pytest.raises(BodyError, match="from 1 to 1000"):
        parse_lookups(body)
