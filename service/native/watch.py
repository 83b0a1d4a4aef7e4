"""GET /v1/watch: an event stream, or, for those who accept JSON, one answer when something has changed."""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Query, Request, Response

from service.admission.caller import Caller, caller_of
from service.lookup.lookups import NO_DEMANDS
from service.native.watch_schemas import EVENT_STREAM, MAX_TOPICS, ChangesAnswer, Snapshot, WatchQuery
from service.sidecar.sidecar import Sidecar, SidecarDep
from service.watch.event_stream import MEDIA_TYPE, EventStream
from service.watch.long_poll import LongPoll, number_of
from service.wire.asgi import HeaderPairs, Receive, Scope, Send, header
from service.wire.errors import refused
from service.wire.media_type import JSON
from service.wire.responses import of_chunks, problems
from service.wire.streaming import Outlet, StreamedAnswer, unless_gone

router = APIRouter(tags=["metadata"])


class _Wanted(NamedTuple):
    """Topics by name, or None for all; and the id to go on after."""

    names: frozenset[str] | None
    last_id: str | None


_COMMON: Final[HeaderPairs] = [(b"cache-control", b"no-store"), (b"vary", b"accept")]
_ANSWER: Final[dict[str, Any]] = {
    "description": "An event stream; with `Accept: application/json` the snapshot, or changes since an id.",
    "model": Snapshot | ChangesAnswer,
    "content": {MEDIA_TYPE.decode(): EVENT_STREAM},
}


@router.get("/v1/watch", response_class=Response, responses={200: _ANSWER, **problems(412, 422, 429)})
async def watch(request: Request, sidecar: SidecarDep, query: Annotated[WatchQuery, Query()]) -> Response:
    """What the sidecar knows of the cluster, and then each change to it."""
    wanted = _Wanted(_names_of(query.topics), _last_id_of(request, query))
    if wants_json(header(request.scope, b"accept")):
        if query.status_ms is not None:
            raise refused(422, "is for event streams only; poll /v1/status", place="query.status_ms")
        return await _polled(request, sidecar, wanted, query)
    for name in ("min_version", "max_block_ms"):
        if getattr(query, name) is not None:
            raise refused(422, "is for `Accept: application/json` only", place=f"query.{name}")
    return _EventAnswer(sidecar, caller_of(request.scope), wanted, query.status_ms)


class _EventAnswer(Response):
    """The answer that goes on. The watcher has its place for exactly as long as it lasts."""

    def __init__(self, sidecar: Sidecar, caller: Caller, wanted: _Wanted, status_ms: int | None) -> None:
        super().__init__()
        self._sidecar = sidecar
        self._caller = caller
        self._wanted = wanted
        self._status_ms = status_ms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ProblemError before anything is sent, where there is no place or the look-up is refused."""
        sidecar, caller, wanted = self._sidecar, self._caller, self._wanted
        with sidecar.feed.subscribe(caller, wanted.names) as subscription:
            found = await sidecar.lookups.know(wanted.names or (), NO_DEMANDS, receive, caller)
            stream = EventStream(
                sidecar.feed,
                subscription,
                found,
                heartbeat_ms=sidecar.settings.watch_heartbeat_ms,
                status=lambda: sidecar.status.shared_body(caller),
                status_ms=self._status_ms,
            )

            async def write(outlet: Outlet) -> None:
                await stream.write(outlet, wanted.last_id)

            headers = [(b"content-type", MEDIA_TYPE), *_COMMON]
            answer = StreamedAnswer(headers, write, stall_ms=sidecar.settings.stall_timeout_ms)
            await answer(scope, receive, send)


async def _polled(request: Request, sidecar: Sidecar, wanted: _Wanted, query: WatchQuery) -> Response:
    """One answer: the snapshot, or what came after an id."""
    if query.min_version is not None:
        number_of(query.min_version, sidecar.boot)  # before anybody waits
        if wanted.last_id is not None:
            raise refused(422, "says the same as last_event_id; choose one", place="query.min_version")
    caller = caller_of(request.scope)
    wait_ms = sidecar.config.max_block_ms if query.max_block_ms is None else query.max_block_ms
    with sidecar.feed.subscribe(caller, wanted.names) as subscription:
        found = await sidecar.lookups.know(wanted.names or (), NO_DEMANDS, request.receive, caller)
        poll = LongPoll(sidecar.feed, subscription, found)
        if query.min_version is not None:
            waiting = poll.reaching(query.min_version, wait_ms)
        elif wanted.last_id is not None:
            waiting = poll.since(wanted.last_id, wait_ms)
        else:
            waiting = poll.snapshot()
        chunks = await unless_gone(waiting, request.receive)
    length = sum(map(len, chunks))
    return of_chunks([(b"content-type", JSON), (b"content-length", b"%d" % length), *_COMMON], chunks)


def wants_json(accept: bytes | None) -> bool:
    """Whether one answer is wanted and not a stream: JSON is accepted by name, and event streams are not."""
    accepted = [part.partition(b";")[0].strip().lower() for part in (accept or b"").split(b",")]
    return JSON in accepted and MEDIA_TYPE not in accepted


def _names_of(topics: str | None) -> frozenset[str] | None:
    if topics is None:
        return None
    names = topics.split(",")
    if "" in names:
        raise refused(422, "a name is empty; leave the parameter out for all topics", place="query.topics")
    if len(names) > MAX_TOPICS:
        raise refused(422, f"{len(names)} topics, of which at most {MAX_TOPICS} can be", place="query.topics")
    return frozenset(names)


def _last_id_of(request: Request, query: WatchQuery) -> str | None:
    """The header's id, or the query's: a browser that comes again sends the former, and the old query."""
    said = header(request.scope, b"last-event-id")
    # What a browser was never told an id of, it sends no header for, or an empty one.
    return said.decode("utf-8", "replace") if said else query.last_event_id
