"""The configs of topics, as DescribeConfigs asks for them and returns them."""

from __future__ import annotations

import pytest

from client_core.error_codes import Errors
from client_core.errors import SchemaError
from client_core.metadata.topic_configs import (
    DescribedTopics,
    TopicConfig,
    TopicConfigsFailure,
    TopicConfigsRequestBuilder,
)
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from client_core.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from client_core.protocol.request import RequestBuilder, throttle_time_ms

BUILDER: RequestBuilder = TopicConfigsRequestBuilder(["orders", "audit"])
VERSIONS = range(1, 5)
TOPIC, BROKER = 2, 4


def described(version: int, *results: DescribeConfigsResult, throttle_ms: int = 0) -> DescribedTopics:
    reported = BUILDER.decode_response(DescribeConfigsResponse(throttle_ms, results).encode(version), version)
    assert isinstance(reported, DescribedTopics)
    return reported


def test_it_speaks_every_version_that_is_known() -> None:
    assert BUILDER.api is ApiKey.DESCRIBE_CONFIGS
    assert (BUILDER.oldest_allowed_version, BUILDER.latest_allowed_version) == (1, 4)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_asks_for_all_configs_of_each_topic_and_for_no_more(version: int) -> None:
    request = DescribeConfigsRequest.decode(BUILDER.encode(version), version)
    assert request.resources == (
        DescribeConfigsResource(TOPIC, "orders", None),
        DescribeConfigsResource(TOPIC, "audit", None),
    )
    assert not request.include_synonyms
    assert not request.include_documentation


@pytest.mark.parametrize("version", VERSIONS)
def test_it_returns_values_and_where_they_come_from(version: int) -> None:
    reported = described(
        version,
        DescribeConfigsResult(
            resource_type=TOPIC,
            resource_name="orders",
            configs=(
                DescribeConfigsResourceResult("retention.ms", "17", config_source=1),
                DescribeConfigsResourceResult("cleanup.policy", "delete", config_source=5),
                DescribeConfigsResourceResult("fixed", "x", read_only=True, config_source=4),
            ),
        ),
    )
    assert reported.by_topic == {
        "orders": {
            "retention.ms": TopicConfig("17"),
            "cleanup.policy": TopicConfig("delete", is_default=True),
            "fixed": TopicConfig("x", is_read_only=True),
        }
    }


def test_a_sensitive_value_is_none_whatever_a_broker_sends() -> None:
    secret = DescribeConfigsResourceResult("password", "hunter2", config_source=1, is_sensitive=True)
    reported = described(
        4, DescribeConfigsResult(resource_type=TOPIC, resource_name="orders", configs=(secret,))
    )
    assert reported.by_topic == {"orders": {"password": TopicConfig(None, is_sensitive=True)}}
    assert "hunter2" not in repr(reported)


def test_an_error_is_that_of_its_topic_alone() -> None:
    refused = Errors.TOPIC_AUTHORIZATION_FAILED.code
    reported = described(
        4,
        DescribeConfigsResult(refused, "not for you", TOPIC, "orders"),
        DescribeConfigsResult(resource_type=TOPIC, resource_name="audit"),
        throttle_ms=30,
    )
    assert reported.by_topic == {"orders": TopicConfigsFailure(refused, "not for you"), "audit": {}}
    assert throttle_time_ms(reported) == 30


def test_what_is_no_topic_is_not_taken_for_one() -> None:
    assert described(4, DescribeConfigsResult(resource_type=BROKER, resource_name="1")).by_topic == {}


def test_a_broken_answer_is_a_schema_error() -> None:
    whole = DescribeConfigsResponse(0, (DescribeConfigsResult(0, None, TOPIC, "orders"),)).encode(4)
    with pytest.raises(SchemaError):
        BUILDER.decode_response(whole[:-2], 4)
