"""GET /v1/watch: an event stream, or one JSON answer once something has changed.

    /v1/watch             watchChanges    an event stream; with `Accept: application/json` one of the others
    /v1/watch/snapshot    getSnapshot     the snapshot
    /v1/watch/changes     pollChanges     the changes after an id

The models describe the events for the OpenAPI document. `changes.py` and `snapshot.py` encode them; a test
keeps both equal. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BeforeValidator, Field

from service.admission.caller import Caller, caller_of, not_authorized
from service.admission.guards import DRAINING
from service.lookup.lookups import NO_DEMANDS, Demands
from service.native.schemas import Broker
from service.sidecar.sidecar import Sidecar
from service.sidecar.status_report import StatusReport
from service.watch.event_stream import MEDIA_TYPE, EventStream
from service.watch.feed import never_disconnects
from service.watch.long_poll import LongPoll
from service.wire.asgi import HeaderPairs, header
from service.wire.content_coding import vary_of
from service.wire.errors import Problem, ProblemError, refused
from service.wire.freshness import awaited_number
from service.wire.media_type import JSON, weights_of
from service.wire.responses import of_chunks, problems
from service.wire.schemas import AnswerModel, FailedItem, Milliseconds, check_query, digits_only
from service.wire.schemas import Query as QueryModel
from service.wire.streaming import StreamedAnswer, unless_gone
from service.wire.waiting import MAX_WAIT_MS

#: A person could not follow more frequent status events.
MIN_STATUS_MS: Final = 250

#: Maximum topics named in a watch; as many as in one POST /v1/leaders.
MAX_TOPICS: Final = 1_000


#: The bounds come first: otherwise the document would not treat them as an integer's.
StatusMilliseconds = Annotated[int, Field(ge=MIN_STATUS_MS, le=MAX_WAIT_MS), BeforeValidator(digits_only)]


class SnapshotQuery(QueryModel):
    """What to describe."""

    topics: str | None = Field(
        None,
        description="Topics, separated by commas; all that the sidecar knows if absent.",
        examples=["orders,payments"],
        json_schema_extra={"pattern": "^[^,]+(,[^,]+)*$"},  # `_names_of` refuses others in better words
    )


class WatchQuery(SnapshotQuery):
    """What to watch, and from where on."""

    last_event_id: str | None = Field(
        None, description="Continue after this id; the header Last-Event-ID takes precedence."
    )
    status_ms: StatusMilliseconds | None = Field(
        None, description="Also send /v1/status at this interval. Event streams only."
    )
    min_version: str | None = Field(
        None,
        description="Wait for this change; one of another process is 412. `Accept: application/json` only.",
    )
    max_block_ms: Milliseconds | None = Field(
        None, description="How long to wait for a change at most. `Accept: application/json` only."
    )


class ChangesQuery(SnapshotQuery):
    """Which changes to wait for."""

    last_event_id: str = Field(description="The `version` of the last answer.", examples=["5f2c9a10-7"])
    max_block_ms: Milliseconds | None = Field(None, description="How long to wait for a change at most.")


class WatchedPartition(AnswerModel):
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]
    error: str | None


class WatchedTopic(AnswerModel):
    name: str
    id: str | None
    internal: bool
    partitions: list[WatchedPartition]


class TopicError(FailedItem):
    topic: str


class Snapshot(AnswerModel):
    version: str = Field(description="The id of the change that led to this; good for Last-Event-ID.")
    metadata_version: str = Field(description="As in Pilotfish-Metadata-Version.")
    refreshed_at: str | None
    cluster_id: str | None
    brokers: list[Broker]
    topics: list[WatchedTopic]
    errors: list[TopicError] = Field(description="Named topics that can't be shown.")


class ChangedPartition(WatchedPartition):
    previous_leader: int | None


class PartitionsChanged(AnswerModel):
    """Of `leader` and `replicas`: partitions of one topic, whole, as they are now."""

    topic: str
    at: str
    partitions: list[ChangedPartition]


class TopicChanged(AnswerModel):
    """Of `topic`."""

    topic: str
    at: str
    change: Literal["appeared", "grew", "shrank", "recreated", "gone"]
    id: str | None
    internal: bool
    partition_count: int | None
    previous_partition_count: int | None


class BrokerChanged(AnswerModel):
    """Of `broker`."""

    change: Literal["joined", "left", "moved"]
    at: str
    broker: Broker


class WatchedChange(AnswerModel):
    id: str
    event: Literal["leader", "replicas", "topic", "broker"]
    data: PartitionsChanged | TopicChanged | BrokerChanged


class ChangesAnswer(AnswerModel):
    version: str = Field(description="The version of the last change here. To wait for the next one, add 1.")
    reset: bool = Field(description="Whether the caller must start again from `snapshot`.")
    changes: list[WatchedChange]
    reason: Literal["other_process", "gap", "bad_id", "cluster_changed"] | None = None
    detail: str | None = None
    snapshot: Snapshot | None = None


#: The OpenAPI description of an event stream.
EVENT_STREAM: Final[dict[str, Any]] = {
    "schema": {
        "type": "string",
        "description": "Server-sent events: snapshot, leader, replicas, topic, broker, reset, status, end.",
    },
    "example": "retry: 2000\n\nevent: snapshot\nid: 5f2c9a10-1\ndata: {…}\n\n"
    'event: broker\nid: 5f2c9a10-2\ndata: {"change":"left","at":"2026-01-31T09:26:53.589Z",'
    '"broker":{"id":2,"host":"10.0.0.2","port":9092,"rack":null}}\n\n',
}


class _Wanted(NamedTuple):
    """Topic names, or None for all; and the id after which to resume."""

    names: frozenset[str] | None
    last_id: str | None


_COMMON: Final[HeaderPairs] = [(b"cache-control", b"no-store"), (b"vary", b"accept")]
_ANSWER: Final[dict[str, Any]] = {
    "description": "An event stream.",
    "content": {MEDIA_TYPE.decode(): EVENT_STREAM},
}


class WatchRoute:
    """The handler."""

    def __init__(self, sidecar: Sidecar, status: StatusReport) -> None:
        self._feed = sidecar.feed
        self._lookups = sidecar.lookups
        self._status = status
        self._heartbeat_ms = sidecar.settings.internal.watch_heartbeat_ms
        self._stall_timeout_ms = sidecar.settings.internal.stall_timeout_ms
        self._default_wait_ms = sidecar.config.max_block_ms

    def router(self) -> APIRouter:
        """Returns the route, with its OpenAPI description."""
        router = APIRouter(tags=["metadata"], dependencies=[Depends(check_query)])
        responses: dict[int | str, dict[str, Any]] = {200: _ANSWER, **problems(412, 422, 429, 503)}
        router.get("/v1/watch", operation_id="watchChanges", response_class=Response, responses=responses)(
            self.watch
        )
        router.get(
            "/v1/watch/snapshot",
            operation_id="getSnapshot",
            response_model=Snapshot,
            responses=problems(422, 429),
        )(self.snapshot)
        router.get(
            "/v1/watch/changes",
            operation_id="pollChanges",
            response_model=ChangesAnswer,
            responses=problems(422, 429, 503),
        )(self.changes)
        return router

    async def watch(self, request: Request, query: Annotated[WatchQuery, Query()]) -> Response:
        """What the sidecar knows of the cluster, and then each change to it."""
        wanted = _Wanted(_names_of(query.topics), _last_id_of(request, query))
        if wants_json(header(request.scope, b"accept")):
            if query.status_ms is not None:
                raise refused(422, "is for event streams only; poll /v1/status", place="query.status_ms")
            return await self._polled(request, wanted, query.max_block_ms, query.min_version)
        for name in ("min_version", "max_block_ms"):
            if getattr(query, name) is not None:
                raise refused(422, "is for `Accept: application/json` only", place=f"query.{name}")
        return await self._streamed(request, wanted, query.status_ms)

    async def snapshot(self, request: Request, query: Annotated[SnapshotQuery, Query()]) -> Response:
        """What the sidecar knows of the cluster, in one answer."""
        return await self._polled(request, _Wanted(_names_of(query.topics), None))

    async def changes(self, request: Request, query: Annotated[ChangesQuery, Query()]) -> Response:
        """The changes after an id; waits for one if there is none yet."""
        wanted = _Wanted(_names_of(query.topics), query.last_event_id)
        return await self._polled(request, wanted, query.max_block_ms)

    async def _streamed(self, request: Request, wanted: _Wanted, status_ms: int | None) -> Response:
        """An event stream. The watcher holds its permit as long as the answer lasts.

        Raises ProblemError without a permit, or if the look-up is refused.
        """
        caller = caller_of(request.scope)
        with ExitStack() as held:
            subscription = held.enter_context(self._feed.subscribe(caller, wanted.names))
            found = await self._lookups.know(wanted.names or (), NO_DEMANDS, request.receive, caller)
            stream = EventStream(
                self._feed,
                subscription,
                found,
                partial(self._look_up, wanted.names or (), caller),
                heartbeat_ms=self._heartbeat_ms,
                status=lambda: self._status.shared_body(caller),
                status_ms=status_ms,
            )
            return StreamedAnswer(
                [(b"content-type", MEDIA_TYPE), *_COMMON],
                lambda outlet: stream.write(outlet, wanted.last_id),
                stall_ms=self._stall_timeout_ms,
                held=held.pop_all(),
            )

    async def _polled(
        self,
        request: Request,
        wanted: _Wanted,
        max_block_ms: int | None = None,
        min_version: str | None = None,
    ) -> Response:
        """One answer: the snapshot, or the changes after an id."""
        # Checked before anybody waits.
        number = None if min_version is None else awaited_number(min_version, self._feed.log.boot)
        if number is not None and wanted.last_id is not None:
            raise refused(422, "has the same meaning as last_event_id; choose one", place="query.min_version")
        caller = caller_of(request.scope)
        wait_ms = self._default_wait_ms if max_block_ms is None else max_block_ms
        is_snapshot = number is None and wanted.last_id is None
        demands = NO_DEMANDS if is_snapshot else Demands(wait_ms, until_known=False)
        loop = asyncio.get_running_loop()
        since_s = loop.time()
        with self._feed.subscribe(caller, wanted.names) as subscription:
            if subscription.is_over and not is_snapshot:
                # Without a wait its caller would ask again at once, until the end of the drain.
                raise ProblemError(DRAINING)
            found = await self._lookups.know(wanted.names or (), demands, request.receive, caller)
            look_up = partial(self._look_up, wanted.names or (), caller)
            poll = LongPoll(self._feed, subscription, found, look_up)
            left_ms = wait_ms - round((loop.time() - since_s) * 1000)
            if number is not None:
                waiting = poll.reaching(number, left_ms)
            elif wanted.last_id is not None:
                waiting = poll.since(wanted.last_id, left_ms)
            else:
                waiting = poll.snapshot()
            chunks = await unless_gone(waiting, request.receive)
        length = sum(map(len, chunks))
        head = [(b"content-type", JSON), (b"content-length", b"%d" % length)]
        return of_chunks([*head, *_COMMON, *vary_of(length)], chunks)

    async def _look_up(
        self, names: Collection[str], caller: Caller, demands: Demands
    ) -> Mapping[str, Problem]:
        """Returns the problems of the named topics after the cluster has changed."""
        try:
            return await self._lookups.know(names, demands, never_disconnects, caller)
        except ProblemError as e:
            allowed, forbidden = caller.split(names)
            problems = {name: not_authorized(name) for name in forbidden}
            return problems | dict.fromkeys(allowed, e.problem)


def wants_json(accept: bytes | None) -> bool:
    """Returns whether to send one answer, not a stream: `Accept` prefers JSON to an event stream."""
    weights = weights_of(accept or b"")
    return weights.get(JSON.decode(), 0.0) > weights.get(MEDIA_TYPE.decode(), 0.0)


def _names_of(topics: str | None) -> frozenset[str] | None:
    if topics is None:
        return None
    names = topics.split(",")
    if "" in names:
        raise refused(422, "a name is empty; omit the parameter for all topics", place="query.topics")
    if len(names) > MAX_TOPICS:
        raise refused(422, f"{len(names)} topics; at most {MAX_TOPICS} are allowed", place="query.topics")
    return frozenset(names)


def _last_id_of(request: Request, query: WatchQuery) -> str | None:
    """The header's id, else the query's: a reconnecting browser sends the new header and the old query."""
    said = header(request.scope, b"last-event-id")
    # A browser without an id sends no header, or an empty one.
    return said.decode("utf-8", "replace") if said else query.last_event_id
