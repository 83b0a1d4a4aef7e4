"""The paths of REST Proxy v2, and what the OpenAPI document says of them.

Deliberately thin: `produce.py` and `metadata.py` do the work. Consumers, offsets of partitions and everything
else of v2 that reads or administers is not here.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from service.dialects.rest_v2.media_types import ANSWER_TYPE
from service.dialects.rest_v2.metadata import MetadataV2
from service.dialects.rest_v2.produce import ProduceV2
from service.dialects.rest_v2.schemas import (
    NO_OFFSETS,
    PRODUCE_REQUEST,
    BrokersV2,
    PartitionV2,
    ProduceAnswerV2,
    TopicV2,
    errors,
)
from service.sidecar.sidecar import Sidecar, SidecarDep
from service.wire.schemas import NoQuery

_LOOKUP_ERRORS = errors(400, 403, 404, 406, 422, 429, 503)
_PRODUCE_ANSWERS = NO_OFFSETS | errors(400, 403, 404, 406, 408, 413, 415, 422, 429, 500, 503)


class ResponseV2(JSONResponse):
    """For the document alone: the one type of all answers."""

    media_type = ANSWER_TYPE


NoParameters = Annotated[NoQuery, Query()]
PartitionPath = Annotated[
    str, Path(json_schema_extra={"pattern": "^[0-9]{1,10}$"}, description="The partition's number.")
]


def rest_v2_router(sidecar: Sidecar) -> APIRouter:
    """The routes over one sidecar."""
    router = APIRouter(tags=["REST Proxy v2"], default_response_class=ResponseV2)
    _add_lookups(router, MetadataV2(sidecar))
    _add_produce(router, ProduceV2(sidecar))
    return router


def _add_lookups(router: APIRouter, metadata: MetadataV2) -> None:
    @router.get("/topics", response_model=list[str], responses=errors(406, 422, 503))
    async def list_topics(request: Request, _: SidecarDep, __: NoParameters) -> Response:
        """The names of all topics but Kafka's own."""
        return await metadata.topics(request)

    @router.get("/topics/{topic}", response_model=TopicV2, responses=_LOOKUP_ERRORS)
    async def get_topic(request: Request, topic: str, _: SidecarDep, __: NoParameters) -> Response:
        """A topic: its configs, and who leads and holds its partitions."""
        return await metadata.topic(request, topic)

    @router.get("/topics/{topic}/partitions", response_model=list[PartitionV2], responses=_LOOKUP_ERRORS)
    async def list_partitions(request: Request, topic: str, _: SidecarDep, __: NoParameters) -> Response:
        """Who leads and holds the partitions of a topic."""
        return await metadata.partitions(request, topic)

    @router.get(
        "/topics/{topic}/partitions/{partition}", response_model=PartitionV2, responses=_LOOKUP_ERRORS
    )
    async def get_partition(
        request: Request, topic: str, partition: PartitionPath, _: SidecarDep, __: NoParameters
    ) -> Response:
        """Who leads and holds one partition."""
        return await metadata.partition(request, topic, partition)

    @router.get("/brokers", response_model=BrokersV2, responses=errors(406, 422, 429, 503))
    async def list_brokers(request: Request, _: SidecarDep, __: NoParameters) -> Response:
        """The ids of the brokers."""
        return await metadata.brokers(request)


def _add_produce(router: APIRouter, produce: ProduceV2) -> None:
    @router.post(
        "/topics/{topic}",
        response_model=ProduceAnswerV2,
        responses=_PRODUCE_ANSWERS,
        openapi_extra=PRODUCE_REQUEST,
    )
    async def post_to_topic(request: Request, topic: str) -> Response:
        """Writes records to a topic; answered when the brokers have acknowledged at least one of them."""
        return await produce.post(topic, None, request)

    @router.post(
        "/topics/{topic}/partitions/{partition}",
        response_model=ProduceAnswerV2,
        responses=_PRODUCE_ANSWERS,
        openapi_extra=PRODUCE_REQUEST,
    )
    async def post_to_partition(request: Request, topic: str, partition: PartitionPath) -> Response:
        """Writes records to one partition of a topic."""
        return await produce.post(topic, partition, request)
