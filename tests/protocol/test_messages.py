"""Every generated message at every version: round trip, truncated, damaged, hostile."""

from __future__ import annotations

from typing import Any, Final, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client_core.errors import SchemaError, SerializationError, UnsupportedVersionError
from client_core.protocol.api_keys import API_KEYS, ApiKey
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse
from client_core.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from client_core.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from client_core.protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from client_core.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from client_core.protocol.messages.metadata_response import MetadataResponse
from client_core.protocol.messages.produce_response import NodeEndpoint, ProduceResponse
from client_core.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.golden.adapters import camel_case
from tests.protocol.messages import (
    GeneratedMessage,
    carried_by,
    field_notes,
    generated_messages,
    is_in_version,
)

_MESSAGES: Final = generated_messages()
_EVERY_VERSION: Final = [
    pytest.param(message, version, id=f"{message.name}-v{version}")
    for message in _MESSAGES
    for version in message.versions
]
#: Values other than any default, for a field that a version lacks.
_OTHER_THAN_DEFAULT: Final[dict[Any, Any]] = {
    bool: None,
    int: 77,
    str: "set",
    bytes: b"set",
    UUID: UUID(int=7),
}
_HOSTILE_LENGTHS: Final = tuple(
    bytes.fromhex(length)
    for length in ("7fffffff", "80000000", "fffffffe", "7fff", "8000", "ffffffff07", "ffffffff0f", "ff" * 9)
)
_few = settings(max_examples=8)


def test_each_api_has_its_two_messages_at_just_its_versions() -> None:
    ours = {(message.name, message.api_key, message.versions) for message in _MESSAGES}
    assert ours == {
        (f"{api.name}{kind}", api.id, range(api.min_version, api.max_version + 1))
        for api in API_KEYS
        for kind in ("Request", "Response")
    }


@pytest.mark.parametrize(("message", "version"), _EVERY_VERSION)
@_few
@given(data=st.data())
def test_what_was_encoded_decodes_to_the_same(
    message: GeneratedMessage, version: int, data: st.DataObject
) -> None:
    value = data.draw(carried_by(message.type, version))
    encoded = value.encode(version)
    assert message.type.decode(encoded, version) == value
    assert message.type.decode(b"header" + encoded + b"trailing", version, 6) == value


@pytest.mark.parametrize(("message", "version"), _EVERY_VERSION)
@settings(max_examples=3)
@given(data=st.data())
def test_every_truncation_raises(message: GeneratedMessage, version: int, data: st.DataObject) -> None:
    encoded = data.draw(carried_by(message.type, version)).encode(version)
    for size in range(len(encoded)):
        with pytest.raises(SchemaError, match=f"^{message.name} v{version}"):
            message.type.decode(encoded[:size], version)


@pytest.mark.parametrize(("message", "version"), _EVERY_VERSION)
@_few
@given(data=st.data())
def test_damaged_bytes_decode_or_raise_schema_error_and_nothing_else(
    message: GeneratedMessage, version: int, data: st.DataObject
) -> None:
    encoded = bytearray(data.draw(carried_by(message.type, version)).encode(version))
    damages = st.tuples(st.integers(0, max(len(encoded) - 1, 0)), st.binary(min_size=1, max_size=5))
    for at, damage in data.draw(st.lists(damages, min_size=1, max_size=3)):
        encoded[at : at + len(damage)] = damage
    _decodes_or_raises_schema_error(message, version, bytes(encoded))


@pytest.mark.parametrize(("message", "version"), _EVERY_VERSION)
@_few
@given(data=st.binary(max_size=64))
def test_noise_decodes_or_raises_schema_error_and_nothing_else(
    message: GeneratedMessage, version: int, data: bytes
) -> None:
    _decodes_or_raises_schema_error(message, version, data)


def _decodes_or_raises_schema_error(message: GeneratedMessage, version: int, data: bytes) -> None:
    try:
        decoded = message.type.decode(data, version)
    except SchemaError:
        return
    assert isinstance(decoded, message.type)


