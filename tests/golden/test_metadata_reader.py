"""The fast reader of Metadata responses on Java's vectors and on a real broker's answers."""

from __future__ import annotations

from typing import Any

import pytest

from client_core.protocol.api_keys import ApiKey
from client_core.protocol.header import decode_response_header
from tests.conftest import golden_cases
from tests.metadata.test_metadata_response import assert_reads_as


@pytest.mark.parametrize("pattern", ["messages/*.json", "captured/*.json"])
def test_it_reads_what_the_generated_reader_reads(pytestconfig: pytest.Config, pattern: str) -> None:
    read = 0
    for _, case in golden_cases(pytestconfig, pattern):
        if _is_metadata_response(case):
            frame, version = bytes.fromhex(case["bytes"]), case["version"]
            _, offset = decode_response_header(frame, ApiKey.METADATA, version)
            assert_reads_as(frame[offset:], version)
            read += 1
    assert read >= 10 or pattern.startswith("captured")


def _is_metadata_response(case: dict[str, Any]) -> bool:
    """Of a version that is spoken: 0 is not, and unreadable vectors have no bytes."""
    is_response = case.get("api") == "Metadata" and case.get("type") == "response"
    return is_response and "bytes" in case and case["version"] >= 1
