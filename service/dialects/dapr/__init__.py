"""Dapr's publish and bulk publish over HTTP, and its SDKs' calls before them.

    POST, PUT /v1.0/publish/{pubsub}/{topic}         one event, wrapped in a CloudEvent unless raw
    POST, PUT /v1.0/publish/bulk/{pubsub}/{topic}    many; also under /v1.0-alpha1
    GET       /v1.0/metadata                         the JavaScript SDK polls it until it answers
    PUT       /v1.0/metadata/{key}                   labels, kept until the sidecar ends
    GET       /v1.0/healthz, /v1.0/healthz/outbound  the other SDKs poll these

Records are those of Dapr's Kafka component. Sources: dapr/dapr pkg/api/http, pkg/runtime/pubsub;
dapr/components-contrib pubsub/envelope.go, common/component/kafka/producer.go.
"""

from __future__ import annotations

from fastapi import APIRouter

from service.dialects.dapr.errors import dapr_error_format
from service.dialects.dapr.publishing import Publishing
from service.dialects.dapr.routes import add_publish
from service.dialects.dapr.schemas import DaprError
from service.dialects.dapr.sidecar_info import HEALTH_PATHS, add_info
from service.dialects.dialect import Dialect
from service.sidecar.sidecar import Sidecar


def dialect(sidecar: Sidecar) -> Dialect:
    router = APIRouter(tags=["dapr"])
    add_publish(router, Publishing(sidecar))
    add_info(router, sidecar)
    return Dialect(
        router.routes, ("/v1.0", "/v1.0-alpha1"), dapr_error_format, DaprError, open_paths=HEALTH_PATHS
    )