@pytest.mark.parametrize(("message", "version"), _EVERY_VERSION)
@_few
@given(data=st.data(), hostile=st.sampled_from(_HOSTILE_LENGTHS))
def test_a_hostile_length_anywhere_is_harmless(
    message: GeneratedMessage, version: int, data: st.DataObject, hostile: bytes
) -> None:
    encoded = data.draw(carried_by(message.type, version)).encode(version)
    at = data.draw(st.integers(0, len(encoded)))
    _decodes_or_raises_schema_error(message, version, encoded[:at] + hostile + encoded[at + len(hostile) :])


@pytest.mark.parametrize(("message", "version"), _EVERY_VERSION)
def test_a_field_that_a_version_lacks_is_dropped_or_refused_by_name(
    message: GeneratedMessage, version: int
) -> None:
    default = message.type()
    for name, notes in field_notes(message.type).items():
        if is_in_version(notes.versions, version):
            continue
        annotation = get_type_hints(message.type)[name]
        set_value = (
            not getattr(default, name)
            if annotation is bool
            else _OTHER_THAN_DEFAULT.get(annotation, ("set",))
        )
        changed = default._replace(**{name: set_value})
        assert _encoded_or_refusal(changed, version) in (
            default.encode(version),
            f"{message.name} v{version} can't carry {camel_case(name)}, which is set",
        )


def _encoded_or_refusal(message: Any, version: int) -> bytes | str:
    try:
        encoded: bytes = message.encode(version)
    except UnsupportedVersionError as refusal:
        return refusal.message
    return encoded


@pytest.mark.parametrize("message", _MESSAGES, ids=lambda message: message.name)
def test_a_version_that_is_not_spoken_is_refused(message: GeneratedMessage) -> None:
    default = message.type()
    for version in (message.versions.start - 1, message.versions.stop):
        with pytest.raises(UnsupportedVersionError, match=f"^{message.name} v{version} is not supported"):
            default.encode(version)
        with pytest.raises(UnsupportedVersionError, match=f"^{message.name} v{version} is not supported"):
            message.type.decode(b"", version)


# -- hostile lengths, one by one -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, "7fffffff"),  # brokers: 2^31 - 1 of them
        (9, "00000000" + "ffffffff0f"),  # throttle time, then 2^32 - 2 brokers
        (
            0,
            "00000000" + "00000001" + "0000" + "0001" + "74" + "7fffffff",
        ),  # one topic "t" of 2^31 - 1 partitions
    ],
)
def test_an_array_longer_than_the_bytes_left_is_refused_before_it_is_read(version: int, body: str) -> None:
    with pytest.raises(SchemaError, match=r"an array of \d{10} elements does not fit in the 0 bytes left"):
        MetadataResponse.decode(bytes.fromhex(body), version)


def test_an_array_is_refused_when_its_smallest_elements_would_not_fit() -> None:
    """A broker takes ten bytes at least: four of id, two of an empty host, four of port."""
    with pytest.raises(SchemaError, match="an array of 3 elements does not fit in the 29 bytes left"):
        MetadataResponse.decode(bytes.fromhex("00000003") + bytes(29), 0)


def test_an_array_that_is_null_where_it_must_not_be_is_refused() -> None:
    with pytest.raises(SchemaError, match="a null array where none is allowed"):
        MetadataResponse.decode(bytes.fromhex("ffffffff"), 0)


def test_a_string_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(SchemaError, match="SaslHandshakeRequest v1: a string that is not UTF-8"):
        SaslHandshakeRequest.decode(bytes.fromhex("0002" + "c328"), 1)


def test_a_negative_length_other_than_that_of_null_is_refused() -> None:
    with pytest.raises(SchemaError, match="the negative length -2"):
        SaslHandshakeRequest.decode(bytes.fromhex("fffe"), 1)


# -- tagged fields -------------------------------------------------------------------------------------------

_API_VERSIONS_WITHOUT_TAGS: Final = "0000" + "01" + "00000000"  # error, no APIs, throttle time


def test_unknown_tags_are_passed_over_among_known_ones() -> None:
    tags = (
        "04"  # four tagged fields
        "01" + "08" + "0000000000000007"  # 1: finalized features epoch 7
        "63" + "02" + "beef"  # 99: unknown
        "03" + "01" + "01"  # 3: zk migration ready, out of order
        "a09c01" + "00"  # 20000: unknown and empty
    )
    response = ApiVersionsResponse.decode(bytes.fromhex(_API_VERSIONS_WITHOUT_TAGS + tags), 3)
    assert (response.finalized_features_epoch, response.zk_migration_ready) == (7, True)


