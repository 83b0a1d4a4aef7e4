"""Bodies of REST Proxy v2: how each member is read, the error of each fault, and which types are read."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from client_core import ProducerRecord
from service.dialects.rest_v2.error_codes import code_of
from service.dialects.rest_v2.media_types import check_accept, format_of
from service.dialects.rest_v2.records import ProduceBody, parse_body
from service.produce.records_codec import MAX_TIMESTAMP_MS
from service.wire.errors import ProblemError
from service.wire.json_parts import LARGE_BYTES, NO_LIMITS
from service.wire.payload import Format
from service.wire.strict_json import MAX_INT32

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Status, code and message of a refusal; all nothing where it is taken."""
    try:
        parse(body, form, path_partition, max_records)
    except ProblemError as refused:
        return refused.problem.status, code_of(refused.problem), refused.problem.detail
    return 0, 0, ""


# -- keys and values -----------------------------------------------------------------------------------------


#: By the format, what is written for a key and for a value, and what goes on the wire.
WIRE: dict[Format, dict[str, bytes | None]] = {
    JSON: {
        "null": None,
        "[ null ]": b"[null]",
        '{ "b": 1,  "a" : 2 }': b'{"b":1,"a":2}',
        '"é"': '"é"'.encode(),
        **{
            same: same.encode()
            for same in (
                *("0", "-0.0", "false", '""', "[]", "{}", "1.10", "123456789012345678901234567890"),
                *('"null"', '"\\u00e9"', '{"x":{"x":1,"x":2}}'),
            )
        },
    },
    TEXT: {
        "null": None,
        '""': b"",
        '"null"': b"null",
        '"a \\" \\n \\u00e9 \\ud83d\\ude00"': 'a " \n é 😀'.encode(),
    },
    BINARY: {"null": None, '""': b"", '"AAH/"': b"\x00\x01\xff", '"AAH\\u002f"': b"\x00\x01\xff"},
}


def test_json_goes_on_the_wire_compacted_and_text_and_binary_take_strings_and_only_null_is_null() -> None:
    for form, wire in WIRE.items():
        records = {written: one(f'{{"key": {written}, "value": {written}}}', form) for written in wire}
        assert {written: record.key for written, record in records.items()} == wire
        assert {written: record.value for written, record in records.items()} == wire


def test_a_missing_member_is_null_as_in_confluents_proxy() -> None:
    nulls = '{"partition":null,"timestamp":null,"headers":null}'
    for form in Format:
        assert [one("{}", form), one(nulls, form)] == [ProducerRecord("orders", None)] * 2


def test_what_is_no_string_is_a_payload_of_the_wrong_kind() -> None:
    for form, name in ((TEXT, "text"), (BINARY, "binary")):
        for member in ("key", "value"):
            message = f"records[1].{member}: must be a string in the {name} format, or null"
            for written in ("1", "true", "[]", '{"a":"b"}', "0"):
                found = fault(f'{{"records":[{{}},{{"{member}":{written}}}]}}', form)
                assert found == (422, 42206, message), written


def test_bad_base64_can_not_be_made_into_bytes() -> None:
    for written in (
        *("a", "a===", "YR", "YR==", "YQ==\\n", "Y Q==", "YQ==YQ==", "-_-_", "é", "====", "YQ=", "="),
        *("Y\\u0051\\u003d", "Y\\u0052", "\\u0051", "\\\\/AA", "\\\\/A"),
    ):
        status, code, message = fault(f'{{"records":[{{"value":"{written}"}}]}}', BINARY)
        assert (status, code) == (422, 42207), written
        assert message.startswith("records[0].value: bad base64")


@given(key=st.binary(max_size=40), value=st.binary(max_size=40), partition=st.integers(0, 9))
def test_bytes_come_through_binary_as_they_are_with_their_padding_or_without(
    key: bytes, value: bytes, partition: int
) -> None:
    """Confluent and Strimzi take base64 without its padding too."""
    written = [base64.b64encode(data).decode() for data in (key, value)]
    for padding in ("", "="):
        members = {name: text.rstrip(padding) for name, text in zip(("key", "value"), written, strict=True)}
        written_plainly = json.dumps({**members, "partition": partition})
        # PHP escapes each slash, .NET each plus.
        for escaped in (written_plainly, written_plainly.replace("/", r"\/").replace("+", r"\u002B")):
            record = one(escaped, BINARY)
            assert record == ProducerRecord("orders", value, key, partition)


@given(_TEXTS, st.booleans())
def test_text_comes_through_text_as_utf_8(text: str, ascii_only: bool) -> None:
    written = json.dumps({"value": text}, ensure_ascii=ascii_only)
    assert one(written, TEXT).value == text.encode()


# -- the other members ---------------------------------------------------------------------------------------


