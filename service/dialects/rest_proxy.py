"""Shared by both REST proxies: a refresh for missing partitions, and lenient spellings.

Metadata may be as old as `lookup_max_stale_ms`. Callers of the REST proxies can't demand a fresher answer.
Their APIs have no parameter for it, and the original proxies ask the brokers each time. So a missing
partition is reported only from metadata that is at most `unknown_topic_memory_ms` old, as a missing topic is.
The caller waits for at most `unknown_topic_wait_ms`, and many callers share one request. Event loop only.

Two spellings are accepted that the native API refuses, because they lose no meaning:

    base64 without its padding   "Zm8" is "Zm8=": Confluent's proxy and Strimzi's bridge read both
    a partition in quotes        "1" is 1: Confluent's proxy and Karapace read both

Each function converts one raw JSON value to the strict spelling. It returns any other value unchanged, and
the strict readers refuse that. Pure; any thread.
"""

from __future__ import annotations

from typing import Final

import msgspec
from fastapi import Request

from service.admission.caller import caller_of
from service.lookup.lookups import Demands
from service.sidecar.sidecar import Sidecar
from service.wire.errors import ProblemError
from service.wire.payload import bytes_of_base64

_QUOTE: Final = b'"'
#: Four letters of base64 encode three bytes; a final two or three letters encode one or two.
_GROUP: Final = 4
_PADDABLE: Final = (1, 2)
_STRING: Final = msgspec.json.Decoder(str)


def bytes_of_unpadded_base64(raw: bytes) -> bytes | None:
    """Decodes as `bytes_of_base64`, but the padding may be missing; partial padding is refused."""
    return bytes_of_base64(_padded(raw))


def unquoted_number(raw: bytes) -> bytes:
    """Returns the digits of a string of digits; any other JSON unchanged."""
    digits = raw[1:-1]
    return digits if raw[:1] == _QUOTE and digits.isdigit() else raw


def _padded(raw: bytes) -> bytes:
    """Returns a string of base64 with its missing padding."""
    if raw[:1] != _QUOTE:
        return raw
    # PHP escapes every slash in JSON, and .NET every plus.
    text = _STRING.decode(raw).encode() if b"\\" in raw else raw[1:-1]
    missing = -len(text) % _GROUP
    if missing in _PADDABLE and not text.endswith(b"="):
        return raw[:-1] + b"=" * missing + _QUOTE
    return raw


class PartitionRefresh:
    """Refreshes a topic's metadata when a looked-up partition is missing."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._lookups = sidecar.lookups
        self._demands = Demands(
            max_block_ms=sidecar.settings.unknown_topic_wait_ms,
            max_age_ms=sidecar.settings.internal.unknown_topic_memory_ms,
        )

    async def refresh(self, topic: str, request: Request) -> None:
        """Refreshes the metadata of a known topic if it is old, so that the caller can look again.

        If the brokers do not answer in time, the metadata stays as it is: look-ups are served while brokers
        are away. Raises ProblemError (429) if too many callers wait.
        """
        try:
            await self._lookups.know([topic], self._demands, request.receive, caller_of(request.scope))
        except ProblemError as e:
            if e.problem.status == 429:
                raise
