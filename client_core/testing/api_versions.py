"""Answers ApiVersions requests: a broker's versions, and its response to unsupported ones.

A version that is too high gets error 35 in version 0's format, with ApiVersions' own versions only (KIP-511).
The client retries with one of those. Source: KafkaApis.handleApiVersionsRequest, Kafka 4.3; the tables name
their sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.protocol.api_keys import API_KEYS, ApiKey
from client_core.protocol.messages.api_versions_request import ApiVersionsRequest
from client_core.protocol.messages.api_versions_response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from random import Random

Versions = Mapping[int, tuple[int, int]]

#: The response of a real 4.3.1 broker (tests/golden/data/captured), reduced to the APIs that producers and
#: librdkafka check. A request to an API without a handler here ends the connection.
KAFKA_4_3: Final[Versions] = MappingProxyType(
    {
        0: (0, 13),  # Produce; 0-2 are listed for librdkafka's sake and close the connection
        1: (4, 18),  # Fetch
        2: (1, 11),  # ListOffsets
        3: (0, 13),  # Metadata
        8: (2, 10),  # OffsetCommit
        9: (1, 10),  # OffsetFetch
        10: (0, 6),  # FindCoordinator
        11: (0, 9),  # JoinGroup
        12: (0, 4),  # Heartbeat
        13: (0, 5),  # LeaveGroup
        14: (0, 5),  # SyncGroup
        15: (0, 6),  # DescribeGroups
        16: (0, 5),  # ListGroups
        17: (0, 1),  # SaslHandshake
        18: (0, 4),  # ApiVersions
        19: (2, 7),  # CreateTopics
        20: (1, 6),  # DeleteTopics
        22: (0, 5),  # InitProducerId
        32: (1, 4),  # DescribeConfigs
        36: (0, 2),  # SaslAuthenticate
        60: (0, 2),  # DescribeCluster
    }
)

#: Kafka 2.1 by its release history: the oldest broker that Kafka 4's clients support (KIP-896).
KAFKA_2_1: Final[Versions] = MappingProxyType(
    {
        0: (0, 7),
        1: (0, 10),
        2: (0, 4),
        3: (0, 7),
        8: (0, 6),
        9: (0, 5),
        10: (0, 2),
        11: (0, 3),
        12: (0, 2),
        13: (0, 2),
        14: (0, 2),
        17: (0, 1),
        18: (0, 2),
        19: (0, 3),
        20: (0, 3),
        22: (0, 1),
        32: (0, 2),
        36: (0, 0),
    }
)

#: The first Metadata version that can look up a topic without creating it. Then the first that returns topic
#: ids, which Produce uses from 13 on.
_METADATA_AT_LEAST: Final = 4
_METADATA_WITH_IDS: Final = 10
_PRODUCE_WITHOUT_IDS: Final = 12


def drawn_versions(random: Random) -> Versions:
    """Returns a broker's versions, with a random maximum per API, so that all get negotiated."""
    drawn = dict(KAFKA_4_3)
    for api in API_KEYS:
        least = _METADATA_AT_LEAST if api is ApiKey.METADATA else max(api.min_version, 1)
        drawn[api.id] = (drawn[api.id][0], random.randint(least, api.max_version))
    if drawn[ApiKey.METADATA.id][1] < _METADATA_WITH_IDS:
        low, high = drawn[ApiKey.PRODUCE.id]
        drawn[ApiKey.PRODUCE.id] = (low, min(high, _PRODUCE_WITHOUT_IDS))
    return MappingProxyType(drawn)


#: Source: RequestUtils / ApiVersionsRequest.isValid (KIP-511).
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_METADATA_VERSION_4_3: Final = 30
_FEATURES_EPOCH: Final = 112


def answer(versions: Versions, body: bytes, version: int, offset: int) -> tuple[ApiVersionsResponse, int]:
    """Returns the response and the version to encode it in."""
    low, high = versions[ApiKey.API_VERSIONS.id]
    if not low <= version <= high:
        own = (ApiVersion(ApiKey.API_VERSIONS.id, low, high),)
        return ApiVersionsResponse(Errors.UNSUPPORTED_VERSION.code, own), 0
    request = ApiVersionsRequest.decode(body, version, offset)
    if version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(Errors.INVALID_REQUEST.code), version
    keys = tuple(ApiVersion(key, *span) for key, span in sorted(versions.items()))
    response = ApiVersionsResponse(Errors.NONE.code, keys)
    if version >= 3:
        response = response._replace(
            supported_features=(SupportedFeatureKey("metadata.version", 7, _METADATA_VERSION_4_3),),
            finalized_features_epoch=_FEATURES_EPOCH,
            finalized_features=(
                FinalizedFeatureKey("metadata.version", _METADATA_VERSION_4_3, _METADATA_VERSION_4_3),
            ),
        )
    return response, version
