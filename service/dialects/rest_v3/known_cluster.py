"""Which cluster a path speaks of: this one, or one that is not here. Event loop only."""

from __future__ import annotations

from service.admission.caller import Caller
from service.lookup.lookups import NO_DEMANDS
from service.sidecar.sidecar import Sidecar
from service.wire.asgi import Receive
from service.wire.errors import refused


async def require_cluster(sidecar: Sidecar, cluster_id: str | None, receive: Receive, caller: Caller) -> str:
    """The id of the cluster, which is the one asked for; None asks for whichever it is.

    Waits for a first answer of the brokers. Raises ProblemError: 503 where none comes, 404 where this is
    another cluster. `receive` must have given the whole body, or never give anything.
    """
    await sidecar.lookups.know_cluster(NO_DEMANDS, receive, caller)
    known = sidecar.producer.cache.cluster_id
    if cluster_id is None and known is None:
        raise refused(503, "the brokers do not say which cluster they are", retriable=True)
    if known is None or cluster_id not in (None, known):
        raise refused(404, f"Cluster {cluster_id} cannot be found.")
    return known
