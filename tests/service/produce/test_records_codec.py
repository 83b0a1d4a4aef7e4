"""Produce bodies: how they are read, and every way in which they are refused."""

from __future__ import annotations

import base64
import json
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import EncodedHeaders, ProducerRecord
from service.dialects.rest_v2.records import parse_body
from service.produce.records_codec import MAX_TIMESTAMP_MS, LineCodec, parse_records
from service.wire.json_parts import LARGE_BYTES, NO_LIMITS
from service.wire.payload import Format
from service.wire.strict_json import MAX_DEPTH, MAX_INT32, BodyError, find_fault
from tests.support.counted_work import calls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def parse(body: str | bytes) -> list[ProducerRecord]:
    return parse_records("orders", body.encode() if isinstance(body, str) else body)


def refusal(body: str | bytes) -> tuple[int, str, str]:
    """The status, the place and the message; 0 where it is taken."""
    try:
        parse(body)
    except BodyError as refused:
        return refused.status, refused.place, refused.message
    return 0, "", ""


def test_a_value_alone_is_a_record() -> None:
    assert parse('{"records": [{"value": {"a": 1}}]}') == [ProducerRecord("orders", b'{"a":1}')]


def test_a_record_may_say_everything() -> None:
    body = """{"key_format": "json", "value_format": "base64", "records": [{
        "headers": [{"key": "h", "value": "AQI="}, {"key": "h", "value": null}],
        "timestamp": 17, "partition": 3, "key": {"k": 1.0}, "value": "AAE="}]}"""
    assert parse(body) == [
        ProducerRecord("orders", b"\x00\x01", b'{"k":1.0}', 3, 17, (("h", b"\x01\x02"), ("h", None)))
    ]


def test_records_keep_their_order() -> None:
    body = json.dumps({"records": [{"value": n} for n in range(100)]})
    assert [record.value for record in parse(body)] == [str(n).encode() for n in range(100)]