def test_a_tagged_field_ends_where_its_size_says() -> None:
    """Bytes that a newer broker appends to a known field are not read as the next field."""
    tags = "02" + "01" + "0a" + "0000000000000007" + "ffff" + "03" + "01" + "01"
    response = ApiVersionsResponse.decode(bytes.fromhex(_API_VERSIONS_WITHOUT_TAGS + tags), 3)
    assert (response.finalized_features_epoch, response.zk_migration_ready) == (7, True)


def test_a_tagged_field_that_needs_more_than_its_size_is_refused() -> None:
    tags = "01" + "01" + "04" + "00000000" + "00000007"
    with pytest.raises(SchemaError, match="ApiVersionsResponse v3 tag 1: 8 bytes expected, 4 left"):
        ApiVersionsResponse.decode(bytes.fromhex(_API_VERSIONS_WITHOUT_TAGS + tags), 3)


@pytest.mark.parametrize("count", ["ffffffff0f", "7f"])
def test_a_hostile_number_of_tagged_fields_is_refused(count: str) -> None:
    with pytest.raises(SchemaError):
        ApiVersionsResponse.decode(bytes.fromhex(_API_VERSIONS_WITHOUT_TAGS + count), 3)


def test_a_tag_of_a_later_version_is_unknown_to_an_earlier_one() -> None:
    """NodeEndpoints and CurrentLeader came with version 10 (KIP-951)."""
    endpoints = "02" + "00000001" + "02" + "62" + "00002384" + "00" + "00"
    body = bytes.fromhex("01" + "00000000" + "01" + "00" + "0d" + endpoints)
    assert ProduceResponse.decode(body, 9) == ProduceResponse()
    assert ProduceResponse.decode(body, 10) == ProduceResponse(
        node_endpoints=(NodeEndpoint(1, "b", 9092, None),)
    )


# -- unknown values ------------------------------------------------------------------------------------------


def test_an_unknown_error_code_is_a_number_like_any_other() -> None:
    assert ApiVersionsResponse.decode(bytes.fromhex("7ffe" + "00000000"), 0).error_code == 32766


def test_any_byte_but_zero_is_true() -> None:
    body = bytes.fromhex("00000000" + "02")  # no topics, allow auto topic creation
    assert MetadataRequest.decode(body, 4).allow_auto_topic_creation is True


# -- values that can't be encoded ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 9])
def test_a_text_that_has_no_utf_8_form_is_a_serialization_error(version: int) -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name="\ud800"),))
    with pytest.raises(SerializationError, match=f"MetadataRequest v{version} can't be encoded"):
        request.encode(version)


def test_a_text_too_long_for_its_length_is_a_serialization_error() -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name="x" * 32768),))
    with pytest.raises(SerializationError, match="MetadataRequest v1 can't be encoded"):
        request.encode(1)
    assert len(request.encode(12)) > 32768


def test_a_number_beyond_its_field_is_a_serialization_error() -> None:
    with pytest.raises(SerializationError, match="ProduceResponse v3 can't be encoded"):
        ProduceResponse(throttle_time_ms=1 << 31).encode(3)


# -- DescribeConfigs, of which there are no golden frames ----------------------------------------------------

