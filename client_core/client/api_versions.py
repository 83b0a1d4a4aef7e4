"""Negotiates API versions with a node, from its ApiVersions response.

A broker that does not support our ApiVersions version returns error 35 in the version 0 format, with its
supported versions. The client then sends the request again at a lower version (NET-15). The client infers
nothing from a broker's release. Pure. Source: NodeApiVersions, ApiVersionsRequest, ApiVersionsResponse.parse,
Kafka 4.3 (KIP-511).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from client_core.error_codes import Errors
from client_core.errors import SchemaError, UnsupportedVersionError
from client_core.protocol.api_keys import API_KEYS, ApiKey
from client_core.protocol.messages.api_versions_request import ApiVersionsRequest
from client_core.protocol.messages.api_versions_response import ApiVersionsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The first version at which the client itself must wait for throttle_time_ms (NET-12, KIP-219). At lower
#: versions, and in other APIs, the broker delays the response. Source: shouldClientThrottle of each response.
_THROTTLES_FROM: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 6,
    ApiKey.METADATA: 6,
    ApiKey.API_VERSIONS: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DESCRIBE_CONFIGS: 2,
}


def client_throttles(api: ApiKey, version: int) -> bool:
    """Returns whether the client must wait for a response's throttle time (NET-12)."""
    from_version = _THROTTLES_FROM.get(api)
    return from_version is not None and version >= from_version


class VersionRange(NamedTuple):
    """The versions of one API that a node supports, both ends included."""

    min_version: int
    max_version: int

    def __str__(self) -> str:
        return (
            f"{self.min_version} to {self.max_version}"
            if self.min_version < self.max_version
            else f"{self.max_version}"
        )


class NodeApiVersions:
    """The versions that one node supports. Immutable."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: Mapping[int, VersionRange]) -> None:
        self._ranges = dict(ranges)

    @staticmethod
    def of_response(response: ApiVersionsResponse) -> NodeApiVersions:
        """Returns all versions in an ApiVersions response, including APIs unknown to this client."""
        return NodeApiVersions(
            {key.api_key: VersionRange(key.min_version, key.max_version) for key in response.api_keys}
        )

    @staticmethod
    def create(overrides: Mapping[ApiKey, VersionRange] | None = None) -> NodeApiVersions:
        """Returns a node that supports this client's versions, except for the overrides. For tests."""
        every = {api: VersionRange(api.min_version, api.max_version) for api in API_KEYS}
        return NodeApiVersions({api.id: versions for api, versions in {**every, **(overrides or {})}.items()})

    def range_of(self, api: ApiKey) -> VersionRange | None:
        return self._ranges.get(api.id)

    def latest_usable_version(self, api: ApiKey, oldest_allowed: int, latest_allowed: int) -> int:
        """Returns the highest version that both sides support (NET-06).

        Raises UnsupportedVersionError if there is none.
        """
        supported = self._ranges.get(api.id)
        if supported is None:
            raise UnsupportedVersionError(f"The node does not support {_constant_name(api)}")
        version = min(supported.max_version, latest_allowed)
        if version < oldest_allowed or version < supported.min_version:
            raise UnsupportedVersionError(
                f"The node does not support {_constant_name(api)} with version in range"
                f" [{oldest_allowed},{latest_allowed}]. The supported range is"
                f" [{supported.min_version},{supported.max_version}]."
            )
        return version

    def __str__(self) -> str:
        """Returns every API by id, with its usable version: `Produce(0): 0 to 13 [usable: 13]`."""
        unsupported = {api.id: f"{api.name}({api.id}): UNSUPPORTED" for api in API_KEYS}
        supported = {api_id: _describe(api_id, versions) for api_id, versions in self._ranges.items()}
        lines = {**unsupported, **supported}
        return f"({', '.join(lines[api_id] for api_id in sorted(lines))})"


#: Every version of the response begins with an int16 error code.
_UNSUPPORTED_VERSION: Final = Errors.UNSUPPORTED_VERSION.code.to_bytes(2, "big")

#: The word boundary in Kafka's API names: ApiVersions -> API_VERSIONS.
_NEXT_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _constant_name(api: ApiKey) -> str:
    """Returns the API's name as Java logs it: PRODUCE, API_VERSIONS."""
    return _NEXT_WORD.sub("_", api.name).upper()


def _describe(api_id: int, versions: VersionRange) -> str:
    api = ApiKey.of(api_id)
    if api is None:
        return f"UNKNOWN({api_id}): {versions}"
    if api.max_version < versions.min_version:
        use = "unusable: node too new"
    elif versions.max_version < api.min_version:
        use = "unusable: node too old"
    else:
        use = f"usable: {min(api.max_version, versions.max_version)}"
    return f"{api.name}({api_id}): {versions} [{use}]"


class ApiVersionsRequestBuilder:
    """Builds ApiVersions requests, at our latest version or a lower one that the node listed."""

    api: Final = ApiKey.API_VERSIONS
    oldest_allowed_version: Final = 0

    def __init__(self, software_name: str, software_version: str, latest_version: int | None = None) -> None:
        self._request = ApiVersionsRequest(
            client_software_name=software_name, client_software_version=software_version
        )
        self.latest_allowed_version = self.api.max_version if latest_version is None else latest_version

    def __repr__(self) -> str:
        return f"<ApiVersionsRequestBuilder v{self.latest_allowed_version}>"

    def encode(self, version: int) -> bytes:
        return self._request.encode(version)

    def decode_response(self, body: bytes, version: int) -> ApiVersionsResponse:
        """Decodes a response in the request's version; a refusal is in version 0. Raises SchemaError.

        Version 0 has no throttle time, so a refusal's is set to 0. The mock cluster of librdkafka refuses
        in its own format, which would decode as a throttle of twenty minutes.
        """
        is_refusal = body.startswith(_UNSUPPORTED_VERSION)
        likely, other = (0, version) if is_refusal else (version, 0)
        try:
            response = ApiVersionsResponse.decode(body, likely)
        except SchemaError:
            response = ApiVersionsResponse.decode(body, other)
        return response._replace(throttle_time_ms=0) if is_refusal else response


def version_to_ask_next(response: ApiVersionsResponse) -> int:
    """Returns the version after a refusal: the highest that the response lists for this API, else 0."""
    listed = next((key for key in response.api_keys if key.api_key == ApiKey.API_VERSIONS.id), None)
    return 0 if listed is None else min(max(listed.max_version, 0), ApiKey.API_VERSIONS.max_version)
