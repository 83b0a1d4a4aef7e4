"""MetadataRequestTest: which topics are asked for, and whether asking may create them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import SchemaError, UnsupportedVersionError
from client_core.metadata.metadata_request import MetadataRequestBuilder
from client_core.metadata.topic_table import TopicTable
from client_core.protocol.api_keys import ApiKey
from client_core.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.metadata.strategies import VERSIONS
from tests.support.metadata_responses import metadata_response, read

if TYPE_CHECKING:
    from client_core.protocol.request import RequestBuilder

LEFT_OUT: Final = {
    "MetadataRequestTest.EmptyMeansAllTopicsV0": "Version 0 is never sent (UPD-16).",
    "MetadataRequestTest.MetadataRequestVersion": (
        "Callers set no versions here: the oldest follows from whether topics may be created."
    ),
    "MetadataRequestTest.TopicIdAndNullTopicNameRequests": (
        "Topics are asked for by name only, so that no such request can be made."
    ),
}


def test_it_is_a_request_builder() -> None:
    builder: RequestBuilder = MetadataRequestBuilder((), allow_auto_topic_creation=True)
    assert builder.api is ApiKey.METADATA
    assert builder.latest_allowed_version == ApiKey.METADATA.max_version


def test_who_must_not_create_topics_needs_version_4() -> None:
    """Java finds out when it builds the request; here it is negotiated."""
    assert MetadataRequestBuilder(("t",), allow_auto_topic_creation=True).oldest_allowed_version == 1
    builder = MetadataRequestBuilder(("t",), allow_auto_topic_creation=False)
    assert builder.oldest_allowed_version == 4
    with pytest.raises(UnsupportedVersionError, match=r"v3 can't carry allowAutoTopicCreation"):
        builder.encode(3)
    assert not MetadataRequest.decode(builder.encode(4), 4).allow_auto_topic_creation


@pytest.mark.behaviour("UPD-16")
def test_version_0_is_never_sent() -> None:
    with pytest.raises(UnsupportedVersionError):
        MetadataRequestBuilder(None, allow_auto_topic_creation=True).encode(0)


@pytest.mark.behaviour("UPD-16")
@pytest.mark.java("MetadataRequestTest.EmptyMeansEmptyForVersionsAboveV0")
@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_are_a_null_list_and_none_an_empty_one(version: int) -> None:
    everything = MetadataRequestBuilder(None, allow_auto_topic_creation=True)
    nothing = MetadataRequestBuilder((), allow_auto_topic_creation=True)
    assert MetadataRequest.decode(everything.encode(version), version).topics is None
    assert MetadataRequest.decode(nothing.encode(version), version).topics == ()


@pytest.mark.java("MetadataRequestTest.TopicIdWithZeroUuid")
@pytest.mark.parametrize("version", VERSIONS)
def test_topics_are_asked_for_by_name(version: int) -> None:
    """Never by id, which brokers understand from version 12 on only."""
    body = MetadataRequestBuilder(("a", "b"), allow_auto_topic_creation=True).encode(version)
    assert MetadataRequest.decode(body, version) == MetadataRequest(
        (MetadataRequestTopic(name="a"), MetadataRequestTopic(name="b")), allow_auto_topic_creation=True
    )


def test_the_bytes_of_version_4() -> None:
    assert MetadataRequestBuilder(("ab",), allow_auto_topic_creation=False).encode(4) == bytes.fromhex(
        "00000001"  # one topic
        "0002 6162"  # its name
        "00"  # do not create it
    )


def test_the_answer_is_read_against_what_is_known_when_it_comes() -> None:
    known: dict[str, TopicTable] = {}
    builder = MetadataRequestBuilder(("t",), allow_auto_topic_creation=True, known_topics=lambda: known)
    [table] = read(1, {"t": 2}).topics
    assert isinstance(table, TopicTable)
    known["t"] = table
    assert builder.decode_response(metadata_response(1, {"t": 2}), 13).topics == (table,)


def test_an_answer_that_comes_in_pieces_is_read_for_what_was_asked_against_what_is_known() -> None:
    [table] = read(1, {"t": 2}).topics
    assert isinstance(table, TopicTable)
    builder = MetadataRequestBuilder(
        ("t",), allow_auto_topic_creation=True, known_topics=lambda: {"t": table}
    )
    body = metadata_response(1, {"other": 1, "t": 2})
    reader = builder.response_reader(len(body), 13)
    for piece in (body[:40], body[40:]):
        reader.feed(piece)
    [found] = reader.finish().topics
    assert found is table


def test_an_answer_that_is_none_is_a_schema_error() -> None:
    with pytest.raises(SchemaError):
        MetadataRequestBuilder(None, allow_auto_topic_creation=True).decode_response(b"\0\0", 13)
