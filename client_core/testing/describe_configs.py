"""Answers DescribeConfigs requests: of topics, from the receiving broker's cache.

It follows a real 4.3.1 broker: every config of a topic is returned, including defaults. A missing topic is
error 3; a denied one is error 29 or 33; each for itself. Only the few configs that affect the fake cluster
are returned. Source: ConfigHelper.describeConfigs, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core.error_codes import Errors
from client_core.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from client_core.testing.controller import TopicConfig

if TYPE_CHECKING:
    from client_core.protocol.messages.describe_configs_request import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )
    from client_core.testing.state import ClusterState

_TOPIC: Final = 2
#: ConfigSource: set on the topic, or not set.
_TOPIC_CONFIG: Final = 1
_DEFAULT_CONFIG: Final = 5


def answer(state: ClusterState, broker_id: int, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Returns broker `broker_id`'s configs of each resource."""
    return DescribeConfigsResponse(results=tuple(_report(state, broker_id, r) for r in request.resources))


def _report(state: ClusterState, broker_id: int, wanted: DescribeConfigsResource) -> DescribeConfigsResult:
    name = wanted.resource_name
    if wanted.resource_type != _TOPIC:
        return _refused(wanted, Errors.INVALID_REQUEST)
    if name in state.undescribable or name in state.unconfigurable:
        return _refused(wanted, Errors.TOPIC_AUTHORIZATION_FAILED)
    if state.caches[broker_id].topic(name) is None:
        return _refused(wanted, Errors.UNKNOWN_TOPIC_OR_PARTITION)
    return DescribeConfigsResult(
        error_message=None,
        resource_type=_TOPIC,
        resource_name=name,
        configs=_configs(state.controller.config(name)),
    )


def _refused(wanted: DescribeConfigsResource, error: Errors) -> DescribeConfigsResult:
    return DescribeConfigsResult(error.code, error.message, wanted.resource_type, wanted.resource_name)


def _configs(config: TopicConfig) -> tuple[DescribeConfigsResourceResult, ...]:
    default = TopicConfig()
    return (
        _config("max.message.bytes", config.max_message_bytes, default.max_message_bytes),
        _config(
            "message.timestamp.type",
            "LogAppendTime" if config.log_append_time else "CreateTime",
            "CreateTime",
        ),
        _config("min.insync.replicas", config.min_insync_replicas, default.min_insync_replicas),
    )


def _config(name: str, value: object, default: object) -> DescribeConfigsResourceResult:
    source = _DEFAULT_CONFIG if value == default else _TOPIC_CONFIG
    return DescribeConfigsResourceResult(name, str(value), config_source=source)
