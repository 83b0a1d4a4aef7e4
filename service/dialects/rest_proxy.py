"""Before a look-up says that a topic has no such partition: has the topic grown since it was last heard of?

Metadata is as old as `metadata.max.age.ms` lets it be, minutes, and callers of the REST proxies can't demand
a fresher answer: their APIs have no parameter for that, and the proxies ask the brokers each time. A missing
partition is told from metadata that is at most `unknown_topic_memory_ms` old, as a missing topic is, and
waited for as long, `unknown_topic_wait_ms`. Many who ask share one request. Event loop only.
"""

from __future__ import annotations

from fastapi import Request

from service.admission.caller import caller_of
from service.lookup.lookups import Demands
from service.sidecar.sidecar import Sidecar
from service.wire.errors import ProblemError

_TOO_MANY = 429


async def look_again(sidecar: Sidecar, topic: str, request: Request) -> None:
    """Has the metadata of a known topic refreshed where it is old, so that its caller can look again.

    Where the brokers don't answer in time the metadata stays as it is, and so does what it says: look-ups are
    served while brokers are away. Raises ProblemError (429) where too much waits.
    """
    settings = sidecar.settings
    demands = Demands(
        max_block_ms=settings.unknown_topic_wait_ms, max_age_ms=settings.unknown_topic_memory_ms
    )
    try:
        await sidecar.lookups.know([topic], demands, request.receive, caller_of(request.scope))
    except ProblemError as e:
        if e.problem.status == _TOO_MANY:
            raise
