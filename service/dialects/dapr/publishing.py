"""Publish and bulk publish: from a request to records, and from what became of them to Dapr's answers.

    all acknowledged   204
    one event failed   Dapr's error (errors.py)
    some of a bulk     500 with failedEntries, by whose ids the caller knows what to send again

A single publish is a bulk of one entry. A record's headers are the metadata of its event, as Dapr's Kafka
component has it. An envelope gets one more that Dapr does not write, `content-type`, by which other consumers
of CloudEvents know what the value is.

Event loop only.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final, NamedTuple

import msgspec
from fastapi import Request, Response

from client_core import ProducerRecord
from service.access.caller import caller_of
from service.asgi import Scope, header
from service.body import announced_bytes, read_body
from service.deps import Sidecar
from service.dialects.cloudevents.structured import STRUCTURED_HEADER
from service.dialects.dapr import errors
from service.dialects.dapr.bulk_codec import Entry, parse_entries
from service.dialects.dapr.envelope import (
    CLOUD_EVENT,
    DEFAULT_CONTENT_TYPE,
    Origin,
    Trace,
    completed,
    is_media_type,
    trace_of,
    wrapped,
)
from service.dialects.dapr.publish_metadata import metadata_of_query, understand
from service.errors import Problem, ProblemError, refused
from service.media_type import check_encoding
from service.producing import Told
from service.responses import as_is
from service.strict_json import BodyError

_ANY: Final = "*"
_NULL: Final = b"null"
_NO_CONTENT: Final = 204


class Target(NamedTuple):
    """Where a publish goes, as its path says, and what its query asks for."""

    pubsub: str
    topic: str
    metadata: Mapping[str, str]
    trace: Trace

    def fault(self, error: errors.Code, message: str) -> ProblemError:
        return errors.fault(error, message, pubsub=self.pubsub, topic=self.topic)


class Publishing:
    """What the publish routes do."""

    def __init__(self, sidecar: Sidecar) -> None:
        self._room = sidecar.room
        self._producing = sidecar.producing
        self._clock = sidecar.producer.clock
        self._app_id = sidecar.settings.dapr_app_id
        self._pubsubs = frozenset(sidecar.settings.dapr_pubsub_names)
        self._max_entries = sidecar.settings.max_records_per_request
        self._outcomes = {o: sidecar.http.produced(o) for o in ("success", "partial", "error")}

    async def publish(self, request: Request, pubsub: str, topic: str) -> Response:
        """One event. Raises ProblemError where it was not acknowledged."""
        started = perf_counter()
        outcome = "error"
        try:
            target = self._target(request, pubsub, topic)
            content_type = _content_type(request.scope)

            def entry(body: bytes) -> list[Entry]:
                return [Entry("", "", body, content_type, {})]

            _, told = await self._deliver(request, target, entry)
            if isinstance(told[0], Problem):
                raise ProblemError(self._problem(told[0], target))
            outcome = "success"
            return Response(status_code=_NO_CONTENT)
        finally:
            self._outcomes[outcome].observe(perf_counter() - started)

    async def publish_bulk(self, request: Request, pubsub: str, topic: str) -> Response:
        """Many events. Raises ProblemError where none of them was taken on."""
        started = perf_counter()
        outcome = "error"
        try:
            target = self._target(request, pubsub, topic)

            def entries_of(body: bytes) -> list[Entry]:
                return parse_entries(body, pubsub, topic, self._max_entries)

            entries, told = await self._deliver(request, target, entries_of)
            failed = [
                (entry, problem)
                for entry, problem in zip(entries, told, strict=True)
                if isinstance(problem, Problem)
            ]
            if failed:
                outcome = "partial" if len(failed) < len(entries) else "error"
                return _of_failed(failed)
            outcome = "success"
            return Response(status_code=_NO_CONTENT)
        finally:
            self._outcomes[outcome].observe(perf_counter() - started)

    # -- what is asked ---------------------------------------------------------------------------------------

    def _target(self, request: Request, pubsub: str, topic: str) -> Target:
        """Raises ProblemError where nothing can be published there, or not like that."""
        if _ANY not in self._pubsubs and pubsub not in self._pubsubs:
            known = ", ".join(sorted(self._pubsubs))
            message = f"pubsub {pubsub} is not found; there are: {known} (dapr_pubsub_names)"
            raise errors.fault(errors.PUBSUB_NOT_FOUND, message, pubsub=pubsub)
        if not topic:
            raise errors.fault(errors.TOPIC_EMPTY, f"topic is empty in pubsub {pubsub}", pubsub=pubsub)
        try:
            metadata = metadata_of_query(request.query_params.multi_items())
            understand(metadata)
        except ValueError as e:
            message = f"failed deserializing metadata. Error: {e}"
            raise errors.fault(errors.METADATA, message, pubsub=pubsub, topic=topic) from e
        return Target(pubsub, topic, metadata, _trace(request.scope))

    def _records(self, target: Target, entries: Sequence[Entry]) -> list[ProducerRecord]:
        now_ms = self._clock.wall_ms()
        return [self._record(target, entry, now_ms) for entry in entries]

    def _record(self, target: Target, entry: Entry, now_ms: int) -> ProducerRecord:
        try:
            asked = understand({**target.metadata, **entry.metadata})
        except ValueError as e:
            message = f"failed deserializing metadata of entry {entry.entry_id}. Error: {e}"
            raise target.fault(errors.METADATA, message) from e
        if asked.raw:
            # As Dapr's Kafka component has it: null is a record without a value, a tombstone.
            value = None if entry.event == _NULL else entry.event
            return ProducerRecord(target.topic, value, asked.key, asked.partition, headers=asked.headers)
        origin = Origin(target.topic, target.pubsub, self._app_id, str(uuid.uuid4()), now_ms, target.trace)
        try:
            if is_media_type(entry.content_type, CLOUD_EVENT):
                value = completed(entry.event, origin, asked.ttl_ms)
            else:
                value = wrapped(entry.event, entry.content_type, origin, asked.overrides, asked.ttl_ms)
        except BodyError as e:
            which = f" of entry {entry.entry_id}" if entry.entry_id else ""
            raise target.fault(errors.CLOUD_EVENT, f"cannot create cloudevent{which}: {e}") from e
        given = any(name.lower() == STRUCTURED_HEADER[0] for name, _ in asked.headers)
        headers = asked.headers if given else (*asked.headers, STRUCTURED_HEADER)
        return ProducerRecord(target.topic, value, asked.key, asked.partition, headers=headers)

    # -- doing it --------------------------------------------------------------------------------------------

    async def _deliver(
        self, request: Request, target: Target, entries_of: Callable[[bytes], list[Entry]]
    ) -> tuple[Sequence[Entry], Sequence[Told]]:
        """The entries of the request's body, and what became of each."""
        since_ms = self._clock.now_ms()
        scope, caller = request.scope, caller_of(request.scope)
        try:
            self._producing.check(target.topic, caller)
            check_encoding(header(scope, b"content-encoding"))
            with self._room.enter(announced_bytes(scope), caller) as place:
                body = await read_body(request.receive, place, self._producing.times.timeout_ms)
                entries = entries_of(body)
                records = self._records(target, entries)
                if not records:
                    return (), ()
                partitions = [record.partition for record in records if record.partition is not None]
                times = self._producing.dialect_times(target.topic, max(partitions, default=None))
                result = await self._producing.deliver(
                    target.topic, records, times, since_ms=since_ms, place=place, receive=request.receive
                )
        except ProblemError as e:
            raise ProblemError(self._problem(replace(e.problem, written="no"), target)) from e
        return entries, self._producing.outcomes(records, result)

    def _problem(self, problem: Problem, target: Target) -> Problem:
        return errors.publish_problem(problem, target.pubsub, target.topic, self._app_id)


def _of_failed(failed: Sequence[tuple[Entry, Problem]]) -> Response:
    items = []
    for entry, problem in failed:
        # Dapr says entryId; who spells it otherwise looks for it under that name too.
        item = {"entryId": entry.entry_id, entry.id_name: entry.entry_id, "error": problem.detail}
        items.append(item)
    body = msgspec.json.encode({"failedEntries": items, "errorCode": errors.PUBLISH.name})
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    return as_is(errors.PUBLISH.status, head, body)


def _content_type(scope: Scope) -> str:
    """The request's, or what Dapr takes a body without one for. Raises ProblemError (400)."""
    try:
        return (header(scope, b"content-type") or b"").decode("ascii") or DEFAULT_CONTENT_TYPE
    except UnicodeDecodeError as e:
        raise refused(400, "Content-Type must be ASCII", place="content-type") from e


def _trace(scope: Scope) -> Trace:
    parent = (header(scope, b"traceparent") or b"").decode("latin-1")
    return trace_of(parent, (header(scope, b"tracestate") or b"").decode("latin-1"))