_CONFIGS_REQUEST: Final = DescribeConfigsRequest(
    resources=(DescribeConfigsResource(2, "t", None), DescribeConfigsResource(4, "1", ("a",))),
    include_synonyms=True,
)
_CONFIGS_RESPONSE: Final = DescribeConfigsResponse(
    throttle_time_ms=5,
    results=(
        DescribeConfigsResult(
            error_code=0,
            error_message=None,
            resource_type=2,
            resource_name="t",
            configs=(
                DescribeConfigsResourceResult(
                    name="k",
                    value="v",
                    read_only=True,
                    config_source=5,
                    is_sensitive=False,
                    synonyms=(DescribeConfigsSynonym("s", None, 4),),
                ),
            ),
        ),
    ),
)


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        (
            1,
            (
                "00000002",  # resources
                "02" + "0001" + "74" + "ffffffff",  # topic "t", all keys
                "04" + "0001" + "31" + "00000001" + "0001" + "61",  # broker "1", key "a"
                "01",  # include synonyms
            ),
        ),
        (
            4,
            (
                "03",
                "02" + "0274" + "00" + "00",  # topic "t", all keys, no tags
                "04" + "0231" + "02" + "0261" + "00",
                "01" + "00",  # include synonyms, no documentation
                "00",
            ),
        ),
    ],
)
def test_describe_configs_request_bytes(version: int, parts: tuple[str, ...]) -> None:
    encoded = bytes.fromhex("".join(parts))
    assert _CONFIGS_REQUEST.encode(version).hex() == encoded.hex()
    assert DescribeConfigsRequest.decode(encoded, version) == _CONFIGS_REQUEST


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        (
            1,
            (
                "00000005" + "00000001",  # throttle time, results
                "0000" + "ffff" + "02" + "0001" + "74",  # no error, topic "t"
                "00000001" + "0001" + "6b" + "0001" + "76",  # one config, k=v
                "01" + "05" + "00",  # read only, source, not sensitive
                "00000001" + "0001" + "73" + "ffff" + "04",  # one synonym, s=null, source
            ),
        ),
        (
            4,
            (
                "00000005" + "02",
                "0000" + "00" + "02" + "0274",
                "02" + "026b" + "0276",
                "01" + "05" + "00",
                "02" + "0273" + "00" + "04" + "00",
                "00" + "01",  # type unknown, documentation empty
                "00" + "00" + "00",  # no tags: config, result, response
            ),
        ),
    ],
)
def test_describe_configs_response_bytes(version: int, parts: tuple[str, ...]) -> None:
    encoded = bytes.fromhex("".join(parts))
    assert _CONFIGS_RESPONSE.encode(version).hex() == encoded.hex()
    assert DescribeConfigsResponse.decode(encoded, version) == _CONFIGS_RESPONSE


# -- ListOffsets, of which there are no golden frames either -------------------------------------------------

_OFFSETS_REQUEST: Final = ListOffsetsRequest(
    -1, 0, (ListOffsetsTopic("t", (ListOffsetsPartition(3, -1, -2),)),), 0
)


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        (
            1,
            (
                "ffffffff",  # of a client
                "00000001" + "0001" + "74",  # one topic, "t"
                "00000001" + "00000003" + "fffffffffffffffe",  # partition 3, its first offset
            ),
        ),
        (
            10,
            (
                "ffffffff" + "00",  # of a client, uncommitted records too
                "02" + "0274",
                "02" + "00000003" + "ffffffff" + "fffffffffffffffe" + "00",  # no leader epoch
                "00" + "00000000" + "00",  # no tags of the topic, no timeout, no tags
            ),
        ),
    ],
)
def test_list_offsets_request_bytes(version: int, parts: tuple[str, ...]) -> None:
    encoded = bytes.fromhex("".join(parts))
    assert _OFFSETS_REQUEST.encode(version).hex() == encoded.hex()
    assert ListOffsetsRequest.decode(encoded, version) == _OFFSETS_REQUEST


@pytest.mark.parametrize(
    ("version", "parts"),
    [
        (1, ("00000001" + "0001" + "74", "00000001" + "00000003" + "0000", "ff" * 8, "00" * 7 + "11")),
        (
            10,
            (
                "00000000",  # throttle time
                "02" + "0274" + "02" + "00000003" + "0000",  # topic "t", partition 3, no error
                "ff" * 8 + "00" * 7 + "11",  # no timestamp, offset 17
                "00000005" + "00" + "00" + "00",  # leader epoch, no tags
            ),
        ),
    ],
)
def test_list_offsets_response_bytes(version: int, parts: tuple[str, ...]) -> None:
    encoded = bytes.fromhex("".join(parts))
    epoch = -1 if version < 4 else 5
    response = ListOffsetsResponse(
        0, (ListOffsetsTopicResponse("t", (ListOffsetsPartitionResponse(3, 0, -1, 17, epoch),)),)
    )
    assert response.encode(version).hex() == encoded.hex()
    assert ListOffsetsResponse.decode(encoded, version) == response


def test_every_api_is_found_by_its_number() -> None:
    assert [ApiKey.of(api.id) for api in API_KEYS] == list(API_KEYS)
    assert ApiKey.of(71) is None