_HEADER = '{"key":"h","value":"AA=="}'
_MEMBERS = (
    *('"key":"k"', '"partition":0', '"timestamp":1', '"headers":null'),
    *(
        '"headers":[]',
        f'"headers":[{_HEADER}]',
        f'"headers":[{_HEADER},{_HEADER},{{"key":"g","value":null}}]',
    ),
)
_SOUND = ['{"value":1}', *(f'{{"value":1,{member}}}' for member in _MEMBERS)]
_ALL = '{"value":[1],"key":"k","partition":0,"timestamp":1,"headers":[]}'
_LISTS = [*([record] for record in _SOUND), [*_SOUND, _ALL] * 2, [_ALL] * (LARGE_BYTES // len(_ALL) + 1)]
_FORMATS = tuple(
    f"{key}{value}" for key in ("", '"key_format":"text",') for value in ("", '"value_format":"json",')
)


def _fitting() -> Iterator[tuple[str, Callable[[], object]]]:
    """Sound bodies of all forms that are compact already, small and large, and what reads them."""
    for records in _LISTS:
        joined = ",".join(records)
        for formats in _FORMATS:
            yield joined, partial(parse, f'{{{formats}"records":[{joined}]}}')
        lines = [record.encode() for record in records]
        yield joined, partial(LineCodec("orders", Format.TEXT, Format.JSON).parse, lines, 0)
    texts = [[f'{{"value":"{"a" * length}"}}'] for length in (1, 7, LARGE_BYTES)]
    for records in (*texts, [f'{{"value":"{n}"}}' for n in range(LARGE_BYTES // 12)]):
        body = f'{{"value_format":"text","records":[{",".join(records)}]}}'
        yield body, partial(parse, body)
    v2 = ["{}", '{"key":1}', *_SOUND]
    for records in (*([record] for record in v2), v2, [*v2, *_LISTS[-1]]):
        for schemas in ("", '"key_schema":null,', '"value_schema":null,"key_schema_id":null,'):
            body = f'{{{schemas}"records":[{",".join(records)}]}}'
            yield body, partial(parse_body, "orders", body.encode(), Format.JSON, None, NO_LIMITS)


def test_a_sound_body_is_not_searched_for_a_fault() -> None:
    """The search takes many times as long as the reading, so it runs only for bodies with a fault."""
    for body, read in _fitting():
        assert calls_of(find_fault.__code__, read) == 0, body[:200]
    assert calls_of(find_fault.__code__, partial(parse, '{"records":[{"v\\u0061lue":1}]}')) == 1


VALUES = st.none() | st.text(max_size=4) | st.sampled_from(["a", "b\\", 'q"', "\u00e9", ""])


@given(
    values=st.lists(VALUES, min_size=1, max_size=6),
    extra=st.none() | st.sampled_from(["key", "partition", "timestamp", "headers"]),
    of_record=st.integers(0, 5),
)
def test_strings_mean_the_same_taken_together_or_one_by_one(
    values: list[str | None], extra: str | None, of_record: int
) -> None:
    """Together where each is a string and nothing else; a key in one has all of them read one by one."""
    records: list[dict[str, object]] = [{"value": value} for value in values]
    if extra is not None and of_record < len(records):
        records[of_record][extra] = None
    together = parse(json.dumps({"records": records, "value_format": "text"}, ensure_ascii=False))
    keyed = [{**record, "key": "k"} for record in records]
    one_by_one = parse(json.dumps({"records": keyed, "value_format": "text"}))
    assert together == [record._replace(key=None) for record in one_by_one]


def test_a_fault_among_plain_strings_is_found_where_it_is() -> None:
    places = {
        '{"value":"a","value":"a"}': "records[1].value",
        '{"value":1}': "records[1].value",
        '{"value":"a","extra":""}': "records[1]",
        "{}": "records[1]",
    }
    before, after = '{"value_format":"text","records":[{"value":"a"},', ',{"value":"c"}]}'
    assert {record: refusal(f"{before}{record}{after}")[1] for record in places} == places


def test_a_null_value_is_a_tombstone_and_a_null_key_is_none_and_no_other_value_is_one() -> None:
    for form in ("json", "text", "base64"):
        body = {"records": [{"key": None, "value": None}], "value_format": form, "key_format": form}
        assert parse(json.dumps(body)) == [ProducerRecord("orders", None, None)], form
    for value in ("0", "false", '""', "[]", "{}"):
        assert parse(f'{{"records":[{{"value":{value}}}]}}')[0].value == value.encode()


def test_keys_are_text_by_default() -> None:
    assert parse('{"records": [{"key": "user-1", "value": 1}]}')[0].key == b"user-1"
    assert parse('{"records": [{"key": "user-1", "value": 1}], "key_format": "json"}')[0].key == b'"user-1"'


def test_json_is_compacted_and_its_digits_stay() -> None:
    body = '{"records": [{"value": {"a" : 1.50, "b": [ 1e3, -0, 123456789012345678901234567890 ]}}]}'
    assert parse(body)[0].value == b'{"a":1.50,"b":[1e3,-0,123456789012345678901234567890]}'


def test_two_spellings_of_one_json_key_are_one_key() -> None:
    one = parse('{"records": [{"key": {"a": 1}, "value": 1}], "key_format": "json"}')
    other = parse('{"records": [{"key": {"a":1}, "value": 1}], "key_format": "json"}')
    assert one[0].key == other[0].key


def test_names_inside_a_payload_may_repeat_and_stay() -> None:
    assert parse('{"records":[{"value":{"a":1,"a":2}}]}')[0].value == b'{"a":1,"a":2}'


def test_member_names_written_with_escapes_are_understood() -> None:
    assert parse(r'{"records":[{"v\u0061lue":1}]}')[0].value == b"1"


def test_escaped_names_in_the_headers_of_many_records_cost_one_second_look() -> None:
    """One for each record took minutes for these."""
    record = rb'{"value":1,"headers":[{"k\u0065y":"a","value":null}]}'
    records = parse(b'{"records":[' + b",".join([record] * 10_000) + b"]}")
    assert records[-1].headers == (("a", None),)


def test_many_headers_of_a_record_have_no_object_each() -> None:
    for count, are_encoded in ((3, False), (100, True)):
        headers = ",".join(['{"key":"a","value":null}'] * count)
        (record,) = parse(f'{{"records":[{{"value":1,"headers":[{headers}]}}]}}')
        assert isinstance(record.headers, EncodedHeaders) is are_encoded, count


def test_millions_of_records_are_refused_without_an_object_for_each() -> None:
    """An outline of these took half a gigabyte."""
    for item in (b"0,", b"{},", b'"",', b'{"value":0},'):
        body = b'{"records":[' + item * (2_000_000 // len(item)) + b"0]}"
        tracemalloc.start()
        try:
            with pytest.raises(BodyError) as refused:
                parse_records("orders", body, NO_LIMITS._replace(records=1_000))
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert refused.value.status in (413, 422), item
        assert peak_bytes < 12 * len(body), item


def test_null_partition_timestamp_and_headers_are_as_if_absent() -> None:
    body = '{"records":[{"value":1,"partition":null,"timestamp":null,"headers":null}]}'
    assert parse(body) == [ProducerRecord("orders", b"1")]


def test_the_greatest_numbers_are_taken() -> None:
    body = f'{{"records":[{{"value":1,"partition":{MAX_INT32},"timestamp":{MAX_TIMESTAMP_MS}}}]}}'
    assert parse(body)[0].timestamp_ms == MAX_TIMESTAMP_MS


def _body_of(*members: bytes) -> bytes:
    """That of one record, which has a value and these members."""
    return b'{"records":[{"value":1,' + b",".join(members) + b"}]}"


#: Bodies that can't be meant, by the status and the place of their fault.
_FAULTS: dict[tuple[int, str], list[bytes]] = {
    # not sound JSON
    (400, ""): [
        b"",
        b'{"records":[{"value":1}]} x',
        b'{"records":[{"value":"\xff"}]}',
        b'{"records":[{"value":NaN}]}',
    ],
    (400, "records[1].value"): [rb'{"records":[{"value":1},{"value":"\ud800"}]}'],
    (400, "records[0].key"): [rb'{"records":[{"value":1,"key":"a\udc00b"}]}'],
    # a lone surrogate, and a duplicate member
    (400, "records[0].value"): [
        rb'{"records":[{"value":{"\ud800":1}}]}',
        b'{"records":[{"value":1,"value":1}]}',
    ],
    # duplicate members
    (400, "records[1].key"): [b'{"records":[{"value":1},{"key":"a","value":1,"key":"a"}]}'],
    (400, "records[0].partition"): [_body_of(b'"partition":1,"partition":1')],
    (400, "records"): [b'{"records":[{"value":1}],"records":[{"value":1}]}'],
    (400, "key_format"): [b'{"key_format":"text","records":[{"value":1}],"key_format":"text"}'],
    (400, "records[0].headers[0].value"): [_body_of(b'"headers":[{"key":"h","value":null,"value":null}]')],
    # members that nobody knows, or that are missing
    (422, ""): [b"[]", b'{"records":[{"value":1}],"x":1}', b"{}"],
    (422, "records[1]"): [
        b'{"records":[{"value":1},{"value":1,"vlaue":1}]}',
        b'{"records":[{"value":1},{"key":"a"}]}',
    ],
    (422, "records[0].headers[0]"): [_body_of(b'"headers":[{"key":"h"}]')],
    (422, "records"): [b'{"records":[]}', b'{"records":{}}'],
    (422, "records[0]"): [b'{"records":[1]}'],
    # values that can't be
    (422, "value_format"): [b'{"records":[{"value":1}],"value_format":"avro"}'],
    (422, "key_format"): [b'{"records":[{"value":1}],"key_format":null}'],
    (422, "records[0].value"): [
        b'{"records":[{"value":1}],"value_format":"text"}',
        b'{"records":[{"value":"a"},{"value":"YQ"}],"value_format":"base64"}',
    ],
    (422, "records[1].value"): [b'{"records":[{"value":"YQ=="},{"value":"YQ"}],"value_format":"base64"}'],
    (422, "records[0].key"): [_body_of(b'"key":{"a":1}')],
    (422, "records[0].partition"): [
        _body_of(b'"partition":' + number)
        for number in (b"-1", b"2147483648", b"1.0", b"1e1", b'"1"', b"true")
    ],
    (422, "records[0].timestamp"): [
        _body_of(b'"timestamp":' + number) for number in (b"9223372036854775808", b"9" * 9000)
    ],
    (422, "records[0].headers[0].key"): [_body_of(b'"headers":[{"key":null,"value":null}]')],
    (422, "records[0].headers[0].value"): [
        _body_of(b'"headers":[{"key":"h","value":"YQ"}]'),
        _body_of(b'"headers":[{"key":"h","value":1}]'),
    ],
}


def test_what_can_not_be_meant_is_refused_with_its_place() -> None:
    for (status, place), bodies in _FAULTS.items():
        for body in bodies:
            assert refusal(body)[:2] == (status, place), body


def test_of_a_large_body_as_many_records_as_allowed_are_taken_and_one_more_is_not() -> None:
    one = b'{"value":null}'
    count = LARGE_BYTES // len(one) + 1
    body = b'{"records":[' + b",".join([one] * count) + b"]}"
    assert len(parse_records("orders", body, NO_LIMITS._replace(records=count))) == count
    with pytest.raises(BodyError, match=f"^records: more than {count - 1} records$"):
        parse_records("orders", body, NO_LIMITS._replace(records=count - 1))


def test_a_fault_behind_many_records_has_the_same_status_and_its_own_place() -> None:
    fill = b'{"value":null},'
    before = LARGE_BYTES // len(fill) + 1
    for (status, place), bodies in _FAULTS.items():
        if "[" not in place:
            continue
        number = int(place[len("records[") : place.index("]")])
        behind = place.replace(f"[{number}]", f"[{number + before}]", 1)
        for body in bodies:
            large = body.replace(b'"records":[', b'"records":[' + fill * before, 1)
            assert refusal(large)[:2] == (status, behind), body


def test_a_fault_around_the_records_of_a_large_body_is_found() -> None:
    for before, after, status, place in (
        ("", "", 422, "records"),
        ('"key_format":"text",', ',"key_format":"text"', 400, "key_format"),
        ("", ',"value_format":"avro"', 422, "value_format"),
        ("", ',"x":1', 422, ""),
        ("", ',"records":[]', 400, "records"),
    ):
        records = ",".join(['{"value":1}'] * (LARGE_BYTES // 10)) if after else " " * LARGE_BYTES
        found = refusal(f'{{{before}"records":[{records}]{after}}}')
        assert found[:2] == (status, place), (before, after)


def test_nesting_up_to_the_limit_is_taken_and_deeper_refused_however_deep() -> None:
    value = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse(f'{{"records":[{{"value":{value}}}]}}')[0].value == value.encode()
    for levels in (MAX_DEPTH + 1, MAX_DEPTH + 10, 900, 5_000):
        for space in ("", " " * LARGE_BYTES):  # parsed as a whole, and in parts
            body = '{"records":' + space + '[{"value":1},{"value":' + "[" * levels + "]" * levels + "}]}"
            status, _, said = refusal(body)
            assert (status, "nested deeper than 128 levels" in said) == (400, True), (levels, len(space))


_KEYS = st.none() | st.binary(max_size=20)
_RECORDS = st.builds(
    ProducerRecord,
    st.just("orders"),
    _KEYS,
    _KEYS,
    st.none() | st.integers(0, MAX_INT32),
    st.none() | st.integers(0, MAX_TIMESTAMP_MS),
    st.lists(st.tuples(st.text(max_size=8), _KEYS), max_size=3).map(tuple),
)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


@given(st.lists(_RECORDS, min_size=1, max_size=5), st.sampled_from([None, 2]), st.booleans())
def test_every_record_can_be_written_and_comes_out_as_it_was(
    records: list[ProducerRecord], indent: int | None, ascii_only: bool
) -> None:
    body = {
        "key_format": "base64",
        "value_format": "base64",
        "records": [
            {
                "key": _base64(record.key),
                "value": _base64(record.value),
                "partition": record.partition,
                "timestamp": record.timestamp_ms,
                "headers": [{"key": k, "value": _base64(v)} for k, v in record.headers],
            }
            for record in records
        ],
    }
    assert parse(json.dumps(body, indent=indent, ensure_ascii=ascii_only)) == records
