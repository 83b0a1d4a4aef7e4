"""Which version to speak. Twins of NodeApiVersionsTest, NET-06 and NET-15."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.client.api_versions import (
    ApiVersionsRequestBuilder,
    NodeApiVersions,
    VersionRange,
    client_throttles,
    version_to_ask_next,
)
from client_core.errors import SchemaError, UnsupportedVersionError
from client_core.protocol.api_keys import API_KEYS, ApiKey
from client_core.protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from client_core.protocol.request import RequestBuilder

BUILDER = ApiVersionsRequestBuilder("pilotfish", "0.1.0")

LEFT_OUT: Final = {
    "NodeApiVersionsTest.Features": "Finalized features steer transactions, which this client has none of.",
    "ApiVersionsTest.FinalizedFeaturesUpdate": "Finalized features steer transactions, too.",
}


def produce(lowest: int, highest: int) -> NodeApiVersions:
    return NodeApiVersions({ApiKey.PRODUCE.id: VersionRange(lowest, highest)})


@pytest.mark.behaviour("NET-06")
@pytest.mark.java("NodeApiVersionsTest.LatestUsableVersion")
def test_the_latest_usable_version_is_the_highest_that_both_speak() -> None:
    usable = {(3, 13): 10, (7, 8): 8, (8, 8): 8, (8, 9): 9, (8, 10): 10, (9, 9): 9, (9, 10): 10, (10, 10): 10}
    usable |= {(10, 11): 10}
    broker = produce(8, 10)
    assert {ours: broker.latest_usable_version(ApiKey.PRODUCE, *ours) for ours in usable} == usable


@pytest.mark.behaviour("NET-06")
@pytest.mark.java(
    "NodeApiVersionsTest.LatestUsableVersionOutOfRangeLow",
    "NodeApiVersionsTest.LatestUsableVersionOutOfRangeHigh",
    "NodeApiVersionsTest.LatestUsableVersionOutOfRange",
)
def test_no_common_version_is_reported_with_both_ranges() -> None:
    for lowest, highest, oldest, latest in ((1, 2, 3, 4), (2, 3, 0, 1), (300, 300, 3, 13)):
        with pytest.raises(UnsupportedVersionError) as caught:
            produce(lowest, highest).latest_usable_version(ApiKey.PRODUCE, oldest, latest)
        assert caught.value.message == (
            f"The node does not support PRODUCE with version in range [{oldest},{latest}]."
            f" The supported range is [{lowest},{highest}]."
        )


def test_an_api_that_is_not_listed_is_not_supported() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"^The node does not support INIT_PRODUCER_ID$"):
        produce(0, 13).latest_usable_version(ApiKey.INIT_PRODUCER_ID, 0, 5)


@pytest.mark.java(
    "NodeApiVersionsTest.UsableVersionLatestVersions",
    "NodeApiVersionsTest.ConstructionFromApiVersionsResponse",
)
def test_a_broker_that_speaks_all_that_we_do_and_more_is_spoken_to_at_our_latest() -> None:
    keys = [ApiVersion(api.id, api.min_version, api.max_version) for api in API_KEYS]
    versions = NodeApiVersions.of_response(ApiVersionsResponse(0, (*keys, ApiVersion(10_000, 0, 1))))
    for api in API_KEYS:
        assert versions.latest_usable_version(api, api.min_version, api.max_version) == api.max_version
        assert versions.range_of(api) == VersionRange(api.min_version, api.max_version)


@pytest.mark.java(
    "NodeApiVersionsTest.UsableVersionCalculationNoKnownVersions",
    "NodeApiVersionsTest.UnsupportedVersionsToString",
)
def test_a_node_that_listed_nothing_supports_nothing_and_says_so() -> None:
    for api in API_KEYS:
        with pytest.raises(UnsupportedVersionError, match=r"^The node does not support"):
            NodeApiVersions({}).latest_usable_version(api, api.min_version, api.max_version)
    in_order = sorted(API_KEYS, key=lambda api: api.id)
    assert (
        str(NodeApiVersions({})) == f"({', '.join(f'{api.name}({api.id}): UNSUPPORTED' for api in in_order)})"
    )


@pytest.mark.java("ApiVersionsResponseTest.Intersect")
def test_the_common_range_of_two_does_not_depend_on_their_order() -> None:
    wide, low = (0, 32767), (-32768, 10)
    assert produce(*wide).latest_usable_version(ApiKey.PRODUCE, *low) == 10
    assert produce(*low).latest_usable_version(ApiKey.PRODUCE, *wide) == 10
    with pytest.raises(UnsupportedVersionError, match=r"^The node does not support PRODUCE$"):
        NodeApiVersions({}).latest_usable_version(ApiKey.PRODUCE, *wide)


def test_create_speaks_all_but_the_overrides() -> None:
    versions = NodeApiVersions.create({ApiKey.PRODUCE: VersionRange(3, 9)})
    assert versions.range_of(ApiKey.PRODUCE) == VersionRange(3, 9)
    assert versions.range_of(ApiKey.METADATA) == VersionRange(0, 13)


@given(
    lowest=st.integers(0, 20),
    highest=st.integers(0, 20),
    oldest=st.integers(0, 20),
    latest=st.integers(0, 20),
)
def test_a_usable_version_lies_in_both_ranges(lowest: int, highest: int, oldest: int, latest: int) -> None:
    common = set(range(lowest, highest + 1)) & set(range(oldest, latest + 1))
    try:
        usable = produce(lowest, highest).latest_usable_version(ApiKey.PRODUCE, oldest, latest)
    except UnsupportedVersionError:
        assert not common
    else:
        assert usable == max(common)


@pytest.mark.java("NodeApiVersionsTest.VersionsToString", "NodeApiVersionsTest.UnknownApiVersionsToString")
def test_versions_are_described_in_the_order_of_their_numbers() -> None:
    versions = NodeApiVersions(
        {
            10_000: VersionRange(0, 1),
            ApiKey.METADATA.id: VersionRange(0, 20),
            ApiKey.PRODUCE.id: VersionRange(10_000, 10_001),
            ApiKey.CREATE_TOPICS.id: VersionRange(0, 1),
            ApiKey.API_VERSIONS.id: VersionRange(3, 3),
        }
    )
    assert str(versions) == (
        "(Produce(0): 10000 to 10001 [unusable: node too new], ListOffsets(2): UNSUPPORTED,"
        " Metadata(3): 0 to 20 [usable: 13],"
        " SaslHandshake(17): UNSUPPORTED, ApiVersions(18): 3 [usable: 3],"
        " CreateTopics(19): 0 to 1 [unusable: node too old], InitProducerId(22): UNSUPPORTED,"
        " DescribeConfigs(32): UNSUPPORTED, SaslAuthenticate(36): UNSUPPORTED,"
        " DescribeCluster(60): UNSUPPORTED, UNKNOWN(10000): 0 to 1)"
    )


def test_the_question_is_a_request_builder() -> None:
    builder: RequestBuilder = BUILDER
    assert builder.api is ApiKey.API_VERSIONS
    assert (builder.oldest_allowed_version, builder.latest_allowed_version) == (0, 4)
    assert ApiVersionsRequestBuilder("a", "b", 2).latest_allowed_version == 2


def test_the_question_names_the_software_from_version_3_on() -> None:
    assert BUILDER.encode(2) == b""
    assert BUILDER.encode(3) == b"\x0apilotfish\x060.1.0\x00"  # compact strings, no tags


def test_a_refusal_is_read_whatever_was_asked() -> None:
    strays = (b"", b"\0", b"\0\0\0\0\0", b"stray bytes")
    for version, stray, keys in product(range(5), strays, ((), (ApiVersion(18, 0, 2),))):
        read = BUILDER.decode_response(ApiVersionsResponse(35, keys).encode(0) + stray, version)
        assert (read.error_code, read.api_keys) == (35, keys), (version, stray)


@given(
    version=st.integers(0, 4),
    keys=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 20), st.integers(0, 20)), max_size=80),
    throttle_ms=st.integers(0, 30_000),
)
def test_an_answer_is_read_as_the_version_that_was_asked_with(
    version: int, keys: list[tuple[int, int, int]], throttle_ms: int
) -> None:
    throttle_time_ms = throttle_ms if version else 0  # from version 1 on
    listed = tuple(ApiVersion(*key) for key in keys)
    answer = ApiVersionsResponse(0, listed, throttle_time_ms=throttle_time_ms)
    assert BUILDER.decode_response(answer.encode(version), version) == answer


def test_what_neither_version_explains_is_a_schema_error() -> None:
    for version in (0, 3, 4):
        with pytest.raises(SchemaError):
            BUILDER.decode_response(b"\0\0\x7f\xff\xff\xff", version)


@pytest.mark.behaviour("NET-15")
@pytest.mark.golden("messages/api_versions_fallback.json")
def test_after_a_real_brokers_refusal_the_next_version_is_the_one_java_asks_with(
    case: dict[str, Any],
) -> None:
    payload = bytes.fromhex(case["bytes"])
    refusal = BUILDER.decode_response(payload[4:], 4)
    assert refusal.error_code == 35
    assert version_to_ask_next(refusal) == case["next_request_version"]


@pytest.mark.behaviour("NET-12")
def test_the_client_holds_back_from_kip_219_on_and_never_for_the_others() -> None:
    first = {ApiKey.PRODUCE: 6, ApiKey.METADATA: 6, ApiKey.API_VERSIONS: 2, ApiKey.INIT_PRODUCER_ID: 1}
    first |= {ApiKey.CREATE_TOPICS: 3, ApiKey.DESCRIBE_CONFIGS: 2}
    assert {api for api, version in first.items() if client_throttles(api, version - 1)} == set()
    assert {api for api, version in first.items() if client_throttles(api, version)} == set(first)
    assert not client_throttles(ApiKey.DESCRIBE_CLUSTER, 2)
    assert not client_throttles(ApiKey.SASL_AUTHENTICATE, 2)
