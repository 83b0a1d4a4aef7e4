"""Bodies of REST Proxy v2: what becomes of each member, and how each fault is told."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import ProducerRecord
from service.dialects.rest_v2.error_codes import code_of
from service.dialects.rest_v2.records import ProduceBody, parse_body
from service.produce.records_codec import MAX_TIMESTAMP_MS
from service.wire.errors import ProblemError
from service.wire.json_parts import LARGE_BYTES, NO_LIMITS
from service.wire.payload import Format
from service.wire.strict_json import MAX_INT32

JSON, TEXT, BINARY = Format.JSON, Format.TEXT, Format.BASE64

_NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def parse(
    body: str | bytes, form: Format = JSON, path_partition: int | None = None, max_records: int = 1_000
) -> ProduceBody:
    raw = body.encode() if isinstance(body, str) else body
    return parse_body("orders", raw, form, path_partition, NO_LIMITS._replace(records=max_records))


def one(record: str, form: Format = JSON, path_partition: int | None = None) -> ProducerRecord:
    (parsed,) = parse(f'{{"records":[{record}]}}', form, path_partition).records
    return parsed


def fault(
    body: str | bytes, form: Format = JSON, path_partition: int | None = None, max_records: int = 1_000
) -> tuple[int, int, str]:
    """Status, code and message of a refusal."""
    with pytest.raises(ProblemError) as refused:
        parse(body, form, path_partition, max_records)
    problem = refused.value.problem
    return problem.status, code_of(problem), problem.detail


# -- keys and values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "wire"),
    [
        ("null", None),
        ("0", b"0"),
        ("-0.0", b"-0.0"),
        ("false", b"false"),
        ('""', b'""'),
        ("[]", b"[]"),
        ("{}", b"{}"),
        ("[ null ]", b"[null]"),
        ('{ "b": 1,  "a" : 2 }', b'{"b":1,"a":2}'),
        ("1.10", b"1.10"),
        ("123456789012345678901234567890", b"123456789012345678901234567890"),
        ('"null"', b'"null"'),
        ('"\\u00e9"', b'"\\u00e9"'),
        ('"é"', '"é"'.encode()),
        ('{"x":{"x":1,"x":2}}', b'{"x":{"x":1,"x":2}}'),
    ],
)
def test_json_goes_on_the_wire_compacted_and_only_null_is_null(written: str, wire: bytes | None) -> None:
    record = one(f'{{"key": {written}, "value": {written}}}')
    assert (record.key, record.value) == (wire, wire)


@pytest.mark.parametrize(
    ("form", "written", "wire"),
    [
        (TEXT, "null", None),
        (TEXT, '""', b""),
        (TEXT, '"null"', b"null"),
        (TEXT, '"a \\" \\n \\u00e9 \\ud83d\\ude00"', 'a " \n é 😀'.encode()),
        (BINARY, "null", None),
        (BINARY, '""', b""),
        (BINARY, '"AAH/"', b"\x00\x01\xff"),
        (BINARY, '"AAH\\u002f"', b"\x00\x01\xff"),
    ],
)
def test_text_and_binary_take_strings_and_null(form: Format, written: str, wire: bytes | None) -> None:
    record = one(f'{{"key": {written}, "value": {written}}}', form)
    assert (record.key, record.value) == (wire, wire)


@pytest.mark.parametrize("form", list(Format))
def test_what_is_left_out_is_null_as_in_confluents_proxy(form: Format) -> None:
    assert one("{}", form) == ProducerRecord("orders", None)
    assert one('{"partition":null,"timestamp":null,"headers":null}', form) == ProducerRecord("orders", None)


@pytest.mark.parametrize("form", [TEXT, BINARY])
@pytest.mark.parametrize("member", ["key", "value"])
@pytest.mark.parametrize("written", ["1", "true", "[]", '{"a":"b"}', "0"])
def test_what_is_no_string_is_a_payload_of_the_wrong_kind(form: Format, member: str, written: str) -> None:
    status, code, message = fault(f'{{"records":[{{}},{{"{member}":{written}}}]}}', form)
    assert (status, code) == (422, 42206)
    name = "text" if form is TEXT else "binary"
    assert message == f"records[1].{member}: must be a string in the {name} format, or null"


@pytest.mark.parametrize(
    "written",
    ["a", "a===", "YR", "YR==", "YQ==\\n", "Y Q==", "YQ==YQ==", "-_-_", "é", "====", "YQ=", "=", "Y\\u0051"],
)
def test_bad_base64_can_not_be_made_into_bytes(written: str) -> None:
    status, code, message = fault(f'{{"records":[{{"value":"{written}"}}]}}', BINARY)
    assert (status, code) == (422, 42207)
    assert message.startswith("records[0].value: bad base64")


@given(key=st.binary(max_size=40), value=st.binary(max_size=40), partition=st.integers(0, 9))
def test_bytes_come_through_binary_as_they_are(key: bytes, value: bytes, partition: int) -> None:
    written = {
        "key": base64.b64encode(key).decode(),
        "value": base64.b64encode(value).decode(),
        "partition": partition,
    }
    assert one(json.dumps(written), BINARY) == ProducerRecord("orders", value, key, partition)


@given(_TEXTS, st.booleans())
def test_text_comes_through_text_as_utf_8(text: str, ascii_only: bool) -> None:
    written = json.dumps({"value": text}, ensure_ascii=ascii_only)
    assert one(written, TEXT).value == text.encode()


# -- the other members ---------------------------------------------------------------------------------------


@given(data=st.binary(max_size=40))
def test_base64_may_lack_its_padding_as_confluent_and_strimzi_have_it(data: bytes) -> None:
    written = base64.b64encode(data).decode().rstrip("=")
    assert one(json.dumps({"key": written, "value": written}), BINARY) == ProducerRecord("orders", data, data)


@pytest.mark.parametrize(
    ("written", "path_partition", "partition"),
    [
        ("{}", None, None),
        ("{}", 2, 2),
        ('{"partition":2}', None, 2),
        ('{"partition":null}', 2, 2),
        ('{"partition":2}', 2, 2),
        (f'{{"partition":{MAX_INT32}}}', None, MAX_INT32),
    ],
)
def test_a_partition_is_the_paths_or_the_records(
    written: str, path_partition: int | None, partition: int | None
) -> None:
    body = parse(f'{{"records":[{written}]}}', JSON, path_partition)
    assert body.records[0].partition == partition
    assert body.greatest_partition == partition


def test_two_partitions_that_contradict_each_other_are_refused() -> None:
    status, code, message = fault('{"records":[{},{"partition":1}]}', JSON, 2)
    assert (status, code) == (422, 422)
    assert message == "records[1].partition: the path names partition 2, the record 1"


def test_the_greatest_partition_is_told() -> None:
    body = parse('{"records":[{"partition":3},{},{"partition":7},{"partition":0}]}')
    assert body.greatest_partition == 7


def test_a_partition_may_stand_in_quotes_as_confluent_and_karapace_have_it() -> None:
    assert parse('{"records":[{"partition":"7"}]}').records[0].partition == 7
    assert fault('{"records":[{"partition":"7","partition":"7"}]}')[:2] == (400, 40002)


@pytest.mark.parametrize("written", ['"-1"', '""', '"1.0"', '" 1"', '"99999999999"', '"\\u0031"', '"\u0661"'])
def test_what_stands_in_quotes_and_is_no_number_is_no_partition(written: str) -> None:
    status, code, _ = fault(f'{{"records":[{{"partition":{written}}}]}}')
    assert (status, code) == (400, 40002)


def test_a_timestamp_in_quotes_is_none() -> None:
    assert fault('{"records":[{"timestamp":"1"}]}')[:2] == (400, 40002)


@pytest.mark.parametrize("member", ["partition", "timestamp"])
@pytest.mark.parametrize("written", ["-1", "1.0", "1e0", "true", "[]", "99999999999999999999", "{}"])
def test_numbers_that_are_none_or_out_of_range_are_refused(member: str, written: str) -> None:
    status, code, message = fault(f'{{"records":[{{"value":1,"{member}":{written}}}]}}')
    assert (status, code) == (400, 40002)
    assert message.startswith(f"records[0].{member}: must be a whole number from 0 to ")


def test_a_timestamp_and_headers_are_taken_as_strimzi_has_them() -> None:
    record = one(
        f'{{"value":"v","timestamp":{MAX_TIMESTAMP_MS},"headers":['
        '{"key":"h","value":"dmFsdWUx"},{"value":null,"key":"h"},{"key":"\\u00e9","value":""}]}',
        TEXT,
    )
    assert record.timestamp_ms == MAX_TIMESTAMP_MS
    assert record.headers == (("h", b"value1"), ("h", None), ("é", b""))


@pytest.mark.parametrize(
    ("headers", "place"),
    [
        ('[{"key":"h","value":"!"}]', "records[0].headers[0].value"),
        ('[{"key":"h","value":1}]', "records[0].headers[0].value"),
        ('[{"key":null,"value":""}]', "records[0].headers[0].key"),
        ('[{"value":""}]', "records[0].headers[0]"),
        ('[{"key":"h","value":"","x":1}]', "records[0].headers[0]"),
        ('{"h":"v"}', "records[0].headers"),
        ("3", "records[0].headers"),
    ],
)
def test_headers_that_are_none_are_refused_by_their_place(headers: str, place: str) -> None:
    status, code, message = fault(f'{{"records":[{{"value":1,"headers":{headers}}}]}}')
    assert (status, code) == (422, 422)
    assert message.startswith(f"{place}: ")


@pytest.mark.parametrize("name", ["key_schema", "key_schema_id", "value_schema", "value_schema_id"])
def test_schemas_are_harmless_as_null_and_else_refused(name: str) -> None:
    assert len(parse(f'{{"{name}":null,"records":[{{"value":1}}]}}').records) == 1
    for written in ("1", '"{}"', "{}", "0", '""'):
        status, code, message = fault(f'{{"records":[{{"value":1}}],"{name}":{written}}}')
        assert (status, code) == (422, 42205)
        assert message == f"{name}: must be null: this proxy knows no schema registry"


def test_all_members_at_once_in_any_order_and_any_white_space_are_understood() -> None:
    body = """ { "value_schema_id" : null , "records" : [ { } ,
        { "headers" : [ ] , "timestamp" : 1 , "partition" : 0 , "value" : 1 , "key" : 2 } ] ,
        "key_schema" : null , "value_schema":null, "key_schema_id":null } """
    assert parse(body).records == [
        ProducerRecord("orders", None),
        ProducerRecord("orders", b"1", b"2", 0, 1, ()),
    ]


# -- what is no such body ------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["", " \r\n", "null", "{}", '{"records":[]}', '{"records":null}'])
def test_without_records_there_is_nothing_to_do(body: str) -> None:
    assert fault(body)[:2] == (422, 422)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"records":[{"value":1}],"x":1}', "Object contains unknown field `x`"),
        ('{"record":[{"value":1}]}', "Object contains unknown field `record`"),
        ('{"records":[{"value":1},{"valur":1}]}', "records[1]: Object contains unknown field `valur`"),
        ('{"records":[{"value":1,"Key":1}]}', "records[0]: Object contains unknown field `Key`"),
    ],
)
def test_a_member_that_nobody_knows_is_refused(body: str, message: str) -> None:
    assert fault(body) == (422, 422, message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[]", "Expected `object | null`, got `array`"),
        ('"records"', "Expected `object | null`, got `str`"),
        ("1", "Expected `object | null`, got `int`"),
        ('{"records":{}}', "records: Expected `array | null`, got `object`"),
        ('{"records":"x"}', "records: Expected `array | null`, got `str`"),
        ('{"records":[{},3]}', "records[1]: Expected `object`, got `int`"),
        ('{"records":[{},null]}', "records[1]: Expected `object`, got `null`"),
        ('{"records":[[{}]]}', "records[0]: Expected `object`, got `array`"),
        ('{"records":[{"value":1,"value":1}]}', "records[0].value: duplicate field"),
        ('{"records":[{"key":1,"\\u006bey":1}]}', "records[0].key: duplicate field"),
        ('{"records":[{}],"records":[{}]}', "records: duplicate field"),
        (
            '{"records":[{"headers":[{"key":"a","key":"a","value":""}]}]}',
            "records[0].headers[0].key: duplicate field",
        ),
        ('{"value_schema":null,"value_schema":null,"records":[{}]}', "value_schema: duplicate field"),
    ],
)
def test_what_does_not_have_the_shape_is_a_bad_request(body: str, message: str) -> None:
    assert fault(body) == (400, 40002, message)


_MANY = LARGE_BYTES // len("{},") + 1


@pytest.mark.parametrize(
    ("record", "status", "code", "message"),
    [
        ("3", 400, 40002, "[{}]: Expected `object`, got `int`"),
        ('{"value":1,"value":1}', 400, 40002, "[{}].value: duplicate field"),
        ('{"valur":1}', 422, 422, "[{}]: Object contains unknown field `valur`"),
        ('{"partition":-1}', 400, 40002, "[{}].partition: "),
    ],
)
def test_a_record_behind_many_others_is_refused_by_its_place(
    record: str, status: int, code: int, message: str
) -> None:
    found = fault(f'{{"records":[{"{}," * _MANY}{record},{{}}]}}', max_records=10 * _MANY)
    assert found[:2] == (status, code)
    assert found[2].startswith("records" + message.format(_MANY))


def test_a_large_body_without_records_or_with_a_member_twice_is_refused() -> None:
    space = " " * LARGE_BYTES
    for body in (f'{{"records":[{space}]}}', f"null{space}", f"{{}}{space}", f'{{"records":null}}{space}'):
        assert fault(body)[:2] == (422, 422)
    twice = f'{{"value_schema":null,"records":[{"{}," * _MANY}{{}}],"value_schema":null}}'
    assert fault(twice, max_records=10 * _MANY)[2] == "value_schema: duplicate field"


@pytest.mark.parametrize(("first", "last"), [(5, 2), (2, 5), (5, None), (None, 5), (0, None), (None, None)])
def test_the_greatest_partition_of_a_large_body_is_told(first: int | None, last: int | None) -> None:
    records = [{} if number is None else {"partition": number} for number in (first, last)]
    body = f'{{"records":[{json.dumps(records[0])},{"{}," * _MANY}{json.dumps(records[1])}]}}'
    parsed = parse(body, max_records=10 * _MANY)
    assert len(parsed.records) == _MANY + 2
    assert parsed.greatest_partition == max((n for n in (first, last) if n is not None), default=None)


def test_a_name_that_is_merely_written_with_escapes_is_that_name() -> None:
    assert parse('{"r\\u0065cords":[{"v\\u0061lue":1}]}').records == [ProducerRecord("orders", b"1")]


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"records":[{"value":}]}',
        b'{"records":[{"value":1}]} x',
        b'{"records":[{"value":NaN}]}',
        b'{"records":[{"value":01}]}',
        b'{"records":[{"value":"\xff"}]}',
        b'\xff\xfe{"records":[]}',
        "{}".encode("utf-16"),
        b"records=1",
        b'{"records":[{"value":"a\nb"}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_json_is_a_bad_request(body: bytes) -> None:
    assert fault(body)[:2] == (400, 40002)


def test_deep_nesting_is_refused_and_does_no_harm() -> None:
    fine = "[" * 128 + "]" * 128
    assert one(f'{{"value":{fine}}}').value == fine.encode()
    assert fault(f'{{"records":[{{"value":[{fine}]}}]}}')[:2] == (422, 42207)
    deep = "[" * 50_000 + "]" * 50_000
    assert fault(f'{{"records":[{{"value":{deep}}}]}}')[:2] == (400, 40002)


@pytest.mark.parametrize("form", [TEXT, BINARY])
def test_a_lone_surrogate_can_not_be_made_into_bytes(form: Format) -> None:
    assert fault('{"records":[{"value":"\\ud800"}]}', form)[0] in (400, 422)


def test_too_many_records_are_refused_as_too_large() -> None:
    ten = '{"records":[' + ",".join(['{"value":{}}'] * 10) + "]}"
    assert len(parse(ten, max_records=10).records) == 10
    status, code, message = fault(ten, max_records=9)
    assert (status, code) == (413, 413)
    assert message == "records: more than 9 records (max_records_per_request)"


def test_objects_within_a_value_are_not_counted_as_records() -> None:
    assert len(parse('{"records":[{"value":[{},{},{},{}]}]}', max_records=1).records) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | _NUMBERS | _TEXTS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
        max_leaves=12,
    )
)
def test_any_json_comes_through_and_means_the_same(value: object) -> None:
    written = json.dumps({"records": [{"value": value}]}, ensure_ascii=False).encode()
    (record,) = parse(written).records
    assert value is None if record.value is None else json.loads(record.value) == value
