"""One record of REST Proxy v3: how it is read, and why it is refused."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from client_core import ProducerRecord, RecordMetadata
from service.dialects.json_members import members_of
from service.dialects.rest_v3.delivery_reports import Awaited, Reports
from service.dialects.rest_v3.record_codec import LAST_MS, Posted, ms_of_rfc3339, record_of, text_of_ms
from service.wire.strict_json import BodyError, compact


def posted(text: bytes | str) -> Posted:
    return record_of("t", members_of(compact(text.encode() if isinstance(text, str) else text)))


def refusal(text: bytes | str) -> tuple[int, str]:
    """The status and the place of a refusal; 0 where it is taken."""
    try:
        posted(text)
    except BodyError as refused:
        return refused.status, refused.place
    return 0, ""


def refusals(form: str, *written: str) -> dict[str, tuple[int, str]]:
    """The refusal of each text when it replaces %s in the form."""
    return {one: refusal(form.replace("%s", one)) for one in written}


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


def test_none_at_all_is_null_without_type_and_a_type_without_data_is_null_of_that_type() -> None:
    nothing = Posted(ProducerRecord("t"), None, None)
    assert posted("{}") == nothing
    for written in ("null", "{}", '{"data":null}', '{"type":null}', '{"schema_id":null}'):
        assert posted(f'{{"key":{written},"value":{written}}}') == nothing, written
    for kind in ("BINARY", "JSON", "STRING"):
        for data in ("", ',"data":null'):
            written = f'{{"value":{{"type":"{kind}"{data}}}}}'
            assert posted(written) == Posted(ProducerRecord("t"), None, kind), written


def test_members_that_are_null_are_as_if_left_out() -> None:
    names = ("partition_id", "headers", "key", "value", "timestamp")
    assert posted(json.dumps(dict.fromkeys(names))) == posted("{}")


#: By the type, data as it is written and what goes on the wire.
WIRE = {
    "JSON": {
        **{same: same.encode() for same in ("0", "false", '""', "[]", "{}", '"ü\\u00fc"')},
        '{ "a" : 1, "a" : 2 }': b'{"a":1,"a":2}',
        "123456789012345678901234567890.10": b"123456789012345678901234567890.10",
    },
    "STRING": {'""': b"", '"null"': b"null", '"ключ\\n\\ud83d\\ude00"': "ключ\n😀".encode()},
    "BINARY": {'""': b"", '"/+8="': b"\xff\xef", '"\\/+8="': b"\xff\xef"},
}


def test_data_goes_on_the_wire_as_its_type_says() -> None:
    for kind, wire in WIRE.items():
        records = {data: posted(f'{{"value":{{"type":"{kind}","data":{data}}}}}').record for data in wire}
        assert {data: record.value for data, record in records.items()} == wire


@given(st.binary())
def test_bytes_come_through_base64_unchanged(data: bytes) -> None:
    written = base64.b64encode(data).decode()
    assert posted(f'{{"key":{{"type":"BINARY","data":"{written}"}}}}').record.key == data
    unpadded = written.rstrip("=").replace("/", r"\/")
    assert posted(f'{{"key":{{"type":"BINARY","data":"{unpadded}"}}}}').record.key == data


def test_what_is_no_base64_is_no_binary_and_what_is_no_string_no_string() -> None:
    data = ("1", "true", "[]", "{}", '"a"', '"Zm9"', '"Zm9v="', '"Zh=="', '"Zm9v\\n"', '"_-8="', '"é"')
    binary = refusals('{"key":{"type":"BINARY","data":%s}}', *data)
    assert binary == dict.fromkeys(data, (400, "key.data"))
    others = ("1", "false", "[]", '{"a":"b"}')
    strings = refusals('{"value":{"type":"STRING","data":%s}}', *others)
    assert strings == dict.fromkeys(others, (400, "value.data"))


def test_what_needs_a_schema_registry_is_not_served() -> None:
    kinds = ("AVRO", "JSONSCHEMA", "PROTOBUF")
    for rest in ("", r'"schema":"\"string\"",'):
        refused = refusals('{"value":{"type":"%s",' + rest + '"data":1}}', *kinds)
        assert refused == dict.fromkeys(kinds, (415, "value.type"))
    for member in ("subject", "subject_name_strategy", "schema_id", "schema_version", "schema"):
        assert refusal(f'{{"key":{{"{member}":1,"data":1}}}}') == (415, f"key.{member}")
        assert refusal(f'{{"key":{{"type":"JSON","{member}":"x","data":1}}}}') == (415, f"key.{member}")
    assert refusal('{"value":{"data":"x"}}') == (415, "value.type")


def test_another_type_is_none() -> None:
    kinds = ('"json"', '"TEXT"', '""', "1", "[]")
    refused = refusals('{"value":{"type":%s,"data":1}}', *kinds)
    assert refused == dict.fromkeys(kinds, (400, "value.type"))


def test_a_partition_below_zero_does_not_exist_and_what_is_no_int32_is_refused() -> None:
    below = ("-1", "-2147483648")
    none = ("2147483648", "-2147483648000", "1.0", "1e3", '"-1"', '""', "true", "[]", "9" * 5_000)
    assert refusals('{"partition_id":%s}', *below, *none) == {
        **dict.fromkeys(below, (404, "partition_id")),
        **dict.fromkeys(none, (400, "partition_id")),
    }


def test_the_greatest_partition_is_taken_and_minus_zero_is_zero() -> None:
    assert posted('{"partition_id":2147483647}').record.partition == 2**31 - 1
    assert posted('{"partition_id":-0}').record.partition == 0
    assert posted('{"partition_id":"1"}').record.partition == 1


def test_a_timestamp_that_is_none_is_refused() -> None:
    written = ("1612552482", '"yesterday"', '"1969-12-31T00:00:00Z"', "{}")
    assert refusals('{"timestamp":%s}', *written) == dict.fromkeys(written, (400, "timestamp"))


def test_a_bad_header_is_named_by_its_place() -> None:
    places = {
        "{}": "headers",
        '"a"': "headers",
        "[1]": "headers[0]",
        '[{"name":"a"},{}]': "headers[1].name",
        '[{"name":null}]': "headers[0].name",
        '[{"name":1}]': "headers[0].name",
        '[{"name":"a","value":"x"}]': "headers[0].value",
        '[{"name":"a","value":1}]': "headers[0].value",
        '[{"name":"a","key":"a"}]': "headers[0].key",
        '[{"name":"a","name":"b"}]': "headers[0].name",
    }
    assert refusals('{"headers":%s}', *places) == {text: (400, place) for text, place in places.items()}


def test_members_that_are_not_for_a_record_are_refused() -> None:
    places = {
        '{"records":{"subject":"foobar"}}': "records",
        '{"value":{"type":"JSON","data":1,"dta":2}}': "value.dta",
        '{"value":null,"value":{"type":"STRING","data":"x"}}': "value",
        '{"value":{"type":"JSON","type":"STRING","data":"x"}}': "value.type",
        '{"value":{"type":"JSON","data":1,"d\\u0061ta":2}}': "value.data",
        '{"partition_id":1,"partition_id":1}': "partition_id",
        '{"value":"x"}': "value",
        '{"value":[]}': "value",
        "[]": "",
    }
    assert refusals("%s", *places) == {text: (400, place) for text, place in places.items()}


def test_invalid_json_is_refused() -> None:
    for text in (
        b'{"value":{"type":"STRING","data":"\xff"}}',
        b'{"value":{"type":"STRING","data":"\\ud800"}}',
        b'{"value":{"type":"JSON","data":"\\udc00"}}',
        b'{"value":{"type":"JSON","data":' + b"[" * 129 + b"]" * 129 + b"}}",
        b'{"value":{"type":"JSON","data":NaN}}',
        b'{"value":{"type":"JSON","data":01}}',
        *(b"{'value':1}", b'{"value":1,}'),
    ):
        assert refusal(text)[0] == 400, text


def test_a_member_written_with_escapes_is_the_same_member() -> None:
    assert posted('{"v\\u0061lue":{"type":"JSON","data":1}}').record.value == b"1"


# -- timestamps: RFC 3339 in, what Java's Instant prints out -------------------------------------------------


TIMES = {
    "1970-01-01T00:00:00Z": 0,
    "2021-02-05T19:14:42Z": 1_612_552_482_000,
    "2021-02-05T19:14:42.5Z": 1_612_552_482_500,
    "2021-02-05T19:14:42.123456789Z": 1_612_552_482_123,
    "2021-02-05t19:14:42z": 1_612_552_482_000,
    "2021-02-05T20:44:42+01:30": 1_612_552_482_000,
    "2021-02-05T11:14:42.001-08:00": 1_612_552_482_001,
    "2024-02-29T00:00:00-00:00": 1_709_164_800_000,
    "9999-12-31T23:59:59.999Z": LAST_MS,
}
#: By what is wrong with them.
NO_TIMES = {
    "RFC 3339": (
        *("", "2021-02-05", "2021-02-05T19:14:42", "2021-02-05 19:14:42Z", "2021-02-05T19:14Z"),
        *("2021-02-05T19:14:42.Z", "2021-02-05T19:14:42+0100", "2021-02-05T19:14:42Z\n"),
        *("٢٠٢١-02-05T19:14:42Z", "1612552482"),
    ),
    "not a valid time": (
        *("2021-02-30T00:00:00Z", "2021-02-05T24:00:00Z", "2021-02-05T23:59:60Z", "0000-01-01T00:00:00Z"),
        *("2021-02-05T19:14:42+24:00", "2021-02-05T19:14:42+01:60"),
    ),
    "before 1970": ("0001-01-01T00:00:00+01:00", "1969-12-31T23:59:59.999Z"),
    "after the year 9999": ("9999-12-31T23:59:59-00:01",),
}


def test_a_time_is_read_as_milliseconds() -> None:
    assert {text: ms_of_rfc3339(text) for text in TIMES} == TIMES


def test_what_is_no_time_is_refused() -> None:
    def fault_of(text: str) -> str:
        try:
            return f"it is {ms_of_rfc3339(text)}"
        except ValueError as error:
            return str(error)

    for why, texts in NO_TIMES.items():
        for text in texts:
            assert why in fault_of(text), text


def test_a_time_is_written_without_zero_milliseconds() -> None:
    texts = {
        0: "1970-01-01T00:00:00Z",
        1_612_552_482_000: "2021-02-05T19:14:42Z",
        1_612_552_482_050: "2021-02-05T19:14:42.050Z",
    }
    assert {at_ms: text_of_ms(at_ms) for at_ms in texts} == texts


@given(st.integers(min_value=0, max_value=LAST_MS))
def test_written_values_are_read_again(at_ms: int) -> None:
    assert ms_of_rfc3339(text_of_ms(at_ms)) == at_ms


def test_a_report_has_no_timestamp_that_rfc_3339_can_not_express() -> None:
    """A broker may say anything: with LogAppendTime it is the broker's own."""
    reports = Reports("cluster", "orders", lambda _: 3)
    for timestamp_ms, shown in ((LAST_MS, True), (LAST_MS + 1, False), (-1, False)):
        report = reports.success(Awaited(), RecordMetadata("orders", 0, 5, timestamp_ms))
        assert ("timestamp" in report) is shown, timestamp_ms
