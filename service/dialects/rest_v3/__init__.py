"""REST Proxy v3, as far as a producer and a reader of metadata need it.

GET  /v3/clusters…                                 cluster, brokers, topics, partitions, replicas
POST /v3/clusters/{id}/topics/{t}/records          a stream of records, answered one by one
POST /v3/clusters/{id}/topics/{t}/records:batch    up to ten records
"""

from __future__ import annotations

from service.dialects.dialect import Dialect
from service.dialects.rest_v3 import batch_route, examples, metadata_routes, records_route
from service.dialects.rest_v3.errors import error_format
from service.dialects.rest_v3.records_route import is_record_stream
from service.dialects.rest_v3.schemas import ErrorAnswer
from service.sidecar.sidecar import Sidecar


def dialect(sidecar: Sidecar) -> Dialect:
    """The dialect; its routes find the sidecar by the request."""
    routers = (records_route.router, batch_route.router, metadata_routes.router)
    return Dialect(
        [route for router in routers for route in router.routes],
        ("/v3",),
        error_format,
        ErrorAnswer,
        is_record_stream,
        examples=examples.answers,
    )
