"""Before a look-up says that a topic has no such partition: has the topic grown since it was last heard of?

Metadata is as old as `metadata.max.age.ms` lets it be, minutes, and callers of the REST proxies can't demand
a fresher answer: their APIs have no parameter for that, and the proxies ask the brokers each time. A missing
partition is told from metadata that is at most `unknown_topic_memory_ms` old, as a missing topic is, and
waited for as long, `unknown_topic_wait_ms`. Many who ask share one request. Event loop only.

Spellings that REST proxies take and the native API does not, because no meaning is lost by them.

    base64 without its padding   "Zm8" is "Zm8=": Confluent's proxy and Strimzi's bridge read both
    a partition in quotes        "1" is 1: Confluent's proxy and Karapace read both

Both turn one raw JSON value into the strict spelling of it, and leave whatever is neither as it is, for the
strict readers to refuse. Pure; any thread.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request

from service.admission.caller import caller_of
from service.lookup.lookups import Demands
from service.sidecar.sidecar import Sidecar
from service.wire.errors import ProblemError
from service.wire.payload import bytes_of_base64

_TOO_MANY = 429


_QUOTE: Final = b'"'
#: Four letters of base64 stand for three bytes; two or three letters, at the end, for one or two.
_GROUP: Final = 4
_PADDABLE: Final = (1, 2)


def bytes_of_unpadded_base64(raw: bytes) -> bytes | None:
    """As `bytes_of_base64`, but that the padding may be left out; a part of it may not."""
    return bytes_of_base64(_padded(raw))


def unquoted_number(raw: bytes) -> bytes:
    """The digits of a string that is nothing else; any other JSON as it is."""
    digits = raw[1:-1]
    return digits if raw[:1] == _QUOTE and digits.isdigit() else raw


def _padded(raw: bytes) -> bytes:
    """A string of base64 with the padding that it lacks. One with escapes in it is not looked into."""
    missing = (len(_QUOTE) * 2 - len(raw)) % _GROUP
    if missing in _PADDABLE and raw[:1] == _QUOTE and not raw.endswith(b'="') and b"\\" not in raw:
        return raw[:-1] + b"=" * missing + _QUOTE
    return raw


async def look_again(sidecar: Sidecar, topic: str, request: Request) -> None:
    """Has the metadata of a known topic refreshed where it is old, so that its caller can look again.

    Where the brokers don't answer in time the metadata stays as it is, and so does what it says: look-ups are
    served while brokers are away. Raises ProblemError (429) where too much waits.
    """
    settings = sidecar.settings
    demands = Demands(
        max_block_ms=settings.unknown_topic_wait_ms, max_age_ms=settings.internal.unknown_topic_memory_ms
    )
    try:
        await sidecar.lookups.know([topic], demands, request.receive, caller_of(request.scope))
    except ProblemError as e:
        if e.problem.status == _TOO_MANY:
            raise