def test_a_partition_is_the_paths_or_the_records() -> None:
    for written, path_partition, partition in (
        ("{}", None, None),
        ("{}", 2, 2),
        ('{"partition":2}', None, 2),
        ('{"partition":null}', 2, 2),
        ('{"partition":2}', 2, 2),
        (f'{{"partition":{MAX_INT32}}}', None, MAX_INT32),
    ):
        body = parse(f'{{"records":[{written}]}}', JSON, path_partition)
        assert (body.records[0].partition, body.greatest_partition) == (partition, partition), written


def test_two_partitions_that_contradict_each_other_are_refused() -> None:
    status, code, message = fault('{"records":[{},{"partition":1}]}', JSON, 2)
    assert (status, code) == (422, 422)
    assert message == "records[1].partition: the path names partition 2, the record 1"


def test_the_greatest_partition_is_returned() -> None:
    body = parse('{"records":[{"partition":3},{},{"partition":7},{"partition":0}]}')
    assert body.greatest_partition == 7


def test_a_partition_may_be_quoted_as_confluent_and_karapace_have_it() -> None:
    assert parse('{"records":[{"partition":"7"}]}').records[0].partition == 7
    for member in (
        '"partition":"7","partition":"7"',
        *(f'"partition":{text}' for text in ('"-1"', '""', '"1.0"', '" 1"', '"99999999999"', '"\\u0031"')),
        '"partition":"\u0661"',
        '"timestamp":"1"',
    ):
        assert fault(f'{{"records":[{{{member}}}]}}')[:2] == (400, 40002), member


def test_numbers_that_are_none_or_out_of_range_are_refused() -> None:
    for member in ("partition", "timestamp"):
        for written in ("-1", "1.0", "1e0", "true", "[]", "99999999999999999999", "{}"):
            status, code, message = fault(f'{{"records":[{{"value":1,"{member}":{written}}}]}}')
            assert (status, code) == (400, 40002), written
            assert message.startswith(f"records[0].{member}: must be a whole number from 0 to "), written


def test_a_timestamp_and_headers_are_taken_as_strimzi_has_them() -> None:
    record = one(
        f'{{"value":"v","timestamp":{MAX_TIMESTAMP_MS},"headers":['
        '{"key":"h","value":"dmFsdWUx"},{"value":null,"key":"h"},{"key":"\\u00e9","value":""}]}',
        TEXT,
    )
    assert record.timestamp_ms == MAX_TIMESTAMP_MS
    assert record.headers == (("h", b"value1"), ("h", None), ("é", b""))


def test_headers_that_are_none_are_refused_by_their_place() -> None:
    for headers, place in (
        ('[{"key":"h","value":"!"}]', "[0].value"),
        ('[{"key":"h","value":1}]', "[0].value"),
        ('[{"key":null,"value":""}]', "[0].key"),
        ('[{"value":""}]', "[0]"),
        ('[{"key":"h","value":"","x":1}]', "[0]"),
        ('{"h":"v"}', ""),
        ("3", ""),
    ):
        status, code, message = fault(f'{{"records":[{{"value":1,"headers":{headers}}}]}}')
        assert (status, code) == (422, 422), headers
        assert message.startswith(f"records[0].headers{place}: "), headers


def test_schemas_are_harmless_as_null_and_else_refused() -> None:
    for name in ("key_schema", "key_schema_id", "value_schema", "value_schema_id"):
        assert len(parse(f'{{"{name}":null,"records":[{{"value":1}}]}}').records) == 1
        message = f"{name}: must be null: a schema registry is not supported"
        for written in ("1", '"{}"', "{}", "0", '""'):
            found = fault(f'{{"records":[{{"value":1}}],"{name}":{written}}}')
            assert found == (422, 42205, message), written


def test_all_members_at_once_in_any_order_and_any_white_space_are_understood() -> None:
    body = """ { "value_schema_id" : null , "records" : [ { } ,
        { "headers" : [ ] , "timestamp" : 1 , "partition" : 0 , "value" : 1 , "key" : 2 } ] ,
        "key_schema" : null , "value_schema":null, "key_schema_id":null } """
    assert parse(body).records == [
        ProducerRecord("orders", None),
        ProducerRecord("orders", b"1", b"2", 0, 1, ()),
    ]


# -- other bodies --------------------------------------------------------------------------------------------


