"""kio reads what we write, and we read what kio writes: every API, every version, requests and responses.

kio 0.6.5 knows every version that we speak. A test checks that, so that a missing version fails it rather
than being left out. kio_messages.py says which values are narrowed, and why.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import UnknownEntity

from client_core.protocol.api_keys import API_KEYS, ApiKey
from client_core.protocol.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from tests.interop.kio_messages import (
    as_kios,
    as_ours,
    both_can_hold,
    fields_of,
    kio_class,
    kio_reads,
    kio_writes,
    our_fields,
    structs_of,
)
from tests.protocol.messages import GeneratedMessage, generated_messages

_MESSAGES: Final = generated_messages()
_EVERY_VERSION: Final = [(message, version) for message in _MESSAGES for version in message.versions]
_CLIENT_IDS: Final = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_INT32: Final = st.integers(-(2**31), 2**31 - 1)


def test_kio_has_every_version_that_we_speak() -> None:
    lacking = []
    for message in _MESSAGES:
        for version in message.versions:
            try:
                kio_class(message, version)
            except UnknownEntity:
                lacking.append((message.name, version))
    assert lacking == []


def test_both_find_the_same_fields_in_a_version_and_the_same_ones_may_be_null() -> None:
    for message, version in _EVERY_VERSION:
        for ours, kios in structs_of(message.type, kio_class(message, version)):
            theirs = {field.ours: field.is_nullable for field in fields_of(ours, kios)}
            assert theirs == our_fields(ours, version), (ours.__name__, version)


@pytest.mark.parametrize(
    ("message", "version"), [pytest.param(*each, id=f"{each[0].name}-v{each[1]}") for each in _EVERY_VERSION]
)
@settings(max_examples=15)
@given(data=st.data())
def test_each_reads_what_the_other_writes_and_both_write_the_same_bytes(
    message: GeneratedMessage, version: int, data: st.DataObject
) -> None:
    kios = kio_class(message, version)
    ours = data.draw(both_can_hold(message.type, kios))

    our_bytes, their_bytes = ours.encode(version), kio_writes(as_kios(ours, kios))

    assert as_ours(kio_reads(kios, our_bytes), message.type) == ours
    assert message.type.decode(their_bytes, version) == ours
    assert our_bytes == their_bytes


@settings(max_examples=25)
@given(correlation_id=_INT32, client_id=_CLIENT_IDS)
def test_headers_are_read_both_ways(correlation_id: int, client_id: str | None) -> None:
    for api in API_KEYS:
        for version in range(api.min_version, api.max_version + 1):
            _check_headers(api, version, correlation_id, client_id)


def _check_headers(api: ApiKey, version: int, correlation_id: int, client_id: str | None) -> None:
    request, response = (
        kio_class(message, version).__header_schema__ for message in _MESSAGES if message.api_key == api.id
    )

    ours = encode_request_header(api, version, correlation_id, client_id)
    theirs = request(
        request_api_key=api.id,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    assert kio_reads(request, ours) == theirs
    assert kio_writes(theirs) == ours
    assert decode_request_header(kio_writes(theirs)) == (api, version, correlation_id, client_id, len(ours))

    answered: Any = response(correlation_id=correlation_id)
    our_answer = encode_response_header(api, version, correlation_id)
    assert kio_reads(response, our_answer) == answered
    assert decode_response_header(kio_writes(answered), api, version) == (correlation_id, len(our_answer))
