"""Requests topic configs with DescribeConfigs, and reads each topic's result.

Sent to any broker, only while callers wait; not part of Metadata. As in Java's AdminClient: every config of a
topic, including defaults, with None for a sensitive value. Pure; used on the I/O thread. Source:
KafkaAdminClient.describeConfigs, ConfigEntry, Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from client_core.protocol.messages.describe_configs_response import DescribeConfigsResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from client_core.protocol.messages.describe_configs_response import (
        DescribeConfigsResourceResult,
        DescribeConfigsResult,
    )

#: Wire values of ConfigResource.Type.TOPIC and ConfigEntry.ConfigSource.DEFAULT_CONFIG.
_TOPIC: Final = 2
_DEFAULT_CONFIG: Final = 5


class TopicConfig(NamedTuple):
    """One config of a topic. `is_default`: set neither on the topic nor on the brokers."""

    value: str | None
    is_default: bool = False
    is_sensitive: bool = False
    is_read_only: bool = False


class TopicConfigsFailure(NamedTuple):
    """Why a broker did not return a topic's configs."""

    error_code: int
    message: str | None = None


TopicConfigs = MappingProxyType[str, TopicConfig]


@dataclass(frozen=True, slots=True)
class DescribedTopics:
    """One response's results, by topic. The response has no error of its own."""

    by_topic: Mapping[str, TopicConfigs | TopicConfigsFailure]
    throttle_time_ms: int


class TopicConfigsRequestBuilder:
    """Requests all configs of some topics; implements `protocol.request.RequestBuilder`."""

    api: ClassVar[ApiKey] = ApiKey.DESCRIBE_CONFIGS
    oldest_allowed_version: ClassVar[int] = ApiKey.DESCRIBE_CONFIGS.min_version
    latest_allowed_version: ClassVar[int] = ApiKey.DESCRIBE_CONFIGS.max_version

    def __init__(self, topics: Sequence[str]) -> None:
        self.topics: Final = tuple(topics)

    def encode(self, version: int) -> bytes:
        resources = tuple(DescribeConfigsResource(_TOPIC, topic, None) for topic in self.topics)
        return DescribeConfigsRequest(resources).encode(version)

    def decode_response(self, body: bytes, version: int) -> DescribedTopics:
        """Returns the results for topics; ignores other resources. Raises SchemaError."""
        response = DescribeConfigsResponse.decode(body, version)
        reported = {r.resource_name: _configs_of(r) for r in response.results if r.resource_type == _TOPIC}
        return DescribedTopics(MappingProxyType(reported), response.throttle_time_ms)


def _configs_of(result: DescribeConfigsResult) -> TopicConfigs | TopicConfigsFailure:
    if result.error_code:
        return TopicConfigsFailure(result.error_code, result.error_message or None)
    return MappingProxyType({config.name: _config_of(config) for config in result.configs})


def _config_of(config: DescribeConfigsResourceResult) -> TopicConfig:
    return TopicConfig(
        None if config.is_sensitive else config.value,
        config.config_source == _DEFAULT_CONFIG,
        config.is_sensitive,
        config.read_only,
    )
