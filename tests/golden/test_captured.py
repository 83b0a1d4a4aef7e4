"""Answers of a real 4.3.1 broker, as they came over the wire. Absent where there is no `captured/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from client_core.protocol.api_keys import API_KEYS, ApiKey
from client_core.protocol.header import decode_response_header, encode_response_header
from tests.golden.adapters import message_class

if TYPE_CHECKING:
    from tests.golden.conftest import Cases

_CAPTURED = "captured/broker_4_3_1.json"


def _api(case: dict[str, Any]) -> ApiKey:
    return next(api for api in API_KEYS if api.name == case["api"])


@pytest.mark.golden(_CAPTURED)
def test_a_brokers_answer_is_read_to_its_last_byte(cases: Cases) -> None:
    """Read and written again it is the same, byte for byte. Unspoken versions are answered as 0."""
    for case in cases:
        api, frame = _api(case), bytes.fromhex(case["bytes"])
        version = case["version"] if case["version"] <= api.max_version else 0
        correlation_id, offset = decode_response_header(frame, api, version)
        message = message_class(f"{case['api']}Response").decode(frame, version, offset)
        assert (encode_response_header(api, version, correlation_id) + message.encode(version)).hex() == case[
            "bytes"
        ]
