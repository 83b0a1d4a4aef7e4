"""The part of REST Proxy v3 that producers and metadata readers need.

GET  /v3/clusters…                                 cluster, brokers, topics, partitions, replicas
POST /v3/clusters/{id}/topics/{t}/records          a stream of records, answered one by one
POST /v3/clusters/{id}/topics/{t}/records:batch    up to ten records
"""

from __future__ import annotations

from service.dialects.dialect import Dialect
from service.dialects.rest_proxy import PartitionRefresh
from service.dialects.rest_v3 import examples
from service.dialects.rest_v3.batch_route import BatchRoute
from service.dialects.rest_v3.errors import error_format
from service.dialects.rest_v3.metadata_routes import MetadataRoutes
from service.dialects.rest_v3.posted_body import PostedBodies
from service.dialects.rest_v3.records_route import PostLimits, RecordsRoute, is_record_stream
from service.dialects.rest_v3.requests import ClusterPath
from service.dialects.rest_v3.schemas import ErrorAnswer
from service.sidecar.sidecar import Sidecar


def dialect(sidecar: Sidecar) -> Dialect:
    """Returns the dialect for one sidecar."""
    producer, producing, settings = sidecar.producer, sidecar.producing, sidecar.settings
    cluster = ClusterPath(producer, sidecar.lookups)
    bodies = PostedBodies(
        producing=producing,
        admission=sidecar.admission,
        body_threads=sidecar.body_threads,
        metrics=sidecar.http,
        max_records=settings.internal.max_records_per_request,
        max_record_bytes=settings.stream_line_bytes,
    )
    records = RecordsRoute(
        producer=producer,
        producing=producing,
        cluster=cluster,
        bodies=bodies,
        streams=sidecar.streams,
        body_threads=sidecar.body_threads,
        drain=sidecar.drain,
        metrics=sidecar.http,
        limits=PostLimits(
            max_record_bytes=settings.stream_line_bytes,
            max_body_bytes=settings.max_body_bytes,
            idle_timeout_ms=settings.stream_idle_timeout_ms,
            stall_timeout_ms=settings.internal.stall_timeout_ms,
        ),
    )
    batch = BatchRoute(
        producer=producer,
        producing=producing,
        cluster=cluster,
        admission=sidecar.admission,
        limits=sidecar.limits,
        body_threads=sidecar.body_threads,
        metrics=sidecar.http,
    )
    metadata = MetadataRoutes(
        producer=producer,
        lookups=sidecar.lookups,
        table=sidecar.table,
        listing=sidecar.listing,
        slices=sidecar.slices,
        cluster=cluster,
        partition_refresh=PartitionRefresh(sidecar.lookups, settings),
    )
    return Dialect(
        [route for made in (records, batch, metadata) for route in made.router().routes],
        ("/v3",),
        error_format,
        ErrorAnswer,
        is_record_stream,
        examples=examples.answers,
    )
