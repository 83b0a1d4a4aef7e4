"""CloudEvents 1.0 over HTTP, as records in its Kafka binding.

binary       ce-* headers, body = data         ─▶  ce_* record headers, value = data
structured   application/cloudevents+json      ─▶  value = the envelope, compacted
batch        application/cloudevents-batch+json ─▶  one structured record per event
"""

from __future__ import annotations

from service.dialects.cloudevents.routes import Events, events_router
from service.dialects.dialect import Dialect
from service.sidecar.sidecar import Sidecar
from service.wire.errors import native
from service.wire.schemas import ProblemAnswer


def dialect(sidecar: Sidecar) -> Dialect:
    """Returns the dialect for one sidecar; its errors are the native problem documents."""
    routes = events_router(Events(sidecar)).routes
    return Dialect(routes, ("/cloudevents",), native, ProblemAnswer)
