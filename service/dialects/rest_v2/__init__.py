"""REST Proxy v2, Confluent's contract with the extras of Strimzi's bridge and Karapace (docs/rest-v2.md).

routes ─▶ produce ─▶ records       bodies into records
       │          └▶ answers       outcomes into `offsets`
       └▶ metadata ─▶ answers      snapshots into topics, partitions, brokers
every refusal ─▶ error_codes       `{"error_code", "message"}`
"""

from __future__ import annotations

from service.dialects.dialect import Dialect
from service.dialects.rest_v2.error_codes import error_format
from service.dialects.rest_v2.routes import rest_v2_router
from service.dialects.rest_v2.schemas import ErrorV2
from service.sidecar.sidecar import Sidecar


def dialect(sidecar: Sidecar) -> Dialect:
    """The dialect over one sidecar."""
    return Dialect(rest_v2_router(sidecar).routes, ("/topics", "/brokers"), error_format, ErrorV2)
