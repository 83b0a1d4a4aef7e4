"""Frames that Java's client and a broker wrote, against the generated messages: byte for byte, both ways."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from client_core.client.api_versions import ApiVersionsRequestBuilder, version_to_ask_next
from client_core.errors import UnsupportedVersionError
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from client_core.protocol.primitives import FlexibleWriter
from tests.golden.adapters import (
    Message,
    MessageClass,
    json_from_java_string,
    message_class,
    message_from_json,
)

if TYPE_CHECKING:
    from tests.golden.conftest import Cases

#: The files of frames are those named for an API, and special.json.
_FRAMES: Final = "messages/[A-Zs]*.json"
#: Fields of InitProducerId v6, which is unstable and not spoken; Java's toString names them at every version.
_NOT_SPOKEN: Final = {"enable2Pc": False, "keepPreparedTxn": False}


def _api(case: dict[str, Any]) -> ApiKey:
    api = ApiKey.of(case["api_key"])
    assert api is not None
    assert api.name == case["api"]
    return api


def _class(case: dict[str, Any]) -> MessageClass:
    return message_class(case["api"] + case["type"].capitalize())


def _expected(case: dict[str, Any]) -> Message:
    return message_from_json(_class(case), case["body"])


def _encoded_header(case: dict[str, Any]) -> bytes:
    if case["type"] == "request":
        return encode_request_header(_api(case), case["version"], case["correlation_id"], case["client_id"])
    return encode_response_header(_api(case), case["version"], case["correlation_id"])


@pytest.mark.golden(_FRAMES)
def test_encodes_to_javas_bytes(cases: Cases) -> None:
    for case in cases:
        frame = _encoded_header(case) + _expected(case).encode(case["version"])
        assert frame.hex() == _without_unknown_tags(case, frame)


def _without_unknown_tags(case: dict[str, Any], ours: bytes) -> str:
    """Java's frame without the unknown tagged fields at its end, which we don't keep.

    The count of fields comes before the known ones. It is the first byte that differs, by their number.
    """
    unknown = case.get("unknown_tagged_fields_of_body", [])
    if not unknown:
        return str(case["bytes"])
    writer = FlexibleWriter()
    writer.tags([(tag, bytes.fromhex(raw)) for tag, raw in unknown])
    fields = writer.getvalue()[1:]
    theirs = bytearray.fromhex(case["bytes"])
    assert theirs.endswith(fields)
    del theirs[-len(fields) :]
    count = next(at for at, (mine, other) in enumerate(zip(ours, theirs, strict=True)) if mine != other)
    theirs[count] -= len(unknown)
    return theirs.hex()


@pytest.mark.golden(_FRAMES)
def test_decodes_to_what_java_wrote(cases: Cases) -> None:
    for case in cases:
        frame = bytes.fromhex(case["bytes"])
        if case["type"] == "request":
            header = decode_request_header(frame)
            assert header[:4] == (_api(case), case["version"], case["correlation_id"], case["client_id"])
            offset = header.body_offset
        else:
            correlation_id, offset = decode_response_header(frame, _api(case), case["version"])
            assert correlation_id == case["correlation_id"]
        assert _class(case).decode(frame, case["version"], offset) == _expected(case)


@pytest.mark.golden(_FRAMES)
def test_has_javas_header_version(cases: Cases) -> None:
    for case in cases:
        api, version = _api(case), case["version"]
        ours = api.request_header_version if case["type"] == "request" else api.response_header_version
        assert ours(version) == case["header_version"]


@pytest.mark.golden(_FRAMES)
def test_passes_over_trailing_bytes(cases: Cases) -> None:
    for case in cases:
        frame = bytes.fromhex(case["bytes"]) + b"\x01\xff\xff\xff\xff"
        offset = len(_encoded_header(case))
        assert _class(case).decode(frame, case["version"], offset) == _expected(case)


@pytest.mark.golden("messages/unrepresentable.json")
def test_refuses_what_a_version_has_no_room_for(cases: Cases) -> None:
    for case in cases:
        body = json_from_java_string(case["data"])
        spoken = {name: value for name, value in body.items() if name not in _NOT_SPOKEN}
        message = message_from_json(message_class(case["message"]), spoken)
        with pytest.raises(
            UnsupportedVersionError, match=rf"v{case['version']} can't carry ({_refused_field(case)})\b"
        ):
            message.encode(case["version"])


def _refused_field(case: dict[str, Any]) -> str:
    """The field that Java names, or, where it fails with a NullPointerException, those that are null."""
    named = re.findall(r"non-default (\w+)", case["java_message"] or "")
    refused = named or re.findall(r"(\w+)=null", case["data"])
    assert refused
    return "|".join(refused)


@pytest.mark.golden("messages/api_versions_fallback.json")
def test_reads_the_refusal_of_a_version_as_version_0(cases: Cases) -> None:
    for case in cases:
        frame, version = bytes.fromhex(case["bytes"]), case["request_version"]
        correlation_id, offset = decode_response_header(frame, ApiKey.API_VERSIONS, version)
        response = ApiVersionsRequestBuilder("pilotfish", "1").decode_response(frame[offset:], version)
        assert correlation_id == case["correlation_id"]
        assert response.error_code == case["java_parsed_error"]
        assert version_to_ask_next(response) == case["next_request_version"]
