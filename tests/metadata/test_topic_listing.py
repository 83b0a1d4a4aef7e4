"""All topics by name, in a snapshot of their own."""

from __future__ import annotations

import pytest

from client_core.errors import SchemaError
from client_core.metadata.metadata_response import ListedTopic
from client_core.metadata.topic_listing import TopicListing, TopicListingRequestBuilder
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.metadata_request import MetadataRequest
from client_core.protocol.request import RequestBuilder, throttle_time_ms
from tests.support.metadata_responses import metadata_response, topic, topic_id_of

BUILDER: RequestBuilder = TopicListingRequestBuilder()


@pytest.mark.parametrize("version", range(4, 14))
def test_it_asks_for_all_topics_and_creates_none(version: int) -> None:
    request = MetadataRequest.decode(TopicListingRequestBuilder().encode(version), version)
    assert request.topics is None
    assert not request.allow_auto_topic_creation


def test_it_needs_a_version_that_can_forbid_creation() -> None:
    assert BUILDER.api is ApiKey.METADATA
    assert BUILDER.oldest_allowed_version == 4
    assert BUILDER.latest_allowed_version == 13


def test_it_lists_name_id_kind_and_size() -> None:
    described = [
        topic("orders", 7, nodes=(0, 1, 2), topic_id=topic_id_of("orders")),
        topic("__consumer_offsets", 50, is_internal=True),
        topic("empty", 0),
    ]
    body = metadata_response(3, described, errors={"ailing": 5}, throttle_time_ms=30)
    listing = BUILDER.decode_response(body, 13)
    assert throttle_time_ms(listing) == 30
    assert getattr(listing, "topics", None) == {
        "orders": ListedTopic("orders", topic_id_of("orders"), False, 7, replication_factor=3),
        "__consumer_offsets": ListedTopic("__consumer_offsets", None, True, 50, replication_factor=1),
        "empty": ListedTopic("empty", None, False, 0, replication_factor=0),
        "ailing": ListedTopic("ailing", None, False, 0, 5),
    }


def test_it_keeps_the_error_of_the_response() -> None:
    listing = BUILDER.decode_response(metadata_response(0, error_code=129), 13)
    assert getattr(listing, "error_code", None) == 129
    assert TopicListing({}) == TopicListing({}, error_code=0, throttle_time_ms=0)
    assert ListedTopic("t", None, False, 0) == ListedTopic("t", None, False, 0, 0, 0)


def test_a_name_is_as_long_as_kafka_allows() -> None:
    longest = "a" * 249
    listing = BUILDER.decode_response(metadata_response(1, {longest: 1}), 13)
    assert list(getattr(listing, "topics", ())) == [longest]
    with pytest.raises(SchemaError, match="a topic's name of 250 characters, more than 249"):
        BUILDER.decode_response(metadata_response(1, {longest + "a": 1}), 13)


def test_a_broken_answer_is_a_schema_error() -> None:
    with pytest.raises(SchemaError):
        BUILDER.decode_response(metadata_response(1, {"t": 2})[:-4], 13)
