"""Health and metadata for Dapr's SDKs.

`/v1.0/metadata` lists the pubsub components and the caller's labels. Each caller has its own labels. They are
kept in memory until the sidecar ends, with one limit for all callers. Event loop only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response

from service.admission.admission_control import FAIR_SHARE, exceeds_share
from service.admission.body import announced_bytes, read_body
from service.admission.caller import ANYONE, Caller, caller_of
from service.admission.drain import Drain
from service.base.producer_protocol import Producer
from service.base.settings import Settings
from service.base.version import pilotfish_version
from service.dialects.dapr import errors
from service.dialects.dapr.envelope import app_id
from service.dialects.dapr.event_records import NO_CHARACTER
from service.dialects.dapr.schemas import HealthQuery, MetadataAnswer, dapr_errors
from service.sidecar.sidecar import Sidecar
from service.wire.errors import refused
from service.wire.media_type import OCTET_STREAM
from service.wire.responses import of_json
from service.wire.schemas import NoQuery, check_query

#: Open without a token, as in Dapr.
HEALTH_PATHS: Final = ("/v1.0/healthz", "/v1.0/healthz/outbound")

#: The component name shown when any name is accepted: Dapr tools' default for the first component.
_USUAL_NAME: Final = "pubsub"


class _OfCaller:
    """One caller's labels and their size."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.bytes = 0


class Labels:
    """Key-value pairs by caller, with a limit for all in bytes.

    Callers with tokens have fair shares (`admission_control.py`), so that none fills the memory.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_caller: dict[str, _OfCaller] = {}
        self._bytes = 0

    def put(self, caller: Caller, name: str, value: str) -> None:
        """Sets or replaces a label of the caller. Raises ProblemError (413) if it does not fit."""
        own = self._by_caller.get(caller.name) or _OfCaller()
        before = own.values.get(name)
        more = _size(name, value) - (0 if before is None else _size(name, before))
        if self._bytes + more > self._max_bytes:
            raise refused(413, f"labels may take {self._max_bytes} bytes in all")
        if more > 0 and caller is not ANYONE and exceeds_share(own.bytes, more, self._bytes, self._max_bytes):
            detail = f"labels of {caller.name} take {own.bytes} of {self._max_bytes} bytes"
            raise refused(413, f"{detail}: {FAIR_SHARE}")
        own.values[name] = value
        own.bytes += more
        self._bytes += more
        self._by_caller[caller.name] = own

    def of(self, caller: Caller) -> dict[str, str]:
        """Returns the caller's labels."""
        own = self._by_caller.get(caller.name)
        return {} if own is None else dict(own.values)


def add_info(router: APIRouter, sidecar: Sidecar) -> None:
    """Adds the routes and the store of labels."""
    producer, admission, drain, settings = (
        sidecar.producer,
        sidecar.admission,
        sidecar.drain,
        sidecar.settings,
    )
    body_timeout_ms = sidecar.producing.times.timeout_ms
    labels = Labels(settings.internal.dapr_labels_max_bytes)

    @router.get(
        "/v1.0/metadata",
        operation_id="getDaprMetadata",
        response_model=MetadataAnswer,
        responses=dapr_errors(422),
    )
    async def metadata(request: Request, _: Annotated[NoQuery, Query()]) -> Response:
        """Who this sidecar is, what can be published to, and the labels that the caller has put there."""
        return of_json(msgspec.json.encode(_metadata(settings, labels.of(caller_of(request.scope)))))

    @router.put(
        "/v1.0/metadata/{key}",
        operation_id="putDaprLabel",
        status_code=204,
        responses=dapr_errors(400, 408, 413, 422, 429),
        dependencies=[Depends(check_query)],
        openapi_extra={
            "requestBody": {
                "description": "The value, as UTF-8. Any media type is allowed.",
                "content": {
                    OCTET_STREAM.decode(): {
                        "schema": {"type": "string", "format": "binary"},
                        "example": "blue",
                    }
                },
            }
        },
    )
    async def put_label(request: Request, key: str, _: Annotated[NoQuery, Query()]) -> Response:
        """Puts a label of the caller's own under `extended` of the metadata, until the sidecar ends."""
        with admission.acquire(announced_bytes(request.scope), caller_of(request.scope)) as permit:
            body = await read_body(request.scope, request.receive, permit, body_timeout_ms)
        if NO_CHARACTER in key:
            raise refused(400, "invalid UTF-8", place="path.key")
        try:
            labels.put(caller_of(request.scope), key, body.decode())
        except UnicodeDecodeError as e:
            raise refused(400, "invalid UTF-8", place="body") from e
        return Response(status_code=204)

    @router.get(
        "/v1.0/healthz", operation_id="checkDaprHealth", status_code=204, responses=dapr_errors(422, 500)
    )
    async def healthz(query: Annotated[HealthQuery, Query()]) -> Response:
        """Whether the sidecar takes requests on."""
        if query.appid is not None and query.appid != app_id(settings):
            raise errors.fault(errors.OTHER_APP, f"dapr app-id does not match {app_id(settings)}")
        _check_serving(producer, drain, errors.NOT_READY)
        return Response(status_code=204)

    @router.get(
        "/v1.0/healthz/outbound",
        operation_id="checkDaprOutboundHealth",
        status_code=204,
        responses=dapr_errors(422, 500),
    )
    async def healthz_outbound(_: Annotated[NoQuery, Query()]) -> Response:
        """Whether it can send: a broker has reported the cluster."""
        _check_serving(producer, drain, errors.OUTBOUND_NOT_READY)
        if producer.cache.is_bootstrap:
            raise errors.fault(
                errors.OUTBOUND_NOT_READY, "dapr outbound is not ready: no broker has answered yet"
            )
        return Response(status_code=204)


def _metadata(settings: Settings, labels: Mapping[str, str]) -> dict[str, Any]:
    version = pilotfish_version()
    names = [name for name in settings.dapr_pubsub_names if name != "*"] or [_USUAL_NAME]
    return {
        "id": app_id(settings),
        "runtimeVersion": version,
        "enabledFeatures": [],
        "actors": [],
        "components": [
            {"name": name, "type": "pubsub.kafka", "version": "v1", "capabilities": ["BULK_PUBSUB"]}
            for name in names
        ],
        "extended": {**labels, "daprRuntimeVersion": version},
        "subscriptions": [],
        "httpEndpoints": [],
    }


def _check_serving(producer: Producer, drain: Drain, error: errors.Code) -> None:
    if drain.begun:
        raise errors.fault(error, "dapr is not ready: the sidecar is shutting down")
    if producer.status().state == "failed":
        raise errors.fault(error, "dapr is not ready: the Kafka client has failed; its log has the reason")


def _size(name: str, value: str) -> int:
    return len(name.encode()) + len(value.encode())
