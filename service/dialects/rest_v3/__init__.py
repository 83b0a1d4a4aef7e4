"""REST Proxy v3 for producers and metadata readers.

GET  /v3/clusters…                                 cluster, brokers, topics, partitions, replicas
POST /v3/clusters/{id}/topics/{t}/records          a stream of records, answered one by one
POST /v3/clusters/{id}/topics/{t}/records:batch    up to ten records
"""

from __future__ import annotations

from service.dialects.dialect import Dialect
from service.dialects.rest_v3 import examples
from service.dialects.rest_v3.batch_route import BatchRoute
from service.dialects.rest_v3.errors import error_format
from service.dialects.rest_v3.metadata_routes import MetadataRoutes
from service.dialects.rest_v3.records_route import RecordsRoute, is_record_stream
from service.dialects.rest_v3.requests import ClusterPath
from service.dialects.rest_v3.schemas import ErrorAnswer
from service.sidecar.sidecar import Sidecar


def dialect(sidecar: Sidecar) -> Dialect:
    cluster = ClusterPath(sidecar.producer, sidecar.lookups)
    made = (
        RecordsRoute(sidecar, cluster),
        BatchRoute(sidecar, cluster),
        MetadataRoutes(sidecar, cluster),
    )
    return Dialect(
        [route for each in made for route in each.router().routes],
        ("/v3",),
        error_format,
        ErrorAnswer,
        is_record_stream,
        examples=examples.answers,
    )
