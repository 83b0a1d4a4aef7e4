"""REST Proxy v3, as far as a producer and a reader of metadata need it.

GET  /v3/clusters…                                 cluster, brokers, topics, partitions, replicas
POST /v3/clusters/{id}/topics/{t}/records          a stream of records, answered one by one
POST /v3/clusters/{id}/topics/{t}/records:batch    up to ten records
"""

from __future__ import annotations

from fastapi import APIRouter

from service.deps import Sidecar
from service.dialects.dialect import Dialect
from service.dialects.rest_v3 import batch_route, metadata_routes, records_route
from service.dialects.rest_v3.errors import error_face
from service.dialects.rest_v3.records_route import is_record_stream
from service.dialects.rest_v3.schemas import ErrorAnswer


def dialect(sidecar: Sidecar) -> Dialect:
    """The dialect; its routes find the sidecar by the request."""
    router = APIRouter()
    for routes in (records_route, batch_route, metadata_routes):
        router.include_router(routes.router)
    return Dialect(router, ("/v3",), error_face, ErrorAnswer, is_record_stream)