_FORM = '; the form is {"records":[{"value":...}]}'
UNKNOWN_MEMBERS = {
    '{"records":[{"value":1}],"x":1}': f"Object contains unknown field `x`{_FORM}",
    '{"records":[],"async":1}': f"Object contains unknown field `async`; async is a query parameter{_FORM}",
    '{"record":[{"value":1}]}': f"Object contains unknown field `record`{_FORM}",
    '{"records":[{"value":1},{"valur":1}]}': "records[1]: Object contains unknown field `valur`",
    '{"records":[{"value":1,"Key":1}]}': "records[0]: Object contains unknown field `Key`",
}
OTHER_SHAPES = {
    "[]": f"Expected `object | null`, got `array`{_FORM}",
    '"records"': f"Expected `object | null`, got `str`{_FORM}",
    "1": f"Expected `object | null`, got `int`{_FORM}",
    '{"records":{}}': f"records: Expected `array | null`, got `object`{_FORM}",
    '{"records":"x"}': f"records: Expected `array | null`, got `str`{_FORM}",
    '{"records":[{},3]}': f"records[1]: Expected `object`, got `int`{_FORM}",
    '{"records":[{},null]}': f"records[1]: Expected `object`, got `null`{_FORM}",
    '{"records":[[{}]]}': f"records[0]: Expected `object`, got `array`{_FORM}",
    '{"records":[{"value":1,"value":1}]}': "records[0].value: duplicate field",
    '{"records":[{"key":1,"\\u006bey":1}]}': "records[0].key: duplicate field",
    '{"records":[{}],"records":[{}]}': "records: duplicate field",
    '{"records":[{"headers":[{"key":"a","key":"a","value":""}]}]}': (
        "records[0].headers[0].key: duplicate field"
    ),
    '{"value_schema":null,"value_schema":null,"records":[{}]}': "value_schema: duplicate field",
}


def test_without_records_or_with_an_unknown_member_it_is_422_and_in_another_shape_400() -> None:
    for body in ("", " \r\n", "null", "{}", '{"records":[]}', '{"records":null}'):
        assert fault(body)[:2] == (422, 422), body
    assert {body: fault(body) for body in UNKNOWN_MEMBERS} == {
        body: (422, 422, message) for body, message in UNKNOWN_MEMBERS.items()
    }
    assert {body: fault(body) for body in OTHER_SHAPES} == {
        body: (400, 40002, message) for body, message in OTHER_SHAPES.items()
    }


_MANY = LARGE_BYTES // len("{},") + 1


def test_a_record_behind_many_others_is_refused_by_its_place() -> None:
    for record, said, message in (
        ("3", (400, 40002), "[{}]: Expected `object`, got `int`"),
        ('{"value":1,"value":1}', (400, 40002), "[{}].value: duplicate field"),
        ('{"valur":1}', (422, 422), "[{}]: Object contains unknown field `valur`"),
        ('{"partition":-1}', (400, 40002), "[{}].partition: "),
    ):
        found = fault(f'{{"records":[{"{}," * _MANY}{record},{{}}]}}', max_records=10 * _MANY)
        assert found[:2] == said, record
        assert found[2].startswith("records" + message.format(_MANY)), record


def test_a_large_body_without_records_or_with_a_member_twice_is_refused() -> None:
    space = " " * LARGE_BYTES
    for body in (f'{{"records":[{space}]}}', f"null{space}", f"{{}}{space}", f'{{"records":null}}{space}'):
        assert fault(body)[:2] == (422, 422)
    twice = f'{{"value_schema":null,"records":[{"{}," * _MANY}{{}}],"value_schema":null}}'
    assert fault(twice, max_records=10 * _MANY)[2] == "value_schema: duplicate field"


def test_the_greatest_partition_of_a_large_body_is_returned() -> None:
    for pair in ((5, 2), (2, 5), (5, None), (None, 5), (0, None), (None, None)):
        first, last = (json.dumps({} if number is None else {"partition": number}) for number in pair)
        parsed = parse(f'{{"records":[{first},{"{}," * _MANY}{last}]}}', max_records=10 * _MANY)
        assert len(parsed.records) == _MANY + 2
        assert parsed.greatest_partition == max((n for n in pair if n is not None), default=None), pair


def test_a_name_that_is_merely_written_with_escapes_is_that_name() -> None:
    assert parse('{"r\\u0065cords":[{"v\\u0061lue":1}]}').records == [ProducerRecord("orders", b"1")]


def test_what_is_no_json_is_a_bad_request() -> None:
    for body in (
        *(b"{", b'{"records":[{"value":}]}', b'{"records":[{"value":1}]} x', b'{"records":[{"value":NaN}]}'),
        *(b'{"records":[{"value":01}]}', b'{"records":[{"value":"\xff"}]}', b'\xff\xfe{"records":[]}'),
        *("{}".encode("utf-16"), b"records=1", b'{"records":[{"value":"a\nb"}]}', b"[" * 100_000),
    ):
        assert fault(body)[:2] == (400, 40002), body[:100]


