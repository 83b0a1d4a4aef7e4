"""One record of REST Proxy v3: what it becomes, and what it is refused for."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import ProducerRecord
from service.dialects.json_members import members_of
from service.dialects.rest_v3.record_codec import Posted, record_of
from service.wire.strict_json import BodyError, compact


def posted(text: bytes | str) -> Posted:
    return record_of("t", members_of(compact(text.encode() if isinstance(text, str) else text)))


def refusal(text: bytes | str) -> tuple[int, str]:
    with pytest.raises(BodyError) as refused:
        posted(text)
    return refused.value.status, refused.value.place


def test_every_member_finds_its_place() -> None:
    found = posted(
        """{"timestamp": "2021-02-05T19:14:42Z", "partition_id": 3,
            "headers": [{"name": "a", "value": "AAE="}, {"value": null, "name": "a"}, {"name": ""}],
            "key": {"type": "BINARY", "data": "Zm9v"}, "value": {"data": {"n" : 1.10}, "type": "JSON"}}"""
    )
    headers = (("a", b"\x00\x01"), ("a", None), ("", None))
    assert found == Posted(
        ProducerRecord("t", b'{"n":1.10}', b"foo", 3, 1_612_552_482_000, headers), "BINARY", "JSON"
    )


@pytest.mark.parametrize("written", ["null", "{}", '{"data":null}', '{"type":null}', '{"schema_id":null}'])
def test_none_at_all_is_null_without_type(written: str) -> None:
    nothing = Posted(ProducerRecord("t"), None, None)
    assert posted("{}") == nothing
    assert posted(f'{{"key":{written},"value":{written}}}') == nothing


@pytest.mark.parametrize("kind", ["BINARY", "JSON", "STRING"])
@pytest.mark.parametrize("data", ["", ',"data":null'])
def test_a_type_without_data_is_null_of_that_type(kind: str, data: str) -> None:
    assert posted(f'{{"value":{{"type":"{kind}"{data}}}}}') == Posted(ProducerRecord("t"), None, kind)


def test_members_that_are_null_are_as_if_left_out() -> None:
    names = ("partition_id", "headers", "key", "value", "timestamp")
    assert posted(json.dumps(dict.fromkeys(names))) == posted("{}")


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("JSON", "0", b"0"),
        ("JSON", "false", b"false"),
        ("JSON", '""', b'""'),
        ("JSON", "[]", b"[]"),
        ("JSON", "{}", b"{}"),
        ("JSON", '{ "a" : 1, "a" : 2 }', b'{"a":1,"a":2}'),
        ("JSON", "123456789012345678901234567890.10", b"123456789012345678901234567890.10"),
        ("JSON", '"ü\\u00fc"', '"ü\\u00fc"'.encode()),
        ("STRING", '""', b""),
        ("STRING", '"null"', b"null"),
        ("STRING", '"ключ\\n\\ud83d\\ude00"', "ключ\n😀".encode()),
        ("BINARY", '""', b""),
        ("BINARY", '"/+8="', b"\xff\xef"),
        ("BINARY", '"\\/+8="', b"\xff\xef"),
    ],
)
def test_data_goes_on_the_wire_as_its_type_says(kind: str, data: str, value: bytes) -> None:
    assert posted(f'{{"value":{{"type":"{kind}","data":{data}}}}}').record.value == value


@given(st.binary())
def test_bytes_come_through_base64_unchanged(data: bytes) -> None:
    written = base64.b64encode(data).decode()
    assert posted(f'{{"key":{{"type":"BINARY","data":"{written}"}}}}').record.key == data
    unpadded = written.rstrip("=")
    assert posted(f'{{"key":{{"type":"BINARY","data":"{unpadded}"}}}}').record.key == data


@pytest.mark.parametrize(
    "data", ["1", "true", "[]", "{}", '"a"', '"Zm9"', '"Zm9v="', '"Zh=="', '"Zm9v\\n"', '"_-8="', '"é"']
)
def test_what_is_no_base64_is_no_binary(data: str) -> None:
    assert refusal(f'{{"key":{{"type":"BINARY","data":{data}}}}}') == (400, "key.data")


@pytest.mark.parametrize("data", ["1", "false", "[]", '{"a":"b"}'])
def test_what_is_no_string_is_no_string(data: str) -> None:
    assert refusal(f'{{"value":{{"type":"STRING","data":{data}}}}}') == (400, "value.data")


@pytest.mark.parametrize("kind", ["AVRO", "JSONSCHEMA", "PROTOBUF"])
def test_formats_of_a_schema_registry_are_not_served(kind: str) -> None:
    assert refusal(f'{{"value":{{"type":"{kind}","data":1}}}}') == (415, "value.type")
    assert refusal(f'{{"value":{{"type":"{kind}","schema":"\\"string\\"","data":1}}}}') == (415, "value.type")


@pytest.mark.parametrize(
    "member", ["subject", "subject_name_strategy", "schema_id", "schema_version", "schema"]
)
def test_what_speaks_of_a_schema_is_not_served(member: str) -> None:
    assert refusal(f'{{"key":{{"{member}":1,"data":1}}}}') == (415, f"key.{member}")
    assert refusal(f'{{"key":{{"type":"JSON","{member}":"x","data":1}}}}') == (415, f"key.{member}")


def test_data_without_a_type_would_need_a_schema() -> None:
    assert refusal('{"value":{"data":"x"}}') == (415, "value.type")


@pytest.mark.parametrize("kind", ['"json"', '"TEXT"', '""', "1", "[]"])
def test_another_type_is_none(kind: str) -> None:
    assert refusal(f'{{"value":{{"type":{kind},"data":1}}}}') == (400, "value.type")


@pytest.mark.parametrize("partition", ["-1", "-2147483648"])
def test_a_partition_below_zero_does_not_exist(partition: str) -> None:
    assert refusal(f'{{"partition_id":{partition}}}') == (404, "partition_id")


@pytest.mark.parametrize(
    "partition", ["2147483648", "-2147483648000", "1.0", "1e3", '"-1"', '""', "true", "[]", "9" * 5_000]
)
def test_a_partition_that_is_no_int32_is_refused(partition: str) -> None:
    assert refusal(f'{{"partition_id":{partition}}}') == (400, "partition_id")


def test_the_greatest_partition_is_taken_and_minus_zero_is_zero() -> None:
    assert posted('{"partition_id":2147483647}').record.partition == 2**31 - 1
    assert posted('{"partition_id":-0}').record.partition == 0
    assert posted('{"partition_id":"1"}').record.partition == 1


@pytest.mark.parametrize("timestamp", ["1612552482", '"yesterday"', '"1969-12-31T00:00:00Z"', "{}"])
def test_a_timestamp_that_is_none_is_refused(timestamp: str) -> None:
    assert refusal(f'{{"timestamp":{timestamp}}}') == (400, "timestamp")


@pytest.mark.parametrize(
    ("headers", "place"),
    [
        ("{}", "headers"),
        ('"a"', "headers"),
        ("[1]", "headers[0]"),
        ('[{"name":"a"},{}]', "headers[1].name"),
        ('[{"name":null}]', "headers[0].name"),
        ('[{"name":1}]', "headers[0].name"),
        ('[{"name":"a","value":"x"}]', "headers[0].value"),
        ('[{"name":"a","value":1}]', "headers[0].value"),
        ('[{"name":"a","key":"a"}]', "headers[0].key"),
        ('[{"name":"a","name":"b"}]', "headers[0].name"),
    ],
)
def test_a_bad_header_is_named_by_its_place(headers: str, place: str) -> None:
    assert refusal(f'{{"headers":{headers}}}') == (400, place)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"records":{"subject":"foobar"}}', "records"),
        ('{"value":{"type":"JSON","data":1,"dta":2}}', "value.dta"),
        ('{"value":null,"value":{"type":"STRING","data":"x"}}', "value"),
        ('{"value":{"type":"JSON","type":"STRING","data":"x"}}', "value.type"),
        ('{"value":{"type":"JSON","data":1,"d\\u0061ta":2}}', "value.data"),
        ('{"partition_id":1,"partition_id":1}', "partition_id"),
        ('{"value":"x"}', "value"),
        ('{"value":[]}', "value"),
        ("[]", ""),
    ],
)
def test_what_is_not_meant_for_a_record_is_refused(text: str, place: str) -> None:
    assert refusal(text) == (400, place)


@pytest.mark.parametrize(
    "text",
    [
        b'{"value":{"type":"STRING","data":"\xff"}}',
        b'{"value":{"type":"STRING","data":"\\ud800"}}',
        b'{"value":{"type":"JSON","data":"\\udc00"}}',
        b'{"value":{"type":"JSON","data":' + b"[" * 129 + b"]" * 129 + b"}}",
        b'{"value":{"type":"JSON","data":NaN}}',
        b'{"value":{"type":"JSON","data":01}}',
        b"{'value':1}",
        b'{"value":1,}',
    ],
)
def test_what_is_no_sound_json_is_refused(text: bytes) -> None:
    assert refusal(text)[0] == 400


def test_a_member_written_with_escapes_is_the_same_member() -> None:
    assert posted('{"v\\u0061lue":{"type":"JSON","data":1}}').record.value == b"1"
