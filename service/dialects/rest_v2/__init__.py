"""REST Proxy v2: Confluent's API, with extras of Strimzi's bridge and Karapace (docs/rest-v2.md).

routes   ─▶ records, answers     bodies into records, outcomes into `offsets`
metadata ─▶ answers              snapshots into topics, partitions, brokers
every refusal ─▶ error_codes     `{"error_code", "message"}`
"""

from __future__ import annotations

from service.dialects.dialect import Dialect
from service.dialects.rest_v2.error_codes import error_format
from service.dialects.rest_v2.metadata import MetadataV2
from service.dialects.rest_v2.routes import ProduceV2
from service.dialects.rest_v2.schemas import ErrorV2
from service.sidecar.sidecar import Sidecar


def dialect(sidecar: Sidecar) -> Dialect:
    routes = [*MetadataV2(sidecar).router().routes, *ProduceV2(sidecar).router().routes]
    return Dialect(routes, ("/topics", "/brokers"), error_format, ErrorV2)