def test_deep_nesting_is_refused_and_does_no_harm() -> None:
    fine = "[" * 128 + "]" * 128
    assert one(f'{{"value":{fine}}}').value == fine.encode()
    for levels in (129, 134, 900, 50_000):
        deep = "[" * levels + "]" * levels
        for space in ("", " " * LARGE_BYTES):
            assert fault(f'{{"records":{space}[{{"value":{deep}}}]}}')[:2] == (400, 40002), levels


def test_a_lone_surrogate_can_not_be_made_into_bytes() -> None:
    for form in (TEXT, BINARY):
        assert fault('{"records":[{"value":"\\ud800"}]}', form)[0] in (400, 422)


def test_too_many_records_are_refused_as_too_large() -> None:
    ten = '{"records":[' + ",".join(['{"value":{}}'] * 10) + "]}"
    assert len(parse(ten, max_records=10).records) == 10
    status, code, message = fault(ten, max_records=9)
    assert (status, code) == (413, 413)
    assert message == "records: more than 9 records"


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


# -- content types and Accept --------------------------------------------------------------------------------


def refused(read: Callable[..., object], *given: bytes | None) -> tuple[int, str]:
    """The status and the detail of a refusal; 0 where it is taken."""
    try:
        read(*given)
    except ProblemError as error:
        return error.problem.status, error.problem.detail
    return 0, ""


def test_the_type_says_how_keys_and_values_are_written() -> None:
    forms = {
        b"application/vnd.kafka.json.v2+json": Format.JSON,
        b"application/vnd.kafka.binary.v2+json": Format.BASE64,
        b"application/vnd.kafka.text.v2+json": Format.TEXT,
        b"Application/Vnd.Kafka.JSON.v2+json": Format.JSON,
        b"application/vnd.kafka.json.v2+json; charset=utf-8": Format.JSON,
        b'application/vnd.kafka.text.v2+json ;charset="ISO-8859-1"; x=y': Format.TEXT,
    }
    for encoding in (None, b"identity"):
        assert {content_type: format_of(content_type, encoding) for content_type in forms} == forms


def test_a_type_that_leaves_the_format_open_is_refused_and_not_guessed() -> None:
    for content_type in (
        *(None, b"", b"text/plain", b"application/json", b"application/octet-stream", b"\xff"),
        *(b"application/x-www-form-urlencoded", b"application/vnd.kafka.v2+json"),
        *(b"application/vnd.kafka+json", b"application/vnd.kafka.json.v1+json"),
        *(b"application/vnd.kafka.json.v3+json", b"application/vnd.kafka.json.v2+xml"),
        b"application/vnd.kafka.json.v2+json, application/vnd.kafka.json.v2+json",
    ):
        status, detail = refused(format_of, content_type, None)
        assert (status, "application/vnd.kafka.binary.v2+json" in detail) == (415, True), content_type


def test_a_format_that_needs_a_registry_and_an_encoded_body_are_refused() -> None:
    for name in ("avro", "jsonschema", "protobuf"):
        media_type = f"application/vnd.kafka.{name}.v2+json"
        assert refused(format_of, f"{media_type}; charset=utf-8".encode(), None) == (
            415,
            f"{media_type} needs a schema registry, which is not supported; "
            "the supported formats are json, binary and text",
        )
    assert refused(format_of, b"application/vnd.kafka.json.v2+json", b"gzip")[0] == 415


def test_a_caller_that_can_read_json_is_answered() -> None:
    for accept in (
        *(None, b"", b"*/*", b"application/*", b"application/json", b"application/json; charset=utf-8"),
        *(b"application/vnd.kafka.v2+json", b"APPLICATION/VND.KAFKA.V2+JSON", b"application/vnd.kafka+json"),
        *(b"application/vnd.kafka.v2+json; q=0.9, application/json; q=0.5", b"\xff/\xfe, */*"),
        *(b"application/vnd.kafka.json.v2+json", b"text/plain;q=0.9 , */* ; q=0.1"),
        b"application/vnd.kafka.json.v2+json, application/vnd.kafka.v2+json, application/json, */*",
        b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        *(b"application/json;q=0, */*", b"application/json;q=broken, application/vnd.kafka.v2+json;q=1.0"),
    ):
        assert refused(check_accept, accept) == (0, ""), accept


def test_a_caller_that_can_not_is_answered_with_the_available_types() -> None:
    for accept in (
        *(b"text/plain", b"text/*", b"application/xml", b"application/octet-stream", b",", b"nonsense"),
        *(b"application/vnd.kafka.v1+json", b"application/vnd.kafka.v3+json", b"*/*;q=0"),
        *(b"application/vnd.kafka.avro.v2+json", b"application/*;q=0.0, text/html"),
        b"application/json;q=nonsense",
    ):
        status, detail = refused(check_accept, accept)
        assert (status, "application/vnd.kafka.v2+json" in detail) == (406, True), accept
